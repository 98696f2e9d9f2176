package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// ownCapture is a capture by the holder of an interface, as urxe capture has it.
type ownCapture struct {
	path   string
	dev    *verbs.Device
	before uint64 // packets that dev had counted
	seen   atomic.Uint64
	r      io.ReadCloser
	ended  chan error
}

// startCapture captures what a device receives and sends.
func startCapture(t testing.TB, e *nettest.End, d *verbs.Device) *ownCapture {
	t.Helper()
	c := &ownCapture{path: filepath.Join(t.TempDir(), "own.pcapng"), dev: d, ended: make(chan error, 1)}
	c.before = packets(d)
	if err := e.NS.Do(func() (err error) { c.r, err = control.Call(e.Name, "capture"); return err }); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(c.path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(io.TeeReader(c.r, file)) // its header comes when it has begun
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for err == nil {
			if _, err = r.Next(); err == nil {
				c.seen.Add(1)
			}
		}
		file.Close()
		c.ended <- err
	}()
	t.Cleanup(func() { c.r.Close() })
	return c
}

// packets is how many packets a device has sent and received.
func packets(d *verbs.Device) uint64 {
	c := d.Stats().Counters
	return c["sent_pkts"] + c["rcvd_pkts"]
}

// catchUp waits until the capture has all packets.
func (c *ownCapture) catchUp(t testing.TB) {
	t.Helper()
	eventually(t, "all packets in the capture", func() bool { return c.seen.Load() == packets(c.dev)-c.before })
}

// stop ends the capture and returns its file.
func (c *ownCapture) stop(t testing.TB) string {
	t.Helper()
	c.catchUp(t)
	c.r.Close()
	<-c.ended
	return c.path
}

// dump is a tcpdump.
type dump struct {
	path string
	cmd  *exec.Cmd
	log  io.ReadCloser
}

// startDump captures RoCEv2 packets on an interface by tcpdump.
func startDump(t testing.TB, ns *nettest.NS, ifname string) *dump {
	t.Helper()
	d := &dump{path: filepath.Join(t.TempDir(), "tcpdump.pcap")}
	d.cmd = exec.Command("tcpdump", "-i", ifname, "-U", "-w", d.path, "-s", "0", "-B", "65536", "--immediate-mode", "-Z", "root", "udp port 4791")
	var err error
	if d.log, err = d.cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.cmd.Process.Kill() })
	line := make([]byte, 512)
	for said := ""; !strings.Contains(said, "listening on"); {
		n, err := d.log.Read(line)
		if err != nil {
			t.Fatalf("tcpdump: %v: %s", err, said)
		}
		said += string(line[:n])
	}
	return d
}

// stop ends tcpdump when it has written n packets and returns its file.
func (d *dump) stop(t testing.TB, n uint64) string {
	t.Helper()
	eventually(t, fmt.Sprintf("%d packets in %s", n, d.path), func() bool {
		time.Sleep(50 * time.Millisecond)
		return countPackets(d.path) >= n
	})
	if err := d.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(d.log)
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("tcpdump: %v: %s", err, said)
	}
	if !bytes.Contains(said, []byte("\n0 packets dropped by kernel")) {
		t.Fatalf("tcpdump was too slow: %s", said)
	}
	return d.path
}

// countPackets returns how many whole packets a capture holds by now.
func countPackets(path string) (n uint64) {
	r, err := capture.Open(path)
	if err != nil {
		return 0
	}
	defer r.Close()
	for ; ; n++ {
		if _, err := r.Next(); err != nil {
			return n
		}
	}
}

// fields are what tshark is asked for, of each packet: first who sent it, last
// what is not the packet's own.
var fields = []string{"ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "udp.srcport", "udp.length", "infiniband.bth.opcode", "infiniband.bth.destqp",
	"infiniband.bth.psn", "infiniband.bth.a", "infiniband.bth.se", "infiniband.bth.padcnt", "infiniband.bth.p_key",
	"infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.reth.va", "infiniband.reth.r_key",
	"infiniband.reth.dmalen", "infiniband.immdt", "infiniband.atomiceth.cmpdt", "infiniband.atomiceth.swapdt",
	"infiniband.atomicacketh.origremdt", "infiniband.invariant.crc", "_ws.malformed", "frame.comment"}

// The places in fields of the opcode, and of the destination QP and the PSN after it; and of what a READ asks for.
const (
	fieldOpcode = 6
	fieldDestQP = 7
	fieldPSN    = 8
	fieldVA     = 15
	fieldLength = 17
)

const readRequest = "12" // the opcode

// reach is the memory that a READ request asks for.
type reach struct{ from, to uint64 }

// holds reports whether another asks for the same, or for a part of it.
func (r reach) holds(x reach) bool { return r.from <= x.from && x.to <= r.to }

// seen is what tshark made of a packet.
type seen struct {
	from, packet, opcode, comment string
	qp, number                    string // the same of a packet that is sent again, though it then may ask for an acknowledgement
	read                          reach  // of a READ request
}

// dissect decodes a capture by tshark. It takes some payloads for protocols that
// they are not of, and calls those malformed.
func dissect(t testing.TB, path string) (list []seen) {
	t.Helper()
	args := []string{"-r", path, "--disable-protocol", "rpcordma", "-n", "-T", "fields", "-E", "separator=|"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var errs bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, errs.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) != len(fields) || f[fieldOpcode] == "" || strings.Contains(f[len(f)-2], "InfiniBand") {
			t.Fatalf("%s, packet %d: tshark can't make sense of it: %s", path, len(list)+1, line)
		}
		s := seen{from: f[0] + f[1], packet: strings.Join(f[:len(f)-1], "|"), opcode: f[fieldOpcode], comment: f[len(f)-1]}
		s.qp = s.from + "|" + f[fieldDestQP]
		s.number = s.qp + "|" + f[fieldPSN]
		if s.opcode == readRequest {
			va, err1 := strconv.ParseUint(f[fieldVA], 0, 64)
			n, err2 := strconv.ParseUint(f[fieldLength], 0, 32)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			s.read = reach{va, va + n}
		}
		list = append(list, s)
	}
	return list
}

// from returns the packets that were sent from an address.
func from(list []seen, addr string) (packets []string) {
	for _, s := range list {
		if s.from == addr {
			packets = append(packets, s.packet)
		}
	}
	return packets
}

// sameOrder checks that two captures have the same packets in the same order.
func sameOrder(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s: packet %d of %d differs:\n got %s\nwant %s\n(%s)", what, i, len(want), got[i], want[i], strings.Join(fields, "|"))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d packets, want %d", what, len(got), len(want))
	}
}

// icrcHolds checks the ICRC of a frame without 802.1Q tag or IP options, from
// its definition (Annex A17.3.3).
func icrcHolds(frame []byte) bool {
	b := bytes.Clone(frame[14:])
	udp := 20
	if b[0]>>4 == 4 {
		b = b[:binary.BigEndian.Uint16(b[2:])] // a short frame is padded
		b[1], b[8], b[10], b[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		udp = 40
		b = b[:40+binary.BigEndian.Uint16(b[4:])]
		b[0] |= 0x0f
		b[1], b[2], b[3], b[7] = 0xff, 0xff, 0xff, 0xff
	}
	b[udp+6], b[udp+7], b[udp+12] = 0xff, 0xff, 0xff
	end := len(b) - 4
	sum := crc32.ChecksumIEEE(append(bytes.Repeat([]byte{0xff}, 8), b[:end]...))
	return sum == binary.LittleEndian.Uint32(b[end:])
}

// checkICRCs checks the ICRC of each packet of a capture, and that there are n.
func checkICRCs(path string, n int) error {
	r, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	for i := 0; ; i++ {
		p, err := r.Next()
		switch {
		case err == io.EOF && i == n:
			return nil
		case err != nil:
			return fmt.Errorf("%s, after %d packets of %d: %w", path, i, n, err)
		case !icrcHolds(p.Data):
			return fmt.Errorf("%s: packet %d has a wrong ICRC: %x", path, i, p.Data)
		}
	}
}
