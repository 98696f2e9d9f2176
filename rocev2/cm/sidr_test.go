package cm

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/ib/mad"
)

// One question and one answer, each of which may be lost; the consumer is asked once.
func TestSIDR(t *testing.T) {
	for _, lost := range []mad.AttributeID{0, mad.AttrSIDRREQ, mad.AttrSIDRREP} {
		p := newPair(t)
		p.lose = first(2, lost)
		a := must(p.a.Resolve(Request{Service: service, Local: gidA, Remote: gidB, Private: []byte("who")}, p.now))
		e := p.await(p.b, EventSIDRRequest)
		if e.Listener != p.b.listen || !bytes.HasPrefix(e.Private, []byte("who\x00")) || len(e.Private) != MaxSIDRREQPrivate {
			t.Fatalf("%+v", e)
		}
		p.ok(e.Conn.ReplySIDR(SIDRValid, 0x33, 0x01234567, []byte("me"), p.now))
		e = p.await(p.a, EventSIDRReply)
		if e.Conn != a || e.Status != SIDRValid || a.Peer().QPN != 0x33 || a.Peer().QKey != 0x01234567 || !bytes.HasPrefix(e.Private, []byte("me\x00")) {
			t.Fatalf("%+v, %+v", e, a.Peer())
		}
		p.empty()
		p.quiet()
	}
}

func TestSIDRRefused(t *testing.T) {
	p := newPair(t)
	r := Request{Service: service + 1, Local: gidA, Remote: gidB}
	must(p.a.Resolve(r, p.now))
	if e := p.event(p.a, EventSIDRReply); e.Status != SIDRUnsupportedService {
		t.Errorf("status %v", e.Status)
	}
	r.Service = service
	a := must(p.a.Resolve(r, p.now))
	b := p.event(p.b, EventSIDRRequest).Conn
	p.ok(b.ReplySIDR(SIDRRejected, 0x33, 0x44, nil, p.now))
	if e := p.event(p.a, EventSIDRReply); e.Status != SIDRRejected || a.Peer().QPN != 0 || a.Peer().QKey != 0 {
		t.Errorf("%+v", e)
	}
	p.empty()

	p.lose = func(*end, mad.MAD) bool { return true }
	must(p.a.Resolve(r, p.now))
	p.await(p.a, EventUnreachable)
	if n := p.sent(mad.AttrSIDRREQ); n != 18 { // 16 of them unanswered
		t.Errorf("%d SIDR_REQs", n)
	}
	p.empty()
}

// Who doesn't get an answer in the backlog is lost, and asks again.
func TestSIDRBacklog(t *testing.T) {
	p := newPairOf(t, Config{}, Config{}, ListenOptions{Backlog: 1})
	for range 2 {
		must(p.a.Resolve(Request{Service: service, Local: gidA, Remote: gidB}, p.now))
	}
	for range 2 {
		p.ok(p.await(p.b, EventSIDRRequest).Conn.ReplySIDR(SIDRValid, 1, 2, nil, p.now))
		p.await(p.a, EventSIDRReply)
	}
	p.empty()
}

// Datagrams that were taken leave nothing behind, though some always wait.
func TestTakenDatagramsMakeRoom(t *testing.T) {
	m := New(Config{})
	var d Datagram
	for i := range 1000 {
		m.send(Path{TrafficClass: uint8(i)}, make([]byte, mad.Size))
		if i > 2 && (!m.Next(&d) || d.TrafficClass != uint8(i-3)) {
			t.Fatalf("%d: datagram %d", i, d.TrafficClass)
		}
	}
	if len(m.out) > 16 {
		t.Errorf("%d datagrams are kept, 3 of them wait", len(m.out))
	}
}
