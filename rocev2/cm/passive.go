package cm

import (
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Accept answers a REQ by a REP, after the event Request. The consumer's QP is in RTR or RTS by then, as data may come at
// once. The event Established follows when the RTU has come, or when the consumer says that data came (Established); else
// Unreachable, Rejected or Disconnected does. The error is ErrState, too, when the peer gave up meanwhile.
func (c *Conn) Accept(r Reply, now clock.Time) error {
	if err := r.check(); err != nil {
		return invalid(callAccept, err)
	}
	return c.call(&input{what: callAccept, now: now, reply: &r})
}

// Agree cuts the resources of a Reply to what the REQ allows: so Accept sends them, and Peer has them then.
func (c *Conn) Agree(r *Reply) {
	r.ResponderResources = min(r.ResponderResources, c.req.InitiatorDepth)
	r.InitiatorDepth = min(r.InitiatorDepth, c.req.ResponderResources)
}

func (c *Conn) sendREP(in *input) bool {
	r := in.reply
	c.Agree(r)
	c.localQPN = r.QPN
	c.peer.ResponderResources, c.peer.InitiatorDepth = r.ResponderResources, r.InitiatorDepth
	r.put(mad.REP(c.begin(mad.AttrREP).Data()), c.m.cfg.GUID, c.m.cfg.AckDelay)
	return c.sendFirst(in)
}

func (c *Conn) retryREP(in *input) bool {
	if c.retry(in) {
		return true
	}
	c.timedOut()
	c.event(Event{Type: EventUnreachable, Reason: RejTimeout})
	return false
}

// takeRTU takes the end of the handshake.
func (c *Conn) takeRTU(in *input) bool {
	c.event(Event{Type: EventEstablished, Private: clone(mad.RTU(in.mad.Data()).PrivateData())})
	return true
}

// Established says, after Accept, that a packet of the peer came to the QP, which counts as an RTU (IBA 12.9.8.3.4,
// COMM_EST). Saying it again does nothing.
func (c *Conn) Established(now clock.Time) error {
	return c.call(&input{what: callEstablished, now: now})
}

func (c *Conn) established(*input) bool {
	c.event(Event{Type: EventEstablished})
	return true
}

// tooLate ends a request that the consumer didn't answer while the peer waited.
func (c *Conn) tooLate(*input) bool {
	c.timedOut()
	c.event(Event{Type: EventRejected, Reason: RejTimeout})
	return true
}

// refuseLAP answers that there are no alternate paths here (IBA 12.8.2).
func (c *Conn) refuseLAP(in *input) bool {
	c.m.sendAPR(c.path, in.mad, c.id, c.remoteID, apUnsupported)
	return true
}
