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
	s, top := p.Syndrome, q.req.top()
	switch {
	case s.IsAck():
		return q.handlePositive(s, seq, now, b)
	case !s.IsRNR() && !(s.IsNak() && s <= wire.NakRemoteOperation):
		return wire.DropUnexpected // a reserved syndrome
	case seq < top && seq != q.req.una:
		return wire.DropDuplicate // the peer has gone on since
	}
	// A NAK acknowledges everything before it (IBA 9.7.5.2.8).
	opened := q.acknowledge(seq, false, now, b)
	switch {
	case s.IsRNR() && q.req.top() == seq:
		return q.handleRNR(s.Value(), now, b)
	case s == wire.NakSequence && q.req.top() == seq:
		return q.handleSequenceNAK(now, b)
	case opened > 0:
		q.retryGaps(opened, now, b)
		return wire.Accepted
	case s.IsRNR(), s == wire.NakSequence, q.req.una < seq: // what ends the connection comes in its turn
		return wire.DropDuplicate
	}
	return q.handleFatalNAK(s, b)
}

// handlePositive takes an ACK of everything up to seq.
func (q *QP) handlePositive(s wire.Syndrome, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	if seq < r.top() {
		return wire.DropDuplicate
	}
	if opened := q.acknowledge(seq+1, true, now, b); opened > 0 {
		q.retryGaps(opened, now, b) // an implied NAK (IBA 9.7.5.2.9)
	} else if r.una > seq {
		r.grant(s)
	}
	return wire.Accepted
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
	// Any progress gives all retries back (IBA 9.7.6.1.3).
	r.retries, r.rnrRetries, r.timeouts = q.attr.RetryCnt, q.attr.RNRRetry, 0
	if to > r.nakAt {
		r.nakAt = noNAK
	}
	if to > r.nxt { // an RNR NAK was for what is at nxt
		r.rnrUntil = clock.Never
	}
	switch {
	case r.nxt < r.top(): // what was to be sent again has arrived after all
		r.seek(r.top())
	case r.nxt == r.una:
		r.flight = 0
	}
	r.ackDeadline = clock.Never
	if r.rnrUntil == clock.Never && r.una < r.high {
		q.armTimer(now)
	}
	q.answeredTo(to, now)
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

// handleSequenceNAK takes the word that the packet at top is missing. It begins to
// send again there, unless that has been begun already. With gaps it is part of the
// retry that they have begun, which top has got on in.
func (q *QP) handleSequenceNAK(now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	if r.rnrUntil != clock.Never || r.nakAt == r.top() {
		return wire.DropDuplicate // behind an RNR NAK it must not cut the wait short
	}
	q.cfg.Counters.RcvdSeqErr++
	if r.gaps.n > 0 || q.countRetry(b) {
		q.rewind("sequence NAK")
		q.restartTimer(now)
	}
	return wire.Accepted
}

// handleFatalNAK takes a NAK for the packet at una that ends the connection.
func (q *QP) handleFatalNAK(s wire.Syndrome, b *mem.Batch) wire.Verdict {
	switch s {
	case wire.NakInvalidRequest:
		q.fail(RemInvReqErr, b)
	case wire.NakRemoteAccess:
		q.fail(RemAccessErr, b)
	case wire.NakRemoteOperation:
		q.fail(RemOpErr, b)
	}
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
	i := r.find(seq)
	t := r.at(i)
	switch {
	case t.op.responds && !t.op.fetches:
		return q.handleEmptyResponse(p, t, seq, now, b)
	case !t.isRead():
		return q.badResponse(t, now, b)
	}
	if v := q.reach(t, seq, now, b); v != wire.Accepted {
		return v
	}
	index := seq - t.first
	off := index * uint64(q.mtu)
	if p.Len != int(min(t.length-off, uint64(q.mtu))) || !t.fits(p.Opcode.Info().Place, index) {
		return q.badResponse(t, now, b)
	}
	q.answer(seq, now)
	whole := !r.gaps.of(i) && r.gaps.beyond >= t.end()
	if seq+1 == t.end() && !whole {
		return q.holdEnd(t, off, p, now, b)
	}
	follows := whole && t.held > 0
	op := q.answers(p, follows, now, b)
	if !q.scatter(t.wqe.SGEs, off, p.Len, &p.Payload, op, b) || follows && !q.landEnd(t, p, now, b) {
		q.fail(LocProtErr, b) // the key has become invalid
	}
	return wire.Accepted
}

// fits reports whether packet index of a READ's response may have that place in
// its message. A part that was asked for again may begin and end anywhere; rxe
// lets it begin with a Middle packet.
func (t *request) fits(p wire.Place, index uint64) bool {
	first, last := index == 0, index == t.packets-1
	return (p.Starts() == first || t.resumed && !first) && (p.Ends() == last || t.resumed && !last)
}

// answer notes that the response with the sequence number seq, which reach has
// accepted, is there.
func (q *QP) answer(seq uint64, now clock.Time) {
	r := &q.req
	if filled := r.gaps.fill(seq); filled.asked != 0 && r.timing.count == 0 {
		r.timing.sample(now.Sub(filled.asked))
	}
	if r.nxt < r.top() {
		r.seek(r.top())
	}
}

// answers adds the op of a response with data, which moves una on as far as the
// response lets it; unless another op of it follows, which does.
func (q *QP) answers(p *wire.Packet, follows bool, now clock.Time, b *mem.Batch) *mem.Op {
	op := q.op(b)
	op.Note.Code, op.Note.PSN = noteProgress, p.PSN
	if !follows {
		q.advance(q.req.gaps.low(), now, &op.Note)
	}
	return op
}

// holdEnd takes the last packet of a READ of which others are missing. Its last
// bytes wait for them: programs poll them.
func (q *QP) holdEnd(t *request, off uint64, p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict {
	n := min(p.Len, len(t.orig), t.lastElement())
	var end [2][]byte
	wire.CutTo(&end, &p.Payload, p.Len-n, n)
	copy(t.orig[copy(t.orig[:], end[0]):], end[1])
	t.held = uint8(n)
	if !q.scatter(t.wqe.SGEs, off, p.Len-n, &p.Payload, q.answers(p, false, now, b), b) {
		q.fail(LocProtErr, b)
	}
	return wire.Accepted
}

// lastElement returns the bytes of the last element of the list that has any.
func (t *request) lastElement() int {
	for i := len(t.wqe.SGEs) - 1; i >= 0; i-- {
		if n := t.wqe.SGEs[i].Length; n > 0 {
			return int(n)
		}
	}
	return 0
}

// landEnd puts the last bytes of a READ in their place.
func (q *QP) landEnd(t *request, p *wire.Packet, now clock.Time, b *mem.Batch) bool {
	n := int(t.held)
	t.held = 0
	op := q.answers(p, false, now, b)
	op.Tail = true
	return q.scatter(t.wqe.SGEs, t.length-uint64(n), n, &[2][]byte{t.orig[:n]}, op, b)
}

// handleAtomicAck takes the response to an atomic.
func (q *QP) handleAtomicAck(p *wire.Packet, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	t := q.req.at(q.req.find(seq))
	if !t.isAtomic() {
		return q.badResponse(t, now, b)
	}
	if v := q.reach(t, seq, now, b); v != wire.Accepted {
		return v
	}
	binary.NativeEndian.PutUint64(t.orig[:], p.Orig)
	q.answer(seq, now)
	op := q.answers(p, false, now, b)
	orig := [2][]byte{t.orig[:]}
	if !q.scatter(t.wqe.SGEs, 0, len(t.orig), &orig, op, b) {
		q.fail(LocProtErr, b)
	}
	return wire.Accepted
}

// badResponse ends the request t with a response that doesn't fit it, if it is the
// oldest. Requests before t that only wait for an ACK have got it by this response.
func (q *QP) badResponse(t *request, now clock.Time, b *mem.Batch) wire.Verdict {
	if opened := q.acknowledge(max(t.first, q.req.una), false, now, b); opened > 0 {
		q.retryGaps(opened, now, b)
	} else if q.req.una >= t.first {
		q.fail(BadRespErr, b)
	}
	return wire.DropUnexpected
}

// find returns the index of the request that the sequence number seq, in flight,
// belongs to.
func (r *requester) find(seq uint64) uint32 {
	i := r.acking
	for r.at(i).end() <= seq {
		i++
	}
	return i
}
