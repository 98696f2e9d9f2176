package mem

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
)

// PD is a protection domain; its identity is all that matters.
type PD struct{ _ byte }

// MR is what a key leads to: Length bytes of a Space, known to work requests
// and peers as [IOVA, IOVA+Length). It is a memory region, or as much of one as
// a window opens. But for its end it never changes, so that any goroutine may
// read it: what is bound, registered or reregistered anew is another MR.
type MR struct {
	Key    uint32 // lkey and rkey: a random 24-bit index, then a byte
	rights Access // Access, and that of work requests of this side
	PD     *PD
	IOVA   uint64
	Length uint64
	dead   atomic.Bool
	more   *more // nil: a region that was registered by Register, with no more to look at

	addr    uint64   // of the first byte, in its Space
	local   []byte   // the region itself, when it is this process's and in one piece
	proc    *Process // else whose it is
	Access  Access
	windows int // open on it; under Table.mu
}

// more is what else there is to an MR whose key comes and goes.
type more struct {
	slot   *slot
	parent *MR          // of a window: the region that it opens a part of
	only   Owner        // the QP whose peer may use it; nil: that of any QP of the PD
	pages  *pages       // its memory, when it isn't in one piece
	users  atomic.Int32 // ops that are running
}

// Dead reports whether the MR was deregistered, invalidated or replaced:
// nothing may touch its memory any more.
func (m *MR) Dead() bool { return m.dead.Load() }

// Addr translates an IOVA inside the region into an address of its Space.
func (m *MR) Addr(va uint64) uint64 { return m.addr + (va - m.IOVA) }

// Bytes returns the region's memory, or nil if it is another process's or not
// in one piece.
func (m *MR) Bytes() []byte { return m.local }

// Overlaps reports whether the n bytes at va of m and the k bytes at vb of o, ranges
// inside them, may have a byte in common. Of memory in several pieces it says so.
func (m *MR) Overlaps(va, n uint64, o *MR, vb, k uint64) bool {
	if m == o {
		return va < vb+k && vb < va+n
	}
	if m.proc != o.proc {
		return false
	}
	a, b := m.place(va), o.place(vb)
	return a == 0 || b == 0 || a < b+k && b < a+n
}

// place returns the address of an IOVA inside the region in the process that the
// memory is of; 0 if the memory isn't in one piece.
func (m *MR) place(va uint64) uint64 {
	switch {
	case m.proc != nil:
		return m.Addr(va)
	case m.local == nil:
		return 0
	}
	return Address(m.local) + (va - m.IOVA)
}

// contains reports whether [va, va+n) lies in the region. An empty range may
// lie at its end. No sum is formed that could wrap around; below the region,
// off exceeds any Length, as no region reaches the top of the address space.
func (m *MR) contains(va, n uint64) bool {
	off := va - m.IOVA
	return off <= m.Length && n <= m.Length-off
}

// hold keeps the memory in use for an op: who ends the MR waits for release.
// It reports false, having held nothing, when the MR has ended.
func (m *MR) hold() bool {
	if m.more == nil {
		return !m.Dead() // who ends it waits for a Step boundary of each worker
	}
	m.more.users.Add(1)
	if m.Dead() { // asked after users counts this op, so that who ends it sees the one or the other
		m.release()
		return false
	}
	return true
}

func (m *MR) release() {
	if m.more != nil {
		m.more.users.Add(-1)
	}
}

// drain waits for the ops that run on a dead MR: one copy of each worker, or a
// system call that the Guard of its batch limits. No op waits for another.
func (m *MR) drain() {
	for m.more != nil && m.more.users.Load() != 0 {
		runtime.Gosched()
	}
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

// newMR checks what a region is to be.
func newMR(pd *PD, sp Space, addr, iova, length uint64, acc Access) (*MR, error) {
	if pd == nil || sp == nil {
		return nil, errors.New("no protection domain or no memory given")
	}
	if addr > math.MaxUint64-length {
		return nil, fmt.Errorf("address %#x plus length %#x exceeds 64 bits", addr, length)
	}
	if err := checkRange(iova, length, acc); err != nil {
		return nil, err
	}
	m := &MR{PD: pd, IOVA: iova, Length: length, Access: acc, rights: acc | byLKey, addr: addr}
	if err := sp.attach(m); err != nil {
		return nil, err
	}
	return m, nil
}

// checkRange says why a region can't be known by these addresses, with these rights.
func checkRange(iova, length uint64, acc Access) error {
	switch {
	case length == 0:
		return errors.New("length 0: a region has at least one byte")
	case iova > math.MaxUint64-length:
		return fmt.Errorf("IOVA %#x plus length %#x exceeds 64 bits", iova, length)
	case acc&ZeroBased != 0 && iova != 0:
		return fmt.Errorf("IOVA %#x with ZERO_BASED, which means IOVA 0", iova)
	}
	return acc.check()
}
