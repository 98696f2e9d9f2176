package qp

// Touch reads from each cache line of q that a packet of a reliable connection
// needs, so that the caller has the lines of many QPs fetched at a time. The
// result means nothing.
func (q *QP) Touch() uint64 {
	r, s := &q.req, &q.resp
	return uint64(q.mtu) + uint64(q.cfg.QPN) + uint64(q.cfg.Window) + r.una + uint64(r.rnrUntil) + uint64(r.flight) + r.nakAt +
		uint64(s.epsn) + s.msg.got + s.msg.va + uint64(q.attr.DestQPN) + uint64(q.attr.Timeout)
}

// TouchRequests is Touch for the requests that are sent and acknowledged next, if
// there are any; posted says that there are new ones.
func (q *QP) TouchRequests(posted bool) (sum uint64) {
	r := &q.req
	if posted || r.cur != r.tail {
		sum += r.at(r.cur).first
	}
	if r.oldest != r.tail {
		sum += r.at(r.acking).first
	}
	return sum
}
