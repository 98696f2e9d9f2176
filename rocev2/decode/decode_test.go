package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/internal/capture/capturetest"
	"github.com/urxe/urxe/internal/nettest"
)

const golden = "../../tests/golden/"

// unhex reads the packets of facts' vectors, from the IP header on.
func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	etherType := "\x08\x00"
	if b[0]>>4 == 6 {
		etherType = "\x86\xdd"
	}
	return append([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01"+etherType), b...)
}

var (
	sendOnly = unhex("4502003000014000401126b80a0000010a000002c12312b7001c00000450ffff0000001280ffffff616263007a0f51b6")
	flushStd = unhex("4502004000014000401126a80a0000010a000002c12312b7002c00001c40ffff00000012000000090000001100007f001122334400abcd01000013889b8cf548")
	arp      = append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x06"), make([]byte, 46)...)
)

// changed returns a copy of a frame with a byte of it changed.
func changed(frame []byte, at int, to byte) []byte {
	b := bytes.Clone(frame)
	b[at] = to
	return b
}

func TestLines(t *testing.T) {
	in := capturetest.Of(t, sendOnly, arp, changed(sendOnly, 54, 'A'), changed(sendOnly, 42, 0xff), changed(sendOnly, 43, 0x51), flushStd)
	var out bytes.Buffer
	err := File(&out, "-", in, Options{})
	if !errors.Is(err, ErrBadICRC) {
		t.Errorf("error %v", err)
	}
	want := `    1      0.000000000  10.0.0.1 > 10.0.0.2  qp 0x000012  RC SEND Only  psn 0xffffff ackreq  len 3  icrc ok
    3      0.000003000  out  10.0.0.1 > 10.0.0.2  qp 0x000012  RC SEND Only  psn 0xffffff ackreq  len 3  icrc BAD got 0xb6510f7a want 0x1663a044
    4      0.000004500  10.0.0.1 > 10.0.0.2  opcode 0xff  malformed: bad_opcode  # why
    5      0.000006000  in   10.0.0.1 > 10.0.0.2  RC SEND Only  malformed: bad_tver
    6      0.000007500  out  10.0.0.1 > 10.0.0.2  qp 0x000012  RC FLUSH  psn 0x000009  flush global region  va 0x7f0011223344 rkey 0x00abcd01 length 5000  len 0  icrc ok  # why
6 packets: 2 RoCEv2 with the right ICRC, 1 with a wrong ICRC, 2 malformed, 1 others
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("want - got +:\n%s", d)
	}
}

func TestAbsoluteTime(t *testing.T) {
	r, err := capture.NewReader(capturetest.Of(t, sendOnly))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := Run(&out, r, Options{Absolute: true}); err != nil {
		t.Fatal(err)
	}
	if want := "    1  14:13:20.000000000  10.0.0.1"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestGolden decodes every golden capture: no ICRC is wrong, and rxe's FLUSHes are known as such.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob(golden + "*.pcap")
	if len(files) < 100 {
		t.Fatalf("%d captures", len(files))
	}
	for _, f := range files {
		r, err := capture.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		n, err := Run(&out, r, Options{})
		r.Close()
		if err != nil || n.RoCE != n.Packets || n.Packets != strings.Count(out.String(), "\n") {
			t.Errorf("%s: %v, error %v", f, n, err)
		}
		if flushes := strings.Count(out.String(), "FLUSH"); strings.Contains(f, "k612") && n.RxeFlush != flushes ||
			n.RxeFlush != strings.Count(out.String(), "icrc rxe-flush") {
			t.Errorf("%s: %d of %d FLUSHes have rxe's ICRC", f, n.RxeFlush, flushes)
		}
	}
}

func TestFieldsPrinted(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"vectors", "RC Compare Swap  psn 0x00000c  va 0x1000 rkey 0x00000007 compare 0x2 swap 0x1  len 0"},
		{"vectors", "qp 0x000012  CNP  psn 0x000000 becn  len 0"},
		{"vectors", "RNR NAK, timer code 12  msn 5"},
		{"vectors", "fe80::1 > fe80::2  qp 0x000012  RC SEND Only  psn 0x000005 ackreq  len 2"},
		{"k612_ud_vlan5_v4", "10.78.0.2 > 10.78.0.3  vlan 5  qp 0x000061  UD SEND Only Immediate  psn 0x100001  qkey 0x11223344 from qp 0x000061  imm 0x0000beef  len 1001"},
		{"k612_send_inv_v4", "RC Fetch Add  psn 0x100002 ackreq  va 0x5577a6283000 rkey 0x0800033c add 0x102030405060708  len 0"},
		{"k612_send_inv_v4", "RC ATOMIC Acknowledge  psn 0x100002  ACK  msn 3  original 0x706050403020100  len 0"},
		{"k612_send_inv_v4", "RC SEND Last Invalidate  psn 0x100006 ackreq  invalidate 0x080004af  len 952"},
		{"k612_send_imm_v4", "solicited"},
		{"k612_flush_v6", "flush global range  va 0x55a0b5b22000 rkey 0x00004131 length 3000  len 0  icrc rxe-flush"},
		{"k612_flush_persist_v4", "flush persistent"},
		{"k612_uc_v4", "UC RDMA WRITE Only Immediate"},
	} {
		var out bytes.Buffer
		if err := File(&out, golden+c.file+".pcap", nil, Options{}); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: no %q", c.file, c.want)
		}
	}
}

// TestDamaged keeps all lines before the damage, and the news of a wrong ICRC.
func TestDamaged(t *testing.T) {
	b := capturetest.Of(t, changed(sendOnly, 54, 'A'), sendOnly, sendOnly).Bytes()
	path := filepath.Join(t.TempDir(), "x.pcapng")
	os.WriteFile(path, b[:len(b)-5], 0o600)
	var out bytes.Buffer
	err := File(&out, path, nil, Options{})
	var damage *capture.DamageError
	if !errors.As(err, &damage) || damage.Packets != 2 || !errors.Is(err, ErrBadICRC) {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// TestCut decodes captures that hold only the beginning of each packet.
func TestCut(t *testing.T) {
	whole, err := os.ReadFile(golden + "vectors.pcap")
	if err != nil {
		t.Fatal(err)
	}
	second := whole[24+16+len(sendOnly):] // RDMA WRITE First
	for snap, want := range map[int]string{
		70: "length 5000  len 1024  icrc not captured: 70 of 1098 bytes",
		69: "10.0.0.1 > 10.0.0.2  headers not captured: 69 of 1098 bytes",
		42: "10.0.0.1 > 10.0.0.2  headers not captured: 42 of 1098 bytes",
	} {
		b := bytes.Clone(whole[:24])
		b = append(b, second[:16+snap]...)
		binary.LittleEndian.PutUint32(b[24+8:], uint32(snap))
		var out bytes.Buffer
		if err := File(&out, "-", bytes.NewReader(b), Options{}); err != nil {
			t.Errorf("cut at %d: %v", snap, err)
		}
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "1 cut short by the capture") {
			t.Errorf("cut at %d: %s", snap, out.String())
		}
	}
}

// A frame that is longer than any packet of ours, and was cut all the same.
func TestCutJumbo(t *testing.T) {
	const captured = 70000
	h := []byte("\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00")
	for _, v := range []uint32{1000, 0, captured, captured + 1} {
		h = binary.LittleEndian.AppendUint32(h, v)
	}
	var out bytes.Buffer
	if err := File(&out, "-", bytes.NewReader(append(h, append(bytes.Clone(sendOnly), make([]byte, captured-len(sendOnly))...)...)), Options{}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "1 cut short by the capture") {
		t.Error(out.String())
	}
}

// A comment may be of anybody: it is kept to its line, and tells the terminal nothing.
func TestComments(t *testing.T) {
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface("eth0"); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(0, time.Unix(1790000000, 0), capture.In, [2][]byte{sendOnly}, 0, "two\nlines, \x1b[2Jand a naïve end"); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := File(&out, "-", &b, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "icrc ok  # two lines,  [2Jand a naïve end\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q doesn't end with %q", out.String(), want)
	}
}

// Times are told from the first packet that has one.
func TestFirstPacketWithoutTime(t *testing.T) {
	b := capturetest.Of(t, sendOnly, sendOnly, sendOnly).Bytes()
	le := binary.LittleEndian
	section := int(le.Uint32(b[4:]))
	at := section + int(le.Uint32(b[section+4:]))
	simple := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 3), uint32(16+len(sendOnly)+2)), uint32(len(sendOnly)))
	simple = append(append(simple, sendOnly...), 0, 0)
	simple = le.AppendUint32(simple, uint32(len(simple)+4))
	var out bytes.Buffer
	if err := File(&out, "-", bytes.NewReader(slices.Insert(b, at, simple...)), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"    1                -  ", "    2      0.000000000  ", "    4      0.000003000  "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line begins with %q:\n%s", want, out.String())
		}
	}
}

// FuzzFile decodes whatever a file holds: no panic, and a line for each packet that isn't of others.
func FuzzFile(f *testing.F) {
	whole, err := os.ReadFile(golden + "vectors.pcap")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:2000])
	f.Add(capturetest.Of(f, sendOnly, arp, flushStd).Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := capture.NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		var out bytes.Buffer
		n, _ := Run(&out, r, Options{})
		if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != n.Packets-n.Other || n.Packets != n.RoCE+n.BadICRC+n.Malformed+n.Cut+n.Other {
			t.Errorf("%d lines of %+v", lines, n)
		}
	})
}

func TestNoCapture(t *testing.T) {
	if err := File(io.Discard, "no such file", nil, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

type full struct{}

var errFull = errors.New("disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputFails(t *testing.T) {
	var frames [][]byte
	for range 100 {
		frames = append(frames, sendOnly)
	}
	for _, n := range []int{1, len(frames)} {
		if err := File(full{}, "-", capturetest.Of(t, frames[:n]...), Options{}); !errors.Is(err, errFull) {
			t.Errorf("%d packets: error %v", n, err)
		}
	}
}

// TestLive checks that a line comes out before the next packet is there.
func TestLive(t *testing.T) {
	from, to := io.Pipe()
	lines, done := make(chan string, 10), make(chan error)
	go func() { done <- File(writer(lines), "-", from, Options{}) }()
	b := capturetest.Of(t, sendOnly).Bytes()
	to.Write(b)
	if got := <-lines; !strings.HasSuffix(got, "icrc ok\n") {
		t.Errorf("line %q", got)
	}
	to.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type writer chan string

func (w writer) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// TestTsharkAgrees compares what we print with what Wireshark's dissector sees.
func TestTsharkAgrees(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		nettest.SkipOrFail(t, "tshark")
	}
	for _, name := range []string{"vectors", "k612_send_inv_v6", "k612_ud_vlan5_v4", "k612_rnr_v4", "k612_mw2_v4"} {
		raw, err := exec.Command(tshark, "-r", golden+name+".pcap", "--disable-protocol", "rpcordma", "-Tfields", "-Eoccurrence=f",
			"-einfiniband.bth.destqp", "-einfiniband.bth.psn", "-einfiniband.reth.va", "-einfiniband.aeth.msn", "-einfiniband.immdt").Output()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := File(&out, golden+name+".pcap", nil, Options{}); err != nil {
			t.Fatal(err)
		}
		ours := strings.Split(out.String(), "\n")
		for i, line := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n") {
			f := strings.Split(line, "\t")
			for j, label := range []string{"qp 0x%06x", "psn 0x%06x", "va 0x%x", "msn %d", "imm 0x%08x"} {
				want, ok := field(f[j], label)
				if ok && !strings.Contains(ours[i], want) {
					t.Errorf("%s packet %d: tshark has %q, we print\n%s", name, i+1, want, ours[i])
				}
			}
		}
	}
}

// field turns a number of tshark's into what we print, if tshark has one.
func field(v, label string) (string, bool) {
	n, err := strconv.ParseUint(v, 0, 64)
	if err != nil {
		return "", false
	}
	return " " + fmt.Sprintf(label, n), true
}
