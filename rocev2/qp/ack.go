package qp

import (
	"encoding/binary"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// handleResponse takes an ACK, a NAK or a response with data.
func (q *QP) handleResponse(p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	// The distance from una in the 24-bit space is the distance in 64 bits, as
	// no more than 2^23 PSNs are unacknowledged.
	ahead := uint64(uint32(p.PSN-q.psnOf(r.una)) & 0xffffff)
	if ahead >= r.high-r.una {
		if q.psnOf(r.una).Sub(p.PSN) > 0 && r.una > 0 {
			return wire.DropDuplicate
		}
		return wire.DropGhost // C9-111: acknowledges what was never sent
	}
	seq := r.una + ahead
	switch p.Opcode.Info().Operation {
	case wire.OpAck:
		return q.handleAck(p, seq, now, b)
	case wire.OpReadResponse:
		return q.handleReadResponse(p, seq, now, b)
	case wire.OpAtomicAck:
		return q.handleAtomicAck(p, seq, now, b)
	}
	return wire.DropUnexpected
}

// handleAck takes an acknowledgement of the packet seq.
func (q *QP) handleAck(p *wire.Packet, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	s := p.Syndrome
	switch {
	case s.IsAck():
		if !q.acknowledge(seq+1, now, b) {
			return q.impliedNAK(now, b)
		}
		q.req.grant(s)
		return wire.Accepted
	case s.IsRNR(), s.IsNak() && s <= wire.NakRemoteOperation:
		// A NAK acknowledges everything before it (9.7.5.2.8).
		if !q.acknowledge(seq, now, b) {
			return q.impliedNAK(now, b)
		}
		if s.IsRNR() {
			return q.handleRNR(s.Value(), now, b)
		}
		return q.handleNAK(s, now, b)
	}
	return wire.DropUnexpected // a reserved syndrome
}

// acknowledge takes everything below the sequence number upTo as received by
// the peer. It returns false, having stopped there, when a READ or atomic below
// still waits for its response.
func (q *QP) acknowledge(upTo uint64, now clock.Time, b *mem.Batch) bool {
	r := &q.req
	to := upTo
	for i := r.acking; i != r.tail; i++ {
		t := r.at(i)
		if t.first >= upTo {
			break
		}
		if t.responds() {
			to = max(t.first, r.una)
			break
		}
	}
	if to > r.una {
		q.progress(to, now, b, noteProgress, Success)
	}
	return to == upTo
}

// progress moves una to the sequence number to, and has Commit complete what
// lies below it.
func (q *QP) progress(to uint64, now clock.Time, b *mem.Batch, code uint8, status WCStatus) {
	op := q.op(b)
	q.advance(to, now, &op.Note)
	op.Note.Code, op.Note.X, op.Note.Flags = code, uint32(status), flagEnd
}

// advance moves una to the sequence number to; n tells Commit how far.
func (q *QP) advance(to uint64, now clock.Time, n *mem.Note) {
	r := &q.req
	n.N = uint32(to - r.una)
	if to == r.una {
		return
	}
	for r.acking != r.tail && r.at(r.acking).first < to {
		t := r.at(r.acking)
		r.land(t, to)
		if t.end() > to {
			break
		}
		r.acking++
	}
	r.una = to
	if r.nxt < to { // what was to be sent again has arrived after all
		r.nxt = to
		r.cur = r.acking
	}
	if r.nxt == r.una {
		r.flight = 0
	}
	// Any progress gives all retries back (9.7.6.1.3).
	r.retries, r.rnrRetries, r.nakAt = q.attr.RetryCnt, q.attr.RNRRetry, noNAK
	r.ackDeadline, r.rnrUntil = clock.Never, clock.Never
	if r.una < r.high {
		q.armTimer(now)
	}
}

// land takes the packets of t below the sequence number to out of those in
// flight. A READ is one, until all of its response is there.
func (r *requester) land(t *request, to uint64) {
	packets, whole := int(min(t.end(), to)-max(t.first, r.una)), t.end() <= to
	switch {
	case t.isRead() && whole:
		packets = 1
	case t.isRead():
		packets = 0
	}
	if whole && t.responds() {
		r.rdAtomics--
	}
	r.flight = max(0, r.flight-packets)
}

// handleNAK takes a NAK for the packet at una.
func (q *QP) handleNAK(s wire.Syndrome, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	switch s {
	case wire.NakSequence:
		if r.rnrUntil != clock.Never {
			return wire.DropDuplicate // behind an RNR NAK: it must not cut the wait short
		}
		q.cfg.Counters.RcvdSeqErr++
		return q.retryNAK("sequence NAK", now, b)
	case wire.NakInvalidRequest:
		q.fail(RemInvReqErr, b)
	case wire.NakRemoteAccess:
		q.fail(RemAccessErr, b)
	case wire.NakRemoteOperation:
		q.fail(RemOpErr, b)
	}
	return wire.Accepted
}

// impliedNAK takes a response beyond one that is missing (9.7.5.2.9).
func (q *QP) impliedNAK(now clock.Time, b *mem.Batch) wire.Verdict {
	q.cfg.Counters.ImpliedNAK++
	return q.retryNAK("implied NAK", now, b)
}

// retryNAK begins to send again at una, unless that has been begun for the
// same packet already.
func (q *QP) retryNAK(why string, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	switch {
	case r.nakAt == r.una:
		return wire.DropDuplicate
	case r.retries == 0:
		q.cfg.Counters.RetryExceeded++
		q.fail(RetryExcErr, b)
		return wire.Accepted
	}
	r.retries--
	q.rewind(why)
	q.restartTimer(now)
	return wire.Accepted
}

// fail has Commit end the oldest request with status, and the QP with it.
func (q *QP) fail(status WCStatus, b *mem.Batch) {
	op := q.op(b)
	op.Note = mem.Note{Code: noteFail, X: uint32(status), Flags: flagEnd}
	q.dying = true
}

// handleReadResponse takes a packet of the response to a READ.
func (q *QP) handleReadResponse(p *wire.Packet, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	t := q.find(seq)
	if t.op.responds && !t.op.fetches {
		return q.handleEmptyResponse(p, seq, now, b)
	}
	if !t.isRead() {
		q.badResponse(t, now, b)
		return wire.DropUnexpected
	}
	start := max(t.first, r.una)
	if !q.acknowledge(start, now, b) || seq != start {
		return q.impliedNAK(now, b)
	}
	index := seq - t.first
	want := int(min(t.length-index*uint64(q.mtu), uint64(q.mtu)))
	place := p.Opcode.Info().Place
	if p.Len != want || place.Ends() != (index == t.packets-1) || place.Starts() != (index == 0) && !(t.resumed && index > 0) {
		q.fail(BadRespErr, b)
		return wire.DropUnexpected
	}
	op := q.answers(p, seq, now, b)
	if !q.scatter(t.wqe.SGEs, index*uint64(q.mtu), p.Len, &p.Payload, op, b) {
		q.fail(LocProtErr, b) // the key has become invalid
	}
	return wire.Accepted
}

// answers adds the op of a response with data, which moves una behind seq.
func (q *QP) answers(p *wire.Packet, seq uint64, now clock.Time, b *mem.Batch) *mem.Op {
	op := q.op(b)
	op.Note.Code, op.Note.PSN = noteProgress, p.PSN
	q.advance(seq+1, now, &op.Note)
	return op
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

// handleAtomicAck takes the response to an atomic.
func (q *QP) handleAtomicAck(p *wire.Packet, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	t := q.find(seq)
	if !t.isAtomic() {
		q.badResponse(t, now, b)
		return wire.DropUnexpected
	}
	if !q.acknowledge(seq, now, b) {
		return q.impliedNAK(now, b)
	}
	binary.NativeEndian.PutUint64(t.orig[:], p.Orig)
	op := q.answers(p, seq, now, b)
	orig := [2][]byte{t.orig[:]}
	if !q.scatter(t.wqe.SGEs, 0, len(t.orig), &orig, op, b) {
		q.fail(LocProtErr, b)
	}
	return wire.Accepted
}

// badResponse ends the request t with a response that doesn't fit it. Requests
// before t that only wait for an ACK have got it by this response.
func (q *QP) badResponse(t *request, now clock.Time, b *mem.Batch) {
	if q.acknowledge(max(t.first, q.req.una), now, b) {
		q.fail(BadRespErr, b)
	}
}

// find returns the request that the sequence number seq, in flight, belongs to.
func (q *QP) find(seq uint64) *request {
	r := &q.req
	i := r.acking
	for r.at(i).end() <= seq {
		i++
	}
	return r.at(i)
}
