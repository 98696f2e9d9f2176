package rocev2

import (
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/qp"
)

// The heap against a plain list: due gives every QP that is due, and no other;
// next is the earliest deadline.
func TestTimersAgainstAList(t *testing.T) {
	r := seeded.Rand(t)
	var h timers
	cores := make([]*fakeCore, 50)
	qps := make([]*QP, len(cores))
	for i := range qps {
		cores[i] = newFakeCore(qp.Config{})
		qps[i] = &QP{core: cores[i], timer: noTimer}
	}
	h.grow(len(qps))
	now := clock.Time(1)
	for range 20_000 {
		k := r.IntN(len(qps))
		switch r.IntN(4) {
		case 0, 1: // another deadline, earlier or later
			cores[k].setDeadline(now + clock.Time(r.IntN(1000)) + 1)
			h.set(qps[k], cores[k].Deadline())
		case 2:
			cores[k].setDeadline(clock.Never)
			if r.IntN(2) == 0 {
				h.remove(qps[k])
			}
		case 3:
			now += clock.Time(r.IntN(300))
			for q := h.due(now); q != nil; q = h.due(now) {
				if q.core.Deadline() > now {
					t.Fatalf("a QP is due %v early", q.core.Deadline().Sub(now))
				}
				q.core.Expire(now)
			}
		}
		earliest := clock.Never
		for i, c := range cores {
			if c.Deadline() <= now {
				t.Fatalf("QP %d is due and was not found", i)
			}
			earliest = min(earliest, c.Deadline())
		}
		if got := h.next(); got != earliest {
			t.Fatalf("next is %v, want %v", got, earliest)
		}
		checkHeap(t, &h)
	}
}

func checkHeap(t *testing.T, h *timers) {
	t.Helper()
	if len(h.heap)+len(h.free) != len(h.qps) {
		t.Fatalf("%d QPs and %d free numbers of %d", len(h.heap), len(h.free), len(h.qps))
	}
	for i, e := range h.heap {
		if q := h.qps[e.n]; q.timer != e.n || int(h.place[e.n]) != i {
			t.Fatalf("entry %d of QP %d says that it is at %d, and the QP that it is %d", i, e.n, h.place[e.n], q.timer)
		}
		if i > 0 && h.heap[(i-1)/4].at > e.at {
			t.Fatalf("entry %d is earlier than its parent", i)
		}
	}
}

// The answers of more than a burst of messages wait when their timeouts end, as when
// the worker had no processor for that long: none is asked for again.
func TestTimeoutsWaitForWhatCame(t *testing.T) {
	c := newMany(t, 3*burst)
	c.post(burst * 3)
	for c.x.Workers()[0].Step(c.now) {
	}
	for c.y.Workers()[0].Step(c.now) {
	}
	c.now += clock.Time(time.Second)
	for c.x.Workers()[0].Step(c.now) {
	}
	if n := c.x.Workers()[0].counters.Timeouts; n != 0 || c.cq.ok != len(c.qps) {
		t.Errorf("%d timeouts, and %d of %d messages are done", n, c.cq.ok, len(c.qps))
	}
}

// postAt posts a message to each QP of a worker, and returns how many.
func (c *manyQPs) postAt(w *Worker) (n int) {
	for i, q := range c.qps {
		if q.worker == w {
			c.rings[i].posted++
			q.Doorbell()
			n++
		}
	}
	return n
}

// So do the answers that another worker has received and lent.
func TestTimeoutsWaitForLoans(t *testing.T) {
	x, y := newCrossed(t, true, PairOptions{})
	c := newManyOf(t, 6*burst, x, y)
	home, lender := x.Workers()[0], x.Workers()[1]
	posted := c.postAt(home)
	for _, w := range []*Worker{home, y.Workers()[1], y.Workers()[0], lender} {
		for w.Step(c.now) {
		}
	}
	if lender.lent != posted || posted <= burst {
		t.Fatalf("%d answers to %d messages are lent", lender.lent, posted)
	}
	c.now += clock.Time(time.Second)
	for home.Step(c.now) {
	}
	if n := home.counters.Timeouts; n != 0 || c.cq.ok != posted {
		t.Errorf("%d timeouts, and %d of %d messages are done", n, c.cq.ok, posted)
	}
}

// And those that another worker has yet to receive, as it is behind.
func TestTimeoutsWaitForLenders(t *testing.T) {
	x, y := newCrossed(t, true, PairOptions{})
	c := newManyOf(t, 6*burst, x, y)
	home, lender := x.Workers()[0], x.Workers()[1]
	posted := c.postAt(home)
	for _, w := range []*Worker{home, y.Workers()[1], y.Workers()[0]} {
		for w.Step(c.now) {
		}
	}
	if posted <= 2*burst {
		t.Fatalf("%d messages", posted)
	}
	c.now += clock.Time(time.Second)
	for lender.Step(c.now) {
		for range 3 {
			home.Step(c.now)
			c.now++
		}
	}
	if n := home.counters.Timeouts; n != 0 || c.cq.ok != posted {
		t.Errorf("%d timeouts, and %d of %d messages are done", n, c.cq.ok, posted)
	}
}

// A flood holds no timeout up for longer than a queue of frames takes, nor beyond the
// first burst that isn't full.
func TestTimeoutInAFlood(t *testing.T) {
	for _, f := range []struct {
		what          string
		bursts, short int // every so manieth is short
	}{
		{"always full", mostBehind + 1, mostBehind + 2},
		{"every other burst full", 2, 2},
	} {
		c := newMany(t, 1)
		c.post(1)
		c.x.Workers()[0].Step(c.now)
		c.now += clock.Time(time.Second)
		for i := range f.bursts {
			frames := burst
			if (i+1)%f.short == 0 {
				frames--
			}
			sendFrames(t, c.y.Workers()[0].line, frames)
			c.now++
			c.x.Workers()[0].Step(c.now)
		}
		if n := c.x.Workers()[0].counters.Timeouts; n != 1 {
			t.Errorf("%s: %d timeouts", f.what, n)
		}
	}
}

// sendFrames sends n frames that are no packets.
func sendFrames(t *testing.T, l Link, n int) {
	t.Helper()
	var f TxFrame
	for range n {
		if !l.Reserve(&f, 64) {
			t.Fatal("no frame for the flood")
		}
		l.Send(&f)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
}

// Of two lenders that are late by turns there is always one: the timers of whom they
// lend to wait for them, but not for ever.
func TestTimeoutsOfLendersByTurns(t *testing.T) {
	x, y := newPorts(t, true, 3, PairOptions{})
	c := newManyOf(t, 3*burst, x, y)
	home := x.Workers()[0]
	if c.postAt(home) == 0 {
		t.Fatal("no QP lives there")
	}
	home.Step(c.now)
	c.now += clock.Time(time.Second)
	first := c.now
	for i := 0; home.counters.Timeouts == 0; i++ {
		x.Workers()[1].late.Store(i%2 == 0)
		x.Workers()[2].late.Store(i%2 == 1)
		home.Step(c.now)
		c.now = c.now.Add(awaitPause)
		if c.now.Sub(first) > 2*longestAwait {
			t.Fatal("no timeout")
		}
	}
	if waited := c.now.Sub(first); waited < longestAwait {
		t.Errorf("the timeout waited for %v alone", waited)
	}
}
