package sim

import (
	"errors"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// A connection binds a memory window to what its peer WRITEs, READs and swaps
// anyway, so that the peer has two keys for the same bytes. The peer invalidates
// it from time to time, in the middle of everything; then it is bound anew.
type window struct {
	mw     *mem.MW // nil: the connection has none
	bound  bool    // or being bound
	key    uint32  // that the peer may use; 0: none
	base   uint64  // by which it names the first byte
	rebind uint8   // how often it was bound
	closed bool    // by this end, while the peer goes on
	spent  uint32  // a key that it had, which the peer has invalidated
}

// foreign are windows on a host's table that none of its connections may use.
type foreign struct {
	pd    *mem.MW // of another protection domain
	other *mem.MW // of type 2, bound by another QP
	base  uint64
}

// stranger stands for a QP that no packet comes by.
type stranger struct{}

// Commit implements mem.Owner.
func (*stranger) Commit(*mem.Op) {}

// openForeign binds them.
func (h *host) openForeign() (err error) {
	if h.foreign.pd, err = h.openTable(new(mem.PD), mem.MWType1); err == nil {
		h.foreign.other, err = h.openTable(h.pd, mem.MWType2)
	}
	return err
}

// openTable binds a window of a protection domain to the table.
func (h *host) openTable(pd *mem.PD, typ mem.MWType) (*mem.MW, error) {
	keys := h.port.Keys()
	base := mem.Address(h.table)
	mr, err := keys.Register(pd, mem.NewBytes(h.table, base), base, base, tableSize, mem.LocalWrite|mem.MWBind)
	if err != nil {
		return nil, err
	}
	h.foreign.base = base
	mw, err := keys.AllocMW(pd, typ)
	if err != nil {
		return nil, err
	}
	return mw, keys.Bind(&mem.Bind{MW: mw, Key: 1, LKey: mr.Key, Addr: base, Length: tableSize,
		Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic}, pd, new(stranger))
}

// abuseWindow makes w, if it names memory of the peer, name it by a window that
// doesn't open it: one way or another.
func (e *end) abuseWindow(w *work) {
	if w.wqe.RKey == 0 || w.length == 0 || w.wqe.Opcode == qp.WRFetchAdd {
		return
	}
	v, how := &e.peer.win, ""
	switch n := e.r.IntN(4); {
	case n < 2 && v.key != 0:
		how, w.wqe.RKey, w.wqe.RemoteAddr = "window used past its end", v.key, v.base+uint64(len(e.peer.window)-w.length+8)&^7
	case n < 2 && v.spent != 0:
		how, w.wqe.RKey, w.wqe.RemoteAddr = "window used after its end", v.spent, v.base
	case n == 2:
		how, w.wqe.RKey, w.wqe.RemoteAddr = "window of another PD used", e.peer.host.foreign.pd.Key(), e.peer.host.foreign.base
	case n == 3:
		how, w.wqe.RKey, w.wqe.RemoteAddr = "window of another QP used", e.peer.host.foreign.other.Key(), e.peer.host.foreign.base
	default:
		return
	}
	w.bad = true
	e.pair.w.trace.met[how]++
}

// checkReleased checks that a window went with its QP: its region may go.
func (e *end) checkReleased() {
	if e.win.key == 0 {
		return
	}
	keys := e.host.port.Keys()
	if keys.FindWhole(e.win.key, e.host.pd, nil, 0) != nil {
		e.violation("its QP is destroyed, and the window %#x is open", e.win.key)
	}
	if err := keys.Deregister(e.mr); errors.Is(err, mem.ErrBound) {
		e.violation("its QP is destroyed, and the region stays: %v", err)
	}
	e.pair.w.trace.met["window freed with its QP"]++
}

// allocWindow makes the end's window. Memory that is to be deregistered has
// none: a region with windows stays.
func (e *end) allocWindow() (err error) {
	if e.pair.fate != memoryGone {
		e.win.mw, err = e.host.port.Keys().AllocMW(e.host.pd, mem.MWType2)
	}
	return err
}

// aim returns by which address and key the peer's byte at off is reached.
func (e *end) aim(off int) (addr uint64, key uint32) {
	p := e.peer
	if p.win.key != 0 && e.r.IntN(2) == 0 {
		return p.win.base + uint64(off), p.win.key
	}
	return p.mr.IOVA + uint64(p.windowAt+off), p.mr.Key
}

// bindWork makes w bind the window.
func (e *end) bindWork(w *work) {
	v := &e.win
	v.bound = true
	v.rebind++
	b := mem.Bind{
		MW: v.mw, Key: v.rebind, LKey: e.mr.Key, Addr: e.mr.IOVA + uint64(e.windowAt), Length: uint64(len(e.window)),
		Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic,
	}
	v.base = b.Addr
	if e.r.IntN(2) == 0 {
		b.Access |= mem.ZeroBased
		v.base = 0
	}
	*w.wqe = qp.SendWQE{ID: w.id, Opcode: qp.WRBindMW, Flags: qp.Signaled, Local: &qp.Local{Bind: b}}
}

// didBind lets the peer use the window.
func (e *end) didBind(w *work) {
	e.win.key = e.win.mw.Key()
	if e.win.key != e.win.mw.Key()&^0xff|uint32(w.wqe.Local.Bind.Key) {
		e.violation("a window has the key %#x after it was bound", e.win.key)
	}
	e.pair.w.trace.met["window bound"]++
}

// invalidateWork makes w a SEND that invalidates the peer's window. What was
// posted before may still use the key; a fence keeps the SEND until the READs
// among it have ended (IBA 10.8.3.3).
func (e *end) invalidateWork(w *work) {
	w.wqe.Opcode, w.wqe.InvKey = qp.WRSendInv, e.peer.win.key
	w.wqe.Flags |= qp.Fence
	e.peer.win.spent, e.peer.win.key = e.peer.win.key, 0
	e.fillOutgoing(w)
}

// wasInvalidated takes a message that invalidated the window.
func (e *end) wasInvalidated(w *work, c *qp.Completion) {
	if c.Flags&qp.WCWithInv == 0 || c.Imm != w.wqe.InvKey {
		e.violation("message %d invalidated %#x (flags %#x), want %#x", w.id, c.Imm, c.Flags, w.wqe.InvKey)
	}
	if e.host.port.Keys().FindWhole(w.wqe.InvKey, e.host.pd, nil, 0) != nil {
		e.violation("message %d has come, and its key %#x still leads somewhere", w.id, w.wqe.InvKey)
	}
	e.win.bound = false
	e.pair.w.trace.met["window invalidated by the peer"]++
}

// localInvalidate is the end of a connection whose window closes while the peer
// goes on using it: it is posted, in place of a SEND, in the middle of whatever
// the peer does.
func (e *end) localInvalidate(w *work) *work {
	v := &e.win
	if v.key == 0 || v.closed || w.wqe.Opcode != qp.WRSend {
		return w
	}
	v.closed = true
	e.pair.w.trace.met["window invalidated in use"]++
	return &work{id: w.id, wqe: &qp.SendWQE{ID: w.id, Opcode: qp.WRLocalInv, Flags: qp.Signaled, InvKey: v.key}, winOff: -1}
}
