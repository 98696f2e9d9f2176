package rocev2

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// newCrossed makes two Ports of two queues whose cables are crossed: what a
// worker sends arrives at the worker of the other number.
func newCrossed(t testing.TB, manual bool, o PairOptions) (a, b *Port) {
	t.Helper()
	var la, lb [2]Link
	for i := range la {
		var err error
		if la[i], lb[1-i], err = NewPair(o); err != nil {
			t.Fatal(err)
		}
	}
	return newPort(t, "a", manual, "10.0.0.1", la[:]...), newPort(t, "b", manual, "10.0.0.2", lb[:]...)
}

// framesOut counts the frames of a Port's Links that are with someone.
func framesOut(p *Port) (n int) {
	for _, w := range p.Workers() {
		w.token.Lock()
		l := w.line.(*memLink)
		l.out.reclaim()
		n += l.out.back.Cap() - len(l.out.free)
		w.token.Unlock()
	}
	return n
}

func TestHandover(t *testing.T) {
	for _, frames := range []int{16, 1024} {
		a, b := newCrossed(t, true, PairOptions{Frames: frames})
		var xs, ys []*endpoint
		for i := range 4 {
			x, y := newEndpoint(t, a, 200_000, 16), newEndpoint(t, b, 200_000, 16)
			join(t, x, y, ib.MTU1024)
			fill(x.buf, uint64(i))
			xs, ys = append(xs, x), append(ys, y)
		}
		for i, x := range xs {
			x.write(1, ys[i], 0, 100_000)
			x.read(2, ys[i], 100_000, 100_000)
		}
		settle(t, 1, nil, a, b)
		for i, x := range xs {
			wantCompletions(t, &x.cq, 1, 2)
			wantSame(t, "WRITE", x.buf[:100_000], ys[i].buf[:100_000])
			wantSame(t, "READ", ys[i].buf[100_000:], x.buf[100_000:])
		}
		if d := b.Drops(); d[wire.DropHandover] != 0 || d[wire.Accepted] == 0 {
			t.Errorf("drops %v", d)
		}
		for _, p := range []*Port{a, b} {
			if n := framesOut(p); n != 0 {
				t.Errorf("%d frames did not come back", n)
			}
		}
	}
}

func TestHandoverAmongGoroutines(t *testing.T) {
	a, b := newCrossed(t, false, PairOptions{})
	var xs, ys []*endpoint
	for range 4 {
		x, y := newEndpoint(t, a, 1<<20, 16), newEndpoint(t, b, 1<<20, 16)
		join(t, x, y, ib.MTU1024)
		fill(x.buf, 1)
		xs, ys = append(xs, x), append(ys, y)
	}
	for i, x := range xs {
		for k := range 8 {
			x.write(uint64(k), ys[i], k<<17, 1<<17)
		}
	}
	for i, x := range xs {
		await(t, &x.cq, 8)
		b.Barrier()
		wantSame(t, "WRITE", x.buf, ys[i].buf)
	}
}

// The ring to a home that doesn't run is full at some time: packets are then
// dropped with that reason, and their frames return.
func TestFullHandover(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	x, y := newEndpoint(t, a, 1<<20, 16), newEndpoint(t, b, 1<<20, 16)
	join(t, x, y, ib.MTU256)
	now := settle(t, 1, nil, a, b)
	home := y.Worker()
	lender := b.Workers()[1-home.index]
	for i := range 8 { // more than its window lets go at a time
		x.write(uint64(i), y, 0, 30_000)
	}
	for range 20 {
		now++
		x.Worker().Step(now)
		lender.Step(now)
		// Send everything again, as a peer does that gets no answer.
		now += 4 << 27
	}
	d := b.Drops()
	if d[wire.DropHandover] == 0 {
		t.Fatalf("no packet met a full ring: %v", d)
	}
	if lender.lent > loans {
		t.Errorf("%d frames are lent, more than %d", lender.lent, loans)
	}
	now = settle(t, now, nil, a, b)
	settle(t, now, nil, a, b)
	if lender.lent != 0 {
		t.Errorf("%d frames are still lent", lender.lent)
	}
}

// A Port that is closed while frames are lent gives them back to their Links.
func TestCloseWithLoans(t *testing.T) {
	conform.Row(t, "bug/53")
	a, b := newCrossed(t, true, PairOptions{})
	x, y := newEndpoint(t, a, 1<<20, 16), newEndpoint(t, b, 1<<20, 16)
	join(t, x, y, ib.MTU1024)
	now := settle(t, 1, nil, a, b)
	x.write(1, y, 0, 30_000)
	x.Worker().Step(now)
	lender := b.Workers()[1-y.Worker().index]
	lender.Step(now)
	if lender.lent == 0 {
		t.Fatal("nothing is lent")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := framesOut(a); n != 0 {
		t.Errorf("%d frames did not come back", n)
	}
}

// Destroying a QP whose packets are on loan drops them as addressed to no one.
func TestDestroyWithLoans(t *testing.T) {
	conform.Row(t, "bug/53")
	a, b := newCrossed(t, true, PairOptions{})
	x, y := newEndpoint(t, a, 1<<20, 16), newEndpoint(t, b, 1<<20, 16)
	join(t, x, y, ib.MTU1024)
	now := settle(t, 1, nil, a, b)
	x.write(1, y, 0, 30_000)
	x.Worker().Step(now)
	b.Workers()[1-y.Worker().index].Step(now)
	y.Destroy()
	y.Worker().Step(now)
	if d := b.Drops(); d[wire.DropNoQP] == 0 {
		t.Errorf("drops %v, want some for want of the QP", d)
	}
	settle(t, now, nil, a, b) // until the peer gives up
	if n := framesOut(a) + framesOut(b); n != 0 {
		t.Errorf("%d frames did not come back", n)
	}
}

func TestLoansDoNotAllocate(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	x, y := newEndpoint(t, a, 1<<16, 16), newEndpoint(t, b, 1<<16, 16)
	join(t, x, y, ib.MTU1024)
	now := settle(t, 1, nil, a, b)
	list := newFakes(t, a, 2, gid("10.0.0.2"))
	step := func() {
		for i := range list {
			list[i].owed.Store(16)
			list[i].Doorbell()
		}
		for range 3 {
			now += 1000
			for _, p := range []*Port{a, b} {
				for _, w := range p.Workers() {
					w.Step(now)
				}
			}
		}
	}
	for _, q := range list {
		q.attr.DestQPN = y.Number()
	}
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if n := b.Counters().RcvdPkts; n == 0 {
		t.Error("nothing arrived")
	}
}
