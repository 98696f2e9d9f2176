package rocev2

import (
	"slices"

	"github.com/urxe/urxe/internal/clock"
)

// timers is a 4-ary heap of QPs by the time at which they want to be looked
// at. Each QP is in it at most once. Most of a QP's deadlines only move away,
// with each acknowledgement; so an entry that is too early stays, and is put
// right when it comes to the top.
//
// Entries go by numbers, whose places stand together: to move those of other QPs
// fetches nothing of these QPs, as in a clock.Timers it would.
type timers struct {
	heap  []timer
	qps   []*QP   // by number
	place []int32 // in heap, by number
	free  []int32 // numbers
}

type timer struct {
	at clock.Time
	n  int32
}

const noTimer = -1 // QP.timer of a QP that isn't in the heap

// grow makes room for n QPs.
func (t *timers) grow(n int) {
	t.heap = slices.Grow(t.heap, max(0, n-len(t.heap)))
	for k := len(t.qps); k < n; k++ {
		t.qps, t.place, t.free = append(t.qps, nil), append(t.place, 0), append(t.free, int32(k))
	}
}

// set sees that q is looked at no later than at.
func (t *timers) set(q *QP, at clock.Time) {
	switch {
	case q.timer == noTimer && at != clock.Never:
		t.add(q, at)
	case q.timer != noTimer:
		if i := t.place[q.timer]; at < t.heap[i].at {
			t.heap[i].at = at
			t.up(int(i))
		}
	}
}

func (t *timers) add(q *QP, at clock.Time) {
	last := len(t.free) - 1
	q.timer = t.free[last]
	t.free = t.free[:last]
	t.qps[q.timer] = q
	t.place[q.timer] = int32(len(t.heap))
	t.heap = append(t.heap, timer{at, q.timer})
	t.up(len(t.heap) - 1)
}

// remove takes q out.
func (t *timers) remove(q *QP) {
	if q.timer == noTimer {
		return
	}
	i, last := int(t.place[q.timer]), len(t.heap)-1
	t.swap(i, last)
	t.heap = t.heap[:last]
	t.qps[q.timer] = nil
	t.free = append(t.free, q.timer)
	q.timer = noTimer
	if i < last {
		t.down(i)
		t.up(i)
	}
}

// touch reads q's place. The result means nothing.
func (t *timers) touch(q *QP) uint64 {
	if q.timer == noTimer {
		return 0
	}
	return uint64(t.heap[t.place[q.timer]].at)
}

// top returns the QP to be looked at first.
func (t *timers) top() *QP { return t.qps[t.heap[0].n] }

// next returns when the first QP has to be looked at, after putting right the
// entries at the top that are too early.
func (t *timers) next() clock.Time {
	for len(t.heap) > 0 {
		at := t.top().core.Deadline()
		if first := t.heap[0].at; at <= first {
			return first
		}
		t.delay(at)
	}
	return clock.Never
}

// due returns the QP at the top if it has to be looked at by now.
func (t *timers) due(now clock.Time) *QP {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		q := t.top()
		at := q.core.Deadline()
		if at <= now {
			return q
		}
		t.delay(at)
	}
	return nil
}

// delay moves the top to its real, later time.
func (t *timers) delay(at clock.Time) {
	if at == clock.Never {
		t.remove(t.top())
		return
	}
	t.heap[0].at = at
	t.down(0)
}

func (t *timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 4
		if t.heap[parent].at <= t.heap[i].at {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers) down(i int) {
	for {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < len(t.heap); c++ {
			if t.heap[c].at < t.heap[least].at {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *timers) swap(i, k int) {
	t.heap[i], t.heap[k] = t.heap[k], t.heap[i]
	t.place[t.heap[i].n], t.place[t.heap[k].n] = int32(i), int32(k)
}
