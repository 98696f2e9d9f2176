package qp

import (
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// executeAtomic takes a compare-and-swap or fetch-and-add.
func (q *QP) executeAtomic(p *wire.Packet, b *mem.Batch) refusal {
	if q.attr.Access&mem.RemoteAtomic == 0 || p.VA%8 != 0 || q.crowded() {
		return invalid
	}
	mr := q.findRemote(p.RKey, p.VA, 8, mem.RemoteAtomic)
	if mr == nil {
		return accessDenied
	}
	op := q.addOnce(p, b)
	op.MR, op.VA = mr, p.VA
	op.Kind, op.Swap, op.Compare = mem.FetchAdd, p.Swap, p.Compare
	if p.Opcode == wire.RCCompareSwap {
		op.Kind = mem.CompareSwap
	}
	return accepted
}

// commitAtomic saves what an atomic found and owes it to the peer. It never
// runs again: a duplicate is answered from what was saved (C9-105, oA19).
func (q *QP) commitAtomic(op *mem.Op) {
	r, n := &q.resp, &op.Note
	s := savedRequest{
		op: wire.Opcode(n.N), first: n.PSN, last: n.PSN, rkey: n.X, va: op.VA, orig: op.Orig, msn: r.msn.Next(),
	}
	if s.op == wire.RCFlush {
		s.va = op.Swap
	}
	r.save(s)
	r.owed.push(s.atomicResponse())
}

func (s *savedRequest) atomicResponse() response {
	return response{
		first: s.first, psn: s.first, last: s.first, atomic: true, orig: s.orig, msn: s.msn,
		empty: s.op == wire.RCAtomicWrite || s.op == wire.RCFlush,
	}
}

// duplicateAtomic answers an atomic, an ATOMIC WRITE or a FLUSH again.
func (q *QP) duplicateAtomic(p *wire.Packet) wire.Verdict {
	r := &q.resp
	s := r.findSaved(p.PSN)
	if s == nil || s.op != p.Opcode || s.rkey != p.RKey || s.va != p.VA {
		return wire.DropNoReplay
	}
	q.cfg.Counters.AtomicReplays++
	if r.findOwed(p.PSN) != nil {
		return wire.DropDuplicate // the answer is still to be sent
	}
	return q.replay(s.atomicResponse())
}

// planAtomicResponse makes an ATOMIC ACK, or the response that brings nothing.
func (q *QP) planAtomicResponse(p *TxPacket, o *response, b *mem.Batch) {
	h := q.responseHeader(wire.RCAtomicAck, o.psn, o.msn)
	h.Orig = o.orig
	if o.empty {
		h.Opcode = wire.RCReadRespOnly
	}
	q.emit(p, &h, 0, q.path)
	q.sending(noteResponseOut, o.psn, 0, p, b)
	q.resp.answered()
}
