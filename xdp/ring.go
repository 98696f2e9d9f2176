package xdp

import "sync/atomic"

// The four rings are arrays in memory shared with the kernel, with a producer
// and a consumer index that count on for ever and wrap at 2^32. The kernel's
// protocol: the producer reads the consumer index, writes entries, and
// store-releases its index; the consumer load-acquires the producer index,
// reads entries, and store-releases its own. Go's atomics are stronger than
// that, and a store costs about 5 ns; so both ends keep their index in Go
// memory and publish once a batch.

// producer is our end of a FILL or TX ring.
type producer[T any] struct {
	shared struct{ prod, cons, flags *uint32 }
	ring   []T
	mask   uint32
	next   uint32 // where the next entry goes; ahead of the shared index until publish
	pub    uint32 // the shared index
	limit  uint32 // consumer index as last seen, plus the size: the end of free room
	_      [64]byte
}

// room returns how many entries can be put, looking at the kernel's index only
// if fewer than want are known to be free.
func (r *producer[T]) room(want uint32) uint32 {
	if r.limit-r.next < want {
		r.limit = atomic.LoadUint32(r.shared.cons) + uint32(len(r.ring))
	}
	return r.limit - r.next
}

// put writes an entry. The caller has seen room for it.
func (r *producer[T]) put(v T) {
	r.ring[r.next&r.mask] = v
	r.next++
}

// publish shows the kernel what was put; it reports whether anything was.
func (r *producer[T]) publish() bool {
	if r.pub == r.next {
		return false
	}
	r.pub = r.next
	// A full fence, so that needWakeup, read after it, is not older than it.
	atomic.StoreUint32(r.shared.prod, r.next)
	return true
}

// pending returns how many published entries the kernel has not taken.
func (r *producer[T]) pending() uint32 {
	return r.pub - atomic.LoadUint32(r.shared.cons)
}

// needWakeup reports whether the kernel wants a system call to go on.
func (r *producer[T]) needWakeup() bool {
	return atomic.LoadUint32(r.shared.flags)&ringNeedWakeup != 0
}

// consumer is our end of an RX or completion ring.
type consumer[T any] struct {
	shared struct{ prod, cons *uint32 }
	ring   []T
	mask   uint32
	next   uint32 // the next entry to take
	pub    uint32 // the shared index
	end    uint32 // producer index as last seen
	_      [64]byte
}

// avail returns how many entries can be taken, looking at the kernel's index
// only if fewer than want are known.
func (r *consumer[T]) avail(want uint32) uint32 {
	if r.end-r.next < want {
		r.end = atomic.LoadUint32(r.shared.prod)
	}
	return r.end - r.next
}

// take reads an entry. The caller has seen it to be available.
func (r *consumer[T]) take() T {
	v := r.ring[r.next&r.mask]
	r.next++
	return v
}

// release gives the taken entries' slots back to the kernel.
func (r *consumer[T]) release() {
	if r.pub == r.next {
		return
	}
	r.pub = r.next
	atomic.StoreUint32(r.shared.cons, r.next)
}
