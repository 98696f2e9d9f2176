// Package qptest has work queues of QPs for tests: without bound, and strict
// about the order in which work requests are given back.
package qptest

import (
	"sync"

	"github.com/urxe/urxe/rocev2/qp"
)

// queue keeps the work requests that aren't retired, oldest first.
type queue[W any] struct {
	mu      sync.Mutex
	wqes    []*W
	taken   int // of wqes
	retired int // so many were
}

// Post adds a work request, which stays the caller's to keep as it is.
func (q *queue[W]) Post(w *W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wqes = append(q.wqes, w)
}

// Next takes the oldest work request not taken yet, nil if there is none.
func (q *queue[W]) Next() *W {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken == len(q.wqes) {
		return nil
	}
	q.taken++
	return q.wqes[q.taken-1]
}

// retire returns the oldest that was taken, which is no longer kept.
func (q *queue[W]) retire() *W {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken == 0 {
		panic("a work request is retired that was not taken")
	}
	w := q.wqes[0]
	q.wqes = q.wqes[:copy(q.wqes, q.wqes[1:])]
	q.taken--
	q.retired++
	return w
}

// Waiting returns how many are not taken yet.
func (q *queue[W]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.wqes) - q.taken
}

// Pending returns how many are not retired yet.
func (q *queue[W]) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.wqes)
}

// Retired returns how many were.
func (q *queue[W]) Retired() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.retired
}

// SendQueue is a qp.SendQueue.
type SendQueue struct{ queue[qp.SendWQE] }

// Retire implements qp.SendQueue.
func (q *SendQueue) Retire() { q.retire() }

// RecvQueue is a qp.RecvQueue of one QP.
type RecvQueue struct{ queue[qp.RecvWQE] }

// Retire implements qp.RecvQueue.
func (q *RecvQueue) Retire(w *qp.RecvWQE) {
	if q.retire() != w {
		panic("a receive is retired before an older one")
	}
}
