package rocev2

import (
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// A frame that several workers have is given back when the last of them is done.
func TestMulticastToManyWorkers(t *testing.T) {
	a, b := newPorts(t, true, 4, PairOptions{})
	x := newDatagrams(t, a, 0)
	members := attached(t, b, 8)
	h := ahTo(t, a, theGroup)
	now := clock.Time(1)
	for order := range 24 { // of the workers
		for _, e := range members {
			e.recv(1, 0, 100)
		}
		x.sendTo(1, h, ib.QPNMulticast, 8)
		x.Worker().Step(now)
		lender := b.Workers()[x.Worker().index]
		lender.Step(now)
		if lender.lent != 3 || len(lender.shares.free) != len(lender.shares.list)-1 {
			t.Fatalf("%d loans, %d shares in use", lender.lent, len(lender.shares.list)-len(lender.shares.free))
		}
		others := slices.DeleteFunc(slices.Clone(b.Workers()), func(w *Worker) bool { return w == lender })
		for n := 3; n > 0; n-- {
			if framesOut(a) != 1 {
				t.Fatalf("the frame is back while %d workers have it", n)
			}
			i := order % n
			order /= n
			others[i].Step(now)
			others = slices.Delete(others, i, i+1)
			lender.Step(now)
		}
		if framesOut(a) != 0 || lender.lent != 0 {
			t.Fatal("the frame is not back")
		}
		for _, e := range members {
			e.came(t, x.Number(), 8, 1)
		}
		wantCompletions(t, &x.cq, 1)
		now++
	}
	wantVerdicts(t, b, map[wire.Verdict]uint64{wire.Accepted: 24 * 8})
}

// A worker that doesn't run costs its own members their copies when its ring is
// full, and no one else; all frames return.
func TestMulticastToAStuckWorker(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	x := newDatagrams(t, a, 0)
	members := attached(t, b, 2)
	arrives := b.Workers()[1-x.Worker().index]
	quick, stuck := members[0], members[1]
	if quick.Worker() != arrives {
		quick, stuck = stuck, quick
	}
	h := ahTo(t, a, theGroup)
	const n = loans + 100
	now := clock.Time(1)
	for i := range uint64(n) {
		quick.recv(i, 0, 100)
		stuck.recv(i, 0, 100)
		x.sendTo(i, h, ib.QPNMulticast, 8)
		now++
		x.Worker().Step(now)
		arrives.Step(now)
	}
	if got := len(quick.cq.take()); got != n {
		t.Errorf("%d datagrams came where nothing is stuck, want %d", got, n)
	}
	if d := b.Drops()[wire.DropHandover]; d != n-loans {
		t.Errorf("%d copies are lost for want of room, want %d", d, n-loans)
	}
	settle(t, now, nil, a, b)
	if got := len(stuck.cq.take()); got != loans {
		t.Errorf("%d datagrams came where it was, want %d", got, loans)
	}
	wantVerdicts(t, b, map[wire.Verdict]uint64{wire.Accepted: n + loans, wire.DropHandover: n - loans})
	if n := framesOut(a); n != 0 || arrives.lent != 0 || len(arrives.shares.free) != len(arrives.shares.list) {
		t.Errorf("%d frames did not come back, %d are lent", n, arrives.lent)
	}
}

// A Port that is closed, or a member that is destroyed or detached, while copies
// are on loan.
func TestMulticastLoansEnd(t *testing.T) {
	for _, end := range []string{"close", "destroy", "detach"} {
		a, b := newCrossed(t, true, PairOptions{})
		x := newDatagrams(t, a, 0)
		for _, e := range attached(t, b, 2) {
			e.recv(1, 0, 100)
		}
		x.sendTo(1, ahTo(t, a, theGroup), ib.QPNMulticast, 8)
		x.Worker().Step(1)
		lender := b.Workers()[1-x.Worker().index]
		lender.Step(1)
		if lender.lent != 1 {
			t.Fatalf("%d frames are lent", lender.lent)
		}
		for _, q := range b.groups.find(groupKey{gid: theGroup}).on(b.Workers()[1-lender.index]) {
			var err error
			switch end {
			case "close":
				err = b.Close()
			case "destroy":
				q.Destroy()
			case "detach":
				err = q.DetachMcast(theGroup, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if end != "close" {
			settle(t, 2, nil, a, b)
			wantVerdicts(t, b, map[wire.Verdict]uint64{wire.Accepted: 1, wire.DropNoMember: 1})
		}
		if n := framesOut(a); n != 0 {
			t.Errorf("%s: %d frames did not come back", end, n)
		}
	}
}

// Frames of the loop that another worker was slow to give back are noticed
// without any other event.
func TestLoopWaitsForLoans(t *testing.T) {
	for _, to := range []string{"a member", "a QP"} {
		t.Run(to, func(t *testing.T) {
			l, _, err := NewPair(PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			k, _, err := NewPair(PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p, err := NewPort(Config{Name: "a", Links: []Link{l, k}, Manual: true, LoopFrames: 4,
				Net: &FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			x, y := newDatagrams(t, p, 0), newDatagrams(t, p, 0)
			h, number := ahTo(t, p, p.GIDs()[0]), y.Number()
			if to == "a member" {
				h, number = ahTo(t, p, theGroup), ib.QPNMulticast
				if err := y.AttachMcast(theGroup, 0); err != nil {
					t.Fatal(err)
				}
			}
			for i := range uint64(10) {
				y.recv(i, 0, 100)
				x.sendTo(i, h, number, 8)
			}
			now := clock.Time(1)
			for range 10 {
				x.Worker().Step(now)
			}
			if x.Worker().Deadline() <= now {
				t.Fatal("the sender has something to do without a frame")
			}
			y.Worker().Step(now)
			if x.Worker().Deadline() > now {
				t.Fatal("the sender does not notice that frames came back")
			}
			settle(t, now, nil, p)
			if n := len(y.cq.take()); n != 10 {
				t.Errorf("%d datagrams came, want 10", n)
			}
		})
	}
}
