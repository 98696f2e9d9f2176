package rocev2

import "sync/atomic"

// qpList is a list of QPs, each of which is in one at most: see QP.where.
type qpList struct {
	head, tail *QP
	n          int
}

// QP.where: the list that a QP is in.
const (
	idle      uint8 = iota
	isReady         // it may have something to send
	isWaiting       // it owes only an acknowledgement, which waits a Step
)

func (l *qpList) push(q *QP) {
	q.prev, q.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = q
	} else {
		l.head = q
	}
	l.tail = q
	l.n++
}

func (l *qpList) remove(q *QP) {
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		l.head = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	} else {
		l.tail = q.prev
	}
	q.prev, q.next = nil, nil
	l.n--
}

// doorbells is a stack of QPs that work was posted to. Any goroutine rings;
// the worker takes all at once.
type doorbells struct{ head atomic.Pointer[QP] }

// ring adds q unless it is there already.
func (d *doorbells) ring(q *QP) {
	if q.rung.Load() || !q.rung.CompareAndSwap(false, true) {
		return
	}
	for {
		head := d.head.Load()
		q.nextRung = head
		if d.head.CompareAndSwap(head, q) {
			return
		}
	}
}

func (d *doorbells) any() bool { return d.head.Load() != nil }

// take calls f for each QP that was rung, in the order of the first ring. A QP
// that is rung during its call is in the next take.
func (d *doorbells) take(f func(*QP)) {
	if !d.any() {
		return // a swap costs more than a look
	}
	var first *QP
	for q := d.head.Swap(nil); q != nil; {
		next := q.nextRung
		q.nextRung = first
		first, q = q, next
	}
	for q := first; q != nil; {
		next := q.nextRung
		q.nextRung = nil
		q.rung.Store(false) // from here on q may be pushed again
		f(q)
		q = next
	}
}
