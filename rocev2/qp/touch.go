package qp

// Touch reads from each cache line of q that a packet of a reliable connection
// needs, so that the caller has the lines of many QPs fetched at a time. The
// result means nothing.
func (q *QP) Touch() uint64 {
	r, s := &q.req, &q.resp
	sum := uint64(q.mtu) + uint64(q.cfg.Window) + r.una + uint64(r.tail) + uint64(r.flight) +
		uint64(s.epsn) + s.msg.got + uint64(q.attr.DestQPN) + uint64(q.attr.Timeout)
	if q.cfg.SendCQ == nil {
		sum++
	}
	return sum
}

// TouchRequests is Touch for the requests that are sent and acknowledged next.
func (q *QP) TouchRequests() uint64 {
	r := &q.req
	return r.at(r.cur).first + r.at(r.acking).first
}
