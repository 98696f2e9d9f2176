package cm

import (
	"errors"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Connect asks for a connection, with at most MaxREQPrivate bytes of private data. What comes of it is an event: Reply, then
// the consumer moves its QP to RTS and calls Ready; Rejected; or Unreachable. Errors wrap ErrInvalid (a field has more bits
// than the REQ has for it, or the P_Key isn't the port's) or ErrLimit.
func (m *Manager) Connect(r Request, now clock.Time) (*Conn, error) {
	return m.ask(&r, MaxREQPrivate, &input{what: callConnect, now: now})
}

// ask makes a Conn of which this side is the active one, and begins it.
func (m *Manager) ask(r *Request, private int, in *input) (*Conn, error) {
	r.defaults()
	if r.PKey == 0 {
		r.PKey = m.cfg.PKeys[0]
	}
	i, err := m.pkeyIndex(r.PKey)
	if err := errors.Join(err, r.check(private)); err != nil {
		return nil, invalid(in.what, err)
	}
	r.Private = clone(r.Private)
	c, err := m.newConn(Path{Local: r.Local, Remote: r.Remote, SGIDIndex: r.SGIDIndex, TrafficClass: r.TrafficClass, FlowLabel: r.FlowLabel, PKeyIndex: uint16(i)})
	if err != nil {
		return nil, err
	}
	c.active, c.req, c.localQPN = true, r, r.QPN
	c.tid = m.newTID(c.id)
	// The answer has the time that it was given, and both messages are under way (IBA 12.9.8.1).
	c.wait = responseTime(Timeout(r.ResponseTimeout) + 2*Timeout(r.PacketLifetime))
	c.timewait = Timeout(ackTimeout(r.PacketLifetime, m.cfg.AckDelay))
	return c, c.call(in)
}

func (c *Conn) sendREQ(in *input) bool {
	v := mad.REQ(c.begin(mad.AttrREQ).Data())
	c.req.put(v, c.m.cfg.GUID, c.m.cfg.AckDelay)
	return c.sendFirst(in)
}

func (c *Conn) retryREQ(in *input) bool {
	if c.retry(in) {
		return true
	}
	c.timedOut()
	c.event(Event{Type: EventUnreachable, Reason: RejTimeout})
	return false
}

// takeREP takes the answer to the REQ, or refuses it.
func (c *Conn) takeREP(in *input) bool {
	v := mad.REP(in.mad.Data())
	c.remoteID, c.guid = v.LocalCommID(), v.LocalCAGUID()
	c.peer.takeREP(c.req, v)
	r := c.m.whyNotREP(c)
	if r != ReasonNone {
		c.sendREJ(aboutREP, r, nil, nil)
		c.event(Event{Type: EventRejected, Reason: r})
		return false
	}
	c.m.know(c)
	c.event(Event{Type: EventReply, Private: clone(v.PrivateData())})
	return true
}

// Ready says, after the event Reply, that the QP is in RTS: the peer is told by an RTU, with at most MaxRTUPrivate bytes of
// private data. The event Established follows.
func (c *Conn) Ready(private []byte, now clock.Time) error {
	if err := checkPrivate(private, MaxRTUPrivate); err != nil {
		return invalid(callReady, err)
	}
	return c.call(&input{what: callReady, now: now, private: private})
}

func (c *Conn) sendRTU(in *input) bool {
	v := mad.RTU(c.begin(mad.AttrRTU).Data())
	copy(v.PrivateData(), in.private)
	c.send()
	c.event(Event{Type: EventEstablished})
	return true
}

// repeatRTU answers a REP that comes again: the RTU was lost (IBA 12.9.8.3.3).
func (c *Conn) repeatRTU(in *input) bool { return c.active && c.again(in) }
