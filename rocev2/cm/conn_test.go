package cm

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/tests/conform"
)

// Both ends know of each other what they have to, and have agreed on the smaller resources.
func TestConnect(t *testing.T) {
	conform.Row(t, "5.10/handshake")
	p := newPair(t)
	a := must(p.a.Connect(request(), p.now))
	e := p.event(p.b, EventRequest)
	if e.Listener != p.b.listen || !bytes.HasPrefix(e.Private, []byte("question\x00")) || len(e.Private) != MaxREQPrivate || e.Request.Private[0] != 'q' {
		t.Fatalf("%+v", e)
	}
	b := e.Conn
	p.ok(b.Accept(reply(), p.now))
	if e := p.event(p.a, EventReply); !bytes.HasPrefix(e.Private, []byte("answer\x00")) || len(e.Private) != MaxREPPrivate {
		t.Fatalf("%+v", e)
	}
	p.ok(a.Ready([]byte("ready"), p.now))
	p.event(p.a, EventEstablished)
	if e := p.event(p.b, EventEstablished); !bytes.HasPrefix(e.Private, []byte("ready\x00")) {
		t.Fatalf("%+v", e)
	}
	want := Peer{QPN: 0x11, PSN: 0x123456, PathMTU: ib.MTU1024, InitiatorDepth: 8, ResponderResources: 4, RetryCount: 5, RNRRetry: 6, ACKTimeout: 18, HopLimit: 64}
	if got := b.Peer(); got != want {
		t.Errorf("b knows %+v, want %+v", got, want)
	}
	want = Peer{QPN: 0x22, PSN: 0x654321, PathMTU: ib.MTU1024, InitiatorDepth: 4, ResponderResources: 8, RetryCount: 5, RNRRetry: 7, ACKTimeout: 18, HopLimit: 64}
	if got := a.Peer(); got != want {
		t.Errorf("a knows %+v, want %+v", got, want)
	}
	p.pass(time.Hour)
	p.quiet()
	p.state(a, Established)
	p.state(b, Established)
	if len(p.log) != 3 {
		t.Errorf("%d messages", len(p.log))
	}
}

// A lost message is asked for again, and what answers it comes again.
func TestLost(t *testing.T) {
	conform.Row(t, "5.11/29", "5.10/handshake", "5.10/repeat")
	for _, kind := range []mad.AttributeID{mad.AttrREQ, mad.AttrREP, mad.AttrRTU} {
		p := newPair(t)
		p.lose = first(2, kind)
		a := must(p.a.Connect(request(), p.now))
		p.ok(p.await(p.b, EventRequest).Conn.Accept(reply(), p.now))
		p.await(p.a, EventReply)
		p.ok(a.Ready(nil, p.now))
		p.event(p.a, EventEstablished)
		p.await(p.b, EventEstablished)
		p.quiet()
		if n := p.sent(kind); n != 3 {
			t.Errorf("attribute 0x%x was sent %d times, want 3", uint16(kind), n)
		}
	}
}

// The REP that answers a repeated REQ is the same to the last byte, and the RTU that answers a repeated REP too.
func TestRepeatedAnswers(t *testing.T) {
	conform.Row(t, "5.10/repeat")
	p := newPair(t)
	sent := map[mad.AttributeID][]mad.MAD{}
	p.lose = func(_ *end, m mad.MAD) bool {
		sent[m.Attribute()] = append(sent[m.Attribute()], m)
		return (m.Attribute() == mad.AttrREP || m.Attribute() == mad.AttrRTU) && len(sent[m.Attribute()]) < 3
	}
	a, b := p.asked()
	p.ok(b.Accept(reply(), p.now))
	p.await(p.a, EventReply)
	p.ok(a.Ready([]byte("x"), p.now))
	p.event(p.a, EventEstablished)
	p.await(p.b, EventEstablished)
	for _, kind := range []mad.AttributeID{mad.AttrREQ, mad.AttrREP, mad.AttrRTU} {
		all := sent[kind]
		if len(all) < 2 {
			t.Errorf("attribute 0x%x: %d sent", uint16(kind), len(all))
		}
		for _, m := range all[1:] {
			if !bytes.Equal(m, all[0]) {
				t.Errorf("attribute 0x%x: the second is\n%x, the first\n%x", uint16(kind), m, all[0])
			}
		}
	}
}

// Data at the QP counts as the RTU, whose loss then costs nothing.
func TestDataCountsAsRTU(t *testing.T) {
	conform.Row(t, "5.10/handshake")
	p := newPair(t)
	p.lose = first(99, mad.AttrRTU)
	a, b := p.asked()
	p.ok(b.Accept(reply(), p.now))
	p.event(p.a, EventReply)
	p.ok(a.Ready(nil, p.now))
	p.event(p.a, EventEstablished)
	p.state(b, RepSent)
	p.ok(b.Established(p.now))
	p.event(p.b, EventEstablished)
	p.ok(b.Established(p.now)) // again, as each packet may say so
	p.pass(time.Minute)
	p.quiet()
	if n := p.sent(mad.AttrREP); n != 1 {
		t.Errorf("%d REPs", n)
	}
}

// Nobody is there: 4.096 µs × 2^20 and twice 4.096 µs × 2^16 for each of 16 REQs.
func TestUnreachable(t *testing.T) {
	conform.Row(t, "5.4/cm-timeout", "5.10/ip-defaults", "5.10/rej-4")
	p := newPair(t)
	const each = (1<<20 + 2<<16) * 4096 * time.Nanosecond
	reason := Reason(0)
	p.lose = func(_ *end, m mad.MAD) bool {
		if m.Attribute() == mad.AttrREJ {
			v := mad.REJ(m.Data())
			reason = Reason(v.Reason())
			if v.InfoLength() != 8 || v.Info()[7] != 0xa || v.MessageRejected() != 0 || v.RemoteCommID() != 0 {
				t.Errorf("REJ % x", v)
			}
		}
		return true
	}
	must(p.a.Connect(request(), p.now))
	p.pass(16*each - 1)
	p.quiet()
	if n := p.sent(mad.AttrREQ); n != 16 {
		t.Errorf("%d REQs, want 16", n)
	}
	p.pass(1)
	p.event(p.a, EventUnreachable)
	if reason != RejTimeout {
		t.Errorf("told by a REJ of reason %v", reason)
	}
	p.empty()
}

func TestTimeouts(t *testing.T) {
	conform.Row(t, "5.4/cm-timeout")
	for code := range uint8(32) {
		want := time.Duration(float64(4096) * float64(uint64(1)<<code))
		if Timeout(code) != want || TimeoutCode(want) != code || TimeoutCode(want-1) != code {
			t.Errorf("code %d: %v, back %d", code, Timeout(code), TimeoutCode(want))
		}
	}
	r := Request{}
	r.defaults()
	if r.ResponseTimeout != 20 || r.MaxRetries != 15 || r.PacketLifetime != 16 || ackTimeout(16, 15) != 18 {
		t.Errorf("%+v", r)
	}
}

// The consumer needs a minute for its answer. The REQ comes again meanwhile, and the MRA has the peer wait.
func TestMRA(t *testing.T) {
	conform.Row(t, "5.10/mra-extends", "5.11/29")
	p := newPair(t)
	a, b := p.asked()
	p.pass(60 * time.Second)
	p.state(a, ReqMRA)
	p.state(b, MRAReqSent)
	if n := p.sent(mad.AttrREQ); n != 2 {
		t.Errorf("%d REQs in a minute, want 2", n)
	}
	p.ok(b.Accept(reply(), p.now))
	p.event(p.a, EventReply)
	p.pass(60 * time.Second)
	p.state(a, MRARepSent)
	p.state(b, RepMRA)
	if n := p.b.halfOpen.Len(); n != 0 { // its peer was heard
		t.Errorf("%d half open", n)
	}
	p.ok(a.Ready(nil, p.now))
	p.event(p.a, EventEstablished)
	p.event(p.b, EventEstablished)
}

// The consumer says at once how long it takes; and a peer that gets MRAs without end doesn't wait without end.
func TestExtend(t *testing.T) {
	conform.Row(t, "5.10/mra-extends")
	p := newPair(t)
	a, b := p.asked()
	p.ok(b.Extend(22, []byte("a while"), p.now))
	p.state(a, ReqMRA)
	p.pass(Timeout(22))
	if n := p.sent(mad.AttrREQ); n != 1 {
		t.Errorf("%d REQs, want 1", n)
	}
	for _, e := range []*end{p.b, p.a} { // b's patience is the shorter one
		if e := p.await(e, EventRejected); e.Reason != RejTimeout {
			t.Errorf("rejected for %v", e.Reason)
		}
	}
	if err := b.Accept(reply(), p.now); !errors.Is(err, ErrState) {
		t.Errorf("accepted too late: %v", err)
	}
	p.empty()
}

func TestDisconnect(t *testing.T) {
	conform.Row(t, "5.10/disconnect")
	for name, lost := range map[string]mad.AttributeID{"clean": 0, "lost DREQ": mad.AttrDREQ, "lost DREP": mad.AttrDREP} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			a, b := p.connected()
			p.lose = first(1, lost)
			p.ok(b.Disconnect([]byte("bye"), p.now))
			if e := p.await(p.a, EventDisconnected); !bytes.HasPrefix(e.Private, []byte("bye\x00")) {
				t.Errorf("%+v", e)
			}
			p.ok(a.Disconnect(nil, p.now)) // it ends already
			if lost == mad.AttrDREP {
				p.await(p.a, EventTimewaitExit) // a is done before b asks again
			}
			p.await(p.b, EventDisconnected)
			p.empty()
			p.await(p.b, EventTimewaitExit)
			p.ok(a.Disconnect(nil, p.now))
		})
	}
}

// TimeWait lasts as long as a packet may live, twice, and its answer.
func TestTimeWait(t *testing.T) {
	conform.Row(t, "5.10/disconnect")
	p := newPair(t)
	a, b := p.connected()
	p.ok(a.Disconnect(nil, p.now))
	p.event(p.a, EventDisconnected)
	p.event(p.b, EventDisconnected)
	p.pass(Timeout(18) - 1)
	p.state(a, TimeWait)
	p.state(b, TimeWait)
	p.pass(1)
	p.event(p.a, EventTimewaitExit)
	p.event(p.b, EventTimewaitExit)
	p.empty()
}

func TestBothDisconnect(t *testing.T) {
	conform.Row(t, "5.10/disconnect")
	p := newPair(t)
	a, b := p.connected()
	p.ok(a.Disconnect(nil, p.now))
	p.ok(b.Disconnect(nil, p.now))
	p.event(p.a, EventDisconnected)
	p.event(p.b, EventDisconnected)
	p.state(a, TimeWait)
	p.state(b, TimeWait)
	if n := p.sent(mad.AttrDREP); n != 2 {
		t.Errorf("%d DREPs", n)
	}
	p.empty()
}

// The peer is gone: the DREQ is sent sixteen times, and then it is over all the same.
func TestDisconnectFromNobody(t *testing.T) {
	p := newPair(t)
	a, _ := p.connected()
	p.lose = func(*end, mad.MAD) bool { return true }
	p.ok(a.Disconnect(nil, p.now))
	p.pass(2 * time.Minute)
	if e := p.event(p.a, EventDisconnected); e.Reason != RejTimeout || p.sent(mad.AttrDREQ) != 16 {
		t.Errorf("%v after %d DREQs", e.Reason, p.sent(mad.AttrDREQ))
	}
}

// A DREQ for a connection that is over is answered, one for another QP isn't.
func TestStrayDREQ(t *testing.T) {
	p := newPair(t)
	a, b := p.connected()
	b.peer.QPN++
	p.ok(b.Disconnect(nil, p.now))
	p.state(a, Established)
	p.quiet()
	b.peer.QPN--

	p = newPair(t)
	a, b = p.connected()
	p.a.forget(a)
	p.ok(b.Disconnect(nil, p.now))
	p.event(p.b, EventDisconnected)
	p.state(b, TimeWait)
}

// There are no alternate paths: a LAP is refused, and the connection stays.
func TestLAP(t *testing.T) {
	p := newPair(t)
	a, b := p.connected()
	for _, c := range []struct {
		id   uint32
		want apStatus
	}{{b.id, apUnsupported}, {b.id + 1, apInvalidCommID}} {
		var d Datagram
		d.Local, d.Remote = gidB, gidA
		m := mad.MAD(d.MAD[:])
		m.Init(mad.ClassCM, mad.MethodSend, mad.AttrLAP, 0)
		ids(m.Data(), a.id, c.id)
		p.b.Receive(&d, p.now)
		if !p.b.Next(&d) {
			t.Fatal("no answer")
		}
		m = d.MAD[:]
		v := mad.APR(m.Data())
		if m.Attribute() != mad.AttrAPR || apStatus(v.Status()) != c.want || v.RemoteCommID() != a.id || v.LocalCommID() != c.id {
			t.Errorf("% x", m[:40])
		}
		p.state(b, Established)
	}
}

// Who abandons leaves nothing at the other end, whatever the state.
func TestAbandon(t *testing.T) {
	for _, who := range []string{"a", "b"} {
		for n := range 4 {
			p := newPair(t)
			a := must(p.a.Connect(request(), p.now))
			p.deliver()
			var b *Conn
			if n > 0 {
				b = p.event(p.b, EventRequest).Conn
			}
			if n > 1 {
				p.ok(b.Accept(reply(), p.now))
				p.event(p.a, EventReply)
			}
			if n > 2 {
				p.ok(a.Ready(nil, p.now))
				p.deliver()
			}
			if who == "a" {
				a.Abandon(p.now)
			} else if b != nil {
				b.Abandon(p.now)
			}
			p.empty()
		}
	}
}

func TestBadCalls(t *testing.T) {
	p := newPair(t)
	for _, change := range []func(*Request){
		func(r *Request) { r.Private = make([]byte, 93) }, func(r *Request) { r.RetryCount = 8 }, func(r *Request) { r.RNRRetry = 8 },
		func(r *Request) { r.QPN = 1 << 24 }, func(r *Request) { r.PathMTU = 6 }, func(r *Request) { r.MaxRetries = 16 },
		func(r *Request) { r.Transport = 2 }, func(r *Request) { r.FlowLabel = 1 << 20 }, func(r *Request) { r.ResponseTimeout = 32 },
		func(r *Request) { r.PSN = 1 << 24 },
	} {
		r := request()
		change(&r)
		if _, err := p.a.Connect(r, p.now); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	a, b := p.asked()
	big := make([]byte, 256)
	for i, err := range []error{
		a.Ready(big[:225], p.now), b.Accept(Reply{Private: big[:197]}, p.now), b.Accept(Reply{RNRRetry: 8}, p.now), b.Accept(Reply{QPN: 1 << 24}, p.now), b.Accept(Reply{PSN: 1 << 24}, p.now),
		b.ReplySIDR(SIDRValid, 1<<24, 0, nil, p.now), b.ReplySIDR(SIDRValid, 0, 0, big[:137], p.now),
		b.Reject(RejConsumer, nil, big[:149], p.now), b.Reject(RejConsumer, big[:73], nil, p.now), b.Extend(32, nil, p.now), b.Extend(1, big[:223], p.now),
		a.Disconnect(big[:221], p.now),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for i, err := range []error{a.Ready(nil, p.now), a.Accept(reply(), p.now), a.Disconnect(nil, p.now), b.Ready(nil, p.now), b.Established(p.now)} {
		if !errors.Is(err, ErrState) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	p.state(a, ReqSent)
	p.state(b, ReqRcvd)
	if _, err := p.b.Listen(service, ListenOptions{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second listener: %v", err)
	}
}
