package qp

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// An unreliable connection sends messages like a reliable one and is told
// nothing of them: a message is complete when its last packet is made. Whoever
// receives drops a message that lacks a packet, and goes on with the next one.

const (
	// pathTimeout is how long UC and UD wait for a next hop before they do what
	// a network does with what it can't deliver: lose it.
	pathTimeout = time.Second
	// staleWindow is how far behind the expected PSN a packet may be to count as
	// one that the network delivered late or twice, and not as one of a peer that
	// lost many. InfiniBand's networks keep order, so that IBA 9.8.2 has no such
	// rule; IP's don't, and a message must not come twice.
	staleWindow = 1 << 16
)

// planUC makes the next packet of a message.
func (q *QP) planUC(now clock.Time, p *TxPacket, b *mem.Batch) bool {
	r := &q.req
	if !q.wantsMessage() {
		return false
	}
	if q.path == nil {
		q.awaitPath(now)
		return false
	}
	r.ackDeadline = clock.Never
	t := r.at(r.cur)
	if r.nxt == t.first {
		if status := q.checkRequest(t); status != Success {
			q.failLocal(r.cur, status)
			return false
		}
	}
	index := r.nxt - t.first
	h := q.headerOf(r.nxt)
	n := q.requestHeader(t, index, &h)
	q.emit(p, &h, n, q.path)
	i := r.cur
	op := q.sending(noteMessageOut, h.PSN, i, p, b)
	op.Note.N = 1
	ok := q.gather(t, index*uint64(q.mtu), n, p, op, b)
	q.moveOn(t, 1)
	if !ok {
		p.Void = true
		q.failLocal(i, LocProtErr)
	}
	return true
}

// wantsMessage reports whether a packet of a message may be made now.
func (q *QP) wantsMessage() bool {
	r := &q.req
	switch {
	case !q.state.sends(), q.dying, r.failStatus != Success && int32(r.cur-r.failIndex) >= 0:
		return false
	case !q.take():
		return false
	}
	return q.state == RTS || q.inMessage()
}

// awaitPath sets an end to the wait for a next hop.
func (q *QP) awaitPath(now clock.Time) {
	if q.req.ackDeadline == clock.Never {
		q.req.ackDeadline = now.Add(pathTimeout)
	}
}

// timeoutUC loses the messages that wait for a next hop.
func (q *QP) timeoutUC(clock.Time) {
	r := &q.req
	r.ackDeadline = clock.Never
	for n := len(r.ring); n > 0 && q.path == nil && q.wantsMessage(); n-- {
		t := r.at(r.cur)
		r.high = t.end()
		r.committed, r.una, r.nxt = r.high, r.high, r.high
		r.cur++
		q.cfg.Counters.Unsent++
		q.completeRequest(Success)
	}
	q.checkDrained()
}

// handleUC takes a packet of an unreliable connection. Nothing is answered
// (IBA 9.8.2).
func (q *QP) handleUC(p *wire.Packet, _ clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.resp
	place := p.Opcode.Info().Place
	d := p.PSN.Sub(r.epsn)
	if d < 0 && d >= -staleWindow {
		q.cfg.Counters.DuplicateRequest++
		return wire.DropDuplicate
	}
	r.epsn = p.PSN.Next()
	q.hear()
	if d != 0 {
		q.cfg.Counters.OutOfSeqRequest++
	}
	if place.Starts() { // whatever came before it (IBA 9.8.2.2)
		q.giveUp(false, RemInvReqErr, b)
	}
	switch {
	case place.Starts():
	case r.lost:
		return wire.DropIncomplete
	case d != 0:
		q.giveUp(true, RemInvReqErr, b)
		return wire.DropOutOfOrder
	case r.msg.op == wire.OpNone:
		return wire.DropIncomplete
	}
	why := q.execute(p, b)
	switch why {
	case accepted:
		return wire.Accepted
	case badReceive:
		q.refuseReceive(p, b)
	default:
		q.giveUp(!place.Ends(), why.status, b)
	}
	return why.drop
}

// giveUp forgets the message in progress, and its receive as status says. With
// lost, more of it is to come, and is dropped.
func (q *QP) giveUp(lost bool, status WCStatus, b *mem.Batch) {
	r := &q.resp
	if r.msg.op != wire.OpNone {
		q.cfg.Counters.DroppedMessages++
		q.trace("message given up", r.epsn)
	}
	if r.msg.wqe != nil {
		q.leaveReceive(status, b)
	}
	r.msg, r.lost = message{}, lost
}

// leaveReceive takes the receive of a message that is dropped from it. One of the QP's
// own queue is free for the next message; one of a shared queue, which others may
// wait for, is completed with status, and the QP goes on (IBA 9.9.3, classes D and E).
func (q *QP) leaveReceive(status WCStatus, b *mem.Batch) {
	if !q.cfg.SharedRQ {
		q.resp.next--
		return
	}
	op := q.op(b)
	op.Note = mem.Note{Code: noteLeft, X: uint32(status), Flags: flagEnd}
}

// refuseReceive has Commit end the receive in use, which is no good, and the QP.
func (q *QP) refuseReceive(p *wire.Packet, b *mem.Batch) {
	op := q.op(b)
	op.Note = mem.Note{Code: noteBadReceive, PSN: p.PSN, Flags: flagEnd}
	q.dying = true
}

// faultUC takes an op of a received packet that could not be run. A receive
// whose memory is gone is an error of this side's own; of a WRITE's, nobody is
// told.
func (q *QP) faultUC(op *mem.Op) {
	if op.Note.Code == noteSend {
		q.failReceive(LocProtErr)
		return
	}
	if q.cfg.SharedRQ && op.Note.Flags&flagReceive != 0 {
		q.completeReceive(LocAccessErr)
	}
	q.rollBack(op)
}

// rollBack gives up all messages that Commit has not seen the end of, as their
// ops have not run: a fault discards the rest of the burst, of which op is the
// next. With it goes what Handle has concluded from it: their receives are as
// leaveReceive says, and one that was no good may be met again.
func (q *QP) rollBack(op *mem.Op) {
	const ended = flagEnd | flagMessage
	r := &q.resp
	if op.Note.Flags&ended == ended {
		q.cfg.Counters.DroppedMessages++
	}
	if r.msg.op != wire.OpNone {
		q.cfg.Counters.DroppedMessages++
	}
	for q.cfg.SharedRQ && r.head != r.next {
		q.completeReceive(RemInvReqErr)
	}
	r.next = r.head
	r.msg, r.lost, q.dying = message{}, true, false
}
