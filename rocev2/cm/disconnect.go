package cm

import (
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Disconnect ends an established connection by a DREQ, with at most MaxDREQPrivate bytes of private data. The event
// Disconnected follows at the latest when no answer has come, and TimewaitExit when the QPN may be used again. It does
// nothing when the connection ends, or has ended, already.
func (c *Conn) Disconnect(private []byte, now clock.Time) error {
	if err := checkPrivate(private, MaxDREQPrivate); err != nil {
		return invalid(callDisconnect, err)
	}
	return c.call(&input{what: callDisconnect, now: now, private: private})
}

func (c *Conn) sendDREQ(in *input) bool {
	c.tid = c.m.newTID(c.id)
	v := mad.DREQ(c.begin(mad.AttrDREQ).Data())
	v.SetRemoteQPN(c.peer.QPN)
	copy(v.PrivateData(), in.private)
	return c.sendFirst(in)
}

func (c *Conn) retryDREQ(in *input) bool {
	if c.retry(in) {
		return true
	}
	c.event(Event{Type: EventDisconnected, Reason: RejTimeout})
	return false
}

func (c *Conn) takeDREP(in *input) bool {
	c.event(Event{Type: EventDisconnected, Private: clone(mad.DREP(in.mad.Data()).PrivateData())})
	return true
}

// answerDREQ answers the peer's DREQ. When both sides ask at once, each answers the other (IBA 12.9.8.3.5).
func (c *Conn) answerDREQ(in *input) bool {
	c.repeatDREP(in)
	c.event(Event{Type: EventDisconnected, Private: clone(mad.DREQ(in.mad.Data()).PrivateData())})
	return true
}

func (c *Conn) repeatDREP(in *input) bool {
	c.tid = in.mad.TID()
	c.begin(mad.AttrDREP)
	c.send()
	return true
}

// broken takes a REJ of a connection that was there: the peer knows it no more.
func (c *Conn) broken(in *input) bool {
	v := mad.REJ(in.mad.Data())
	c.event(Event{Type: EventDisconnected, Reason: Reason(v.Reason()), Private: clone(v.PrivateData())})
	return true
}

func (c *Conn) timewaitExit(*input) bool {
	c.event(Event{Type: EventTimewaitExit})
	return true
}
