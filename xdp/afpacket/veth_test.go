package afpacket_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/steps"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/xdp"
	"github.com/urxe/urxe/xdp/afpacket"
)

const patience = 10 * time.Second

// few frames: the ring's end is soon reached.
var few = afpacket.Options{RxFrames: 64, TxFrames: 64}

func tryOpen(e *nettest.End, o afpacket.Options) (s *afpacket.Socket, err error) {
	err = e.NS.Do(func() (err error) { s, err = afpacket.Open(e.Name, o); return err })
	return s, err
}

func open(t testing.TB, e *nettest.End) *afpacket.Socket {
	t.Helper()
	s, err := tryOpen(e, few)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, a := range [][16]byte{e.V4.As16(), e.V6.As16()} {
		if err := s.AddAddr(a); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// openPair opens both ends of a veth pair.
func openPair(t testing.TB, c nettest.Config) (p *nettest.Pair, s [2]*afpacket.Socket) {
	t.Helper()
	p = nettest.New(t, c)
	for i, e := range p.Ends {
		s[i] = open(t, e)
	}
	return p, s
}

// frame is a RoCEv2 frame of n bytes from end i of a pair, with a payload of its own.
func frame(p *nettest.Pair, i, n int) []byte {
	f := barexdp.Frame(p.Ends[i], p.Ends[1-i], n)
	for k := 42; k < n; k++ {
		f[k] = byte(k*7 + n)
	}
	return f
}

func send(t testing.TB, s *afpacket.Socket, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		room, i, ok := s.Reserve(len(f))
		if !ok || len(room) != len(f) {
			t.Fatalf("no room for %d bytes", len(f))
		}
		copy(room, f)
		s.Send(i, len(f))
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// receive waits for a frame and returns a copy; nil if none comes within d.
func receive(t testing.TB, s *afpacket.Socket, d time.Duration) []byte {
	t.Helper()
	for end := time.Now().Add(d); ; {
		if b, slot, ok := s.Recv(); ok {
			b = bytes.Clone(b)
			s.Release(slot)
			return b
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := s.Wait(left, true, unix.PollFd{Fd: -1}); err != nil {
			t.Fatal(err)
		}
	}
}

func arrives(t testing.TB, p *nettest.Pair, s [2]*afpacket.Socket, i int, f []byte) {
	t.Helper()
	send(t, s[i], f)
	if got := receive(t, s[1-i], patience); !bytes.Equal(got, f) {
		t.Fatalf("sent %d bytes, %d came: %+v", len(f), len(got), s[1-i].Stats())
	}
}

// Frames of every size arrive whole and in one piece, around the ring's end, too.
func TestSizes(t *testing.T) {
	for _, mtu := range []int{1500, 4200, 9000} {
		p, s := openPair(t, nettest.Config{MTU: mtu})
		for _, n := range []int{60, 64, 1126, 1514, 2150, 3840, 3841, 4096, 4097, 4198, afpacket.MaxFrame} {
			if n > mtu+14 {
				continue
			}
			for i := range 2 * s[0].Slots() / 11 {
				arrives(t, p, s, i%2, frame(p, i%2, n))
			}
		}
		for i := range s {
			if st := s[i].Stats(); st.RxPackets != s[1-i].Stats().TxPackets || st.RxDropped+st.RxBad+st.TxLost != 0 {
				t.Errorf("%+v", st)
			}
		}
		if _, _, ok := s[0].Reserve(afpacket.MaxFrame + 1); ok {
			t.Error("room for more than any frame may have")
		}
	}
}

// A longer frame than a slot holds is cut off, and harms no other.
func TestTooLong(t *testing.T) {
	p, s := openPair(t, nettest.Config{MTU: 9000})
	raw := rawSocket(t, p.Ends[0])
	long := frame(p, 0, 9000)
	if _, err := unix.Write(raw, long); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, s[1], patience); len(got) < afpacket.MaxFrame || len(got) > 4352 || !bytes.Equal(got, long[:len(got)]) {
		t.Errorf("%d bytes of 9000", len(got))
	}
	arrives(t, p, s, 0, frame(p, 0, 100))
}

func rawSocket(t testing.TB, e *nettest.End) (fd int) {
	t.Helper()
	if err := e.NS.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: e.Index})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// tagged puts an 802.1Q tag, or another one, into a frame.
func tagged(f []byte, tpid, tci uint16) []byte {
	out := append(bytes.Clone(f[:12]), 0, 0, 0, 0)
	binary.BigEndian.PutUint16(out[12:], tpid)
	binary.BigEndian.PutUint16(out[14:], tci)
	return append(out, f[12:]...)
}

// The VLAN tag, which the kernel takes off, is there again; a tag of 0, too. Frames
// of a provider's tag (802.1ad) are left alone, as are those of two tags.
func TestVLAN(t *testing.T) {
	for _, offloads := range []bool{false, true} {
		p, s := openPair(t, nettest.Config{MTU: 4200, Offloads: offloads})
		f := frame(p, 0, 1000)
		for _, tci := range []uint16{5, 0xe005, 0xffff, 0} {
			arrives(t, p, s, 0, tagged(f, 0x8100, tci))
		}
		arrives(t, p, s, 0, tagged(frame(p, 0, 4198), 0x8100, 7))
		send(t, s[0], tagged(f, 0x88a8, 5), tagged(tagged(f, 0x8100, 5), 0x8100, 6), tagged(tagged(f, 0x8100, 5), 0x88a8, 6))
		arrives(t, p, s, 0, f)
	}
}

// Nothing but what the addresses say comes in, and that as soon as they say it.
func TestAddresses(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	f := frame(p, 0, 200)
	if err := errors.Join(s[1].AddAddr(p.Ends[1].V4.As16()), s[1].RemoveAddr(p.Ends[1].V4.As16()), s[1].RemoveAddr([16]byte{1})); err != nil {
		t.Fatal(err)
	}
	send(t, s[0], f, f)
	if err := s[1].AddAddr(p.Ends[1].V4.As16()); err != nil {
		t.Fatal(err)
	}
	arrives(t, p, s, 0, frame(p, 0, 201))
	if st := s[1].Stats(); st.RxPackets != 1 || st.RxDropped != 0 {
		t.Errorf("%+v", st)
	}
	var err error
	for i := 0; err == nil; i++ {
		err = s[1].AddAddr([16]byte{0: 0xfd, 5: 1, 14: byte(i >> 8), 15: byte(i)})
	}
	// The longest program there may be, or the memory that a socket has for it.
	if !errors.Is(err, unix.E2BIG) && !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "veth0: attach filter") {
		t.Errorf("too many addresses: %v", err)
	}
	arrives(t, p, s, 0, f) // those before are still there
}

// What a socket sends does not come back to it, on lo, where it would, either: there
// it comes once, as received.
func TestOwnFrames(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	back := barexdp.Frame(p.Ends[0], p.Ends[1], 100)
	copy(back[30:], p.Ends[0].V4.AsSlice()) // to itself, out by the interface
	send(t, s[0], back)
	arrives(t, p, s, 1, frame(p, 1, 300)) // the first that comes

	lo := &nettest.End{NS: p.Ends[0].NS, Name: "lo"}
	l, err := tryOpen(lo, few)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.AddAddr(p.Ends[1].V4.As16()); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		send(t, l, frame(p, 0, 100+n))
	}
	for n := range 3 {
		if got := receive(t, l, patience); !bytes.Equal(got, frame(p, 0, 100+n)) {
			t.Errorf("lo: frame %d: %d bytes", n, len(got))
		}
	}
}

// A reader that is too slow loses frames, which are counted, and none twice.
func TestRingFull(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	slots := s[1].Slots()
	for i := range slots + 10 {
		send(t, s[0], frame(p, 0, 100+i))
	}
	// The kernel counts as it drops: when all came, so many were lost.
	for end := time.Now().Add(patience); s[1].Stats().RxDropped < 10 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	var held []uint32
	for i := range slots {
		b, slot, ok := s[1].Recv()
		if !ok || !bytes.Equal(b, frame(p, 0, 100+i)) {
			t.Fatalf("frame %d: %v, %d bytes", i, ok, len(b))
		}
		held = append(held, slot)
	}
	if _, _, ok := s[1].Recv(); ok {
		t.Error("a frame was received twice")
	}
	if st := s[1].Stats(); st.RxDropped != 10 {
		t.Errorf("%+v, want 10 dropped", st)
	}
	for i := range held { // out of order
		s[1].Release(held[(i*7+3)%len(held)])
	}
	for i := range 2 * slots {
		arrives(t, p, s, 0, frame(p, 0, 100+i))
	}
}

// The kernel gets each packet, too, and its answer would be that the port is
// unreachable: nobody hears that. Without the socket it is so.
func TestNoPortUnreachable(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		p, s := openPair(t, nettest.Config{})
		e, peer := p.Ends[1], p.Ends[0]
		to := e.V4
		if v6 {
			to = e.V6
		}
		hears := func() bool {
			t.Helper()
			refused := false
			if err := peer.NS.Do(func() error {
				family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 4791, Addr: e.V4.As4()})
				if v6 {
					family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: 4791, Addr: e.V6.As16()}
				}
				fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				if err := unix.Connect(fd, sa); err != nil {
					return err
				}
				for range 20 { // an error of the datagram before is the next one's
					if _, err := unix.Write(fd, make([]byte, 40)); errors.Is(err, unix.ECONNREFUSED) {
						refused = true
					}
					time.Sleep(2 * time.Millisecond)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return refused
		}
		if hears() {
			t.Errorf("%v: the peer heard that the port is unreachable", to)
		}
		for range 20 {
			if receive(t, s[1], patience) == nil {
				t.Fatalf("%v: a datagram did not come", to)
			}
		}
		if err := s[1].Close(); err != nil {
			t.Fatal(err)
		}
		if !hears() {
			t.Errorf("%v: nothing was heard without the socket: the test shows nothing", to)
		}
	}
}

// Whoever else has the UDP port would answer our packets: an error that says so. A
// second interface of the same namespace shares it.
func TestPortTaken(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	var rxe int
	if err := e.NS.Do(func() (err error) {
		if rxe, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Bind(rxe, &unix.SockaddrInet4{Port: 4791})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := nettest.CountResources(t)
	if _, err := tryOpen(e, few); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "rdma_rxe") || !strings.Contains(err.Error(), "4791") {
		t.Errorf("error %v", err)
	}
	if r := nettest.CountResources(t); r != before {
		t.Errorf("%+v after, %+v before", r, before)
	}
	unix.Close(rxe)
	open(t, e)
	open(t, &nettest.End{NS: e.NS, Name: "lo", V4: e.V4, V6: e.V6})
}

// Every step of Open fails once: the error is that step's, and nothing stays.
func TestEachStepUndoesTheOthers(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	var ops []string
	steps.Fail = func(op string) error { ops = append(ops, op); return nil }
	defer func() { steps.Fail = nil }()
	before := nettest.CountResources(t)
	s, err := tryOpen(p.Ends[0], few)
	if err != nil {
		t.Fatal(err)
	}
	if r := nettest.CountResources(t); r.FDs != before.FDs+3 || r.Rings != before.Rings+1 || len(ops) != 8 {
		t.Fatalf("%+v while open, %+v before, steps %q: the test counts wrongly", r, before, ops)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	for _, op := range ops {
		boom := errors.New("made to fail")
		steps.Fail = func(at string) error {
			if at == op {
				return boom
			}
			return nil
		}
		if _, err := tryOpen(p.Ends[0], few); !errors.Is(err, boom) || !strings.Contains(err.Error(), "veth0: "+op) {
			t.Errorf("%s: error %v", op, err)
		}
		if r := nettest.CountResources(t); r != before {
			t.Fatalf("%s: %+v after, %+v before", op, r, before)
		}
	}
}

func TestMissingPrivileges(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	err := e.NS.WithCaps([]int{unix.CAP_NET_ADMIN, unix.CAP_BPF}, func() error { _, err := afpacket.Open(e.Name, few); return err })
	if !errors.Is(err, unix.EPERM) || !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") || strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("error %v", err)
	}
	if err := e.NS.WithCaps([]int{unix.CAP_NET_RAW}, func() error {
		s, err := afpacket.Open(e.Name, few)
		if err != nil {
			return err
		}
		return errors.Join(s.AddAddr(e.V4.As16()), s.Close())
	}); err != nil {
		t.Error("with CAP_NET_RAW alone:", err)
	}
}

func TestBadInterfaces(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	if err := e.NS.Run("ip", "tuntap", "add", "tun0", "mode", "tun"); err != nil {
		nettest.SkipOrFail(t, err.Error())
	}
	if _, err := tryOpen(&nettest.End{NS: e.NS, Name: "tun0"}, few); err == nil || !strings.Contains(err.Error(), "carries no Ethernet frames") {
		t.Errorf("tun0: error %v", err)
	}
	if _, err := tryOpen(&nettest.End{NS: e.NS, Name: "nosuch"}, few); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("no interface: error %v", err)
	}
	for _, o := range []afpacket.Options{{RxFrames: 63}, {TxFrames: -1}, {RxFrames: 1 << 17}} {
		if _, err := tryOpen(e, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// A link that is down loses frames and is there again when it is up; one that was
// removed is gone.
func TestDownUpAndGone(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	f := frame(p, 0, 100)
	flush := func() error {
		room, i, _ := s[0].Reserve(len(f))
		copy(room, f)
		s[0].Send(i, len(f))
		return s[0].Flush()
	}
	if err := p.Ends[0].NS.SetUp("veth0", false); err != nil {
		t.Fatal(err)
	}
	for range 3 * few.TxFrames {
		if err := flush(); !errors.Is(err, xdp.ErrLinkDown) {
			t.Fatalf("down: %v", err)
		}
	}
	if st := s[0].Stats(); st.TxLost != uint64(3*few.TxFrames) || s[0].Stuck() {
		t.Errorf("%+v", st)
	}
	if err := s[0].Wait(time.Millisecond, true, unix.PollFd{Fd: -1}); err != nil {
		t.Error(err)
	}
	if err := p.Ends[0].NS.SetUp("veth0", true); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := flush(); err == nil && receive(t, s[1], 10*time.Millisecond) != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no frame comes through any more")
		}
	}
	for receive(t, s[1], 10*time.Millisecond) != nil {
	}
	arrives(t, p, s, 1, frame(p, 1, 500))
	if err := p.Ends[0].NS.Run("ip", "link", "del", "veth0"); err != nil {
		t.Fatal(err)
	}
	var err error
	for end := time.Now().Add(patience); !errors.Is(err, xdp.ErrGone) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = flush()
	}
	if !errors.Is(err, xdp.ErrGone) {
		t.Errorf("removed: %v", err)
	}
}

// What the kernel answers to sending, one by one.
func TestSendErrors(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	defer afpacket.RealSend()
	stage := func(n int) {
		for i := range n {
			room, k, ok := s[0].Reserve(100 + i)
			if !ok {
				t.Fatal("no room")
			}
			copy(room, frame(p, 0, 100+i))
			s[0].Send(k, 100+i)
		}
	}
	// Some are taken, then there is no room: the rest goes with the next Flush, in order.
	for _, e := range []unix.Errno{unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.EBUSY} {
		calls := 0
		afpacket.FakeSend(func(n int) (int, unix.Errno) {
			if calls++; calls == 1 {
				return 3, 0
			}
			return -1, e
		})
		before := s[0].Stats()
		stage(10)
		if err := s[0].Flush(); err != nil || !s[0].Stuck() || calls != 2 {
			t.Errorf("%v: %v, stuck %v, %d calls", e, err, s[0].Stuck(), calls)
		}
		afpacket.RealSend()
		if err := s[0].Flush(); err != nil || s[0].Stuck() {
			t.Errorf("%v: %v, stuck %v", e, err, s[0].Stuck())
		}
		for i := 3; i < 10; i++ {
			if got := receive(t, s[1], patience); !bytes.Equal(got, frame(p, 0, 100+i)) {
				t.Fatalf("%v: frame %d: %d bytes", e, i, len(got))
			}
		}
		if st := s[0].Stats(); st.TxPackets != before.TxPackets+10 || st.TxBusy != before.TxBusy+1 || st.TxLost != before.TxLost {
			t.Errorf("%v: %+v, %+v before", e, st, before)
		}
	}
	// A frame that is refused is lost alone.
	for _, e := range []unix.Errno{unix.EMSGSIZE, unix.EPERM, unix.EACCES, unix.EINVAL} {
		calls := 0
		afpacket.FakeSend(func(n int) (int, unix.Errno) {
			if calls++; calls == 2 {
				return -1, e
			}
			return min(n, 2), 0
		})
		before := s[0].Stats()
		stage(6)
		if err := s[0].Flush(); err != nil || s[0].Stuck() {
			t.Errorf("%v: %v", e, err)
		}
		if st := s[0].Stats(); st.TxPackets != before.TxPackets+5 || st.TxLost != before.TxLost+1 {
			t.Errorf("%v: %+v, %+v before", e, st, before)
		}
	}
	for e, want := range map[unix.Errno]error{unix.ENXIO: xdp.ErrGone, unix.ENODEV: xdp.ErrGone, unix.ENETDOWN: xdp.ErrLinkDown, unix.EBADF: unix.EBADF} {
		afpacket.FakeSend(func(int) (int, unix.Errno) { return -1, e })
		stage(2)
		if err := s[0].Flush(); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", e, err, want)
		}
	}
}

// A real MTU that is too small for a frame.
func TestMTUFalls(t *testing.T) {
	p, s := openPair(t, nettest.Config{MTU: 4200})
	if err := p.Ends[0].NS.Run("ip", "link", "set", "veth0", "mtu", "1000"); err != nil {
		t.Fatal(err)
	}
	send(t, s[0], frame(p, 0, 900), frame(p, 0, 1200), frame(p, 0, 901))
	for _, n := range []int{900, 901} {
		if got := receive(t, s[1], patience); len(got) != n {
			t.Errorf("%d bytes came, want %d", len(got), n)
		}
	}
	if st := s[0].Stats(); st.TxLost != 1 {
		t.Errorf("%+v", st)
	}
}

func TestWait(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	none := unix.PollFd{Fd: -1}
	// A frame doesn't end it unless it is asked for.
	send(t, s[0], frame(p, 0, 100))
	if err := s[1].Wait(-1, true, none); err != nil {
		t.Fatal(err)
	}
	s[1].Wake()
	if err := s[1].Wait(-1, false, none); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s[1].Wait(20*time.Millisecond, false, none); err != nil || time.Since(start) < 20*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	unix.Close(fds[1])
	if err := s[1].Wait(-1, false, unix.PollFd{Fd: int32(fds[0]), Events: unix.POLLIN}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		for {
			if err := s[1].Wait(-1, false, none); err != nil {
				ended <- err
				return
			}
		}
	}()
	time.Sleep(5 * time.Millisecond)
	if err := s[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, xdp.ErrClosed) {
		t.Error(err)
	}
	s[1].Wake()
	if err := s[1].AddAddr([16]byte{}); !errors.Is(err, xdp.ErrClosed) {
		t.Error(err)
	}
	if s[1].Stats().RxPackets != 0 || fmt.Sprint(s[1]) == "" {
		t.Error(s[1].Stats())
	}
}

func TestDoesNotAllocate(t *testing.T) {
	p, s := openPair(t, nettest.Config{})
	f := frame(p, 0, 1000)
	if n := testing.AllocsPerRun(200, func() {
		for range 8 {
			room, i, _ := s[0].Reserve(len(f))
			s[0].Send(i, copy(room, f))
		}
		_ = s[0].Flush()
		for {
			_, slot, ok := s[1].Recv()
			if !ok {
				break
			}
			s[1].Release(slot)
		}
		_ = s[1].Wait(time.Microsecond, true, unix.PollFd{Fd: -1})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
