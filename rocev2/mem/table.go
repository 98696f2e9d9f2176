package mem

import (
	"crypto/rand"
	"fmt"

	"github.com/urxe/urxe/internal/idmap"
)

// Table holds the MRs of a device by key. Lookups take no lock and may run on
// any goroutine. The zero value is an empty table.
type Table struct {
	mrs idmap.Map[MR] // by index
}

// A key is an index and a byte: a peer that holds a stale or guessed key must
// hit both.
const (
	keyByteBits = 8
	maxIndex    = 1<<24 - 1
)

// Register adds a region of length bytes at addr of sp, known to work requests
// and peers as iova. Its error says which argument can't be, and what is allowed.
func (t *Table) Register(pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	m, err := newMR(pd, sp, addr, iova, length, acc)
	if err != nil {
		return nil, fmt.Errorf("register memory region: %w", err)
	}
	// Index 0 is left out, so that no key is 0, which programs take for "none".
	_, err = t.mrs.InsertRandom(1, maxIndex, func(index uint32) *MR {
		var b [1]byte
		rand.Read(b[:])
		m.Key = index<<keyByteBits | uint32(b[0])
		return m
	})
	if err != nil {
		return nil, fmt.Errorf("register memory region: %w: %w", errKeys, err)
	}
	return m, nil
}

// Deregister removes m and marks it dead: ops on it that haven't run will
// fault. The caller waits until every worker has passed a Step boundary before
// it lets go of the memory.
func (t *Table) Deregister(m *MR) {
	if m.dead.CompareAndSwap(false, true) {
		t.mrs.Delete(m.Key >> keyByteBits)
	}
}

// Len returns the number of regions.
func (t *Table) Len() int { return t.mrs.Len() }

// Find returns the region that key, pd, the range [va, va+n) and the rights in
// need all allow, or nil. lkeys and rkeys are looked up alike.
func (t *Table) Find(key uint32, pd *PD, va, n uint64, need Access) *MR {
	m := t.mrs.Get(key >> keyByteBits)
	if m == nil || m.Key != key || m.PD != pd || m.Access&need != need {
		return nil
	}
	if !m.contains(va, n) || m.Dead() {
		return nil
	}
	return m
}
