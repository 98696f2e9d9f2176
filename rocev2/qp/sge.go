package qp

import (
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// The scatter-gather lists of work requests: how long the message is that they
// name, and the memory ops that move a packet's part of it.

// length returns the bytes of the message: what the list adds up to.
func (w *SendWQE) length() (n uint64) {
	if w.Flags&Inline != 0 {
		return uint64(len(w.Inline))
	}
	for i := range w.SGEs {
		n += uint64(w.SGEs[i].Length)
	}
	return n
}

// length returns the bytes that a receive takes.
func (w *RecvWQE) length() (n uint64) {
	for i := range w.SGEs {
		n += uint64(w.SGEs[i].Length)
	}
	return n
}

// gather has op, and others that it adds, fetch n bytes of the message at off
// into p. It returns false when a key doesn't allow it.
func (q *QP) gather(t *request, off uint64, n int, p *TxPacket, op *mem.Op, b *mem.Batch) bool {
	if n == 0 || t.wqe.Flags&Inline != 0 {
		if n > 0 {
			copyTo(&p.payload, t.wqe.Inline[off:])
		}
		op.Note.Flags |= flagEnd // it keeps its place among the QP's packets
		return true
	}
	op.Kind = mem.Gather
	return q.eachSGE(t.wqe.SGEs, off, n, &p.payload, op, b)
}

// gatherNow is gather without an op, where Batch.Gather has the bytes and they are
// of a list of one element. It reports whether it did it.
func (q *QP) gatherNow(w *SendWQE, off uint64, p *TxPacket, b *mem.Batch) bool {
	if len(w.SGEs) != 1 || w.Flags&Inline != 0 {
		return false
	}
	s, n := &w.SGEs[0], uint64(len(p.payload[0])+len(p.payload[1]))
	m := q.cfg.Keys.Find(s.LKey, q.cfg.PD, s.Addr+off, n, 0)
	return m != nil && off+n <= uint64(s.Length) && b.Gather(m, s.Addr+off, &p.payload)
}

// copyTo fills the pieces with the beginning of from.
func copyTo(pieces *[2][]byte, from []byte) {
	n := copy(pieces[0], from)
	copy(pieces[1], from[n:])
}

// scatter has op, and others that it adds, put n bytes of a packet to off in the
// list. It returns false when a key doesn't allow it.
func (q *QP) scatter(list []SGE, off uint64, n int, from *[2][]byte, op *mem.Op, b *mem.Batch) bool {
	if n == 0 {
		op.Note.Flags |= flagEnd
		return true
	}
	op.Kind = mem.Scatter
	return q.eachSGE(list, off, n, from, op, b)
}

// eachSGE has op, a Gather or Scatter, access what bytes [off, off+n) of the
// list are of its first element that they touch, and adds one like it for each
// other; the last ends the packet. frag are the bytes on the packet's side. It
// returns false when a key or a range doesn't allow it.
func (q *QP) eachSGE(list []SGE, off uint64, n int, frag *[2][]byte, op *mem.Op, b *mem.Batch) bool {
	var need mem.Access
	if op.Kind == mem.Scatter {
		need = mem.LocalWrite
	}
	first, done, pd := op, 0, q.listPD(op.Note.Code)
	for i := range list {
		s := &list[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		k := int(min(uint64(s.Length)-off, uint64(n-done)))
		va := s.Addr + off
		mr := q.cfg.Keys.Find(s.LKey, pd, va, uint64(k), need)
		if mr == nil {
			return false
		}
		if done > 0 {
			op = q.op(b)
			op.Kind, op.Note = first.Kind, first.Note
		}
		op.MR, op.VA = mr, va
		wire.CutTo(&op.Frag, frag, done, k)
		if done, off = done+k, 0; done == n {
			op.Note.Flags |= flagEnd
			return true
		}
	}
	return false
}

// listPD returns the PD whose keys a list of elements names.
func (q *QP) listPD(note uint8) *mem.PD {
	switch note {
	case noteSend, noteHeader, noteDatagram:
		return q.cfg.RecvPD
	}
	return q.cfg.PD
}
