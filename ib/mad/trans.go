package mad

import (
	"container/heap"
	"fmt"

	"github.com/urxe/urxe/internal/clock"
)

// Transactions keeps the requests under way and their deadlines, for a Port
// whose transport has no timers of its own. It is not safe for concurrent use.
type Transactions struct {
	byKey map[uint32]*transaction
	queue transactionHeap
	free  []*transaction
}

type transaction struct {
	Packet
	deadline clock.Time
	left     int // Retries.
	index    int // In the heap.
}

// Len returns how many requests are under way.
func (t *Transactions) Len() int { return len(t.queue) }

// Add begins the transaction of p, which is about to be sent.
func (t *Transactions) Add(p *Packet, now clock.Time) error {
	key := p.Key()
	if _, dup := t.byKey[key]; dup {
		return fmt.Errorf("TID 0x%08x: a request with it is under way", key)
	}
	if t.byKey == nil {
		t.byKey = map[uint32]*transaction{}
	}
	x := t.alloc()
	x.Packet = *p
	x.left = p.Retries
	x.deadline = now.Add(p.Timeout)
	t.byKey[key] = x
	heap.Push(&t.queue, x)
	return nil
}

// Answer ends the transaction that m answers, and reports whether there was one.
func (t *Transactions) Answer(m MAD) bool {
	x, ok := t.byKey[uint32(m.TID())]
	if !ok || x.MAD().Class() != m.Class() || x.MAD().Attribute() != m.Attribute() {
		return false
	}
	heap.Remove(&t.queue, x.index)
	t.end(x)
	return true
}

// Cancel ends the transaction of a request that could not be sent.
func (t *Transactions) Cancel(key uint32) {
	if x, ok := t.byKey[key]; ok {
		heap.Remove(&t.queue, x.index)
		t.end(x)
	}
}

// Deadline returns when Expire has work; clock.Never while nothing is under way.
func (t *Transactions) Deadline() clock.Time {
	if len(t.queue) == 0 {
		return clock.Never
	}
	return t.queue[0].deadline
}

// Expire calls resend for each request whose time is up and that has retries
// left, and failed for the others, which end and have Err set. What the two
// get is valid during the call.
func (t *Transactions) Expire(now clock.Time, resend, failed func(p *Packet)) {
	for len(t.queue) > 0 && t.queue[0].deadline <= now {
		x := t.queue[0]
		if x.left > 0 {
			x.left--
			x.deadline = now.Add(x.Timeout)
			heap.Fix(&t.queue, 0)
			resend(&x.Packet)
			continue
		}
		heap.Pop(&t.queue)
		x.Err = ErrTimeout
		failed(&x.Packet)
		t.end(x)
	}
}

func (t *Transactions) alloc() *transaction {
	if n := len(t.free); n > 0 {
		x := t.free[n-1]
		t.free = t.free[:n-1]
		return x
	}
	return new(transaction)
}

func (t *Transactions) end(x *transaction) {
	delete(t.byKey, x.Key())
	t.free = append(t.free, x)
}

type transactionHeap []*transaction

func (h transactionHeap) Len() int           { return len(h) }
func (h transactionHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h transactionHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *transactionHeap) Push(x any) {
	x.(*transaction).index = len(*h)
	*h = append(*h, x.(*transaction))
}
func (h *transactionHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
