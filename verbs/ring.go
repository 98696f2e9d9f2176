package verbs

import (
	"math/bits"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/qp"
)

// cursors are the positions of a work queue's ring, counted without end: slot i lives at i & mask.
//
//	tail ≤ next ≤ head ≤ tail + used,  used ≤ max
//
// Slots from next to head are posted, those from tail to next are taken by the worker and not retired yet. Posters, one
// at a time, move head; the QP's worker moves next and tail. A slot that was retired with a completion counts as used
// until that is polled, so that who makes a CQ as deep as its queues can't overrun it.
type cursors struct {
	max, mask uint64
	_         [48]byte
	head      atomic.Uint64
	used      atomic.Int64
	_         [48]byte // the two sides don't share a cache line
	next      atomic.Uint64
	tail      atomic.Uint64
	_         [48]byte
}

// init sets the ring up for n slots and returns how many to allocate.
func (c *cursors) init(n int) int {
	slots := 1
	if n > 1 {
		slots = 1 << bits.Len(uint(n-1))
	}
	c.max, c.mask = uint64(n), uint64(slots-1)
	return slots
}

// room returns the number of free slots. Posters only.
func (c *cursors) room() int { return int(c.max) - int(c.used.Load()) }

// publish lets the worker see the next n slots, which were filled. Posters only.
func (c *cursors) publish(n int) {
	c.used.Add(int64(n))
	c.head.Add(uint64(n))
}

// free frees n slots whose completions were polled.
func (c *cursors) free(n int) { c.used.Add(-int64(n)) }

// take returns the index of the oldest slot not taken. Worker only.
func (c *cursors) take() (uint64, bool) {
	n := c.next.Load()
	if n == c.head.Load() {
		return 0, false
	}
	c.next.Store(n + 1)
	return n & c.mask, true
}

// posted returns the number of slots that take would return. Worker only.
func (c *cursors) posted() int { return int(c.head.Load() - c.next.Load()) }

// retire gives up the oldest taken slot, for which a completion was made or not. Worker only.
func (c *cursors) retire(completed bool) {
	c.tail.Add(1)
	if !completed {
		c.used.Add(-1)
	}
}

// clear forgets everything posted. The worker is not using the queue, and no CQ holds a completion of it: the QP is in
// RESET.
func (c *cursors) clear() {
	c.next.Store(c.head.Load())
	c.tail.Store(c.head.Load())
	c.used.Store(0)
}

// sendQueue is the send queue of a QP; it is a qp.SendQueue.
type sendQueue struct {
	cursors
	wqes      []qp.SendWQE
	sges      []qp.SGE // maxSGE of each slot
	inline    []byte   // maxInline of each slot
	maxSGE    int
	maxInline int
}

func newSendQueue(c Caps) *sendQueue {
	s := &sendQueue{maxSGE: c.MaxSendSGE, maxInline: c.MaxInline}
	n := s.init(c.MaxSendWR)
	s.wqes = make([]qp.SendWQE, n)
	s.sges = make([]qp.SGE, n*s.maxSGE)
	s.inline = make([]byte, n*s.maxInline)
	return s
}

// Next implements qp.SendQueue.
func (s *sendQueue) Next() *qp.SendWQE {
	if i, ok := s.take(); ok {
		return &s.wqes[i]
	}
	return nil
}

// Retire implements qp.SendQueue.
func (s *sendQueue) Retire() { s.retire(s.wqes[s.tail.Load()&s.mask].Completed) }

// slot returns the k-th free slot and its slabs, cut to no elements.
func (s *sendQueue) slot(k int) (*qp.SendWQE, []qp.SGE, []byte) {
	i := int((s.head.Load() + uint64(k)) & s.mask)
	g, b := i*s.maxSGE, i*s.maxInline
	return &s.wqes[i], s.sges[g : g : g+s.maxSGE], s.inline[b : b : b+s.maxInline]
}

// recvQueue is the receive queue of a QP; it is a qp.RecvQueue.
type recvQueue struct {
	cursors
	wqes   []qp.RecvWQE
	sges   []qp.SGE
	maxSGE int
}

func newRecvQueue(c Caps) *recvQueue {
	r := &recvQueue{maxSGE: c.MaxRecvSGE}
	n := r.init(c.MaxRecvWR)
	r.wqes = make([]qp.RecvWQE, n)
	r.sges = make([]qp.SGE, n*r.maxSGE)
	return r
}

// Next implements qp.RecvQueue.
func (r *recvQueue) Next() *qp.RecvWQE {
	if i, ok := r.take(); ok {
		return &r.wqes[i]
	}
	return nil
}

// Posted implements qp.PostedQueue.
func (r *recvQueue) Posted() int { return r.posted() }

// Retire implements qp.RecvQueue. Each receive gets a completion.
func (r *recvQueue) Retire(*qp.RecvWQE) { r.retire(true) }

// slot returns the k-th free slot and its slab, cut to no elements.
func (r *recvQueue) slot(k int) (*qp.RecvWQE, []qp.SGE) {
	i := int((r.head.Load() + uint64(k)) & r.mask)
	g := i * r.maxSGE
	return &r.wqes[i], r.sges[g : g : g+r.maxSGE]
}
