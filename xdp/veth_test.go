package xdp_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

var modes = []xdp.Mode{xdp.ModeDriver, xdp.ModeGeneric}

// Frames of every size about the limits of one frame's room arrive whole, in
// both modes and directions; the two-frame ones are cut at 3840.
func TestSizes(t *testing.T) {
	for _, mtu := range []int{1500, 4200, 9000} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("MTU %d, %v", mtu, mode), func(t *testing.T) {
				l := newLab(t, nettest.Config{MTU: mtu}, xdp.Options{Mode: mode})
				if mtu > 1500 {
					l.needMultiBuffer()
				}
				for _, n := range []int{60, 64, 1126, 1514, 2150, 3839, 3840, 3841, 3842, 3843, 4095, 4096, 4097, 4198, 7680} {
					if n > mtu+14 {
						continue
					}
					for i := range 2 {
						want := 1 + (n-1)/3840
						if got := l.arrives(i, l.frame(i, n)); got != want {
							t.Errorf("%d bytes came in %d frames, want %d", n, got, want)
						}
					}
				}
			})
		}
	}
}

func TestInfo(t *testing.T) {
	var logged []string
	l := newLab(t, nettest.Config{MTU: 4200, Queues: 2}, xdp.Options{Logf: func(f string, a ...any) { logged = append(logged, fmt.Sprintf(f, a...)) }})
	l.needMultiBuffer()
	info := l.ports[0].Info()
	if info.Interface != "veth0" || info.MTU != 4200 || info.Speed != 10_000 || info.Queues != 2 || info.TXQueues != 2 || info.ZeroCopy || !info.MultiBuffer ||
		info.Mode != xdp.ModeDriver || info.ProgramID == 0 || len(l.ports[0].Sockets()) != 2 {
		t.Errorf("%+v", info)
	}
	// veth has no zero-copy: that rung must say so.
	if len(info.Reasons) != 1 || len(logged) != 4 {
		t.Errorf("reasons %q, logged %q", info.Reasons, logged)
	}
	t.Log(info, info.Reasons)
}

// When the driver cannot, generic mode is got, and Info says why.
func TestFallsBackToGeneric(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	// A veth refuses a program while its peer has more TX queues than it has RX.
	if err := p.Ends[0].NS.Run("ethtool", "-L", "veth0", "rx", "1"); err != nil {
		t.Fatal(err)
	}
	_, err := tryOpen(p.Ends[0], xdp.Options{Mode: xdp.ModeDriver})
	wantErr(t, err, unix.ENOSPC)
	l := &lab{Pair: p, t: t}
	l.open(0, few)
	l.open(1, few)
	if i := l.ports[0].Info(); i.Mode != xdp.ModeGeneric || i.Queues != 1 || len(i.Reasons) == 0 || !strings.Contains(i.Reasons[0], "queues") {
		t.Errorf("%v, %q", i, i.Reasons)
	}
	l.arrives(0, l.frame(0, 1514))
	l.arrives(1, l.frame(1, 1514))
}

// Zero-copy is not had silently as copy: asked for on veth it is an error that
// says which step failed.
func TestForcedZeroCopyFails(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	_, err := tryOpen(p.Ends[0], xdp.Options{Copy: xdp.ZeroCopy})
	wantErr(t, err, unix.EOPNOTSUPP)
	var e *xdp.Error
	if !errors.As(err, &e) || e.Op != "bind" || e.Interface != "veth0" || e.Queue != 0 {
		t.Errorf("error %+v", e)
	}
	port, err := tryOpen(p.Ends[0], xdp.Options{})
	if err != nil {
		t.Fatalf("after the failure: %v", err)
	}
	port.Close()
}

func TestBadOptions(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	for _, o := range []xdp.Options{
		{Mode: 3}, {Copy: 3}, {Mode: xdp.ModeGeneric, Copy: xdp.ZeroCopy}, {RxFrames: -1}, {RxFrames: 63}, {TxFrames: 1 << 17}, {BusyPoll: -1},
	} {
		if port, err := tryOpen(p.Ends[0], o); err == nil {
			port.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := tryOpen(&nettest.End{NS: p.Ends[0].NS, Name: "nosuch"}, xdp.Options{}); err == nil {
		t.Error("an interface that does not exist was opened")
	}
	// 511 frames, as a NIC's ring may have, become 512.
	port, err := tryOpen(p.Ends[0], xdp.Options{RxFrames: 511, TxFrames: 65, BusyPoll: 20, BusyPollBudget: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if i := port.Info(); i.RxFrames != 512 || i.TxFrames != 128 {
		t.Errorf("%d and %d frames", i.RxFrames, i.TxFrames)
	}
}

// One Flush sends everything, however few the kernel takes in a call.
func TestOneFlushSendsAll(t *testing.T) {
	for _, budget := range []int{0, 32} { // 0: as Open set it; 32: as kernels before 6.18 have it
		for _, n := range []int{1, 31, 32, 33, 256, 1024} {
			t.Run(fmt.Sprintf("%d frames, budget %d", n, budget), func(t *testing.T) {
				l := newLab(t, nettest.Config{}, xdp.Options{})
				a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
				if budget > 0 {
					if err := a.SetBudget(budget); err != nil {
						t.Logf("this kernel's budget is fixed: %v", err)
					}
				}
				for range n {
					put(t, a, l.frame(0, 200))
				}
				if err := a.Flush(); err != nil {
					t.Fatal(err)
				}
				if free := a.Reap(); free < l.ports[0].Info().TxFrames-64 {
					t.Errorf("%d of %d frames free after Flush", free, l.ports[0].Info().TxFrames)
				}
				for i := range n {
					if got, _ := receive(t, b, time.Second); !bytes.Equal(got, l.frame(0, 200)) {
						t.Fatalf("frame %d of %d: %d bytes, %+v", i, n, len(got), b.Stats())
					}
				}
			})
		}
	}
}

// Each queue of a veth leads to the same queue of its peer.
func TestQueues(t *testing.T) {
	const queues = 4
	l := newLab(t, nettest.Config{Queues: queues}, xdp.Options{RxFrames: 256, TxFrames: 128})
	if n := len(l.ports[0].Sockets()); n != queues {
		t.Fatalf("%d sockets", n)
	}
	for q := range queues {
		f := l.frame(0, 100+q)
		s := l.ports[0].Sockets()[q]
		if s.Queue() != q || !s.CanSend() {
			t.Errorf("socket %d: queue %d, can send %v", q, s.Queue(), s.CanSend())
		}
		send(t, s, f)
		if got, _ := receive(t, l.ports[1].Sockets()[q], time.Second); !bytes.Equal(got, f) {
			t.Errorf("queue %d: %d bytes", q, len(got))
		}
	}
	if st := l.ports[1].Stats(); st.RxPackets != queues || st.RxBytes != 406 {
		t.Errorf("%+v", st)
	}
}

// With more RX than TX queues the extra sockets receive and do not send.
func TestMoreRXThanTXQueues(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	if err := p.Ends[0].NS.Run("ethtool", "-L", "veth0", "tx", "1"); err != nil {
		t.Fatal(err)
	}
	port, err := tryOpen(p.Ends[0], xdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if i := port.Info(); i.Queues != 2 || i.TXQueues != 1 {
		t.Fatalf("%+v", i)
	}
	s := port.Sockets()[1]
	if s.CanSend() || s.TXSpace() != 0 || s.Reserve(new(xdp.Packet), 64) || s.Flush() != nil {
		t.Error("a queue without TX offers to send")
	}
}

// A jumbo packet of three frames is dropped and counted once, and the next one
// is received.
func TestThreeFramePacket(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l := newLab(t, nettest.Config{MTU: 9000}, xdp.Options{Mode: mode})
			l.needMultiBuffer()
			raw := packetSocket(t, l.Ends[0])
			if _, err := unix.Write(raw, l.frame(0, 9014)); err != nil {
				t.Fatal(err)
			}
			l.arrives(0, l.frame(0, 4198))
			if st := l.ports[1].Stats(); st.RxTooLong != 1 || st.RxPackets != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Without multi-buffer, frames that fit one buffer arrive and longer ones are
// the kernel's to count; such a program limits the MTU in driver mode.
func TestSingleBuffer(t *testing.T) {
	l := newLab(t, nettest.Config{MTU: 3000}, xdp.Options{SingleBuffer: true})
	l.arrives(0, l.frame(0, 3014))
	if s := l.ports[0].Sockets()[0]; s.MaxSend() != 4096 || s.MaxReceive() != 3840 || l.ports[0].Info().MultiBuffer {
		t.Error("it claims multi-buffer")
	}
	p := nettest.New(t, nettest.Config{MTU: 9000})
	_, err := tryOpen(p.Ends[0], xdp.Options{SingleBuffer: true, Mode: xdp.ModeDriver})
	wantErr(t, err, unix.ERANGE)
	var e *xdp.Error
	if !errors.As(err, &e) || e.Op != "attach program" || e.Hint == "" {
		t.Errorf("error %+v", e)
	}
}

// Statistics tell what came and what was lost, and stand after Close.
func TestStats(t *testing.T) {
	l := newLab(t, nettest.Config{}, few)
	a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
	for range 20 { // 1280 frames into 1024
		for range fewTx {
			put(t, a, l.frame(0, 64))
		}
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	st := b.Stats()
	if st.RxFillEmpty+st.RxRingFull == 0 || a.Stats().TxPackets != 1280 {
		t.Fatalf("%+v", st)
	}
	for {
		if f, _ := receive(t, b, 10*time.Millisecond); f == nil {
			break
		}
	}
	st = b.Stats()
	if st.RxPackets == 0 || st.RxPackets > fewRx || st.RxBytes != 64*st.RxPackets {
		t.Errorf("%+v", st)
	}
	l.ports[1].Close()
	if after := b.Stats(); after != st {
		t.Errorf("after Close %+v, before %+v", after, st)
	}
}

func TestNoAllocationsOverVeth(t *testing.T) {
	l := newLab(t, nettest.Config{MTU: 4200}, xdp.Options{})
	a, b := l.ports[0].Sockets()[0], l.ports[1].Sockets()[0]
	f := l.frame(0, min(4198, a.MaxReceive()))
	var batch [8]xdp.Packet
	extra := []unix.PollFd{{Fd: -1}}
	if n := testing.AllocsPerRun(500, func() {
		put(t, a, f)
		if a.Flush() != nil || b.Wait(time.Millisecond, true, extra) != nil {
			t.Error("failed")
		}
		b.Release(batch[:b.Recv(batch[:])])
		a.TXSpace()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if st := b.Stats(); st.RxPackets < 500 {
		t.Errorf("%+v", st)
	}
}
