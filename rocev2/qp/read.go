package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// executeRead takes a READ request.
func (q *QP) executeRead(p *wire.Packet, b *mem.Batch) refusal {
	switch {
	case uint64(p.Length) > MaxMessage, q.attr.Access&mem.RemoteRead == 0, q.crowded():
		return invalid
	case p.Length > 0 && q.findRemote(p.RKey, p.VA, uint64(p.Length), mem.RemoteRead) == nil:
		return accessDenied
	}
	q.resp.reading++
	op := q.op(b)
	op.VA = p.VA
	op.Note = mem.Note{Code: noteRead, PSN: p.PSN, N: p.Length, X: p.RKey, Flags: flagEnd | flagMessage}
	return accepted
}

// commitRead owes the response of a READ request, in its turn.
func (q *QP) commitRead(op *mem.Op) {
	r, n := &q.resp, &op.Note
	s := savedRequest{
		op: wire.RCReadRequest, first: n.PSN, last: n.PSN.Add(q.readPackets(uint64(n.N)) - 1),
		rkey: n.X, va: op.VA, length: uint64(n.N), msn: r.msn.Next(),
	}
	r.save(s)
	r.owed.push(response{first: s.first, psn: s.first, last: s.last, va: s.va, left: s.length, rkey: s.rkey, msn: s.msn})
}

// duplicateRead answers a READ again, or a part of it from where the peer found
// it missing. The request must lie within the first one.
func (q *QP) duplicateRead(p *wire.Packet) wire.Verdict {
	r := &q.resp
	s := r.findSaved(p.PSN)
	if s == nil || s.op != wire.RCReadRequest || s.rkey != p.RKey {
		return wire.DropNoReplay
	}
	skipped := uint64(p.PSN.Sub(s.first)) * uint64(q.mtu)
	if p.VA != s.va+skipped || uint64(p.Length) > s.length-skipped {
		return wire.DropNoReplay
	}
	again := response{
		first: p.PSN, psn: p.PSN, last: p.PSN.Add(q.readPackets(uint64(p.Length)) - 1),
		va: p.VA, left: uint64(p.Length), rkey: p.RKey, msn: s.msn,
	}
	q.cfg.Counters.ReadReplays++
	switch o := r.findOwed(p.PSN); {
	case o == nil, again.last.Sub(o.last) > 0:
		return q.replay(again)
	case o.psn.Sub(p.PSN) <= 0: // still to be sent
	case again.last == o.last: // on its way: go back, to send it from there
		again.first, again.replay = o.first, o.replay
		*o = again
	default:
		return q.replay(again)
	}
	return wire.DropDuplicate
}

// planReadResponse makes the next packet of a READ response.
func (q *QP) planReadResponse(p *TxPacket, o *response, b *mem.Batch) {
	n := int(min(o.left, uint64(q.mtu)))
	last := o.psn == o.last
	h := q.responseHeader(readResponseOpcode(!o.begun, last), o.psn, o.msn)
	q.emit(p, &h, n, q.path)
	if !q.gatherResponse(p, o, n, b) {
		p.Void = true
		if o.replay && !q.resp.keeps(o.first) {
			q.resp.disown(0)
		} else {
			q.failResponse(o.psn)
		}
		return
	}
	o.psn, o.va, o.left, o.begun = o.psn.Next(), o.va+uint64(n), o.left-uint64(n), true
	if last {
		q.resp.answered()
	}
}

// gatherResponse fetches the n bytes of a packet of o. The region is looked up anew
// for each packet, as it may be gone meanwhile: then it returns false.
func (q *QP) gatherResponse(p *TxPacket, o *response, n int, b *mem.Batch) bool {
	var m *mem.MR
	if n > 0 {
		if m = q.findRemote(o.rkey, o.va, uint64(n), mem.RemoteRead); m == nil {
			return false
		}
		if b.Gather(m, o.va, &p.payload) {
			return true
		}
	}
	op := q.sending(noteResponseOut, o.psn, 0, p, b)
	op.Kind, op.MR, op.VA, op.Frag = mem.Gather, m, o.va, p.payload
	return true
}

// failResponse refuses a READ in the middle of its response, whose memory went
// away: the NAK takes the PSN of the packet that can't be sent. A NAK that is
// owed already, or was made for the same burst and goes down with it, answers a
// later request: this one goes in its place.
func (q *QP) failResponse(psn ib.PSN) {
	r := &q.resp
	r.owed.clear()
	if r.refused {
		r.closing = true
		q.owe(wire.NakRemoteAccess, psn)
		return
	}
	q.reject(psn, wire.NakRemoteAccess, EventQPAccessErr)
}

// readResponseOpcode returns the opcode of a response packet by its place.
func readResponseOpcode(first, last bool) wire.Opcode {
	switch {
	case first && last:
		return wire.RCReadRespOnly
	case first:
		return wire.RCReadRespFirst
	case last:
		return wire.RCReadRespLast
	}
	return wire.RCReadRespMiddle
}

// forget gives up the answers to READs by a key that the peer has invalidated:
// by that it says that it has them all. A repetition that comes yet, of a network
// that delivers twice, is dropped like that of any request no longer saved.
func (r *responder) forget(rkey uint32) {
	for i := range r.saved.len() {
		if s := r.saved.at(i); s.op == wire.RCReadRequest && s.rkey == rkey {
			s.op = wire.RCReadRespOnly // no request
		}
	}
}

// keeps reports whether the READ that psn belongs to can be answered again.
func (r *responder) keeps(psn ib.PSN) bool {
	s := r.findSaved(psn)
	return s != nil && s.op == wire.RCReadRequest
}
