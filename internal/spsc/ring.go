// Package spsc is a bounded queue between one producer and one consumer, which
// take no lock and share no cache line.
package spsc

import (
	"fmt"
	"sync/atomic"
)

// Ring holds up to its capacity of T. The producer fills slots in place with
// Slot and Push and shows them with Publish; the consumer reads them in place
// with Front and Pop and gives them back with Free. At any time one goroutine
// is the producer and one the consumer; they may be the same.
type Ring[T any] struct {
	slots []T
	mask  uint32
	_     [64]byte

	prod  atomic.Uint32 // published by the producer
	next  uint32        // producer: the next slot to fill
	limit uint32        // producer: the end of the slots known to be free
	_     [64]byte

	cons atomic.Uint32 // freed by the consumer
	read uint32        // consumer: the next slot to read
	end  uint32        // consumer: the end of the slots known to be filled
	_    [64]byte
}

// New makes a ring of n slots, a power of two.
func New[T any](n int) (*Ring[T], error) {
	if n <= 0 || n > 1<<30 || n&(n-1) != 0 {
		return nil, fmt.Errorf("ring of %d slots: want a power of two", n)
	}
	return &Ring[T]{slots: make([]T, n), mask: uint32(n - 1), limit: uint32(n)}, nil
}

// Cap returns the number of slots.
func (r *Ring[T]) Cap() int { return len(r.slots) }

// Slot returns the next free slot, or nil when the ring is full.
func (r *Ring[T]) Slot() *T {
	if r.next == r.limit {
		r.limit = r.cons.Load() + uint32(len(r.slots))
		if r.next == r.limit {
			return nil
		}
	}
	return &r.slots[r.next&r.mask]
}

// Push adds the slot that Slot returned. The consumer sees it after Publish.
func (r *Ring[T]) Push() { r.next++ }

// Publish shows the consumer all that was pushed and reports whether anything
// was.
func (r *Ring[T]) Publish() bool {
	if r.prod.Load() == r.next {
		return false
	}
	r.prod.Store(r.next)
	return true
}

// Front returns the oldest slot not popped yet, or nil when there is none.
func (r *Ring[T]) Front() *T {
	if r.read == r.end {
		r.end = r.prod.Load()
		if r.read == r.end {
			return nil
		}
	}
	return &r.slots[r.read&r.mask]
}

// Pop passes over the slot that Front returned. It stays the consumer's until Free.
func (r *Ring[T]) Pop() { r.read++ }

// Free gives all popped slots back to the producer.
func (r *Ring[T]) Free() {
	if r.cons.Load() != r.read {
		r.cons.Store(r.read)
	}
}

// Empty reports whether everything published was freed. Any goroutine may ask.
func (r *Ring[T]) Empty() bool { return r.prod.Load() == r.cons.Load() }
