package rocev2

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

func prefixes(list ...string) (ps []netip.Prefix) {
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func TestAllowList(t *testing.T) {
	for _, c := range []struct {
		list, in, out string
	}{
		{"10.0.0.0/8", "10.0.0.0 10.255.255.255 10.1.2.3", "11.0.0.1 9.255.255.255 ::ffff:10.1.2.3 fd00::1"},
		{"10.9.8.7/8", "10.1.1.1", "11.1.1.1"}, // bits behind the prefix don't count
		{"10.0.0.1/32 10.0.0.3/32", "10.0.0.1 10.0.0.3", "10.0.0.2"},
		{"::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.1"}, // as a GID has it
		{"fd00::/16 192.0.2.0/24", "fd00::1 fd00:ffff::1 192.0.2.7", "fe80::1 192.0.3.1"},
		{"0.0.0.0/0", "1.2.3.4", "::1"},
		{"::/0", "::1 fe80::1", "1.2.3.4"},
	} {
		a, err := newAllowList(prefixes(strings.Fields(c.list)...))
		if err != nil {
			t.Fatal(err)
		}
		for want, list := range map[bool]string{true: c.in, false: c.out} {
			for _, s := range strings.Fields(list) {
				if got := a.has(netip.MustParseAddr(s).AsSlice()); got != want {
					t.Errorf("%s in %s: %v", s, c.list, got)
				}
			}
		}
	}
	if a, err := newAllowList(nil); a != nil || err != nil {
		t.Error(a, err)
	}
	if _, err := newAllowList([]netip.Prefix{{}}); err == nil || !strings.Contains(err.Error(), "no prefix") {
		t.Error(err)
	}
}

// A peer that isn't allowed gets no answer, and each packet of it is counted once,
// under its own reason; when it is allowed the connection goes on.
func TestPeersThatAreNotAllowed(t *testing.T) {
	a, b := newPorts(t, true, 2, PairOptions{})
	x, y := newEndpoint(t, a, 10_000, 16), newEndpoint(t, b, 10_000, 16)
	join(t, x, y, ib.MTU1024)
	fill(x.buf, 1)
	if err := b.SetAllowPeers(prefixes("10.0.0.3/32", "fd00::/8")); err != nil {
		t.Fatal(err)
	}
	x.write(1, y, 0, 3000)
	now := settle(t, 0, func() bool { return b.Drops()[wire.DropNotPeer] >= 6 }, a, b) // it repeats them
	if c, d := b.Counters(), b.Drops(); c.SentPkts != 0 || c.RcvdPkts != d[wire.DropNotPeer] {
		t.Errorf("%d packets answered, %d of %d dropped", c.SentPkts, d[wire.DropNotPeer], c.RcvdPkts)
	}
	if s := b.Stats(); s.Drops["not_a_peer"] < 6 {
		t.Errorf("drops %v", s.Drops)
	}
	// The ICRC isn't even looked at.
	if err := b.SetAllowPeers([]netip.Prefix{{}}); err == nil || !strings.Contains(err.Error(), "b: allow peers") {
		t.Errorf("a bad list: %v", err)
	}
	if err := b.SetAllowPeers(prefixes("10.0.0.0/30")); err != nil {
		t.Fatal(err)
	}
	now = settle(t, now, func() bool { return x.cq.len() > 0 }, a, b)
	wantCompletions(t, &x.cq, 1)
	wantSame(t, "WRITE", x.buf[:3000], y.buf[:3000])
	// Not any more, and to all again.
	for _, list := range [][]netip.Prefix{prefixes("10.0.0.2/32"), nil} {
		before := b.Drops()[wire.DropNotPeer]
		if err := b.SetAllowPeers(list); err != nil {
			t.Fatal(err)
		}
		x.write(2, y, 0, 100)
		if list != nil {
			now = settle(t, now, func() bool { return b.Drops()[wire.DropNotPeer] > before }, a, b)
		} else {
			now = settle(t, now, func() bool { return x.cq.len() == 2 }, a, b)
		}
	}
	wantCompletions(t, &x.cq, 2, 2)
}

// Traffic of a port with itself needs no place on the list.
func TestOwnTrafficIsAllowed(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 10_000, 16), newEndpoint(t, a, 10_000, 16)
	join(t, x, y, ib.MTU1024)
	if err := a.SetAllowPeers(prefixes("192.0.2.0/24")); err != nil {
		t.Fatal(err)
	}
	x.write(1, y, 0, 3000)
	settle(t, 0, func() bool { return x.cq.len() > 0 }, a, b)
	wantCompletions(t, &x.cq, 1)
}

// A Link that brings what isn't the port's: it is dropped, and counted as that, even
// for a QP that is there.
func TestForeignDestinations(t *testing.T) {
	la, lb, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a := newPort(t, "a", true, "10.0.0.1", la)
	taken := gid("10.0.0.99")
	b, err := NewPort(Config{Name: "b", Links: []Link{lb}, Net: &FixedNet{Addresses: []ib.GID{gid("10.0.0.2")}}, Manual: true,
		Takes: func(g ib.GID) bool { return g == taken }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x, y := newEndpoint(t, a, 10_000, 16), newEndpoint(t, b, 10_000, 16)
	defer y.Destroy()
	join(t, x, y, ib.MTU1024)
	x.write(1, y, 0, 1000)
	now := settle(t, 0, func() bool { return b.Drops()[wire.DropAddress] >= 2 }, a, b)
	taken = gid("10.0.0.2")
	settle(t, now, func() bool { return x.cq.len() > 0 }, a, b)
	wantCompletions(t, &x.cq, 1)
}

func TestGateDoesNotAllocate(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 10_000, 64), newEndpoint(t, b, 10_000, 64)
	join(t, x, y, ib.MTU1024)
	if err := b.SetAllowPeers(prefixes("192.0.2.0/24", "10.0.0.1/32")); err != nil {
		t.Fatal(err)
	}
	wqe := &qp.SendWQE{Opcode: qp.WRWrite, SGEs: x.sge(0, 3000), RKey: y.mr.Key}
	x.cq.cs = make([]qp.Completion, 0, 64)
	now := clock.Time(0)
	round := func() {
		x.sq.Post(wqe)
		x.Doorbell()
		for n := x.cq.len(); x.cq.len() == n; now++ {
			a.Workers()[0].Step(now)
			b.Workers()[0].Step(now)
		}
		x.cq.cs = x.cq.cs[:0]
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}
