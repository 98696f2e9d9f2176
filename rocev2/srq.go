package rocev2

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/qp"
)

// SRQAttr are the attributes of an SRQ, as ibv_srq_attr has them.
type SRQAttr struct {
	MaxWR  int // work requests: posted, or completed and not yet polled
	MaxSGE int // elements of each
	Limit  int // raises the event once fewer work requests wait than this; 0: none
}

// SRQAttrMask names attributes to modify, numbered as ibv_srq_attr_mask.
type SRQAttrMask uint8

// The attributes.
const (
	AttrSRQMaxWR SRQAttrMask = 1 << 0
	AttrSRQLimit SRQAttrMask = 1 << 1
)

// ErrSRQFull is why Post didn't take a work request.
var ErrSRQFull = errors.New("the SRQ is full")

// SRQ is a shared receive queue (IBA 10.2.9): a qp.RecvQueue of QPs of any
// workers. All methods may be called by any goroutine.
//
// Workers take work requests and give them back without a lock: the waiting
// ones are in a ring that all take from by compare-and-swap, those given back in
// a stack that posters empty. Posters hold mu, and so do QPs that end, and Modify,
// which puts another ring in the ring's place. A work request counts until its
// completion was polled (Free), so that a CQ that is deep enough can't be overrun.
type SRQ struct {
	onLimit func()
	maxSGE  int

	ring  atomic.Pointer[srqRing]
	freed atomic.Pointer[srqWQE]
	used  atomic.Int64
	limit atomic.Int64 // 0: not armed

	mu    sync.Mutex
	max   int
	slots int // work requests that there are, waiting, taken or free
	free  *srqWQE
}

// srqWQE is the place of a work request.
type srqWQE struct {
	qp.RecvWQE
	sges []qp.SGE // room for SGEs
	link *srqWQE  // in a list of free ones
}

// srqRing holds the work requests that wait, oldest first: those from next to
// head, counted without end.
type srqRing struct {
	wqes []atomic.Pointer[srqWQE]
	_    [40]byte
	head atomic.Uint64 // moved by posters
	_    [56]byte      // the two sides don't share a cache line
	next atomic.Uint64 // moved by workers; replaced: there is another ring
}

// replaced is srqRing.next of a ring that Modify has emptied into another.
const replaced = 1 << 63

func newSRQRing(n int) *srqRing {
	return &srqRing{wqes: make([]atomic.Pointer[srqWQE], 1<<bits.Len(uint(n-1)))}
}

func (r *srqRing) at(i uint64) *atomic.Pointer[srqWQE] { return &r.wqes[i&uint64(len(r.wqes)-1)] }

// NewSRQ makes an SRQ; a.MaxWR must be at least 1. When the limit is reached,
// onLimit is called once, by a worker or in Modify; it must not block.
func NewSRQ(a SRQAttr, onLimit func()) *SRQ {
	s := &SRQ{onLimit: onLimit, maxSGE: a.MaxSGE, max: a.MaxWR}
	s.ring.Store(newSRQRing(a.MaxWR))
	s.limit.Store(int64(a.Limit))
	s.grow(a.MaxWR)
	return s
}

// grow adds n free places. The caller holds mu.
func (s *SRQ) grow(n int) {
	places, sges := make([]srqWQE, n), make([]qp.SGE, n*s.maxSGE)
	for i := range places {
		w := &places[i]
		w.sges, w.Place = sges[i*s.maxSGE:i*s.maxSGE:(i+1)*s.maxSGE], w
		s.putBack(w)
	}
	s.slots += n
}

// putBack makes a place free. The caller holds mu.
func (s *SRQ) putBack(w *srqWQE) { w.link, s.free = s.free, w }

// pick returns a free place: there are as many as work requests may be posted.
// The caller holds mu.
func (s *SRQ) pick() *srqWQE {
	if s.free == nil {
		s.free = s.freed.Swap(nil)
	}
	w := s.free
	s.free = w.link
	return w
}

// Post posts up to n work requests in order, which fill makes of empty ones, whose
// SGEs have room for MaxSGE elements, and returns how many it took: those before
// the first for which there was no room, ErrSRQFull, or which fill refused.
func (s *SRQ) Post(n int, fill func(i int, w *qp.RecvWQE) error) (posted int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ring.Load()
	head, room := r.head.Load(), s.max-int(s.used.Load())
	for ; posted < n; posted++ {
		if posted == room {
			err = ErrSRQFull
			break
		}
		w := s.pick()
		w.SGEs, w.Completed = w.sges, false
		if err = fill(posted, &w.RecvWQE); err != nil {
			s.putBack(w)
			break
		}
		r.at(head + uint64(posted)).Store(w)
	}
	s.used.Add(int64(posted))
	r.head.Store(head + uint64(posted))
	return posted, err
}

// Next implements qp.RecvQueue.
func (s *SRQ) Next() *qp.RecvWQE {
	for {
		r := s.ring.Load()
		n := r.next.Load()
		if n == replaced {
			s.await()
			continue
		}
		if n == r.head.Load() {
			return nil
		}
		// Should another take it first, what is at its place doesn't count.
		w := r.at(n).Load()
		if r.next.CompareAndSwap(n, n+1) {
			s.checkLimit()
			return &w.RecvWQE
		}
	}
}

// await returns when Modify has put another ring in its place.
func (s *SRQ) await() {
	s.mu.Lock()
	//lint:ignore SA2001 Modify holds it until the ring is there
	s.mu.Unlock()
}

// checkLimit raises the event if it is due. It is for once: who gets it arms the
// SRQ again (IBA 10.2.9).
func (s *SRQ) checkLimit() {
	if n := s.limit.Load(); n > 0 && n > int64(s.Posted()) && s.limit.CompareAndSwap(n, 0) {
		s.onLimit()
	}
}

// Posted returns how many work requests wait to be taken.
func (s *SRQ) Posted() int {
	for {
		r := s.ring.Load()
		if n := r.next.Load(); n != replaced {
			return int(r.head.Load() - n)
		}
		s.await()
	}
}

// Used returns how many work requests count against MaxWR.
func (s *SRQ) Used() int { return int(s.used.Load()) }

// Retire implements qp.RecvQueue, for QPs in any order. A work request without a
// completion is one of a QP that was reset or destroyed. As the program can't know
// that it was taken, it waits again.
func (s *SRQ) Retire(w *qp.RecvWQE) {
	p := w.Place.(*srqWQE)
	if !w.Completed {
		s.repost(p)
		return
	}
	for {
		p.link = s.freed.Load()
		if s.freed.CompareAndSwap(p.link, p) {
			return
		}
	}
}

// repost has a work request that was taken wait behind the others. There is room:
// it still counts.
func (s *SRQ) repost(w *srqWQE) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ring.Load()
	head := r.head.Load()
	r.at(head).Store(w)
	r.head.Store(head + 1)
}

// Free makes room for n more work requests: completions of as many were polled,
// or will never be.
func (s *SRQ) Free(n int) { s.used.Add(-int64(n)) }

// Query returns the attributes. Limit is 0 when the event was raised.
func (s *SRQ) Query() SRQAttr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SRQAttr{MaxWR: s.max, MaxSGE: s.maxSGE, Limit: int(s.limit.Load())}
}

// Modify changes the attributes that mask names, as ibv_modify_srq does: it
// resizes the SRQ, which keeps what is posted in its order, and arms it. When
// fewer work requests than the limit wait already, the event comes at once. On
// an error, nothing has changed.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	if err := s.modify(a, mask); err != nil {
		return err
	}
	if mask&AttrSRQLimit != 0 {
		s.checkLimit()
	}
	return nil
}

func (s *SRQ) modify(a SRQAttr, mask SRQAttrMask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, limit := s.max, int(s.limit.Load())
	if mask&AttrSRQMaxWR != 0 {
		size = a.MaxWR
	}
	if mask&AttrSRQLimit != 0 {
		limit = a.Limit
	}
	switch used := s.Used(); {
	case mask&^(AttrSRQMaxWR|AttrSRQLimit) != 0:
		return fmt.Errorf("SRQ attributes 0x%x (allowed: MAX_WR, LIMIT: 0x3)", uint8(mask))
	case size < max(used, 1):
		return fmt.Errorf("MaxWR %d: the SRQ holds %d work requests, those counted whose completions were not polled", size, used)
	case limit < 0 || limit > size:
		return fmt.Errorf("limit %d (allowed: 0 to MaxWR, %d)", limit, size)
	}
	if size != s.max {
		s.resize(size)
	}
	if mask&AttrSRQLimit != 0 {
		s.limit.Store(int64(limit))
	}
	return nil
}

// resize makes the SRQ one for n work requests; there are no more. The caller
// holds mu.
func (s *SRQ) resize(n int) {
	r, old := newSRQRing(n), s.ring.Load()
	if n > s.slots {
		s.grow(n - s.slots)
	}
	// From here on workers wait in await.
	from, to := old.next.Swap(replaced), old.head.Load()
	for i := from; i != to; i++ {
		r.at(i - from).Store(old.at(i).Load())
	}
	r.head.Store(to - from)
	s.ring.Store(r)
	for s.max = n; s.slots > n; s.slots-- {
		s.pick() // for the garbage collector
	}
}
