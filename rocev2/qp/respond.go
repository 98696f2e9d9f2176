package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// owesResponse reports whether the responder has a packet to send.
func (q *QP) owesResponse() bool {
	r := &q.resp
	return r.ackOwed || r.nak != 0 || r.owed.len() > 0
}

// owesData reports whether the response that comes next is one of a READ, which
// counts in the rate; a lone eight bytes don't. No ACK may overtake it.
func (q *QP) owesData() bool {
	r := &q.resp
	return r.owed.len() > 0 && !r.owed.at(0).atomic
}

// planResponse makes the next packet that the responder owes. Responses go in
// the order of their requests: no ACK or NAK overtakes a READ or atomic
// response (IBA 9.7.5.1.4), which acknowledges all before it as well.
func (q *QP) planResponse(p *TxPacket, b *mem.Batch) {
	r := &q.resp
	switch {
	case r.owed.len() > 0:
		o := r.owed.at(0)
		if o.atomic {
			q.planAtomicResponse(p, o, b)
		} else {
			q.planReadResponse(p, o, b)
		}
	case r.nak != 0:
		q.planAck(p, r.nak, r.nakPSN, b)
		r.nak, r.ackOwed = 0, false // it acknowledges everything before it
		if r.closing {
			r.drop()
		}
	default:
		q.planAck(p, q.ackSyndrome(), r.cpsn.Add(-1), b)
		r.ackOwed = false
	}
}

// planAck makes an acknowledge packet. Every NAK is one too, whatever it
// answers (IBA 9.7.5.1).
func (q *QP) planAck(p *TxPacket, s wire.Syndrome, psn ib.PSN, b *mem.Batch) {
	h := q.responseHeader(wire.RCAck, psn, q.resp.msn)
	h.Syndrome = s
	q.emit(p, &h, 0, q.path)
	// An op without payload, so that the packet is dropped if one of this QP
	// before it can't be sent.
	q.sending(noteResponseOut, psn, 0, p, b)
}

func (q *QP) responseHeader(o wire.Opcode, psn ib.PSN, msn ib.MSN) wire.Header {
	return wire.Header{
		Opcode: o, MigReq: true, PKey: q.pkey(), DestQP: q.attr.DestQPN, PSN: psn,
		Syndrome: wire.SyndromeAck, MSN: msn,
	}
}

// owe notes a NAK to be sent. Until the expected packet comes no other is.
func (q *QP) owe(s wire.Syndrome, psn ib.PSN) {
	q.resp.nak, q.resp.nakPSN, q.resp.nakSent = s, psn, true
}

// countNAK counts a NAK that ends the connection.
func (q *QP) countNAK(s wire.Syndrome) {
	c := q.cfg.Counters
	switch s {
	case wire.NakInvalidRequest:
		c.NAKInvalidRequest++
	case wire.NakRemoteAccess:
		c.NAKRemoteAccess++
	case wire.NakRemoteOperation:
		c.NAKRemoteOp++
	}
}

// outOfOrder takes a request ahead of the expected PSN: a packet before it is
// lost. That is said once, then nothing until the gap is filled (IBA 9.7.5.1.3).
func (q *QP) outOfOrder() wire.Verdict {
	q.cfg.Counters.OutOfSeqRequest++
	if !q.resp.nakSent {
		q.cfg.Counters.NAKSequence++
		q.owe(wire.NakSequence, q.resp.epsn)
	}
	return wire.DropOutOfOrder
}

// duplicate takes a request behind the expected PSN: it has been executed, and
// is answered again (IBA 9.7.5.1.2, C9-105): a SEND or WRITE once, at its end or where
// it asks. rxe 6.12 doesn't complete a message by an ACK that comes while it sends it
// again, and when it has, takes all as acknowledged, and asks no more if the next ACK
// is lost.
func (q *QP) duplicate(p *wire.Packet) wire.Verdict {
	q.cfg.Counters.DuplicateRequest++
	switch i := p.Opcode.Info(); i.Operation {
	case wire.OpSend, wire.OpWrite:
		if p.AckReq || i.Place.Ends() {
			q.resp.ackOwed = true
		}
		return wire.DropDuplicate
	case wire.OpReadRequest:
		return q.duplicateRead(p)
	case wire.OpCompareSwap, wire.OpFetchAdd, wire.OpAtomicWrite, wire.OpFlush:
		return q.duplicateAtomic(p)
	}
	return wire.DropNoReplay
}

// save keeps what is needed to answer a request again; the oldest gives way.
func (r *responder) save(s savedRequest) {
	if r.saved.len() == r.saved.cap() {
		r.saved.pop()
	}
	r.saved.push(s)
}

// findSaved returns the saved request that psn belongs to, or nil: the newest,
// as one from 2^24 PSNs ago may still be there.
func (r *responder) findSaved(psn ib.PSN) *savedRequest {
	for i := r.saved.len() - 1; i >= 0; i-- {
		s := r.saved.at(i)
		if psn.Sub(s.first) >= 0 && psn.Sub(s.last) <= 0 {
			return s
		}
	}
	return nil
}

// findOwed returns the response still owed that psn belongs to, or nil.
func (r *responder) findOwed(psn ib.PSN) *response {
	for i := range r.owed.len() {
		o := r.owed.at(i)
		if psn.Sub(o.first) >= 0 && psn.Sub(o.last) <= 0 {
			return o
		}
	}
	return nil
}

// crowded reports whether the peer has as many READs and atomics under way as
// it was granted.
func (q *QP) crowded() bool { return q.resp.reading >= int(q.attr.MaxDestRdAtomic) }

// answered ends the response at the head of those owed. What it has sent again, no
// other owes any more: the peer may have completed its READ by it, and make another.
func (r *responder) answered() {
	done := *r.owed.at(0)
	r.disown(0)
	for i := r.owed.len() - 1; i >= 0 && done.replay; i-- {
		if o := r.owed.at(i); o.psn.Sub(done.first) >= 0 && o.last.Sub(done.last) <= 0 {
			r.disown(i)
		}
	}
}

// disown takes response i out of those owed.
func (r *responder) disown(i int) {
	if r.owed.at(i).replay {
		r.replays--
	} else {
		r.reading--
	}
	r.owed.remove(i)
}

// replay owes an answer again, unless that would take the room of new ones. It goes
// before those with later PSNs: the peer may complete nothing before it is there.
func (q *QP) replay(o response) wire.Verdict {
	r := &q.resp
	if r.replays >= int(q.attr.MaxDestRdAtomic) {
		return wire.DropResources
	}
	o.replay = true
	r.replays++
	at := 0
	for at < r.owed.len() && r.owed.at(at).psn.Sub(o.psn) <= 0 {
		at++
	}
	r.owed.insert(at, o)
	return wire.DropDuplicate
}
