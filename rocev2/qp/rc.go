package qp

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// In a reliable connection both halves are at work: what comes is for the requester
// or the responder, and each packet that is sent is of the one or the other, in turns.

// handleRC takes a packet of a reliable connection.
func (q *QP) handleRC(p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict {
	switch {
	case p.Opcode.Info().Request || !p.Opcode.Valid(): // a reserved opcode is a request to refuse
		return q.handleRequest(p, b)
	case q.state == RTR:
		return wire.DropQPState // nothing was asked yet
	}
	return q.handleResponse(p, now, b)
}

// planRC makes a packet of a reliable connection: a request or a response.
func (q *QP) planRC(now clock.Time, p *TxPacket, b *mem.Batch) bool {
	request := q.state != Err && q.wantsRequest(now)
	if q.path == nil {
		if request {
			q.armTimer(now)
		}
		return false
	}
	if request && !(q.respond && q.owesResponse() && !q.mayHoldAck()) {
		q.respond = true
		if q.planRequest(now, p, b) {
			return true
		}
	}
	if !q.owesResponse() || q.paced(now) && q.owesData() {
		return false
	}
	q.respond = false
	q.planResponse(p, b)
	return true
}

// HoldAcks says that Plan should make requests before a positive
// acknowledgement that is owed, because the caller sees that it goes out soon.
func (q *QP) HoldAcks(hold bool) { q.holdAcks = hold }

// mayHoldAck reports whether the response that is owed is one that may be held.
func (q *QP) mayHoldAck() bool {
	r := &q.resp
	return q.holdAcks && r.nak == 0 && r.owed.len() == 0
}

// OnlyAcks reports whether all that Plan would send now is a positive
// acknowledgement, which may wait a Step to share the kick of an answer.
func (q *QP) OnlyAcks(now clock.Time) bool {
	r := &q.resp
	return r.ackOwed && r.nak == 0 && r.owed.len() == 0 && !q.cnpOwed && !q.wantsRequest(now)
}

// faultRC takes an op of a reliable connection that could not be run: memory is
// gone that was there when the packet was checked.
func (q *QP) faultRC(op *mem.Op) {
	n := &op.Note
	switch n.Code {
	case noteProgress:
		q.failOldest(LocProtErr)
	case noteSend:
		q.resp.recvStatus = LocProtErr
		q.reject(n.PSN, wire.NakRemoteOperation, 0)
	default:
		if n.Flags&flagReceive != 0 {
			q.resp.recvStatus = LocAccessErr
		}
		q.reject(n.PSN, wire.NakRemoteAccess, EventQPAccessErr)
	}
}

// timeoutRC begins a retry, or gives up.
func (q *QP) timeoutRC(now clock.Time) {
	r := &q.req
	if q.paced(now) && (r.nxt == r.una || r.toAsk() != nil) {
		q.restartTimer(q.pace) // what is to be sent again is still held back, so that no answer is late
		return
	}
	q.cfg.Counters.Timeouts++
	if r.retries == 0 {
		q.cfg.Counters.RetryExceeded++
		q.trace("retries exceeded", q.psnOf(r.una))
		q.failOldest(RetryExcErr)
		return
	}
	r.retries--
	r.timeouts = min(r.timeouts+1, mostDelay)
	r.gaps.askAnew()
	q.rewind("timeout")
	q.restartTimer(now)
}
