package mem

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// PD is a protection domain; its identity is all that matters.
type PD struct{ _ byte }

// MR is a memory region: Length bytes of a Space, known to work requests and
// peers as [IOVA, IOVA+Length).
type MR struct {
	Key    uint32 // lkey and rkey: a random 24-bit index, then a random byte
	PD     *PD
	IOVA   uint64
	Length uint64
	Access Access

	addr  uint64   // of the first byte, in its Space
	local []byte   // the region itself, when it is this process's
	proc  *Process // else whose it is
	dead  atomic.Bool
}

// Dead reports whether the MR was deregistered: nothing may touch its memory
// any more.
func (m *MR) Dead() bool { return m.dead.Load() }

// Addr translates an IOVA inside the region into an address of its Space.
func (m *MR) Addr(va uint64) uint64 { return m.addr + (va - m.IOVA) }

// Bytes returns the region's memory, or nil if it is another process's.
func (m *MR) Bytes() []byte { return m.local }

// contains reports whether [va, va+n) lies in the region. An empty range may
// lie at its end. No sum is formed that could wrap around; below the region,
// off exceeds any Length, as no region reaches the top of the address space.
func (m *MR) contains(va, n uint64) bool {
	off := va - m.IOVA
	return off <= m.Length && n <= m.Length-off
}

// Space is memory that regions are registered in: a *Bytes or a *Process.
type Space interface {
	// attach makes m, whose addr and Length are set, refer to the memory, or
	// says why that range can't be registered.
	attach(m *MR) error
}

// Bytes is memory of this process.
type Bytes struct {
	b    []byte
	base uint64
}

// NewBytes makes a Space of b, whose first byte has the address base. A region
// keeps b alive.
func NewBytes(b []byte, base uint64) *Bytes { return &Bytes{b, base} }

func (s *Bytes) attach(m *MR) error {
	size := uint64(len(s.b))
	off := m.addr - s.base
	if m.addr < s.base || off > size || m.Length > size-off {
		return fmt.Errorf("range %#x+%#x isn't within the memory's %#x+%#x", m.addr, m.Length, s.base, size)
	}
	m.local = s.b[off : off+m.Length : off+m.Length]
	return nil
}

var errKeys = errors.New("out of keys: deregister regions first")

// newMR checks what a region is to be.
func newMR(pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	switch {
	case pd == nil || sp == nil:
		return nil, errors.New("no protection domain or no memory given")
	case length == 0:
		return nil, errors.New("length 0: a region has at least one byte")
	case addr > math.MaxUint64-length || iova > math.MaxUint64-length:
		return nil, fmt.Errorf("address %#x or IOVA %#x plus length %#x exceeds 64 bits", addr, iova, length)
	case acc&ZeroBased != 0 && iova != 0:
		return nil, fmt.Errorf("IOVA %#x with ZERO_BASED, which means IOVA 0", iova)
	}
	if err := acc.check(); err != nil {
		return nil, err
	}
	m := &MR{PD: pd, IOVA: iova, Length: length, Access: acc, addr: addr}
	if err := sp.attach(m); err != nil {
		return nil, err
	}
	return m, nil
}
