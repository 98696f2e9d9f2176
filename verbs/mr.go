package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/mem"
)

// MR is a memory region: bytes of this process that work requests, and peers as far as its Access allows, may use. It
// keeps its memory alive until Dereg.
//
// One that RegMR makes is registered until then. One that AllocMR makes is registered by a work request, OpRegMR, and
// given up by OpLocalInv, or by a peer's SEND with invalidate; then it may be registered with other memory.
type MR struct {
	dev  *Device
	fast *mem.FastMR // nil: RegMR made it
	now  atomic.Pointer[region]
}

// region is what an MR is registered as.
type region struct {
	pd   *PD
	buf  []byte // nil: of work requests
	mr   *mem.MR
	key  uint32
	iova uint64
}

// MROptions are how a region is registered. The zero value works.
type MROptions struct {
	IOVA uint64 // the address by which peers name the first byte; 0: its address in this process
}

// RegMR registers buf. Peers name its bytes by addresses from MR.IOVA on, or from 0 with the access ZeroBased, and by
// MR.RKey. Go code and a peer may use the memory at once: see the package's documentation on memory. Its errors wrap
// ErrInvalid (no bytes, rights that don't go together), ErrLimit or ErrClosed.
func (p *PD) RegMR(buf []byte, acc Access) (*MR, error) { return p.RegMROpts(buf, acc, MROptions{}) }

// RegMROpts is RegMR with options, and has its errors.
func (p *PD) RegMROpts(buf []byte, acc Access, o MROptions) (*MR, error) {
	d := p.dev
	register := func(r *region) (err error) {
		space, addr, iova := r.place(acc, o)
		r.mr, err = d.engine.Keys().Register(p.pd, space, addr, iova, uint64(len(buf)), acc)
		return err
	}
	return p.addMR(&MR{dev: d}, func(m *MR) error { return m.enter(&region{pd: p, buf: buf}, register) })
}

// AllocMR makes a region that work requests register, each time with at most maxPages pages. Its errors wrap ErrInvalid,
// ErrLimit or ErrClosed.
func (p *PD) AllocMR(maxPages int) (*MR, error) {
	return p.addMR(&MR{dev: p.dev}, func(m *MR) (err error) {
		if m.fast, err = p.dev.engine.Keys().AllocMR(p.pd, maxPages); err == nil {
			m.now.Store(&region{pd: p, key: m.fast.Key()})
		}
		return err
	})
}

// addMR enters a region in the device once register has registered it.
func (p *PD) addMR(m *MR, register func(*MR) error) (*MR, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.pds, p, "register MR: PD"); err != nil {
		return nil, err
	}
	if err := add(d, d.mrs, m, limits.MaxMR, "MR"); err != nil {
		return nil, err
	}
	if err := register(m); err != nil {
		delete(d.mrs, m)
		return nil, d.wrap(err)
	}
	p.mrs++
	return m, nil
}

// wrap says of an error of the key table which of this package's it is.
func (d *Device) wrap(err error) error {
	switch {
	case errors.Is(err, mem.ErrBound):
		return d.errorf("%w: %w", ErrBusy, err)
	case errors.Is(err, ErrLimit):
		return d.errorf("%w", err)
	}
	return d.errorf("%w: %w", ErrInvalid, err)
}

// enter makes r what m is registered as, once register has registered it.
func (m *MR) enter(r *region, register func(*region) error) error {
	if uint64(len(r.buf)) > limits.MaxMRSize {
		return fmt.Errorf("register MR: %w: %d bytes, and MaxMRSize is %d", ErrLimit, len(r.buf), limits.MaxMRSize)
	}
	if err := register(r); err != nil {
		return err
	}
	r.key, r.iova = r.mr.Key, r.mr.IOVA
	m.now.Store(r)
	return nil
}

// place says where the memory of r is, and by which addresses it is known.
func (r *region) place(acc Access, o MROptions) (space mem.Space, addr, iova uint64) {
	addr = mem.Address(r.buf)
	if o.IOVA != 0 || acc&ZeroBased != 0 {
		return mem.NewBytes(r.buf, addr), addr, o.IOVA
	}
	return mem.NewBytes(r.buf, addr), addr, addr
}

// Rereg registers the region anew, with the same keys, as ibv_rereg_mr does: in protection domain pd (nil: the present
// one), with buf (nil: the present memory) and acc. When it returns, nothing touches memory that it no longer has. On an
// error nothing has changed; it wraps ErrInvalid, ErrLimit, ErrClosed, or ErrBusy while windows are bound to the region.
func (m *MR) Rereg(pd *PD, buf []byte, acc Access, o MROptions) error {
	err := m.reregister(pd, buf, acc, o)
	if err == nil {
		m.dev.engine.Barrier()
	}
	return err
}

func (m *MR) reregister(pd *PD, buf []byte, acc Access, o MROptions) error {
	d := m.dev
	if m.fast != nil {
		return d.errorf("reregister MR: %w: it is registered by work requests", ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.mrs, m, "reregister MR"); err != nil {
		return err
	}
	was := m.now.Load()
	next := &region{pd: was.pd, buf: was.buf}
	if pd != nil {
		next.pd = pd
	}
	if buf != nil {
		next.buf = buf
	}
	if err := stillIn(d, d.pds, next.pd, "reregister MR: PD"); err != nil {
		return err
	}
	err := m.enter(next, func(r *region) (err error) {
		space, addr, iova := r.place(acc, o)
		r.mr, err = d.engine.Keys().Reregister(was.mr, r.pd.pd, space, addr, iova, uint64(len(r.buf)), acc)
		return err
	})
	if err != nil {
		return d.wrap(err)
	}
	was.pd.mrs--
	next.pd.mrs++
	return nil
}

// Dereg removes the region. When it returns, nothing touches the memory any more: a peer that goes on gets
// RemAccessErr, work requests here that name it get LocProtErr. ErrBusy while windows are bound to it.
func (m *MR) Dereg() error {
	err := m.remove()
	if err == nil {
		m.dev.engine.Barrier()
	}
	return err
}

func (m *MR) remove() error {
	d := m.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.mrs, m, "deregister MR"); err != nil {
		return err
	}
	if err := m.end(); err != nil {
		return d.wrap(err)
	}
	delete(d.mrs, m)
	m.now.Load().pd.mrs--
	return nil
}

// end takes the region's key away.
func (m *MR) end() error {
	if m.fast != nil {
		return m.fast.Dealloc()
	}
	return m.dev.engine.Keys().Deregister(m.now.Load().mr)
}

// LKey returns the key by which work requests here name the region. Of one that work requests register it is that of the
// last OpRegMR that was posted.
func (m *MR) LKey() uint32 { return m.now.Load().key }

// RKey returns the key by which peers name the region.
func (m *MR) RKey() uint32 { return m.LKey() }

// IOVA returns the address by which peers name the first byte.
func (m *MR) IOVA() uint64 { return m.now.Load().iova }

// Len returns the length in bytes; 0 of a region that work requests register.
func (m *MR) Len() int { return len(m.Bytes()) }

// Bytes returns the memory of the region, which is the slice that was registered; nil where work requests register it.
func (m *MR) Bytes() []byte { return m.now.Load().buf }

// SGE returns the element for length bytes from offset.
func (m *MR) SGE(offset, length int) SGE { return SGE{MR: m, Offset: offset, Length: length} }

// The accessors below are for memory that a peer may write or update at the same time: each is atomic, and what they
// see of a message's last bytes says that all the others are there. off counts from the start of the region; like an
// index out of range, one out of range panics, and so does a word that isn't aligned to its size in memory.

// Load8 returns the byte at off.
func (m *MR) Load8(off int) uint8 { return mem.Load8(m.Bytes(), off) }

// Load32 returns the 4-byte word at off, in host order.
func (m *MR) Load32(off int) uint32 { return mem.Load32(m.Bytes(), off) }

// Load64 returns the 8-byte word at off, in host order; the order in which a peer's atomics count.
func (m *MR) Load64(off int) uint64 { return mem.Load64(m.Bytes(), off) }

// Store32 sets the 4-byte word at off.
func (m *MR) Store32(off int, v uint32) { mem.Store32(m.Bytes(), off, v) }

// Store64 sets the 8-byte word at off.
func (m *MR) Store64(off int, v uint64) { mem.Store64(m.Bytes(), off, v) }

// Add64 adds delta to the 8-byte word at off and returns the sum. It is atomic with a peer's atomics.
func (m *MR) Add64(off int, delta uint64) uint64 { return mem.Add64(m.Bytes(), off, delta) }

// CompareAndSwap64 sets the 8-byte word at off to new if it is old, and reports whether it did. It is atomic with a
// peer's atomics.
func (m *MR) CompareAndSwap64(off int, old, new uint64) bool {
	return mem.CompareAndSwap64(m.Bytes(), off, old, new)
}
