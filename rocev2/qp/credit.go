package qp

import "github.com/urxe/urxe/rocev2/wire"

// End-to-end flow control (IBA 9.7.7.2): an acknowledgement says how many
// receives wait for messages. Whoever has sent as many goes on with one packet,
// which asks for another acknowledgement, and waits for that.

// PostedQueue is a RecvQueue that knows how many receives wait in it. Without
// that, or when the queue is shared, the peer gets no credits, and sends as it
// likes.
type PostedQueue interface {
	RecvQueue
	// Posted returns how many work requests Next would return, one by one.
	Posted() int
}

// credits is what a requester knows of its peer's receives.
type credits struct {
	limited bool
	limit   uint32 // index of the first request for which there may be no receive
	// overdraft is the sequence number behind the last packet beyond them.
	overdraft uint64
}

// grant takes the credits of an acknowledgement of all requests below acking.
func (r *requester) grant(s wire.Syndrome) {
	n, limited := s.Credits()
	r.credits.limited, r.credits.limit = limited, r.acking+uint32(n)
}

// beyondCredit reports whether the request t, at cur, needs a receive that its
// peer may not have.
func (r *requester) beyondCredit(t *request) bool {
	return r.credits.limited && t.op.receives && int32(r.cur-r.credits.limit) >= 0
}

// overdrawn reports whether the packet at nxt has to wait: it is beyond the
// credits, and the last such packet isn't acknowledged. A message whose first
// packet is has its receive.
func (r *requester) overdrawn(t *request) bool {
	return r.una < r.credits.overdraft && r.una <= t.first && r.beyondCredit(t)
}

// overdraws notes that the packet at nxt begins a request beyond the credits, if it does.
func (r *requester) overdraws(t *request) bool {
	if r.nxt != t.first || !r.beyondCredit(t) {
		return false
	}
	r.credits.overdraft = r.nxt + 1
	return true
}

// ackSyndrome returns the syndrome of a positive acknowledgement. A message in
// progress has taken its receive, and doesn't count in the MSN yet: it still
// does among the credits.
func (q *QP) ackSyndrome() wire.Syndrome {
	if q.posted == nil {
		return wire.SyndromeAck
	}
	n := q.posted.Posted() + int(q.resp.tail-q.resp.next)
	if q.resp.msg.wqe != nil {
		n++
	}
	return wire.CreditSyndrome(n)
}
