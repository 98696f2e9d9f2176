package cm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/tests/conform"
)

// rejected asks b, and wants a to be told why not.
func (p *pair) rejected(r Request, want Reason, info ...byte) {
	p.t.Helper()
	must(p.a.Connect(r, p.now))
	if e := p.event(p.a, EventRejected); e.Reason != want || !bytes.Equal(e.Info, info) {
		p.t.Fatalf("rejected for %v, % x; want %v, % x", e.Reason, e.Info, want, info)
	}
}

// Each of these is refused without a question to the consumer, and nothing is kept of it.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   Reason
		info   []byte
	}{
		{"5.10/rej-8", func(r *Request) { r.Service++ }, RejInvalidServiceID, nil},
		{"5.10/rej-12", func(*Request) {}, RejInvalidGID, gidA[:]},
		{"5.10/rej-26", func(r *Request) { r.PathMTU = ib.MTU4096 }, RejInvalidMTU, []byte{byte(ib.MTU2048)}},
		{"5.10/rej-29", func(r *Request) { r.RNRRetry = 2 }, RejInvalidRNRRetry, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPairOf(t, Config{}, Config{
				MTU:  func() ib.MTU { return ib.MTU2048 },
				Owns: func(g ib.GID) bool { return g == gidB },
			}, ListenOptions{MinRNRRetry: 3})
			r := request()
			c.change(&r)
			must(p.a.Connect(r, p.now))
			var d Datagram
			p.a.Next(&d)
			if c.want == RejInvalidGID { // its path leads elsewhere
				mad.REQ(mad.MAD(d.MAD[:]).Data()).Primary().SetRemoteGID(gidA)
			}
			d.Local, d.Remote = gidB, gidA
			p.b.Receive(&d, p.now)
			if p.b.Conns() != 0 || p.b.Counters.Refused != 1 {
				t.Fatalf("%d connections, %+v", p.b.Conns(), p.b.Counters)
			}
			if e := p.event(p.a, EventRejected); e.Reason != c.want || !bytes.Equal(e.Info, c.info) {
				t.Fatalf("rejected for %v, % x", e.Reason, e.Info)
			}
			p.empty()
		})
	}
	conform.Row(t, "5.10/rej-8", "5.10/rej-12", "5.10/rej-26", "5.10/rej-29", "5.11/29")
}

// The consumer's reasons get there with what they add, and again when the REQ comes again.
func TestConsumerRejects(t *testing.T) {
	conform.Row(t, "5.10/rej-28", "5.10/rej-1", "5.10/rej-35")
	for _, r := range []Reason{RejConsumer, RejNoQP, RejVendorOptionNotSupported} {
		p := newPair(t)
		p.lose = first(1, mad.AttrREJ)
		_, b := p.asked()
		p.ok(b.Reject(r, []byte("info"), []byte("private"), p.now))
		p.pass(10 * 1e9)
		if e := p.event(p.a, EventRejected); e.Reason != r || string(e.Info) != "info" || !bytes.HasPrefix(e.Private, []byte("private\x00")) {
			t.Errorf("%+v", e)
		}
		p.quiet()
		p.empty()
	}
}

// A REQ with a vendor's options is for the consumer to see, and a REP says that none are known.
func TestVendorOptions(t *testing.T) {
	conform.Row(t, "5.10/rej-35")
	p := newPair(t)
	must(p.a.Connect(request(), p.now))
	var d Datagram
	p.a.Next(&d)
	mad.REQ(mad.MAD(d.MAD[:]).Data()).SetVendorID(0x15b3)
	d.Local, d.Remote = gidB, gidA
	p.b.Receive(&d, p.now)
	e := p.event(p.b, EventRequest)
	if e.Request.VendorID != 0x15b3 {
		t.Errorf("vendor 0x%x", e.Request.VendorID)
	}
	p.ok(e.Conn.Reject(RejVendorOptionNotSupported, nil, nil, p.now))
	if e := p.event(p.a, EventRejected); e.Reason != RejVendorOptionNotSupported {
		t.Errorf("rejected for %v", e.Reason)
	}
}

// The active side refuses, too: after the REP.
func TestReplyRejected(t *testing.T) {
	conform.Row(t, "5.10/rej-28")
	p := newPair(t)
	p.lose = first(1, mad.AttrREJ)
	a, b := p.asked()
	p.ok(b.Accept(reply(), p.now))
	p.event(p.a, EventReply)
	p.ok(a.Reject(RejConsumer, nil, []byte("no"), p.now))
	p.pass(10 * 1e9)
	if e := p.event(p.b, EventRejected); e.Reason != RejConsumer || e.Private[0] != 'n' {
		t.Errorf("%+v", e)
	}
	p.event(p.b, EventTimewaitExit)
	p.empty()
}

// A REP that asks for less patience than the active side needs is refused.
func TestReplyRNRRetry(t *testing.T) {
	conform.Row(t, "5.10/rej-29")
	p := newPair(t)
	r, answer := request(), reply()
	r.MinRNRRetry, answer.RNRRetry = 7, 6
	must(p.a.Connect(r, p.now))
	b := p.event(p.b, EventRequest).Conn
	p.ok(b.Accept(answer, p.now))
	for _, e := range []*end{p.a, p.b} {
		if e := p.event(e, EventRejected); e.Reason != RejInvalidRNRRetry {
			t.Errorf("rejected for %v", e.Reason)
		}
	}
	p.empty()
}

// A REQ from a QP that has a connection, or had one a moment ago, is stale; the connection that the peer has forgotten ends.
func TestStale(t *testing.T) {
	conform.Row(t, "5.10/stale", "5.10/rej-10", "5.11/29")
	p := newPair(t)
	a, b := p.connected()
	p.a.forget(a) // its host was restarted
	p.rejected(request(), RejStale)
	p.event(p.b, EventDisconnected)
	p.state(b, TimeWait)
	p.rejected(request(), RejStale)
	p.pass(Timeout(18))
	p.event(p.b, EventTimewaitExit)
	p.connected()
}

// A REP from a QP that is connected is stale, too.
func TestStaleREP(t *testing.T) {
	conform.Row(t, "5.10/rej-10")
	p := newPair(t)
	_, old := p.connected()
	p.b.forget(old)
	r := request()
	r.QPN++
	must(p.a.Connect(r, p.now))
	b := p.event(p.b, EventRequest).Conn
	p.ok(b.Accept(reply(), p.now))
	if e := p.event(p.a, EventRejected); e.Reason != RejStale {
		t.Errorf("rejected for %v", e.Reason)
	}
	if e := p.event(p.b, EventRejected); e.Reason != RejStale {
		t.Errorf("rejected for %v", e.Reason)
	}
}

// Another REQ under a communication id that is in use.
func TestDuplicateCommID(t *testing.T) {
	conform.Row(t, "5.10/rej-30")
	p := newPair(t)
	a, _ := p.connected()
	id := a.id
	p.a.forget(a)
	p.a.cfg.Random = func() uint32 { return id }
	r := request()
	r.QPN++
	p.rejected(r, RejDuplicateCommID)
}

// A REP for a REQ that was never sent.
func TestInvalidCommID(t *testing.T) {
	conform.Row(t, "5.10/rej-6")
	p := newPair(t)
	a, b := p.asked()
	p.a.forget(a)
	p.ok(b.Accept(reply(), p.now))
	if e := p.event(p.b, EventRejected); e.Reason != RejInvalidCommID {
		t.Errorf("rejected for %v", e.Reason)
	}
	p.quiet()
}

func TestClassVersion(t *testing.T) {
	conform.Row(t, "5.10/rej-31")
	p := newPair(t)
	must(p.a.Connect(request(), p.now))
	var d Datagram
	p.a.Next(&d)
	d.MAD[2] = 3
	d.Local, d.Remote = gidB, gidA
	p.b.Receive(&d, p.now)
	if e := p.event(p.a, EventRejected); e.Reason != RejInvalidClassVersion || !bytes.Equal(e.Info, []byte{2}) {
		t.Errorf("%+v", e)
	}
}

// The active side gave up before it heard of b's communication id: b finds the connection by the GUID in the REJ.
func TestTimeoutIsTold(t *testing.T) {
	conform.Row(t, "5.10/rej-4")
	p := newPair(t)
	a, b := p.asked()
	a.Abandon(p.now)
	if e := p.event(p.b, EventRejected); e.Reason != RejTimeout {
		t.Errorf("rejected for %v", e.Reason)
	}
	if err := b.Accept(reply(), p.now); !errors.Is(err, ErrState) {
		t.Errorf("accepted: %v", err)
	}
	p.empty()
}

// A thousand ask at once. As many as the backlog has room for are asked about, the others are refused at once; and when
// those have been served, others are.
func TestThousandAtOnce(t *testing.T) {
	conform.Row(t, "bug/54", "5.10/rej-3")
	p := newPairOf(t, Config{}, Config{}, ListenOptions{Backlog: 100})
	for round := range 3 {
		for i := range 1000 {
			r := request()
			r.QPN = ib.QPN(round*1000 + i + 2)
			must(p.a.Connect(r, p.now))
		}
		p.deliver()
		for range 100 {
			b := p.event(p.b, EventRequest).Conn
			answer := reply()
			answer.QPN = b.peer.QPN
			p.ok(b.Accept(answer, p.now))
		}
		for range 900 {
			if e := p.event(p.a, EventRejected); e.Reason != RejNoResources {
				t.Fatalf("rejected for %v", e.Reason)
			}
		}
		for range 100 {
			p.ok(p.event(p.a, EventReply).Conn.Ready(nil, p.now))
		}
		for range 100 {
			p.event(p.a, EventEstablished)
			p.event(p.b, EventEstablished)
		}
		p.quiet()
	}
	if p.a.Conns() != 300 || p.b.Conns() != 300 {
		t.Errorf("%d and %d connections", p.a.Conns(), p.b.Conns())
	}
}

// A manager that is full refuses, and what it can't send for want of room it sends later.
func TestFull(t *testing.T) {
	conform.Row(t, "5.10/rej-3", "bug/54")
	p := newPairOf(t, Config{MaxConns: 20, MaxOut: 3}, Config{MaxConns: 5}, ListenOptions{})
	for i := range 10 {
		r := request()
		r.QPN += ib.QPN(i)
		must(p.a.Connect(r, p.now))
	}
	if p.a.Counters.Unsent != 7 {
		t.Errorf("%d unsent", p.a.Counters.Unsent)
	}
	p.pass(100 * 1e9)
	for range 5 {
		p.event(p.b, EventRequest)
	}
	for range 5 {
		if e := p.event(p.a, EventRejected); e.Reason != RejNoResources {
			t.Errorf("rejected for %v", e.Reason)
		}
	}
	for range 10 {
		must(p.a.Connect(request(), p.now))
	}
	if _, err := p.a.Connect(request(), p.now); err != nil && !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
}

// Refusals, and answers of SIDR, are kept to be repeated, and take no connection's place: not even when more are made
// than are kept.
func TestKeptTakeNoPlace(t *testing.T) {
	conform.Row(t, "5.10/rej-28")
	p := newPairOf(t, Config{}, Config{MaxConns: 1, MaxKept: 2}, ListenOptions{})
	for i := range 5 {
		r := request()
		r.QPN += ib.QPN(i)
		must(p.a.Connect(r, p.now))
		p.ok(p.event(p.b, EventRequest).Conn.Reject(RejConsumer, nil, nil, p.now))
		p.event(p.a, EventRejected)
		must(p.a.Resolve(r, p.now))
		p.ok(p.event(p.b, EventSIDRRequest).Conn.ReplySIDR(SIDRRejected, 0, 0, nil, p.now))
		p.event(p.a, EventSIDRReply)
	}
	if n := p.b.Conns(); n != 2 {
		t.Errorf("%d are kept, want 2", n)
	}
	p.connected()
	r := request()
	r.QPN++
	p.rejected(r, RejNoResources)
	if n := p.b.Conns(); n != 3 {
		t.Errorf("%d connections and kept ones, want 3", n)
	}
}

// Requests are accepted whose peers are never heard of again, as forged ones are. They are given up, the oldest first, when
// there are more than may be, and the peer is told. The others are connected.
func TestHalfOpenGiveWay(t *testing.T) {
	conform.Row(t, "5.10/rej-4")
	for _, c := range []struct{ maxOpen, backlog int }{{3, 1}, {1, 3}} {
		halfOpenGiveWay(newPairOf(t, Config{}, Config{MaxOpen: c.maxOpen}, ListenOptions{Backlog: c.backlog}))
	}
}

// halfOpenGiveWay has b accept five requests, of which three may be half open.
func halfOpenGiveWay(p *pair) {
	t := p.t
	var asked, accepted []*Conn
	for i := range 5 {
		r, answer := request(), reply()
		r.QPN += ib.QPN(i)
		answer.QPN += ib.QPN(i)
		asked = append(asked, must(p.a.Connect(r, p.now)))
		accepted = append(accepted, p.event(p.b, EventRequest).Conn)
		p.ok(accepted[i].Accept(answer, p.now))
		p.event(p.a, EventReply)
		if i < 3 {
			continue
		}
		if e := p.event(p.b, EventUnreachable); e.Conn != accepted[i-3] || e.Reason != RejTimeout {
			t.Errorf("given up: %p for %v, want %p", e.Conn, e.Reason, accepted[i-3])
		}
		if e := p.event(p.a, EventRejected); e.Conn != asked[i-3] || e.Reason != RejTimeout {
			t.Errorf("told: %p for %v, want %p", e.Conn, e.Reason, asked[i-3])
		}
	}
	for _, a := range asked[2:] {
		p.ok(a.Ready(nil, p.now))
		p.event(p.a, EventEstablished)
		p.event(p.b, EventEstablished)
	}
	if n := p.b.Counters.GivenUp; n != 2 || p.b.halfOpen.Len() != 0 {
		t.Errorf("%d given up, %d half open", n, p.b.halfOpen.Len())
	}
	p.quiet()
}

// Every reason and state that is named has a name, and others say what they are.
func TestNames(t *testing.T) {
	for r := ReasonNone; r <= RejVendorOptionNotSupported; r++ {
		if (r.String() == "invalid reason (34)") != (r == 34) {
			t.Errorf("reason %d is %q", uint16(r), r)
		}
	}
	if Reason(99).String() != "invalid reason (99)" || State(99).String() != "invalid state (99)" || SIDRStatus(9).String() != "invalid SIDR status (9)" || Transport(2).String() != "invalid transport (2)" ||
		EventType(0).String() != "invalid event (0)" || EventType(99).String() != "invalid event (99)" || EventSIDRReply.String() != "SIDRReply" || SidrRepSent.String() != "SIDR_REP Sent" {
		t.Error("names")
	}
}
