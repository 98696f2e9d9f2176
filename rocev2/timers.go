package rocev2

import (
	"slices"

	"github.com/urxe/urxe/internal/clock"
)

// timers is a 4-ary heap of QPs by the time at which they want to be looked
// at. Each QP is in it at most once. Most of a QP's deadlines only move away,
// with each acknowledgement; so an entry that is too early stays, and is put
// right when it comes to the top.
type timers struct{ heap []timer }

type timer struct {
	at clock.Time
	q  *QP
}

const noTimer = -1 // QP.timer of a QP that isn't in the heap

// grow makes room for n QPs.
func (t *timers) grow(n int) { t.heap = slices.Grow(t.heap, max(0, n-len(t.heap))) }

// set sees that q is looked at no later than at.
func (t *timers) set(q *QP, at clock.Time) {
	switch {
	case q.timer == noTimer && at != clock.Never:
		q.timer = int32(len(t.heap))
		t.heap = append(t.heap, timer{at, q})
		t.up(int(q.timer))
	case q.timer != noTimer && at < t.heap[q.timer].at:
		t.heap[q.timer].at = at
		t.up(int(q.timer))
	}
}

// remove takes q out.
func (t *timers) remove(q *QP) {
	i := int(q.timer)
	if i == noTimer {
		return
	}
	last := len(t.heap) - 1
	t.swap(i, last)
	t.heap[last] = timer{}
	t.heap = t.heap[:last]
	q.timer = noTimer
	if i < last {
		t.down(i)
		t.up(i)
	}
}

// next returns when the first QP has to be looked at, after putting right the
// entries at the top that are too early.
func (t *timers) next() clock.Time {
	for len(t.heap) > 0 {
		top := &t.heap[0]
		at := top.q.core.Deadline()
		if at <= top.at {
			return top.at
		}
		t.delay(at)
	}
	return clock.Never
}

// due returns the QP at the top if it has to be looked at by now.
func (t *timers) due(now clock.Time) *QP {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		q := t.heap[0].q
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
		t.remove(t.heap[0].q)
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
	t.heap[i].q.timer, t.heap[k].q.timer = int32(i), int32(k)
}
