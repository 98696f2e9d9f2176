package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLadder(t *testing.T) {
	small, large, bond := &device{mtu: 1500}, &device{mtu: 4200}, &device{mtu: 1500, bond: true}
	vlans := &device{mtu: 1500, bond: true, vlans: true}
	for _, c := range []struct {
		o    Options
		dev  *device
		want string
	}{
		{Options{}, small, "driver zc sg, driver zc, driver copy sg, driver copy, generic copy sg, generic copy"},
		// Zero-copy in a single buffer would refuse packets that the MTU allows.
		{Options{}, large, "driver zc sg, driver copy sg, driver copy, generic copy sg, generic copy"},
		{Options{SingleBuffer: true}, large, "driver zc, driver copy, generic copy"},
		{Options{Mode: ModeDriver}, small, "driver zc sg, driver zc, driver copy sg, driver copy"},
		{Options{Mode: ModeGeneric}, small, "generic copy sg, generic copy"},
		{Options{Copy: CopyOnly}, small, "driver copy sg, driver copy, generic copy sg, generic copy"},
		{Options{Copy: ZeroCopy}, small, "driver zc sg, driver zc"},
		{Options{Mode: ModeDriver, Copy: CopyOnly, SingleBuffer: true}, small, "driver copy"},
		// In driver mode the slaves would have the packets.
		{Options{}, bond, "generic copy sg, generic copy"},
		{Options{Mode: ModeDriver}, bond, ""},
		{Options{Copy: ZeroCopy}, bond, ""},
		{Options{XSKMap: "/owner/has/driver/mode"}, bond, ""},
		// In generic mode what comes in VLANs would have no tags.
		{Options{}, vlans, ""},
		{Options{Copy: CopyOnly}, vlans, ""},
		{Options{Mode: ModeGeneric}, vlans, "generic copy sg, generic copy"},
		{Options{XSKMap: "/owner/has/generic/mode"}, &device{mtu: 1500, bond: true, generic: true}, "generic copy sg, generic copy"},
	} {
		var got []string
		rungs, missing := ladder(c.o, c.dev)
		if (missing != nil) != (c.dev.bond && c.o.Mode != ModeGeneric && !c.dev.generic) {
			t.Errorf("%+v: missing: %v", c.o, missing)
		}
		for _, r := range rungs {
			s := r.mode.String() + map[bool]string{true: " zc", false: " copy"}[r.zerocopy]
			if r.sg {
				s += " sg"
			}
			got = append(got, s)
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%+v, MTU %d: %s, want %s", c.o, c.dev.mtu, s, c.want)
		}
	}
}

func TestFramesByDefault(t *testing.T) {
	for _, c := range [][3]int{{1, 4096, 2048}, {4, 4096, 2048}, {5, 4096, 2048}, {8, 2048, 1024}, {64, 512, 256}, {512, 512, 256}} {
		o, err := Options{}.sized(c[0])
		if err != nil || o.RxFrames != c[1] || o.TxFrames != c[2] {
			t.Errorf("%d queues: %d and %d frames, %v, want %v", c[0], o.RxFrames, o.TxFrames, err, c[1:])
		}
	}
}

// Every errno that a kick is known to give, sorted; what is not known is fatal.
func TestClassify(t *testing.T) {
	for e, want := range map[unix.Errno]kickResult{
		0: kickOK, unix.EAGAIN: kickSoft, unix.EBUSY: kickSoft, unix.ENOBUFS: kickSoft, unix.ENOMEM: kickSoft, unix.EINTR: kickSoft,
		unix.ENETDOWN: kickDown, unix.ENXIO: kickGone, unix.ENODEV: kickGone,
		unix.EINVAL: kickFatal, unix.EOPNOTSUPP: kickFatal, unix.EPERM: kickFatal, unix.ESOCKTNOSUPPORT: kickFatal, unix.EBADF: kickFatal,
	} {
		if got := classify(e); got != want {
			t.Errorf("%v: %d, want %d", e, got, want)
		}
	}
}

// kicks replaces the system call that sends by a fake kernel's answers.
func fakeKicks(t *testing.T, f func() unix.Errno) {
	kickTX = func(int) unix.Errno { return f() }
	t.Cleanup(func() { kickTX = sendNothing })
}

// stage sends n packets without a Flush.
func stage(s *Socket, n int) {
	for range n {
		var p Packet
		s.Reserve(&p, 64)
		s.Send(&p)
	}
}

// A kernel that takes 16 or 32 descriptors a call is called until it has all.
func TestKickUntilEmpty(t *testing.T) {
	for _, budget := range []int{16, 32} {
		s, k := newFake(64, 256, 1<<32-100)
		s.showsProgress = true
		k.tx.flags = ringNeedWakeup
		calls := 0
		fakeKicks(t, func() unix.Errno {
			calls++
			for range budget {
				k.transmit()
			}
			if k.tx.len() > 0 {
				return unix.EAGAIN
			}
			return 0
		})
		stage(s, 256)
		if calls != 0 {
			t.Fatal("kicked before Flush")
		}
		if err := s.Flush(); err != nil || k.tx.len() != 0 || calls != 256/budget {
			t.Errorf("budget %d: %d calls, %d left, %v", budget, calls, k.tx.len(), err)
		}
		if s.Flush(); calls != 256/budget {
			t.Error("a Flush of nothing kicks")
		}
	}
}

// Kernels before 6.17 do not show how far a call came until the ring is empty.
func TestKickWithHiddenProgress(t *testing.T) {
	for _, budget := range []int{16, 32} {
		for _, n := range []int{1, 15, 16, 17, 33, 256} {
			s, k := newFake(64, 256, 1<<32-100)
			k.tx.flags = ringNeedWakeup
			calls, sent := 0, 0
			fakeKicks(t, func() unix.Errno {
				calls++
				sent += min(budget, n-sent)
				if sent < n {
					return unix.EAGAIN
				}
				for range n {
					k.transmit()
				}
				return 0
			})
			stage(s, n)
			if err := s.Flush(); err != nil || k.tx.len() != 0 || calls != (n+budget-1)/budget || s.stuck.Load() {
				t.Errorf("budget %d, %d packets: %d calls, %d left, %v", budget, n, calls, k.tx.len(), err)
			}
		}
	}
}

// A full device is no error and no endless loop: the next Flush, or Wait, goes on.
func TestKickWithoutProgress(t *testing.T) {
	s, k := newFake(64, 64, 0)
	s.showsProgress = true
	k.tx.flags = ringNeedWakeup
	calls, take := 0, 3
	fakeKicks(t, func() unix.Errno {
		calls++
		for ; take > 0; take-- {
			k.transmit()
		}
		return unix.EAGAIN
	})
	stage(s, 10)
	if err := s.Flush(); err != nil || calls != 2 || !s.stuck.Load() {
		t.Errorf("%d calls, stuck %v, %v", calls, s.stuck.Load(), err)
	}
	take = 7
	if err := s.Flush(); err != nil || k.tx.len() != 0 || s.stuck.Load() {
		t.Errorf("%d left, stuck %v, %v", k.tx.len(), s.stuck.Load(), err)
	}
	n := calls
	if s.Flush(); calls != n {
		t.Error("a Flush with nothing left kicks")
	}
	s.showsProgress, calls = false, 0 // an older kernel: called as often as could help
	stage(s, 48)
	if err := s.Flush(); err != nil || calls != 4 || !s.stuck.Load() {
		t.Errorf("%d calls, stuck %v, %v", calls, s.stuck.Load(), err)
	}
}

// No system call where the kernel needs none, and publish before the flag is read.
func TestNeedWakeup(t *testing.T) {
	s, k := newFake(64, 64, 0)
	var rxKicks int
	kickRX = func(int) { rxKicks++ }
	t.Cleanup(func() { kickRX = pollNothing })
	fakeKicks(t, func() unix.Errno { t.Error("kicked"); return 0 })
	stage(s, 5)
	if err := s.Flush(); err != nil || k.tx.len() != 5 {
		t.Errorf("%d published, %v", k.tx.len(), err)
	}
	k.tx.flags = ringNeedWakeup
	kicked := 0
	fakeKicks(t, func() unix.Errno {
		if kicked++; k.tx.len() != 6 {
			t.Errorf("%d published at the kick, want 6", k.tx.len())
		}
		return 0
	})
	stage(s, 1)
	if s.Flush(); kicked != 1 {
		t.Errorf("%d kicks", kicked)
	}
	var batch [4]Packet
	if s.Recv(batch[:]); rxKicks != 0 {
		t.Error("Recv makes a system call")
	}
	k.fill.flags = ringNeedWakeup // a zero-copy driver that sleeps
	if s.Recv(batch[:]); rxKicks != 1 {
		t.Error("a sleeping driver is not woken")
	}
}

func TestKickErrors(t *testing.T) {
	for e, want := range map[unix.Errno]error{unix.ENETDOWN: ErrLinkDown, unix.ENXIO: ErrGone, unix.EINVAL: unix.EINVAL, unix.EBUSY: nil} {
		s, k := newFake(64, 64, 0)
		k.tx.flags = ringNeedWakeup
		fakeKicks(t, func() unix.Errno { return e })
		stage(s, 1)
		if err := s.Flush(); !errors.Is(err, want) {
			t.Errorf("%v: error %v, want %v", e, err, want)
		}
		if !s.gate.enter() {
			t.Errorf("%v: the gate stays busy", e)
		}
	}
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		op   string
		err  error
		says string
	}{
		{"register UMEM", unix.ENOBUFS, "memory"},
		{"open socket", unix.EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"},
		{"attach program", unix.ERANGE, "MTU"},
		{"attach program", unix.ENOSPC, "queues"},
		{"bind", unix.ENETDOWN, "up"},
		{"bind", unix.EINVAL, ""},
	} {
		if got := hint(c.op, fmt.Errorf("wrapped: %w", c.err)); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: %v: %q", c.op, c.err, got)
		}
	}
	if hint("load program", unix.EPERM) == "" {
		t.Error("nothing said about a refused program")
	}
}
