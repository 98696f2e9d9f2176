package rocev2

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
)

// memberNet is a Net that keeps account of the groups it is in.
type memberNet struct {
	FixedNet
	mu     sync.Mutex
	groups []ib.GID
	calls  int
	fail   error
}

func (n *memberNet) Join(g ib.GID, _ uint16) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if n.fail == nil {
		n.groups = append(n.groups, g)
	}
	return n.fail
}

func (n *memberNet) Leave(g ib.GID, _ uint16) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	n.groups = slices.DeleteFunc(n.groups, func(x ib.GID) bool { return x == g })
	return n.fail
}

func (n *memberNet) want(t testing.TB, calls int, groups ...ib.GID) {
	t.Helper()
	if n.calls != calls || !slices.Equal(n.groups, groups) {
		t.Errorf("after %d calls in groups %v, want %d and %v", n.calls, n.groups, calls, groups)
	}
}

func newMemberPort(t testing.TB) (*Port, *memberNet) {
	t.Helper()
	l, _, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &memberNet{FixedNet: FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}}}
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: n, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, n
}

// The port is in a group from the first attachment to the end of the last.
func TestAttach(t *testing.T) {
	p, net := newMemberPort(t)
	x, y := newDatagrams(t, p, 0), newDatagrams(t, p, 0)
	other := gid("ff0e::1:2")
	none := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	none(x.AttachMcast(theGroup, 0), x.AttachMcast(theGroup, 0), y.AttachMcast(theGroup, 0), y.AttachMcast(other, 0))
	net.want(t, 2, theGroup, other)
	if s := p.Stats().Groups; s["239.1.2.3"] != 2 || s["ff0e::1:2"] != 1 || len(s) != 2 {
		t.Errorf("groups %v", s)
	}
	none(x.DetachMcast(theGroup, 0))
	if err := x.DetachMcast(theGroup, 0); !errors.Is(err, ErrNotAttached) {
		t.Errorf("detached twice: %v", err)
	}
	net.want(t, 2, theGroup, other)
	y.Destroy() // leaves them all
	net.want(t, 4)
	if n := len(p.Stats().Groups); n != 0 || p.groups.attached != 0 || p.groups.count.Load() != 0 {
		t.Errorf("%d groups are left, %d attachments", n, p.groups.attached)
	}
	net.fail = errors.New("no such luck")
	if err := x.AttachMcast(theGroup, 0); !errors.Is(err, net.fail) {
		t.Errorf("without the join: %v", err)
	}
	net.fail = nil
	none(x.AttachMcast(theGroup, 0))
	net.fail = errors.New("no such luck")
	if err := x.DetachMcast(theGroup, 0); !errors.Is(err, net.fail) || len(p.Stats().Groups) != 0 {
		t.Errorf("without leaving: %v, groups %v", err, p.Stats().Groups)
	}
}

func TestAttachErrors(t *testing.T) {
	p, net := newMemberPort(t)
	ud, rc := newDatagrams(t, p, 0), newTyped(t, p, qp.RC)
	gone := newDatagrams(t, p, 0)
	gone.Destroy()
	for _, c := range []struct {
		q    *endpoint
		g    ib.GID
		says string
	}{
		{rc, theGroup, "only QPs of type UD"}, {ud, gid("10.0.0.9"), "not a multicast GID"}, {ud, gid("fe80::1"), "not a multicast GID"},
		{ud, ib.GID{}, "not a multicast GID"}, {gone, theGroup, "destroyed"},
	} {
		if err := c.q.AttachMcast(c.g, 0); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a: QP") {
			t.Errorf("%v: %v, want %q", c.g, err, c.says)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ud.AttachMcast(theGroup, 0); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("on a closed port: %v", err)
	}
	net.want(t, 0)
}

func groupOf(i int) ib.GID {
	return ib.GID{0: 0xff, 1: 0x0e, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
}

// The limits are the ones that are said, and what is given back counts no more.
func TestAttachLimits(t *testing.T) {
	p, _ := newMemberPort(t)
	var all []*endpoint
	for range MaxMcastQPAttach + 1 {
		all = append(all, newDatagrams(t, p, 0))
	}
	attach := func(k, g int) {
		t.Helper()
		if err := all[k].AttachMcast(groupOf(g), 0); err != nil {
			t.Fatal(err)
		}
	}
	full := func(k, g int, says string) {
		t.Helper()
		if err := all[k].AttachMcast(groupOf(g), 0); !errors.Is(err, ErrMcastLimit) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	for g := range MaxTotalMcastQPAttach/MaxMcastQPAttach - 1 {
		for k := range MaxMcastQPAttach {
			attach(k, g)
		}
	}
	const last = MaxTotalMcastQPAttach/MaxMcastQPAttach - 1
	full(MaxMcastQPAttach, 0, "in this group")
	for g := range MaxMcastQPAttach {
		attach(0, last+g)
	}
	full(MaxMcastQPAttach, last, "of the port, the most")
	for k := 1; k < MaxMcastQPAttach; k++ {
		all[k].Destroy()
	}
	for g := last + MaxMcastQPAttach; g < MaxMcastGrp; g++ {
		attach(0, g)
	}
	full(0, MaxMcastGrp, "groups, the most")
	if err := all[0].DetachMcast(groupOf(7), 0); err != nil {
		t.Fatal(err)
	}
	attach(0, MaxMcastGrp)
	for g := range MaxMcastGrp + 1 {
		if found := p.groups.find(groupKey{gid: groupOf(g)}); (found == nil) != (g == 7) {
			t.Errorf("group %d: %v", g, found)
		}
	}
}

// Members come and go in a flood. Who is detached gets nothing more.
func TestAttachInAFlood(t *testing.T) {
	a, b := newCrossed(t, false, PairOptions{})
	x := newDatagrams(t, a, 0)
	steady := attached(t, b, 2)
	h := ahTo(t, a, theGroup)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, e := range steady {
				e.recv(i, 0, 100)
			}
			x.sendTo(i, h, ib.QPNMulticast, 8)
			if i%16 == 15 {
				await(t, &x.cq, 16)
			}
		}
	})
	for range 50 {
		e := newDatagrams(t, b, 0)
		for i := range uint64(1000) {
			e.recv(i, 0, 100)
		}
		if err := e.AttachMcast(theGroup, 0); err != nil {
			t.Fatal(err)
		}
		await(t, &e.cq, 1)
		if err := e.DetachMcast(theGroup, 0); err != nil {
			t.Fatal(err)
		}
		e.cq.take()
		time.Sleep(100 * time.Microsecond)
		if cs := e.cq.take(); len(cs) > 0 {
			t.Fatalf("%d datagrams came after it was detached", len(cs))
		}
		if err := e.AttachMcast(theGroup, 0); err != nil {
			t.Fatal(err)
		}
		e.Destroy()
	}
	close(stop)
	wg.Wait()
	for _, e := range steady {
		if len(e.cq.take()) == 0 {
			t.Error("a steady member got nothing")
		}
	}
}
