package xdp_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

// attached reports whether the interface has an XDP program.
func attached(t testing.TB, e *nettest.End) (yes bool) {
	t.Helper()
	err := e.NS.Do(func() error {
		l, err := netlink.LinkByName(e.Name)
		if err == nil {
			yes = l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// The kernel releases a queue some time after its socket is closed: opening
// again at once works all the same, in the same or the other mode.
func TestReopenAtOnce(t *testing.T) {
	l := nettest.New(t, nettest.Config{Queues: 2})
	for i := range 12 {
		p, err := tryOpen(l.Ends[0], xdp.Options{Mode: modes[i%2], RxFrames: 64, TxFrames: 64})
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Close leaves no descriptor and no mapping, in either mode, used or not.
func TestCloseLeavesNothing(t *testing.T) {
	l := &lab{Pair: nettest.New(t, nettest.Config{Queues: 2}), t: t}
	before := nettest.CountResources(t)
	for _, mode := range modes {
		o := few
		o.Mode = mode
		l.open(0, o)
		l.open(1, o)
		if r := nettest.CountResources(t); r.Rings != before.Rings+2*2*4 || r.UMEM < before.UMEM+2*2*(fewRx+fewTx) || r.FDs <= before.FDs {
			t.Fatalf("%+v while open, %+v before: the test counts wrongly", r, before)
		}
		l.arrives(0, l.frame(0, 1514))
		for i := range 2 {
			if err := errors.Join(l.ports[i].Close(), l.ports[i].Close()); err != nil {
				t.Error(err)
			}
		}
		if r := nettest.CountResources(t); r != before {
			t.Errorf("%v: %+v after Close, %+v before Open", mode, r, before)
		}
		if attached(t, l.Ends[0]) {
			t.Error("the program is still attached")
		}
	}
}

// Every step of Open fails once, on the first and on the last queue: the error
// is that step's, nothing stays, and the next Open works.
func TestEachStepUndoesTheOthers(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	e := p.Ends[0]
	o := few
	o.Mode, o.Copy = xdp.ModeDriver, xdp.CopyOnly
	o.SingleBuffer = true // one rung, so that one failure is the end
	var steps []string
	xdp.SetFailStep(func(op string) error { steps = append(steps, op); return nil })
	defer xdp.SetFailStep(nil)
	port, err := tryOpen(e, o)
	if err != nil {
		t.Fatal(err)
	}
	port.Close()
	if len(steps) < 4+2*13 {
		t.Fatalf("steps: %q", steps)
	}
	before, boom := nettest.CountResources(t), errors.New("made to fail")
	for n, op := range steps {
		calls := 0
		xdp.SetFailStep(func(string) error {
			if calls++; calls == n+1 {
				return boom
			}
			return nil
		})
		port, err := tryOpen(e, o)
		if err == nil {
			port.Close()
			t.Fatalf("step %d, %q: Open worked", n, op)
		}
		var at *xdp.Error
		if !errors.Is(err, boom) || !errors.As(err, &at) || at.Op != op {
			t.Errorf("step %d, %q: error %v", n, op, err)
		}
		if r := nettest.CountResources(t); r != before {
			t.Fatalf("step %d, %q: %+v after, %+v before", n, op, r, before)
		}
		if attached(t, e) {
			t.Fatalf("step %d, %q: the program is still attached", n, op)
		}
	}
}

// Every method of a closed socket fails, and none faults.
func TestClosed(t *testing.T) {
	l := newLab(t, nettest.Config{}, few)
	s := l.ports[0].Sockets()[0]
	if err := s.Close(); err != nil { // before its port
		t.Fatal(err)
	}
	if err := errors.Join(l.ports[0].Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	var p [1]xdp.Packet
	if s.Recv(p[:]) != 0 || s.Reserve(&p[0], 64) || s.TXSpace() != 0 || s.Reap() != 0 || s.Send(&p[0]) {
		t.Error("a closed socket works")
	}
	s.Release(p[:])
	s.Unreserve(&p[0])
	s.Wake()
	wantErr(t, s.Flush(), xdp.ErrClosed)
	wantErr(t, s.Wait(time.Second, true, nil), xdp.ErrClosed)
	wantErr(t, l.ports[0].AddAddr([16]byte{}), xdp.ErrClosed)
	wantErr(t, l.ports[0].RemoveAddr([16]byte{}), xdp.ErrClosed)
	_, err := l.ports[0].ProgramStats()
	wantErr(t, err, xdp.ErrClosed)
}

// Close ends goroutines that are blocked in Wait, and is safe while the owner
// works: the owner sees a closed socket and never a fault.
func TestCloseWhileWaitingAndWorking(t *testing.T) {
	before := nettest.CountResources(t)
	for range 5 {
		l := newLab(t, nettest.Config{}, few)
		a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
		f := l.frame(0, 1000)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for b.Wait(-1, true, nil) == nil {
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		wg.Go(func() { // receives, and holds packets for a while
			var batch [16]xdp.Packet
			for b.Wait(time.Millisecond, true, nil) == nil {
				n := b.Recv(batch[:])
				time.Sleep(50 * time.Microsecond)
				for i := range n {
					_ = append([]byte(nil), batch[i].Frag[0]...) // must still be mapped
				}
				b.Release(batch[:n])
			}
		})
		wg.Go(func() {
			for {
				var p xdp.Packet
				for range 8 {
					if a.Reserve(&p, len(f)) {
						p.Frag[0] = p.Frag[0][:copy(p.Frag[0], f)]
						a.Send(&p)
					}
				}
				if a.Flush() != nil {
					return
				}
			}
		})
		time.Sleep(30 * time.Millisecond)
		for i := range 4 {
			wg.Go(func() {
				if err := l.ports[i%2].Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		l.Close()
	}
	if r := nettest.CountResources(t); r != before {
		t.Errorf("%+v after, %+v before", r, before)
	}
}

// Packets that the owner has not released stay readable after Close, and the
// memory goes with the last of them.
func TestReleaseAfterClose(t *testing.T) {
	before := nettest.CountResources(t)
	l := newLab(t, nettest.Config{MTU: 4200}, few)
	l.needMultiBuffer()
	b := l.ports[1].Sockets()[0]
	send(t, l.ports[0].Sockets()[0], l.frame(0, 4198))
	send(t, l.ports[0].Sockets()[0], l.frame(0, 100))
	var batch [2]xdp.Packet
	for n := 0; n < 2; n += b.Recv(batch[n:]) {
		if err := b.Wait(-1, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	l.ports[0].Close()
	if err := l.ports[1].Close(); err != nil {
		t.Fatal(err)
	}
	if got := append(bytes.Clone(batch[0].Frag[0]), batch[0].Frag[1]...); !bytes.Equal(got, l.frame(0, 4198)) {
		t.Error("the packet changed")
	}
	b.Release(batch[:1])
	if !bytes.Equal(batch[1].Frag[0], l.frame(0, 100)) {
		t.Error("the second packet changed")
	}
	if r := nettest.CountResources(t); r.UMEM != before.UMEM+fewRx+fewTx || r.Rings != before.Rings || r.FDs != before.FDs {
		t.Errorf("%+v after Close, %+v before: want the UMEM only", r, before)
	}
	b.Release(batch[1:])
	if r := nettest.CountResources(t); r.UMEM != before.UMEM {
		t.Errorf("%+v after the last Release, %+v before", r, before)
	}
}

// An owner that never comes back from Reserve makes Close fail, in bounded time
// and with a reason; when it is back, Close works.
func TestCloseBetweenReserveAndFlush(t *testing.T) {
	l := newLab(t, nettest.Config{}, few)
	s := l.ports[0].Sockets()[0]
	var p xdp.Packet
	s.Reserve(&p, 64)
	err := l.ports[0].Close()
	if err == nil || !strings.Contains(err.Error(), "Reserve") {
		t.Errorf("error %v", err)
	}
	p.Frag[0][0] = 1 // is still mapped
	s.Unreserve(&p)
	if err := l.ports[0].Close(); err != nil {
		t.Error(err)
	}
}

// What Wait sleeps for, and what it doesn't.
func TestWait(t *testing.T) {
	l := newLab(t, nettest.Config{}, few)
	a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	ring := func() { unix.Write(bell, []byte{1, 0, 0, 0, 0, 0, 0, 1}) }
	extra := []unix.PollFd{{Fd: -1}, {Fd: int32(bell), Events: unix.POLLIN}}
	const long, short = 5 * time.Second, 20 * time.Millisecond
	for _, c := range []struct {
		what    string
		timeout time.Duration
		frames  bool
		cause   func()
		wakes   bool
	}{
		{"timeout", short, true, func() {}, false},
		{"timeout 0", 0, true, func() {}, true},
		{"a packet", long, true, func() { send(t, a, l.frame(0, 64)) }, true},
		{"a packet that is not awaited", short, false, func() { send(t, a, l.frame(0, 64)) }, false},
		{"Wake", long, true, b.Wake, true},
		{"Wake without frames or timeout", -1, false, b.Wake, true},
		{"doorbell", long, true, ring, true},
		{"doorbell without frames", long, false, ring, true},
	} {
		for _, early := range []bool{true, false} { // before Wait begins, or during it
			var caused sync.WaitGroup
			if early {
				c.cause()
			} else {
				caused.Go(func() { time.Sleep(short / 4); c.cause() })
			}
			start := time.Now()
			if err := b.Wait(c.timeout, c.frames, extra); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if c.wakes && took > time.Second || !c.wakes && took < short {
				t.Errorf("%s: Wait took %v", c.what, took)
			}
			if got := extra[1].Revents != 0; got != strings.HasPrefix(c.what, "doorbell") {
				t.Errorf("%s: doorbell seen: %v", c.what, got)
			}
			caused.Wait()
			var buf [8]byte
			unix.Read(bell, buf[:])
			for f := []byte{1}; f != nil; {
				f, _ = receive(t, b, 0)
			}
		}
	}
}

// Link down is a condition: what was sent waits, and goes when the link is up.
func TestLinkDownAndUp(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l := newLab(t, nettest.Config{}, xdp.Options{Mode: mode})
			a := l.ports[0].Sockets()[0]
			l.arrives(0, l.frame(0, 64))
			if err := l.Ends[0].NS.SetUp("veth0", false); err != nil {
				t.Fatal(err)
			}
			put(t, a, l.frame(0, 100))
			wantErr(t, a.Flush(), xdp.ErrLinkDown)
			wantErr(t, a.Flush(), xdp.ErrLinkDown)
			start := time.Now()
			if err := a.Wait(5*time.Second, true, nil); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("Wait: %v after %v: it must come back to try again", err, time.Since(start))
			}
			if st := a.Stats(); st.LinkDown != 2 {
				t.Errorf("%+v", st)
			}
			if err := l.Ends[0].NS.SetUp("veth0", true); err != nil {
				t.Fatal(err)
			}
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			if got, _ := receive(t, l.ports[1].Sockets()[0], time.Second); !bytes.Equal(got, l.frame(0, 100)) {
				t.Errorf("%d bytes", len(got))
			}
			l.arrives(1, l.frame(1, 300))
			if free := a.Reap(); free != l.ports[0].Info().TxFrames {
				t.Errorf("%d frames free", free)
			}
		})
	}
}

// An interface that is down can be opened, and works from when it is up.
func TestOpenWhileDown(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l := &lab{Pair: nettest.New(t, nettest.Config{}), t: t}
			o := few
			o.Mode = mode
			if err := l.Ends[0].NS.SetUp("veth0", false); err != nil {
				t.Fatal(err)
			}
			l.open(0, o)
			l.open(1, o)
			if err := l.Ends[0].NS.SetUp("veth0", true); err != nil {
				t.Fatal(err)
			}
			l.arrives(0, l.frame(0, 100))
			l.arrives(1, l.frame(1, 200))
		})
	}
}

// The removal of the interface is an error of Wait and Flush, not a hang, and
// what is left can be closed.
func TestInterfaceRemoved(t *testing.T) {
	before := nettest.CountResources(t)
	for _, mode := range modes {
		for _, blocked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, blocked %v", mode, blocked), func(t *testing.T) {
				o := few
				o.Mode = mode
				l := newLab(t, nettest.Config{}, o)
				a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
				done := make(chan error, 1)
				if blocked {
					go func() { done <- b.Wait(-1, true, nil) }()
					time.Sleep(20 * time.Millisecond)
				}
				if err := l.Ends[0].NS.Run("ip", "link", "del", "veth0"); err != nil {
					t.Fatal(err)
				}
				if !blocked {
					go func() { done <- b.Wait(-1, true, nil) }()
				}
				select {
				case err := <-done:
					wantErr(t, err, xdp.ErrGone)
				case <-time.After(3 * time.Second):
					t.Error("Wait hangs")
				}
				put(t, a, l.frame(0, 64))
				wantErr(t, a.Flush(), xdp.ErrGone)
				for i := range 2 {
					if err := l.ports[i].Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if r := nettest.CountResources(t); r != before {
		t.Errorf("%+v after, %+v before", r, before)
	}
}

const childEnv = "URXE_XDP_TEST_CHILD"

// TestMain runs this binary as the child of TestKilledHolder, too.
func TestMain(m *testing.M) {
	if ifname := os.Getenv(childEnv); ifname != "" {
		p, err := xdp.Open(ifname, xdp.Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open", p.Info().ProgramID)
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A process that holds the interface is named to the next one that wants it;
// kill -9 of it leaves nothing, and the next Open works at once.
func TestKilledHolder(t *testing.T) {
	// An interface of the same index in another namespace has another holder.
	other := newLab(t, nettest.Config{}, few)
	l := nettest.New(t, nettest.Config{Queues: 2})
	e := l.Ends[0]
	if e.Index != other.Ends[0].Index {
		t.Fatalf("index %d and %d", e.Index, other.Ends[0].Index)
	}
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+e.Name)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.NS.Start(cmd); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 200)
		n, _ := out.Read(line)
		if !strings.HasPrefix(string(line[:n]), "open") {
			t.Fatalf("the child says %q", line[:n])
		}
		start := time.Now()
		_, err = tryOpen(e, xdp.Options{})
		wantErr(t, err, xdp.ErrInUse)
		if who := fmt.Sprintf("process %d ", cmd.Process.Pid); !strings.Contains(err.Error(), who) || !strings.Contains(err.Error(), `"urxe_roce`) {
			t.Errorf("error %q doesn't name %q", err, who)
		}
		if time.Since(start) > 2*time.Second {
			t.Errorf("the refusal took %v", time.Since(start))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		p, err := tryOpen(e, xdp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if attached(t, e) {
			t.Error("a program is left")
		}
	}
}
