package cm

import (
	"encoding/binary"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Receive takes a message that came to QP1, with the path that it came by. What isn't understood is counted and dropped.
func (m *Manager) Receive(d *Datagram, now clock.Time) {
	m.Counters.Received++
	p, err := mad.Parse(d.MAD[:])
	switch {
	case err != nil || p.Class() != mad.ClassCM || p.Method() != mad.MethodSend:
		m.Counters.Malformed++
	case p.ClassVersion() != mad.ClassCM.Version():
		m.otherVersion(d, p)
	default:
		m.dispatch(d, p, now)
	}
}

// otherVersion refuses a REQ of a version that isn't spoken here: the information is the one that is (REJ 31).
func (m *Manager) otherVersion(d *Datagram, p mad.MAD) {
	m.Counters.Malformed++
	if p.Attribute() == mad.AttrREQ {
		m.refuse(d, p, aboutREQ, RejInvalidClassVersion, []byte{mad.ClassCM.Version()})
	}
}

// replies are the messages that are about a Conn, as inputs of it.
var replies = map[mad.AttributeID]inputKind{mad.AttrMRA: gotMRA, mad.AttrREJ: gotREJ, mad.AttrREP: gotREP, mad.AttrRTU: gotRTU,
	mad.AttrDREQ: gotDREQ, mad.AttrDREP: gotDREP, mad.AttrLAP: gotLAP}

func (m *Manager) dispatch(d *Datagram, p mad.MAD, now clock.Time) {
	switch p.Attribute() {
	case mad.AttrREQ:
		m.receiveREQ(d, p, now)
	case mad.AttrSIDRREQ:
		m.receiveSIDRREQ(d, p, now)
	case mad.AttrSIDRREP:
		m.receiveSIDRREP(d, p, now)
	default:
		what, ok := replies[p.Attribute()]
		if !ok { // an APR, too: no LAP is ever sent
			m.Counters.Malformed++
			return
		}
		switch c := m.find(d, p); {
		case c == nil:
			m.unknown(d, p)
		case what == gotDREQ && mad.DREQ(p.Data()).RemoteQPN() != c.localQPN: // of another connection (IBA 12.7.31)
			m.Counters.Unexpected++
		default:
			c.feed(&input{what: what, now: now, mad: p})
		}
	}
}

// find returns the Conn that a message is about: that of its remote communication id, if the sender is its peer.
func (m *Manager) find(d *Datagram, p mad.MAD) *Conn {
	v := mad.RTU(p.Data())
	if p.Attribute() == mad.AttrREJ && v.RemoteCommID() == 0 {
		return m.findByGUID(d, mad.REJ(p.Data()))
	}
	c := m.conns[v.RemoteCommID()]
	if c == nil || c.path.Remote != d.Remote || c.sidr() || !c.isPeer(p.Attribute(), v.LocalCommID()) {
		return nil
	}
	return c
}

// isPeer reports whether a message with that communication id of its sender may be the peer's: it is the one that is
// known. MRA, REJ and REP may be the peer's first word, and a REJ may come of one that has no id.
func (c *Conn) isPeer(a mad.AttributeID, id uint32) bool {
	switch {
	case id == c.remoteID:
		return true
	case a == mad.AttrREJ && id == 0:
		return true
	}
	return c.remoteID == 0 && (a == mad.AttrMRA || a == mad.AttrREJ || a == mad.AttrREP)
}

// findByGUID returns the Conn whose peer gave up before it heard of this side's communication id (REJ 4).
func (m *Manager) findByGUID(d *Datagram, v mad.REJ) *Conn {
	if Reason(v.Reason()) != RejTimeout || v.InfoLength() < 8 {
		return nil
	}
	return m.peers[peerID{from: d.Remote, guid: ib.GUID(binary.BigEndian.Uint64(v.Info())), id: v.LocalCommID()}]
}

func (c *Conn) sidr() bool {
	return c.state == SidrReqSent || c.state == SidrReqRcvd || c.state == SidrRepSent
}

// unknown answers a message about a connection that isn't there, keeping nothing. What is an answer gets none, so that
// two managers never answer each other for ever.
func (m *Manager) unknown(d *Datagram, p mad.MAD) {
	m.Counters.Unknown++
	v := mad.RTU(p.Data())
	switch p.Attribute() {
	case mad.AttrREP:
		m.refuse(d, p, aboutREP, RejInvalidCommID, nil)
	case mad.AttrDREQ: // it has ended here already (IBA 12.9.8.3.5)
		var b [mad.Size]byte
		a := answer(b[:], p, mad.AttrDREP)
		ids(a.Data(), v.RemoteCommID(), v.LocalCommID())
		m.send(d.Path, a)
	case mad.AttrLAP:
		m.sendAPR(d.Path, p, v.RemoteCommID(), v.LocalCommID(), apInvalidCommID)
	}
}

// answer makes b a message of the transaction of p.
func answer(b []byte, p mad.MAD, a mad.AttributeID) mad.MAD {
	r := mad.MAD(b)
	r.Init(mad.ClassCM, mad.MethodSend, a, 0)
	r.SetTID(p.TID())
	return r
}

// refuse answers a REQ or a REP by a REJ, keeping nothing.
func (m *Manager) refuse(d *Datagram, p mad.MAD, about message, r Reason, info []byte) {
	m.Counters.Refused++
	var b [mad.Size]byte
	a := answer(b[:], p, mad.AttrREJ)
	v, q := mad.REJ(a.Data()), mad.RTU(p.Data())
	v.SetRemoteCommID(q.LocalCommID())
	if about == aboutREP {
		v.SetLocalCommID(q.RemoteCommID())
	}
	v.SetMessageRejected(uint8(about))
	v.SetReason(uint16(r))
	v.SetInfoLength(uint8(copy(v.Info(), info)))
	m.send(d.Path, a)
}

func (m *Manager) sendAPR(to Path, lap mad.MAD, localID, remoteID uint32, s apStatus) {
	var b [mad.Size]byte
	a := answer(b[:], lap, mad.AttrAPR)
	ids(a.Data(), localID, remoteID)
	mad.APR(a.Data()).SetStatus(uint8(s))
	m.send(to, a)
}

// receiveREQ takes a REQ: one that comes again, or a new one, which is refused or is an event.
func (m *Manager) receiveREQ(d *Datagram, p mad.MAD, now clock.Time) {
	v := mad.REQ(p.Data())
	key := peerID{from: d.Remote, guid: v.LocalCAGUID(), id: v.LocalCommID()}
	qp := peerQP{d.Remote, v.LocalCAGUID(), v.LocalQPN()}
	if c := m.peers[key]; c != nil && c.same(v) {
		c.feed(&input{what: gotREQ, now: now, mad: p})
		return
	}
	l := m.listener(ServiceID(v.ServiceID()), v.PKey())
	r, info := m.whyNotREQ(l, v, key, qp, now)
	if r != ReasonNone {
		m.refuse(d, p, aboutREQ, r, info)
		return
	}
	path := l.path(d, v.PKey())
	path.TrafficClass, path.FlowLabel = v.Primary().TrafficClass(), v.Primary().FlowLabel()
	c, err := m.newConn(path)
	if err != nil {
		m.refuse(d, p, aboutREQ, RejNoResources, nil)
		return
	}
	c.request(requestOf(v), l, p.TID())
	c.remoteID, c.guid = key.id, key.guid
	c.peer = peerOf(c.req)
	m.know(c)
	c.await(ReqRcvd, EventRequest, now)
}

// same reports whether a REQ is the one that c was made by (IBA 12.9.8.3.1).
func (c *Conn) same(v mad.REQ) bool {
	return !c.active && c.peer.QPN == v.LocalQPN() && uint32(c.peer.PSN) == v.StartingPSN() && uint64(c.req.Service) == v.ServiceID()
}

// request makes c one that a peer asked for. How long the peer waits, it says.
func (c *Conn) request(r *Request, l *Listener, tid uint64) {
	c.req, c.listener, c.tid = r, l, tid
	c.wait = responseTime(Timeout(r.ResponseTimeout) + Timeout(r.LocalACKTimeout))
	c.timewait = responseTime(Timeout(r.LocalACKTimeout))
}

// await has the consumer decide on c, for as long as the peer asks.
func (c *Conn) await(s State, e EventType, now clock.Time) {
	c.state = s
	c.listener.waiting++
	c.setDeadline(now.Add(c.wait * time.Duration(1+c.req.MaxRetries)))
	c.event(Event{Type: e, Listener: c.listener, Request: c.req, Private: c.req.Private})
}

// whyNotREQ returns why a REQ is refused, and what the reason adds: the checks of IBA 12.9.8.3.1 that need no consumer.
func (m *Manager) whyNotREQ(l *Listener, v mad.REQ, key peerID, qp peerQP, now clock.Time) (Reason, []byte) {
	switch old := m.peerQPs[qp]; {
	case old != nil: // the peer knows nothing of that connection any more
		old.feed(&input{what: callDisconnect, now: now})
		return RejStale, nil
	case m.peers[key] != nil:
		return RejDuplicateCommID, nil
	case l == nil:
		return RejInvalidServiceID, nil
	case v.TransportServiceType() > uint8(UC):
		return RejInvalidTransport, nil
	case !m.cfg.Owns(v.Primary().RemoteGID()):
		g := v.Primary().RemoteGID()
		return RejInvalidGID, g[:]
	case !l.member(v.PKey()): // no reason is about P_Keys: Linux, too, says that the path doesn't lead here
		return RejInvalidGID, nil
	case !v.PathMTU().Valid() || v.PathMTU() > m.cfg.MTU():
		return RejInvalidMTU, []byte{uint8(m.cfg.MTU())}
	case v.RNRRetryCount() < l.o.MinRNRRetry && Transport(v.TransportServiceType()) == RC:
		return RejInvalidRNRRetry, nil
	case l.waiting >= l.o.Backlog:
		return RejNoResources, nil
	}
	return ReasonNone, nil
}

// whyNotREP returns why the REP that c has taken is refused.
func (m *Manager) whyNotREP(c *Conn) Reason {
	switch {
	case m.peers[peerID{from: c.path.Remote, guid: c.guid, id: c.remoteID}] != nil:
		return RejDuplicateCommID
	case m.peerQPs[peerQP{c.path.Remote, c.guid, c.peer.QPN}] != nil:
		return RejStale
	case c.peer.RNRRetry < c.req.MinRNRRetry && c.peer.Transport == RC:
		return RejInvalidRNRRetry
	}
	return ReasonNone
}

// receiveSIDRREQ takes a SIDR_REQ. When too many wait it is lost, and comes again.
func (m *Manager) receiveSIDRREQ(d *Datagram, p mad.MAD, now clock.Time) {
	v := mad.SIDRREQ(p.Data())
	key := peerID{from: d.Remote, id: v.RequestID(), sidr: true}
	if c := m.peers[key]; c != nil {
		c.feed(&input{what: gotSIDRREQ, now: now, mad: p})
		return
	}
	l := m.listener(ServiceID(v.ServiceID()), v.PKey())
	switch {
	case l == nil:
		m.refuseSIDR(d, p, SIDRUnsupportedService)
		return
	case !l.member(v.PKey()):
		m.refuseSIDR(d, p, SIDRRejected)
		return
	case l.waiting >= l.o.Backlog:
		m.Counters.Refused++
		return
	}
	c, err := m.newConn(l.path(d, v.PKey()))
	if err != nil {
		m.Counters.Refused++
		return
	}
	r := &Request{Service: ServiceID(v.ServiceID()), Local: d.Remote, Remote: d.Local, PKey: v.PKey(), Private: clone(v.PrivateData())}
	r.defaults() // a SIDR_REQ doesn't say how long its sender waits
	c.request(r, l, p.TID())
	c.remoteID = key.id
	c.byPeer = key
	m.peers[key] = c
	c.await(SidrReqRcvd, EventSIDRRequest, now)
}

// refuseSIDR answers a SIDR_REQ, keeping nothing.
func (m *Manager) refuseSIDR(d *Datagram, p mad.MAD, why SIDRStatus) {
	m.Counters.Refused++
	v := mad.SIDRREQ(p.Data())
	var b [mad.Size]byte
	a := answer(b[:], p, mad.AttrSIDRREP)
	putSIDRREP(mad.SIDRREP(a.Data()), v.RequestID(), ServiceID(v.ServiceID()), why)
	m.send(d.Path, a)
}

func (m *Manager) receiveSIDRREP(d *Datagram, p mad.MAD, now clock.Time) {
	c := m.conns[mad.SIDRREP(p.Data()).RequestID()]
	if c == nil || c.path.Remote != d.Remote || !c.sidr() {
		m.Counters.Unknown++
		return
	}
	c.feed(&input{what: gotSIDRREP, now: now, mad: p})
}
