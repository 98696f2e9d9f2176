package qp

import (
	"encoding/binary"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// ATOMIC WRITE and FLUSH, the memory placement extensions (Annex A19), are
// executed once, take a place among the READs and atomics under way, and are
// answered by a READ response without data.

// executeAtomicWrite takes an ATOMIC WRITE: 8 bytes, which others see as one.
func (q *QP) executeAtomicWrite(p *wire.Packet, b *mem.Batch) refusal {
	if q.attr.Access&mem.RemoteWrite == 0 || p.Len != 8 || p.Length != 8 || p.VA%8 != 0 || q.crowded() {
		return invalid
	}
	mr := q.findRemote(p.RKey, p.VA, 8, mem.RemoteWrite)
	if mr == nil {
		return accessDenied
	}
	var word [8]byte
	copy(word[copy(word[:], p.Payload[0]):], p.Payload[1])
	op := q.addOnce(p, b)
	op.Kind, op.MR, op.VA, op.Swap = mem.Store, mr, p.VA, binary.NativeEndian.Uint64(word[:])
	return accepted
}

// executeFlush takes a FLUSH. Memory here is coherent, and a batch keeps the
// order of a QP's writes: when the op's turn comes, everything before it can be
// seen by all (oA19-14). Unlike a READ's, the key is looked at whatever the length.
func (q *QP) executeFlush(p *wire.Packet, b *mem.Batch) refusal {
	f := Flush(p.Flush & 0x3f) // what else the FETH has is reserved
	need, ok := f.rights()
	if !ok || q.attr.Access&need != need || q.crowded() {
		return invalid
	}
	var mr *mem.MR
	if f&FlushRegion != 0 {
		mr = q.cfg.Keys.FindWhole(p.RKey, q.cfg.PD, q, need)
	} else {
		mr = q.findRemote(p.RKey, p.VA, uint64(p.Length), need)
	}
	if mr == nil {
		return accessDenied
	}
	op := q.addOnce(p, b)
	op.Kind, op.MR, op.VA = mem.Gather, mr, mr.IOVA // of no bytes: it faults when the memory has gone
	op.Swap = p.VA                                  // for commitAtomic
	return accepted
}

// rights returns what a FLUSH needs; false when it is none that exists.
func (f Flush) rights() (need mem.Access, ok bool) {
	if f&FlushGlobal != 0 {
		need |= mem.FlushGlobal
	}
	if f&FlushPersistent != 0 {
		need |= mem.FlushPersistent
	}
	return need, need != 0 && f&^(FlushGlobal|FlushPersistent|FlushRegion) == 0
}

// addOnce adds the op of a request that is executed once and answered by itself.
func (q *QP) addOnce(p *wire.Packet, b *mem.Batch) *mem.Op {
	q.resp.reading++
	op := q.op(b)
	op.Note = mem.Note{Code: noteAtomic, PSN: p.PSN, X: p.RKey, N: uint32(p.Opcode), Flags: flagEnd | flagMessage}
	return op
}

// handleEmptyResponse takes the response to an ATOMIC WRITE or a FLUSH.
func (q *QP) handleEmptyResponse(p *wire.Packet, t *request, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	if v := q.reach(t, seq, now, b); v != wire.Accepted {
		return v
	}
	if p.Opcode != wire.RCReadRespOnly || p.Len != 0 {
		return q.badResponse(t, now, b)
	}
	q.answer(seq, now)
	q.answers(p, false, now, b).Note.Flags |= flagEnd
	return wire.Accepted
}
