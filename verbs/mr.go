package verbs

import (
	"github.com/urxe/urxe/rocev2/mem"
)

// MR is a memory region: bytes of this process that work requests, and peers as far as its Access allows, may use. It
// keeps its slice alive until Dereg.
type MR struct {
	dev *Device
	pd  *PD
	buf []byte
	mr  *mem.MR
}

// MROptions are how a region is registered. The zero value works.
type MROptions struct {
	IOVA uint64 // the address by which peers name the first byte; 0: its address in this process
}

// RegMR registers buf. Peers name its bytes by addresses from MR.IOVA on, or from 0 with the access ZeroBased, and by
// MR.RKey. Go code and a peer may use the memory at once: see the package's documentation on memory. Its errors wrap
// ErrInvalid (no bytes, rights that don't go together), ErrLimit or ErrClosed.
func (p *PD) RegMR(buf []byte, acc Access) (*MR, error) { return p.RegMROpts(buf, acc, MROptions{}) }

// RegMROpts is RegMR with options.
func (p *PD) RegMROpts(buf []byte, acc Access, o MROptions) (*MR, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := check(d, d.pds, p, "register MR: PD"); err != nil {
		return nil, err
	}
	if uint64(len(buf)) > limits.MaxMRSize {
		return nil, d.errorf("register MR: %w: %d bytes of %d", ErrLimit, len(buf), limits.MaxMRSize)
	}
	m := &MR{dev: d, pd: p, buf: buf}
	if err := add(d, d.mrs, m, limits.MaxMR, "MR"); err != nil {
		return nil, err
	}
	if err := m.register(acc, o); err != nil {
		delete(d.mrs, m)
		return nil, d.errorf("%w: %w", ErrInvalid, err)
	}
	p.mrs++
	return m, nil
}

func (m *MR) register(acc Access, o MROptions) (err error) {
	addr := mem.Address(m.buf)
	iova := addr
	if o.IOVA != 0 || acc&ZeroBased != 0 {
		iova = o.IOVA
	}
	m.mr, err = m.dev.engine.Keys().Register(m.pd.pd, mem.NewBytes(m.buf, addr), addr, iova, uint64(len(m.buf)), acc)
	return err
}

// Dereg removes the region. When it returns, nothing touches the memory any more: a peer that goes on gets
// RemAccessErr, work requests here that name it get LocProtErr.
func (m *MR) Dereg() error {
	d := m.dev
	d.mu.Lock()
	if _, ok := d.mrs[m]; !ok {
		d.mu.Unlock()
		return d.errorf("deregister MR: %w", ErrClosed)
	}
	delete(d.mrs, m)
	m.pd.mrs--
	d.mu.Unlock()
	d.engine.Keys().Deregister(m.mr)
	d.engine.Barrier()
	return nil
}

// LKey returns the key by which work requests here name the region.
func (m *MR) LKey() uint32 { return m.mr.Key }

// RKey returns the key by which peers name the region.
func (m *MR) RKey() uint32 { return m.mr.Key }

// IOVA returns the address by which peers name the first byte.
func (m *MR) IOVA() uint64 { return m.mr.IOVA }

// Len returns the length in bytes.
func (m *MR) Len() int { return len(m.buf) }

// Bytes returns the memory of the region, which is the slice that was registered.
func (m *MR) Bytes() []byte { return m.buf }

// SGE returns the element for length bytes from offset.
func (m *MR) SGE(offset, length int) SGE { return SGE{MR: m, Offset: offset, Length: length} }

// The accessors below are for memory that a peer may write or update at the same time: each is atomic, and what they
// see of a message's last bytes says that all the others are there. off counts from the start of the region; like an
// index out of range, one out of range panics, and so does a word that isn't aligned to its size in memory.

// Load8 returns the byte at off.
func (m *MR) Load8(off int) uint8 { return mem.Load8(m.buf, off) }

// Load32 returns the 4-byte word at off, in host order.
func (m *MR) Load32(off int) uint32 { return mem.Load32(m.buf, off) }

// Load64 returns the 8-byte word at off, in host order; the order in which a peer's atomics count.
func (m *MR) Load64(off int) uint64 { return mem.Load64(m.buf, off) }

// Store32 sets the 4-byte word at off.
func (m *MR) Store32(off int, v uint32) { mem.Store32(m.buf, off, v) }

// Store64 sets the 8-byte word at off.
func (m *MR) Store64(off int, v uint64) { mem.Store64(m.buf, off, v) }

// Add64 adds delta to the 8-byte word at off and returns the sum. It is atomic with a peer's atomics.
func (m *MR) Add64(off int, delta uint64) uint64 { return mem.Add64(m.buf, off, delta) }

// CompareAndSwap64 sets the 8-byte word at off to new if it is old, and reports whether it did. It is atomic with a
// peer's atomics.
func (m *MR) CompareAndSwap64(off int, old, new uint64) bool {
	return mem.CompareAndSwap64(m.buf, off, old, new)
}
