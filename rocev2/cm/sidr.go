package cm

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Resolve asks for the UD queue pair of a service, by SIDR (IBA 12.11), with at most MaxSIDRREQPrivate bytes of private
// data. The event SIDRReply says what came of it, and Conn.Peer has QPN and QKey; Unreachable follows when no answer came.
// Errors are those of Connect.
func (m *Manager) Resolve(r Request, now clock.Time) (*Conn, error) {
	return m.ask(&r, MaxSIDRREQPrivate, &input{what: callResolve, now: now})
}

func (c *Conn) sendSIDRREQ(in *input) bool {
	v := mad.SIDRREQ(c.beginSIDR(mad.AttrSIDRREQ))
	v.SetRequestID(c.id)
	v.SetPKey(c.req.PKey)
	v.SetServiceID(uint64(c.req.Service))
	copy(v.PrivateData(), c.req.Private)
	return c.sendFirst(in)
}

// beginSIDR makes c.msg a message of SIDR and returns its body.
func (c *Conn) beginSIDR(a mad.AttributeID) []byte {
	m := c.begin(a)
	clear(m.Data())
	return m.Data()
}

func (c *Conn) retrySIDR(in *input) bool {
	if c.retry(in) {
		return true
	}
	c.event(Event{Type: EventUnreachable, Reason: RejTimeout})
	return false
}

// takeSIDRREP takes the answer.
func (c *Conn) takeSIDRREP(in *input) bool {
	v := mad.SIDRREP(in.mad.Data())
	c.peer.QPN, c.peer.QKey = v.QPN(), v.QKey()
	c.event(Event{Type: EventSIDRReply, Status: SIDRStatus(v.Status()), Info: clone(v.Info()[:min(int(v.InfoLength()), MaxREJInfo)]),
		Private: clone(v.PrivateData())})
	return true
}

// ReplySIDR answers a SIDR_REQ, after the event SIDRRequest: with the QPN (24 bits) and QKey of a UD QP, or, without them,
// why there is none; at most MaxSIDRREPPrivate bytes of private data. No event follows.
func (c *Conn) ReplySIDR(s SIDRStatus, qpn ib.QPN, qkey ib.QKey, private []byte, now clock.Time) error {
	if !qpn.Valid() {
		return invalid(callReplySIDR, fmt.Errorf("QPN 0x%x (allowed: 24 bits)", uint32(qpn)))
	}
	if err := checkPrivate(private, MaxSIDRREPPrivate); err != nil {
		return invalid(callReplySIDR, err)
	}
	return c.call(&input{what: callReplySIDR, now: now, status: s, qpn: qpn, qkey: qkey, private: private})
}

func (c *Conn) sendSIDRREP(in *input) bool {
	v := mad.SIDRREP(c.beginSIDR(mad.AttrSIDRREP))
	putSIDRREP(v, c.remoteID, c.req.Service, in.status)
	if in.status == SIDRValid {
		v.SetQPN(in.qpn)
		v.SetQKey(in.qkey)
	}
	copy(v.PrivateData(), in.private)
	c.send()
	return true
}

func putSIDRREP(v mad.SIDRREP, id uint32, s ServiceID, status SIDRStatus) {
	v.SetRequestID(id)
	v.SetStatus(uint8(status))
	v.SetServiceID(uint64(s))
}
