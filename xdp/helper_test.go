package xdp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/xdp"
)

// lab is a veth pair with one or both ends opened.
type lab struct {
	*nettest.Pair
	t     testing.TB
	ports [2]*xdp.Port
}

// newLab makes a pair and opens both ends, which take all addresses of theirs.
func newLab(t testing.TB, c nettest.Config, o xdp.Options) *lab {
	t.Helper()
	l := &lab{Pair: nettest.New(t, c), t: t}
	l.open(0, o)
	l.open(1, o)
	return l
}

func tryOpen(e *nettest.End, o xdp.Options) (p *xdp.Port, err error) {
	err = e.NS.Do(func() (err error) { p, err = xdp.Open(e.Name, o); return err })
	return p, err
}

func (l *lab) open(i int, o xdp.Options) *xdp.Port {
	l.t.Helper()
	e := l.Ends[i]
	p, err := tryOpen(e, o)
	if errors.Is(err, unix.ERANGE) {
		noMultiBuffer(l.t, err.Error())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { p.Close() })
	for _, a := range [][16]byte{e.V4.As16(), e.V6.As16(), e.LL.As16()} {
		if err := p.AddAddr(a); err != nil {
			l.t.Fatal(err)
		}
	}
	l.ports[i] = p
	return p
}

// needMultiBuffer skips a test of long packets on kernels before 6.6.
func (l *lab) needMultiBuffer() {
	l.t.Helper()
	if i := l.ports[0].Info(); !i.MultiBuffer {
		noMultiBuffer(l.t, fmt.Sprintf("%v, %q", i, i.Reasons))
	}
}

// noMultiBuffer skips a test where the kernel is too old for it, and fails it
// where it is not.
func noMultiBuffer(t testing.TB, why string) {
	t.Helper()
	var u unix.Utsname
	var major, minor int
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major > 6 || major == 6 && minor >= 6 {
		t.Fatal(why)
	}
	t.Skipf("missing: multi-buffer AF_XDP (Linux 6.6): %s", why)
}

// frame is a RoCEv2 frame of n bytes from end i to the other, over IPv4, with a
// payload that depends on n.
func (l *lab) frame(i, n int) []byte {
	f := barexdp.Frame(l.Ends[i], l.Ends[1-i], n)
	for k := 42; k < n; k++ {
		f[k] = byte(k*7 + n)
	}
	return f
}

// put stages a frame on a socket.
func put(t testing.TB, s *xdp.Socket, f []byte) {
	t.Helper()
	var p xdp.Packet
	if !s.Reserve(&p, len(f)) {
		t.Fatalf("no room for %d bytes", len(f))
	}
	n := copy(p.Frag[0], f)
	p.Frag[0] = p.Frag[0][:n]
	p.Frag[1] = p.Frag[1][:copy(p.Frag[1], f[n:])]
	if !s.Send(&p) {
		t.Fatal("Send refused a packet")
	}
}

func send(t testing.TB, s *xdp.Socket, f []byte) {
	t.Helper()
	put(t, s, f)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// receive waits for a packet and returns a copy of its bytes, and its frames; nil if
// none comes within d.
func receive(t testing.TB, s *xdp.Socket, d time.Duration) ([]byte, int) {
	t.Helper()
	var batch [1]xdp.Packet
	for end := time.Now().Add(d); ; {
		if s.Recv(batch[:]) == 1 {
			b := append(bytes.Clone(batch[0].Frag[0]), batch[0].Frag[1]...)
			frames := batch[0].Frames()
			s.Release(batch[:])
			return b, frames
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, 0
		}
		if err := s.Wait(left, true, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// arrives sends f from end i and checks that it comes out at the other.
func (l *lab) arrives(i int, f []byte) (frames int) {
	l.t.Helper()
	send(l.t, l.ports[i].Sockets()[0], f)
	got, frames := receive(l.t, l.ports[1-i].Sockets()[0], time.Second)
	if !bytes.Equal(got, f) {
		l.t.Fatalf("sent %d bytes, %d came: %+v", len(f), len(got), l.ports[1-i].Stats())
	}
	return frames
}

// packetSocket opens a raw packet socket on an end: it sends what no kernel socket
// would.
func packetSocket(t testing.TB, e *nettest.End) int {
	t.Helper()
	var fd int
	err := e.NS.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0x0300)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: e.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// A small UMEM that is quickly mapped, and overrun.
const (
	fewRx = 1024
	fewTx = 64
)

var few = xdp.Options{RxFrames: fewRx, TxFrames: fewTx}

var be = binary.BigEndian

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
