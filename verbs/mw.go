package verbs

import (
	"fmt"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// MWType is the type of a memory window.
type MWType = mem.MWType

// The types, numbered as ibv_mw_type. One of type 1 is bound by QP.BindMW, anew if it is bound, and is for the peers of
// all QPs of its PD. One of type 2 is bound by a work request, OpBindMW, is for the peer of that QP, and must be
// invalidated (OpLocalInv, or a peer's SEND with invalidate) before it is bound again: type 2B of the specification.
// When its QP is destroyed it is bound to nothing.
const (
	MWType1 = mem.MWType1
	MWType2 = mem.MWType2
)

// MW is a memory window: a key that opens a part of a region to peers while it is bound. To bind it is a work request,
// so that it costs no call to register memory for a while.
type MW struct {
	dev *Device
	pd  *PD
	mw  *mem.MW

	binds atomic.Uint32 // by QP.BindMW: the low byte is that of the last key
}

// AllocMW makes a window that is bound to nothing. Its errors wrap ErrInvalid (no such type), ErrLimit or ErrClosed.
func (p *PD) AllocMW(t MWType) (*MW, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.pds, p, "allocate MW: PD"); err != nil {
		return nil, err
	}
	w := &MW{dev: d, pd: p}
	if err := add(d, d.mws, w, limits.MaxMW, "MW"); err != nil {
		return nil, err
	}
	var err error
	if w.mw, err = d.engine.Keys().AllocMW(p.pd, t); err != nil {
		delete(d.mws, w)
		return nil, d.wrap(err)
	}
	w.binds.Store(w.mw.Key())
	p.mws++
	return w, nil
}

// Dealloc removes the window, bound or not. When it returns, no peer reaches memory by it.
func (w *MW) Dealloc() error {
	d := w.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.mws, w, "deallocate MW"); err != nil {
		return err
	}
	delete(d.mws, w)
	w.pd.mws--
	return w.mw.Dealloc()
}

// Type returns the type.
func (w *MW) Type() MWType { return w.mw.Type() }

// RKey returns the key by which peers name the window: the present one, or the last while it is bound to nothing.
func (w *MW) RKey() uint32 { return w.mw.Key() }

// WithKey returns the rkey that the window has when it is bound with the low byte key.
func (w *MW) WithKey(key uint8) uint32 { return w.mw.Key()&^0xff | uint32(key) }

// BindAttr says what a window opens: length bytes from Offset of MR, which must have the access MWBind, to peers with
// Access: RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal. Peers name the bytes by the addresses of the region, or from
// 0 with ZeroBased, which only windows of type 2 may have.
type BindAttr struct {
	MW             *MW
	Key            uint8 // the low byte of the window's rkey from then on: another than before, so that old ones are refused
	MR             *MR   // nil with Length 0: a window of type 1 is bound to nothing
	Offset, Length int
	Access         Access

	verb bool // QP.BindMW makes it
}

// RegAttr says what a region of AllocMR is registered as: Pages in one range of addresses from IOVA on. All pages but the
// first and the last have PageSize bytes, a power of 2 from 4096 on; those may have less.
type RegAttr struct {
	MR       *MR
	Key      uint8 // the low byte of its keys from then on
	IOVA     uint64
	Access   Access
	PageSize int
	Pages    [][]byte
}

// BindMW binds a window of type 1, as ibv_bind_mw does: by a work request with that id and those flags, which completes
// with WCBindMW. It returns the window's rkey from then on; a.Key is not looked at. Its errors are those of PostSend.
func (q *QP) BindMW(id uint64, flags SendFlags, a BindAttr) (rkey uint32, err error) {
	if a.MW == nil || a.MW.Type() != MWType1 {
		return 0, q.errorf("bind MW: %w: want a window of type 1; others are bound by PostSend", ErrInvalid)
	}
	a.Key, a.verb = uint8(a.MW.binds.Add(1)), true
	if _, err = q.PostSend(SendWR{ID: id, Opcode: OpBindMW, Flags: flags, Bind: &a}); err != nil {
		return 0, err
	}
	return a.MW.WithKey(a.Key), nil
}

// fillLocal fills in what a work request asks of this side alone.
func (q *QP) fillLocal(wqe *qp.SendWQE, wr *SendWR) error {
	switch {
	case wr.Opcode == OpBindMW && wr.Bind != nil:
		return q.fillBind(wqe, wr.Bind)
	case wr.Opcode == OpRegMR && wr.Reg != nil:
		return q.fillReg(wqe, wr.Reg)
	case wr.Opcode == OpLocalInv:
		return nil
	}
	return fmt.Errorf("%w: %v without Bind or Reg, which say what to do", ErrInvalid, wr.Opcode)
}

func (q *QP) fillBind(wqe *qp.SendWQE, a *BindAttr) error {
	switch {
	case a.MW == nil || a.MW.dev != q.dev:
		return fmt.Errorf("%w: no window of this device given", ErrInvalid)
	case a.MW.Type() == MWType1 && !a.verb: // o10-36
		return fmt.Errorf("%w: a window of type 1 is bound by QP.BindMW", ErrInvalid)
	case a.Offset < 0 || a.Length < 0:
		return fmt.Errorf("%w: offset %d, length %d: must not be negative", ErrInvalid, a.Offset, a.Length)
	case a.MR == nil && a.Length > 0:
		return fmt.Errorf("%w: no MR for %d bytes", ErrInvalid, a.Length)
	}
	b := mem.Bind{MW: a.MW.mw, Key: a.Key, Length: uint64(a.Length), Access: a.Access}
	if a.MR != nil {
		r := a.MR.now.Load()
		b.LKey, b.Addr = r.key, r.iova+uint64(a.Offset)
	}
	wqe.Local = &qp.Local{Bind: b}
	return nil
}

// fillReg takes the new keys for given: work requests that are posted behind this one name the region by them.
func (q *QP) fillReg(wqe *qp.SendWQE, a *RegAttr) error {
	if a.MR == nil || a.MR.fast == nil || a.MR.dev != q.dev {
		return fmt.Errorf("%w: no MR given that AllocMR of this device made", ErrInvalid)
	}
	wqe.Local = &qp.Local{Reg: mem.Registration{
		MR: a.MR.fast, Key: a.Key, IOVA: a.IOVA, Access: a.Access, PageList: mem.PageList{Size: a.PageSize, Pages: append([][]byte(nil), a.Pages...)},
	}}
	r := *a.MR.now.Load()
	r.key, r.iova = r.key&^0xff|uint32(a.Key), a.IOVA
	a.MR.now.Store(&r)
	return nil
}
