package qp

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
)

// commitProgress completes the requests that the peer has acknowledged and
// whose data has landed.
func (q *QP) commitProgress(n *mem.Note) {
	r := &q.req
	r.committed += uint64(n.N)
	q.completeCommitted()
	q.checkFailed()
	q.checkDrained()
}

// completeCommitted completes what is done, in order.
func (q *QP) completeCommitted() {
	r := &q.req
	for r.oldest != r.tail && r.at(r.oldest).endsBy(r.committed) {
		q.completeRequest(Success)
	}
	r.settle()
}

// completeRequest ends the oldest request. Only failures and those that asked
// for it get a completion (IBA 10.7.3.1).
func (q *QP) completeRequest(status WCStatus) {
	r := &q.req
	t := r.at(r.oldest)
	w := t.wqe
	if status != Success || q.cfg.SigAll || w.Flags&Signaled != 0 {
		c := q.cfg.Host.Complete(q.cfg.SendCQ)
		c.ID, c.QPN, c.Status, c.Opcode, c.Solicited = w.ID, q.cfg.QPN, status, t.op.completion, status != Success
		if t.op.fetches {
			c.ByteLen = uint32(t.length)
		}
		w.Completed = true
	}
	if t.op.send {
		q.cfg.Counters.RDMASends++
	}
	t.wqe = nil
	r.oldest++
	q.cfg.SQ.Retire()
}

// failLocal notes that the request with that index can't be sent. What was sent
// before it may still succeed; then it completes with status.
func (q *QP) failLocal(index uint32, status WCStatus) {
	r := &q.req
	if r.failStatus != Success && int32(index-r.failIndex) >= 0 {
		return
	}
	q.cfg.Counters.LocalErrors++
	r.failIndex, r.failStatus = index, status
	q.checkFailed()
}

// checkFailed fails the request that failLocal noted once it is the oldest. If
// only its repetition failed, an acknowledgement may have completed it since.
func (q *QP) checkFailed() {
	r := &q.req
	switch behind := int32(r.oldest - r.failIndex); {
	case r.failStatus == Success:
	case behind == 0:
		q.failOldest(r.failStatus)
	case behind > 0:
		r.failStatus = Success
	}
}

// failOldest completes the oldest request with an error, which ends the QP, or
// its send queue. The completion tells of it: events are for errors that have
// none (IBA 11.6.3.2).
func (q *QP) failOldest(status WCStatus) {
	if q.req.oldest != q.req.tail {
		q.completeRequest(status)
	}
	if q.svc.sendError == SQE {
		q.enterSQE()
		return
	}
	q.enterErr(false)
}

// checkDrained raises EventSQDrained once everything that was begun before SQD
// is complete.
func (q *QP) checkDrained() {
	if q.state != SQD || q.req.drained || q.busy() {
		return
	}
	q.req.drained = true
	q.cfg.Host.Notify(q, EventSQDrained)
}

// busy reports whether requests have been begun that haven't ended.
func (q *QP) busy() bool {
	r := &q.req
	if q.svc.datagram {
		return r.oldest != r.cur
	}
	return r.committed != r.high || q.inMessage()
}

// inMessage reports whether part of a message has been sent and part not yet.
func (q *QP) inMessage() bool {
	r := &q.req
	return r.cur != r.tail && r.nxt > r.at(r.cur).first
}

// enterErr moves the QP to ERR and flushes its queues. With closing, responses
// that are owed and a last NAK are still sent.
func (q *QP) enterErr(closing bool) {
	q.state, q.dying = Err, true
	q.resp.closing = closing
	q.req.ackDeadline, q.req.rnrUntil, q.req.timing.at = clock.Never, clock.Never, clock.Never
	q.req.gaps.n = 0
	if !closing {
		q.resp.drop()
	}
	q.flush()
	if q.cfg.SharedRQ && !q.resp.toldLast {
		q.resp.toldLast = true
		q.cfg.Host.Notify(q, EventLastWQEReached)
	}
}

// enterSQE stops the send queue and flushes it; what comes is still received
// (IBA 10.3.1.6). The packets made so far keep their PSNs.
func (q *QP) enterSQE() {
	r := &q.req
	q.state = SQE
	q.trace("send queue error", q.psnOf(r.high))
	q.flushSends()
	r.committed, r.una, r.nxt = r.high, r.high, r.high
	r.failStatus, r.ackDeadline = Success, clock.Never
}

// flush completes every work request, taken or not, with WRFlushErr: each gets
// one completion, in the order of posting (IBA 10.3.1.7).
func (q *QP) flush() {
	q.flushSends()
	r := &q.resp
	r.next = r.tail
	for r.head != r.tail || q.takePosted() != nil {
		q.completeReceive(WRFlushErr)
	}
}

func (q *QP) flushSends() {
	r := &q.req
	for r.oldest != r.tail {
		q.completeRequest(WRFlushErr)
	}
	for r.cur = r.tail; q.take(); r.cur = r.tail {
		q.completeRequest(WRFlushErr)
	}
	r.scan, r.parked = r.cur, 0
}

// completeReceive ends the oldest receive that was taken, and returns its
// completion; what is not the same for all, the caller adds.
func (q *QP) completeReceive(status WCStatus) *Completion {
	r := &q.resp
	w := r.at(r.head).wqe
	r.head++
	c := q.cfg.Host.Complete(q.cfg.RecvCQ)
	c.ID, c.QPN, c.Status, c.Opcode, c.Solicited = w.ID, q.cfg.QPN, status, WCRecv, status != Success
	w.Completed = true
	q.cfg.RQ.Retire(w)
	return c
}

// Release gives back what the QP holds, as it is destroyed: receives of a shared
// queue, as in RESET without completions, and the windows that it has bound.
func (q *QP) Release() {
	q.cfg.Keys.FreeOwned(q)
	for r := &q.resp; q.cfg.SharedRQ && r.head != r.tail; r.head++ {
		q.cfg.RQ.Retire(r.at(r.head).wqe)
	}
}

// failReceive ends the oldest receive with an error of its own, and the QP with it.
func (q *QP) failReceive(status WCStatus) {
	if q.resp.head != q.resp.tail {
		q.completeReceive(status)
	}
	q.enterErr(false)
}

// takeReceive gets the next receive, or nil: one of a message that was given
// up, or the oldest in the queue.
func (q *QP) takeReceive() *RecvWQE {
	r := &q.resp
	if r.next == r.tail {
		if int(r.tail-r.head) == len(r.taken) {
			return nil
		}
		w := q.cfg.RQ.Next()
		if w == nil {
			return nil
		}
		r.at(r.tail).wqe = w
		r.tail++
	}
	r.next++
	return r.at(r.next - 1).wqe
}

// takePosted is takeReceive for those receives that are this QP's alone.
func (q *QP) takePosted() *RecvWQE {
	if q.cfg.SharedRQ {
		return nil
	}
	return q.takeReceive()
}
