package mem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/urxe/urxe/internal/idmap"
)

// Table holds what the keys of a device lead to: regions and windows, whose
// keys never have an index in common. Lookups take no lock and may run on any
// goroutine. The zero value is an empty table.
type Table struct {
	mrs idmap.Map[MR] // by index

	mu sync.Mutex // held by what ends or replaces an MR
	// owned has the windows of type 2 that are bound, by the QP that bound them.
	owned map[Owner]map[*slot]struct{}
}

// A key is an index and a byte: a peer that holds a stale or guessed key must
// hit both.
const (
	keyByteBits = 8
	keyByteMask = 1<<keyByteBits - 1
	maxIndex    = 1<<24 - 1
)

var (
	errKeys = errors.New("out of keys: deregister regions or deallocate windows first")

	// ErrBound says that a region can't go while windows are open on it.
	ErrBound = errors.New("memory windows are bound to it: invalidate or deallocate them first")
)

// Register adds a region of length bytes at addr of sp, known to work requests
// and peers as iova. Its error says which argument can't be, and what is allowed.
func (t *Table) Register(pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	m, err := newMR(pd, sp, addr, iova, length, acc)
	if err == nil {
		err = t.insert(m)
	}
	if err != nil {
		return nil, fmt.Errorf("register memory region: %w", err)
	}
	return m, nil
}

// insert gives m a key. Index 0 is left out, so that no key is 0, which
// programs take for "none".
func (t *Table) insert(m *MR) error {
	_, err := t.mrs.InsertRandom(1, maxIndex, func(index uint32) *MR {
		var b [1]byte
		rand.Read(b[:])
		m.Key = index<<keyByteBits | uint32(b[0])
		return m
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errKeys, err)
	}
	return nil
}

// Deregister removes m and marks it dead: ops on it that haven't run will
// fault. The caller waits until every worker has passed a Step boundary before
// it lets go of the memory. A region with windows stays: ErrBound.
func (t *Table) Deregister(m *MR) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.windows > 0 {
		return fmt.Errorf("deregister memory region: %w", ErrBound)
	}
	if m.dead.CompareAndSwap(false, true) {
		t.mrs.Delete(m.Key >> keyByteBits)
	}
	return nil
}

// Reregister replaces m by a region with the same key, as ibv_rereg_mr does,
// and marks m dead. What holds for Deregister holds for the memory of m, and
// for its windows. On an error, m is as it was.
func (t *Table) Reregister(m *MR, pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	next, err := newMR(pd, sp, addr, iova, length, acc)
	if err == nil {
		err = t.replace(m, next)
	}
	if err != nil {
		return nil, fmt.Errorf("reregister memory region: %w", err)
	}
	return next, nil
}

func (t *Table) replace(m, next *MR) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case m.Dead():
		return errors.New("it was deregistered")
	case m.windows > 0:
		return ErrBound
	}
	next.Key = m.Key
	m.dead.Store(true)
	t.mrs.Replace(m.Key>>keyByteBits, next)
	return nil
}

// Len returns the number of regions and windows.
func (t *Table) Len() int { return t.mrs.Len() }

// Find returns the region that an lkey, pd, the range [va, va+n) and the rights
// in need all allow, or nil. A window has no lkey.
func (t *Table) Find(lkey uint32, pd *PD, va, n uint64, need Access) *MR {
	return t.find(lkey, pd, va, n, need|byLKey)
}

// FindRemote returns the region or window that an rkey, pd, the QP that a
// peer's request came by, the range and the rights all allow, or nil.
func (t *Table) FindRemote(rkey uint32, pd *PD, by Owner, va, n uint64, need Access) *MR {
	m := t.find(rkey, pd, va, n, need)
	if m == nil || m.more != nil && m.more.only != nil && m.more.only != by {
		return nil
	}
	return m
}

// FindWhole is FindRemote of all that the rkey is of.
func (t *Table) FindWhole(rkey uint32, pd *PD, by Owner, need Access) *MR {
	m := t.mrs.Get(rkey >> keyByteBits)
	if m == nil {
		return nil
	}
	return t.FindRemote(rkey, pd, by, m.IOVA, m.Length, need)
}

func (t *Table) find(key uint32, pd *PD, va, n uint64, need Access) *MR {
	m := t.mrs.Get(key >> keyByteBits)
	if m == nil || m.Key != key || m.PD != pd || m.rights&need != need {
		return nil
	}
	if !m.contains(va, n) || m.Dead() {
		return nil
	}
	return m
}
