package qp

import (
	"errors"

	"github.com/urxe/urxe/rocev2/mem"
)

// What a work request asks of this side alone: to bind a memory window, to
// register or invalidate a region. It makes no packet and takes no PSN. It is
// done when its turn comes to be sent, and completes in order like any other.

// endsBy reports whether all of the request lies below the sequence number seq
// and, where it is this side's alone, is done.
func (r *request) endsBy(seq uint64) bool { return r.end() <= seq && (r.packets > 0 || r.done) }

// passLocal does what cur stands at as long as that makes no packets, and
// reports whether it then stands at a request that does.
func (q *QP) passLocal() bool {
	r := &q.req
	for r.at(r.cur).packets == 0 {
		if t := r.at(r.cur); !t.done && !q.doLocal(t) {
			return false
		}
		r.cur++
		q.completeCommitted()
		if !q.take() {
			return false
		}
	}
	return true
}

// settle moves acking and cur on to what isn't complete: no acknowledgement
// moves them past an operation that has no packets.
func (r *requester) settle() {
	if int32(r.acking-r.oldest) < 0 {
		r.acking = r.oldest
	}
	if int32(r.cur-r.oldest) < 0 {
		r.cur = r.oldest
	}
}

// doLocal does the operation at cur, if it may begin, and reports whether it is
// done. When it can't be, everything before it is still completed first.
func (q *QP) doLocal(t *request) bool {
	r := &q.req
	switch {
	case q.state != RTS:
		return false
	case t.wqe.Flags&Fence != 0 && r.rdAtomics > 0: // IBA 10.8.3.3
		return false
	case t.op.drains && r.oldest != r.cur:
		return false
	case !q.svc.offers.has(t.wqe.Opcode):
		q.failLocal(r.cur, LocQPOpErr)
		return false
	}
	if err := t.op.local(q, t.wqe); err != nil {
		q.trace(err.Error(), q.psnOf(r.nxt))
		q.failLocal(r.cur, MWBindErr) // of all memory management (IBA 11.6.2)
		return false
	}
	t.done = true
	return true
}

// bind is WRBindMW.
func (q *QP) bind(w *SendWQE) error {
	if w.Local == nil {
		return errNothing
	}
	return q.cfg.Keys.Bind(&w.Local.Bind, q.cfg.PD, q)
}

// fastRegister is WRRegMR.
func (q *QP) fastRegister(w *SendWQE) error {
	if w.Local == nil {
		return errNothing
	}
	return q.cfg.Keys.FastRegister(&w.Local.Reg, q.cfg.PD)
}

// invalidateLocal is WRLocalInv.
func (q *QP) invalidateLocal(w *SendWQE) error { return q.cfg.Keys.Invalidate(w.InvKey, q.cfg.PD) }

var errNothing = errors.New("the work request doesn't say what to bind or register")

// invalidateRemote invalidates the key that a SEND brought, when the message
// has arrived. If that can't be, the receive is completed with an error and the
// QP ends, but nothing is said to the peer: what it sent may have been
// acknowledged before (class J of IBA 9.9.3).
func (q *QP) invalidateRemote(n *mem.Note) bool {
	err := q.cfg.Keys.InvalidateRemote(n.X, q.cfg.PD, q)
	if err == nil {
		q.resp.forget(n.X)
		return true
	}
	q.trace(err.Error(), n.PSN)
	q.completeReceive(RemInvReqErr)
	q.resp.epsn, q.resp.cpsn = n.PSN, n.PSN
	q.enterErr(true) // what came before is still acknowledged
	return false
}
