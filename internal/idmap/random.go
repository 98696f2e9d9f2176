package idmap

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// Quarantine sets how many ids InsertRandom leaves unused after their
// deletion: the last n deleted ones. A packet that still names a deleted id
// then finds nothing rather than a stranger.
func (m *Map[T]) Quarantine(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent = recent{limit: n}
}

// InsertRandom gives the value that create returns to an unpredictable id in
// [first, last] that has no value and isn't quarantined. create is told the
// id, and runs under the map's lock before anyone can find the value; it must
// not use the map. The error says that every id is taken.
func (m *Map[T]) InsertRandom(first, last uint32, create func(id uint32) *T) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok := m.free(first, last)
	if !ok {
		return 0, fmt.Errorf("no free id from %d to %d: %d are in use and %d were in use lately",
			first, last, m.Len(), len(m.recent.ids))
	}
	m.insert(id, create(id))
	return id, nil
}

// draws is how often a random id is drawn before the range is searched: only
// when nearly all are taken can so many be.
const draws = 64

func (m *Map[T]) free(first, last uint32) (id uint32, ok bool) {
	if last < first {
		return 0, false
	}
	size := uint64(last-first) + 1
	for range draws {
		id = first + uint32(random(size))
		if m.isFree(id) {
			return id, true
		}
	}
	start := random(size)
	for i := range size {
		id = first + uint32((start+i)%size)
		if m.isFree(id) {
			return id, true
		}
	}
	return 0, false
}

func (m *Map[T]) isFree(id uint32) bool { return m.Get(id) == nil && !m.recent.has(id) }

// random returns a number below n, at most 2^32. The bias of the remainder is
// below 2^-31.
func random(n uint64) uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) % n
}

// recent is a queue of the ids deleted last.
type recent struct {
	limit int
	queue []uint32       // a ring once it is full
	next  int            // in queue, the oldest
	ids   map[uint32]int // how often each is in the queue
}

func (r *recent) has(id uint32) bool { return r.ids[id] > 0 }

func (r *recent) add(id uint32) {
	if r.limit <= 0 {
		return
	}
	if r.ids == nil {
		r.ids = make(map[uint32]int)
	}
	r.ids[id]++
	if len(r.queue) < r.limit {
		r.queue = append(r.queue, id)
		return
	}
	r.drop(r.queue[r.next])
	r.queue[r.next] = id
	r.next = (r.next + 1) % r.limit
}

func (r *recent) drop(id uint32) {
	if r.ids[id]--; r.ids[id] == 0 {
		delete(r.ids, id)
	}
}
