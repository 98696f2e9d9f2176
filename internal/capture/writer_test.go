package capture

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/urxe/urxe/internal/nettest"
)

// frame is a RoCE packet that tshark decodes: facts' vector 4, an ACK.
var frame = []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" +
	"\x45\x02\x00\x30\x00\x01\x40\x00\x40\x11\x26\xb8\x0a\x00\x00\x01\x0a\x00\x00\x02\xc1\x23\x12\xb7\x00\x1c\x00\x00" +
	"\x11\x40\xff\xff\x00\x00\x00\x12\x00\x00\x00\x02\x1f\x00\x00\x05\x7d\x87\x29\x05")

var start = time.Unix(1790000000, 123456789)

// sample are packets of all lengths modulo four, both directions, with and without comment.
func sample() (all []Packet) {
	for i, comment := range []string{"accepted", "", "drop: icrc_error", "x", "überlang " + strings.Repeat("y", 300)} {
		data := append(bytes.Clone(frame), "abcd"[:i%4]...)
		all = append(all, Packet{
			Time: start.Add(time.Duration(i) * 1001), Interface: []string{"eth0", "roce1"}[i%2],
			Direction: Direction(i % 3), Comment: comment, Data: data, Length: len(data) + 1000*(i/4), // the last is cut
		})
	}
	return all
}

func write(t *testing.T, to io.Writer, packets []Packet) {
	t.Helper()
	w, err := NewWriter(to)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, name := range []string{"eth0", "roce1"} {
		if ids[name], err = w.AddInterface(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packets {
		pieces := [2][]byte{p.Data[:20], p.Data[20:]}
		if err := w.Write(ids[p.Interface], p.Time, p.Direction, pieces, p.Length, p.Comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// readAll reads up to the first error, and copies.
func readAll(r *Reader) (all []Packet, err error) {
	for {
		p, err := r.Next()
		if err != nil {
			return all, err
		}
		q := *p
		q.Data = bytes.Clone(p.Data)
		all = append(all, q)
	}
}

func TestWriteAndRead(t *testing.T) {
	var b bytes.Buffer
	want := sample()
	write(t, &b, want)
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if err != io.EOF {
		t.Errorf("after the last packet: %v", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("wrote - and read +:\n%s", d)
	}
}

// TestPcapgoReads has an independent reader read what we write.
func TestPcapgoReads(t *testing.T) {
	var b bytes.Buffer
	want := sample()
	write(t, &b, want)
	r, err := pcapgo.NewNgReader(&b, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range want {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		name, err := r.Interface(ci.InterfaceIndex)
		if err != nil || name.Name != p.Interface || !ci.Timestamp.Equal(p.Time) || !bytes.Equal(data, p.Data) {
			t.Errorf("packet %d: on %q at %v: %x, %v", i, name.Name, ci.Timestamp, data, err)
		}
		if got := strings.Join(opts.Comments, ""); got != p.Comment {
			t.Errorf("packet %d: comment %q", i, got)
		}
		if opts.Flags == nil || uint8(opts.Flags.Direction) != uint8(p.Direction) {
			t.Errorf("packet %d: flags %+v", i, opts.Flags)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("after the last packet: %v", err)
	}
}

// TestTsharkReads has Wireshark's own dissector read what we write.
func TestTsharkReads(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		nettest.SkipOrFail(t, "tshark")
	}
	path := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f, sample())
	f.Close()
	out, err := exec.Command(tshark, "-r", path, "-Tfields", "-Eseparator=|", "-eframe.interface_name", "-eframe.time_epoch",
		"-eframe.packet_flags_direction", "-einfiniband.bth.opcode", "-eframe.comment").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	want := []string{
		"eth0|1790000000.123456789|0x00000000|17|accepted",
		"roce1|1790000000.123457790|0x00000001|17|",
		"eth0|1790000000.123458791|0x00000002|17|drop: icrc_error",
	}
	if d := cmp.Diff(want, lines[:min(len(lines), 3)]); d != "" || len(lines) != len(sample()) {
		t.Errorf("tshark reads %d packets; want - got +:\n%s", len(lines), d)
	}
}

// TestLive checks that a packet is in the stream as soon as it was flushed,
// without the stream's end.
func TestLive(t *testing.T) {
	var b bytes.Buffer
	write(t, &b, sample()[:1])
	r, err := NewReader(io.MultiReader(&b, failing{errBroken}))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := r.Next(); err != nil || p.Comment != "accepted" {
		t.Errorf("packet %+v, error %v", p, err)
	}
}

type brokenPipe struct{ room int }

var errBroken = errors.New("broken pipe")

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestWriteErrors(t *testing.T) {
	if _, err := NewWriter(&brokenPipe{}); !errors.Is(err, errBroken) {
		t.Errorf("NewWriter on a broken pipe: %v", err)
	}
	w, err := NewWriter(&brokenPipe{room: 100})
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.AddInterface("eth0")
	if err != nil {
		t.Fatal(err)
	}
	pieces := [2][]byte{frame}
	if err := w.Write(id+1, start, In, pieces, 0, ""); err == nil || !strings.Contains(err.Error(), "interface 1") {
		t.Errorf("an interface that isn't: %v", err)
	}
	if err := w.Write(id, start, In, pieces, 0, ""); err != nil {
		t.Errorf("buffered: %v", err)
	}
	if err := w.Flush(); !errors.Is(err, errBroken) {
		t.Errorf("Flush to a broken pipe: %v", err)
	}
	if err := w.Write(id, start, In, pieces, 0, ""); !errors.Is(err, errBroken) {
		t.Errorf("Write after a broken pipe: %v", err)
	}
}

func TestLongComment(t *testing.T) {
	var b bytes.Buffer
	p := sample()[:1]
	p[0].Comment = strings.Repeat("c", 1<<17)
	write(t, &b, p)
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := r.Next(); err != nil || q.Comment != p[0].Comment[:0xffff] {
		t.Errorf("comment of %d bytes, error %v", len(q.Comment), err)
	}
}

func TestWriteAllocatesNothing(t *testing.T) {
	w, err := NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.AddInterface("eth0")
	pieces := [2][]byte{frame[:30], frame[30:]}
	if n := testing.AllocsPerRun(100, func() { w.Write(id, start, Out, pieces, 0, "accepted") }); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}
