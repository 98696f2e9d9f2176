package clock

// Timers are the deadlines of many things, for a state machine that has one to
// tell. The zero value has none. It is a heap, earliest first.
type Timers[T any] struct{ heap []*Timer[T] }

// Timer is the deadline of one thing, and a part of it; Of leads back.
type Timer[T any] struct {
	Of    T
	at    Time
	place int // in the heap, from 1; 0: no deadline
}

// At returns the deadline, Never if there is none.
func (t *Timer[T]) At() Time {
	if t.place == 0 {
		return Never
	}
	return t.at
}

// Len returns how many deadlines there are.
func (h *Timers[T]) Len() int { return len(h.heap) }

// Next returns the earliest deadline, Never if there is none.
func (h *Timers[T]) Next() Time {
	if len(h.heap) == 0 {
		return Never
	}
	return h.heap[0].at
}

// Due returns what has the earliest deadline if that is now or over. It stays due
// until its deadline is set anew.
func (h *Timers[T]) Due(now Time) (of T, ok bool) {
	if len(h.heap) == 0 || h.heap[0].at > now {
		return of, false
	}
	return h.heap[0].Of, true
}

// Set gives t a deadline in the place of the one that it may have; Never takes it
// away.
func (h *Timers[T]) Set(t *Timer[T], at Time) {
	if at == Never {
		h.remove(t)
		return
	}
	if t.place == 0 {
		h.heap = append(h.heap, t)
		t.place = len(h.heap)
	}
	t.at = at
	h.settle(t)
}

func (h *Timers[T]) remove(t *Timer[T]) {
	if t.place == 0 {
		return
	}
	last := h.heap[len(h.heap)-1]
	h.swap(t, last)
	h.heap[t.place-1] = nil
	h.heap = h.heap[:t.place-1]
	t.place = 0
	if last != t {
		h.settle(last)
	}
}

// settle moves t to where its deadline belongs.
func (h *Timers[T]) settle(t *Timer[T]) {
	for t.place > 1 && h.heap[t.place/2-1].at > t.at {
		h.swap(t, h.heap[t.place/2-1])
	}
	for c := h.child(t); c != nil && c.at < t.at; c = h.child(t) {
		h.swap(t, c)
	}
}

// child returns the earlier one below t, nil if there is none.
func (h *Timers[T]) child(t *Timer[T]) *Timer[T] {
	switch i := 2 * t.place; {
	case i > len(h.heap):
		return nil
	case i < len(h.heap) && h.heap[i].at < h.heap[i-1].at:
		return h.heap[i]
	default:
		return h.heap[i-1]
	}
}

func (h *Timers[T]) swap(a, b *Timer[T]) {
	a.place, b.place = b.place, a.place
	h.heap[a.place-1], h.heap[b.place-1] = a, b
}
