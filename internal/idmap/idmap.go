// Package idmap maps 32-bit identifiers (QPNs, key indices) to objects. Lookups
// take no lock and may run on any goroutine; changes are serialised.
package idmap

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const minSlots = 16

// Map maps ids to *T. The zero value is an empty map. It must not be copied.
type Map[T any] struct {
	table atomic.Pointer[table[T]]
	count atomic.Int64

	mu     sync.Mutex // held by every change
	recent recent
}

// table is open addressed with linear probing. A slot's id never changes once
// it is set, so that a reader who finds its id may trust the value beside it;
// a removed entry stays as an id without a value until the table is rebuilt.
type table[T any] struct {
	slots []slot[T]
	shift uint // 32 - log2(len(slots))
	used  int  // slots with an id; at least half are always free, so that most searches take one look
}

type slot[T any] struct {
	id    atomic.Uint64 // 0: free; else present | id
	value atomic.Pointer[T]
}

const present = 1 << 32

// Get returns the value of id, or nil.
func (m *Map[T]) Get(id uint32) *T {
	t := m.table.Load()
	if t == nil {
		return nil
	}
	if s := t.find(id); s != nil {
		return s.value.Load()
	}
	return nil
}

// Touch reads where the search for id begins, so that a caller with many ids has
// those places fetched at a time before it asks for the values: a search goes on by
// what it finds, and the processor would wait for each. The result means nothing.
func (m *Map[T]) Touch(id uint32) uint64 {
	t := m.table.Load()
	if t == nil {
		return 0
	}
	return t.slots[t.hash(id)].id.Load()
}

// Insert gives id the value v, which must not be nil, and reports whether it
// did: false says that id has a value already.
func (m *Map[T]) Insert(id uint32, v *T) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Get(id) != nil {
		return false
	}
	m.insert(id, v)
	return true
}

// Delete removes id and returns the value that it had, or nil. A lookup that
// runs meanwhile may still return it.
func (m *Map[T]) Delete(id uint32) *T {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if t == nil {
		return nil
	}
	s := t.find(id)
	if s == nil {
		return nil
	}
	old := s.value.Swap(nil)
	if old != nil {
		m.count.Add(-1)
		m.recent.add(id)
	}
	return old
}

// Replace gives id, which has a value, another, and reports whether it did.
// Lookups find the one or the other at any time.
func (m *Map[T]) Replace(id uint32, v *T) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Get(id) == nil {
		return false
	}
	m.table.Load().find(id).value.Store(v)
	return true
}

// Len returns the number of ids with a value.
func (m *Map[T]) Len() int { return int(m.count.Load()) }

// Range calls f for each entry, in no order, until f returns false. f may
// change the map; entries that come or go meanwhile may be seen or not.
func (m *Map[T]) Range(f func(id uint32, v *T) bool) {
	t := m.table.Load()
	if t == nil {
		return
	}
	for i := range t.slots {
		s := &t.slots[i]
		v := s.value.Load()
		if v != nil && !f(uint32(s.id.Load()), v) {
			return
		}
	}
}

// insert adds an id that has no value. The caller holds mu.
func (m *Map[T]) insert(id uint32, v *T) {
	m.count.Add(1)
	t := m.table.Load()
	if t != nil {
		if s := t.find(id); s != nil { // its own slot, from before it was removed
			s.value.Store(v)
			return
		}
	}
	if t == nil || t.used >= len(t.slots)/2 {
		t = m.rebuild(t)
	}
	t.add(id, v)
}

// rebuild replaces t by a table with room to double, without removed entries.
// Readers of the old one meanwhile see what was true when they began.
func (m *Map[T]) rebuild(t *table[T]) *table[T] {
	n := max(minSlots, 1<<bits.Len(uint(m.Len()*2)))
	next := &table[T]{slots: make([]slot[T], n), shift: uint(32 - bits.Len(uint(n-1)))}
	if t != nil {
		for i := range t.slots {
			if v := t.slots[i].value.Load(); v != nil {
				next.add(uint32(t.slots[i].id.Load()), v)
			}
		}
	}
	m.table.Store(next)
	return next
}

// add fills a free slot: first the id, since whoever sees a value trusts the id
// beside it. An id without a value is as good as absent.
func (t *table[T]) add(id uint32, v *T) {
	for i := t.hash(id); ; i++ {
		s := &t.slots[i&uint32(len(t.slots)-1)]
		if s.id.Load() == 0 {
			s.id.Store(present | uint64(id))
			s.value.Store(v)
			t.used++
			return
		}
	}
}

// find returns the slot of id, or nil.
func (t *table[T]) find(id uint32) *slot[T] {
	slots, want := t.slots, present|uint64(id)
	mask := uint32(len(slots) - 1)
	for i := t.hash(id); ; i++ {
		s := &slots[i&mask]
		switch s.id.Load() {
		case want:
			return s
		case 0:
			return nil
		}
	}
}

// hash spreads ids that were given in sequence (Fibonacci hashing).
func (t *table[T]) hash(id uint32) uint32 { return id * 0x9e3779b1 >> t.shift }
