package porttest

import (
	"time"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// ServeTable answers each GetTable that comes to a port with table, over RMPP,
// and each Get with an error, until the port is closed. It is the bare bones of
// subnet administration.
func ServeTable(p mad.Port, stride int, table []byte) {
	in := make(chan []mad.Packet)
	go func() {
		defer close(in)
		for {
			ps := make([]mad.Packet, 16)
			n, err := p.Recv(ps)
			if err != nil {
				return
			}
			in <- ps[:n]
		}
	}()
	var r mad.RMPP
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case ps, ok := <-in:
			if !ok {
				return
			}
			for i := range ps {
				answerTable(p, &r, &ps[i], stride, table)
			}
		case <-tick.C:
			r.Expire(clock.Now())
		}
		var out mad.Packet
		for r.Next(&out) {
			_ = p.Send(&out) // What can't be sent is lost, as any packet may be.
		}
		for _, ok := r.Message(); ok; _, ok = r.Message() {
			// Nobody is told that a client went away.
		}
	}
}

func answerTable(p mad.Port, r *mad.RMPP, q *mad.Packet, stride int, table []byte) {
	m := q.MAD()
	switch {
	case r.Handle(q, clock.Now()) || m.Class() != mad.ClassSubnAdm || m.IsResponse():
	case m.Method() == mad.MethodGetTable:
		m.Respond(mad.StatusOK)
		m.SetRecordStride(stride)
		_ = r.Send(q, table, clock.Now()) // Refused when it was asked twice.
	default:
		m.Respond(mad.StatusSARequestInvalid)
		_ = p.Send(q)
	}
}
