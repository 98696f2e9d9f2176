package cm

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/tests/conform"
)

var seedsFlag = flag.Int("seeds", 300, "seeds of the simulation")

// lossy is a world of two managers, both of which ask and are asked, whose messages are lost, doubled and overtaken.
// Their consumers decide at random, late, or never.
type lossy struct {
	*pair
	r      *rand.Rand
	flight []flying
	users  []*user
	timers []decision
	qpn    ib.QPN
	loss   float64
}

type flying struct {
	at clock.Time
	to *end
	d  Datagram
}

// decision is what a consumer does at a time.
type decision struct {
	at clock.Time
	do func()
}

// user is the consumer of one Conn.
type user struct {
	c                        *Conn
	qpn                      ib.QPN
	established, ended, asks int
	final                    EventType
}

func newLossy(t *testing.T, seed uint64) *lossy {
	w := &lossy{pair: newPairOf(t, Config{}, Config{}, ListenOptions{Backlog: 4}), r: rand.New(rand.NewPCG(seed, 2)), qpn: 2}
	w.a.listen = must(w.a.Listen(service, ListenOptions{Backlog: 4}))
	for _, e := range []*end{w.a, w.b} {
		e.cfg.Random = w.r.Uint32
	}
	w.loss = []float64{0, 0.05, 0.3, 0.6}[w.r.IntN(4)]
	return w
}

func (w *lossy) other(e *end) *end {
	if e == w.a {
		return w.b
	}
	return w.a
}

func (w *lossy) later(most time.Duration, do func()) {
	w.timers = append(w.timers, decision{w.now.Add(time.Duration(w.r.Int64N(int64(most)))), do})
}

// put takes what was sent: it is lost, or arrives once or twice, after a while.
func (w *lossy) put(e *end) {
	var d Datagram
	for e.Next(&d) {
		for range 1 + w.r.IntN(2)*w.r.IntN(2) {
			if w.r.Float64() >= w.loss {
				w.flight = append(w.flight, flying{w.now.Add(time.Duration(w.r.Int64N(int64(300 * time.Millisecond)))), w.other(e), *d.arrived()})
			}
		}
	}
}

// step goes to the next moment at which something happens, and says whether there is one.
func (w *lossy) step() bool {
	next := min(w.a.Deadline(), w.b.Deadline())
	for _, f := range w.flight {
		next = min(next, f.at)
	}
	for _, d := range w.timers {
		next = min(next, d.at)
	}
	if next == clock.Never {
		return false
	}
	w.now = max(w.now, next)
	flight := w.flight
	w.flight = nil
	for _, f := range flight {
		if f.at <= w.now {
			f.to.Receive(&f.d, w.now)
		} else {
			w.flight = append(w.flight, f)
		}
	}
	due := w.timers
	w.timers = nil
	for _, d := range due {
		if d.at <= w.now {
			d.do()
		} else {
			w.timers = append(w.timers, d)
		}
	}
	for _, e := range []*end{w.a, w.b} {
		e.Expire(w.now)
		w.put(e)
		for ev, ok := e.Event(); ok; ev, ok = e.Event() {
			w.consume(e, ev)
		}
		w.put(e)
	}
	return true
}

func (w *lossy) user(c *Conn) *user {
	if u, ok := c.User.(*user); ok {
		return u
	}
	w.qpn++
	u := &user{c: c, qpn: w.qpn}
	c.User = u
	w.users = append(w.users, u)
	return u
}

// ask begins a connection, or a question of SIDR, whose consumer may lose interest.
func (w *lossy) ask(e *end) {
	r := request()
	r.Local, r.Remote = e.gid, w.other(e).gid
	w.qpn++
	r.QPN = w.qpn
	ask := e.Connect
	if w.r.IntN(5) == 0 {
		ask = e.Resolve
	}
	c := must(ask(r, w.now))
	u := w.user(c)
	u.qpn = r.QPN
	u.asks++
	if w.r.IntN(6) == 0 {
		w.later(20*time.Second, func() { c.Abandon(w.now) })
	}
}

func (w *lossy) consume(e *end, ev Event) {
	u := w.user(ev.Conn)
	c := ev.Conn
	patience := []time.Duration{1, time.Second, 40 * time.Second}[w.r.IntN(3)]
	switch ev.Type {
	case EventRequest:
		switch w.r.IntN(8) {
		case 0:
			w.later(patience, func() { c.Reject(RejConsumer, nil, nil, w.now) })
		case 1: // never
		case 2:
			c.Extend(uint8(w.r.IntN(32)), nil, w.now)
			fallthrough
		default:
			answer := reply()
			answer.QPN = u.qpn
			w.later(patience, func() { c.Accept(answer, w.now) })
		}
	case EventReply:
		if w.r.IntN(10) == 0 {
			w.later(patience, func() { c.Reject(RejConsumer, nil, nil, w.now) })
			return
		}
		w.later(patience, func() { c.Ready(nil, w.now) })
	case EventSIDRRequest:
		w.later(patience, func() { c.ReplySIDR(SIDRValid, u.qpn, 1, nil, w.now) })
	case EventEstablished:
		u.established++
		w.later(200*time.Second, func() { c.Disconnect(nil, w.now) })
	default:
		u.ended++
		if u.final == 0 || ev.Type != EventTimewaitExit {
			u.final = ev.Type
		}
	}
}

// check: every Conn has come to an end, each at most once established, and nothing is left in the managers.
func (w *lossy) check(seed uint64) {
	w.t.Helper()
	for _, u := range w.users {
		if u.established > 1 || u.c.State() != Idle || u.established == 1 && u.final != EventDisconnected {
			w.t.Fatalf("seed %d: %+v in %v", seed, u, u.c.State())
		}
	}
	w.agree(seed)
	for _, e := range []*end{w.a, w.b} {
		if n := [7]int{len(e.conns), len(e.peers), len(e.peerQPs), e.timers.Len(), e.waiting(), e.halfOpen.Len(), len(e.events)}; n != [7]int{} {
			w.t.Fatalf("seed %d: left: connections, peers, their QPs, timers, waiting, half open, events: %v", seed, n)
		}
	}
}

// agree: of each established pair, both ends name each other's QPs, and the resources are the same seen from either end.
func (w *lossy) agree(seed uint64) {
	w.t.Helper()
	byQPN := map[ib.QPN]*user{}
	for _, u := range w.users {
		byQPN[u.qpn] = u
	}
	for _, u := range w.users {
		if u.established == 0 {
			continue
		}
		v := byQPN[u.c.Peer().QPN]
		if v == nil || v.c.Peer().QPN != u.qpn || v.c.active == u.c.active {
			w.t.Fatalf("seed %d: QP %v is connected with %v, and that isn't with it", seed, u.qpn, u.c.Peer().QPN)
		}
		if a, b := u.c.Peer(), v.c.Peer(); a.InitiatorDepth != b.ResponderResources || a.ResponderResources != b.InitiatorDepth || a.PathMTU != b.PathMTU {
			w.t.Fatalf("seed %d: one end agreed on %+v, the other on %+v", seed, a, b)
		}
	}
}

// Over a network that loses, doubles and reorders messages, every connection comes to an end, both ends agree on what
// they have, and nothing is left.
func TestLossy(t *testing.T) {
	conform.Row(t, "5.11/29", "5.10/handshake", "5.10/disconnect")
	first := seeded.Given()
	established := 0
	for seed := first; seed < first+uint64(*seedsFlag); seed++ {
		w := newLossy(t, seed)
		for range 8 {
			for _, e := range []*end{w.a, w.b} {
				w.later(60*time.Second, func() { w.ask(e) })
			}
		}
		for steps := 0; w.step(); steps++ {
			if steps > 100_000 {
				t.Fatalf("seed %d: no end", seed)
			}
		}
		w.check(seed)
		for _, u := range w.users {
			established += u.established
		}
	}
	t.Logf("%d ends were established", established)
	if established < 4**seedsFlag {
		t.Error("hardly anything was connected")
	}
}

// Messages of any content do no harm: what they leave behind ends, and is no more than the configuration allows.
func FuzzReceive(f *testing.F) {
	p := newPair(&testing.T{})
	a := must(p.a.Connect(request(), p.now))
	var d Datagram
	p.a.Next(&d)
	f.Add(append([]byte{0}, d.MAD[:]...))
	for _, kind := range []mad.AttributeID{mad.AttrMRA, mad.AttrREJ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP, mad.AttrLAP, mad.AttrAPR,
		mad.AttrSIDRREQ, mad.AttrSIDRREP} {
		m := a.begin(kind)
		f.Add(append([]byte{0x60}, m...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p := newPairOf(t, Config{}, Config{MaxConns: 8, MaxKept: 3, MaxOpen: 2}, ListenOptions{Backlog: 2})
		p.a.cfg.Random, p.b.cfg.Random = count(1), count(1)
		hostile(p, in)
		if n := p.b.Conns(); n > 8+3 {
			t.Fatalf("%d connections", n)
		}
		drain(p)
	})
}

// count makes ids that a fuzzer guesses.
func count(n uint32) func() uint32 {
	return func() uint32 { n++; return n }
}

// hostile gives b, in the middle of a connection, messages that are made of in: each 257 bytes a call and a message.
func hostile(p *pair, in []byte) {
	must(p.a.Connect(request(), p.now))
	p.deliver()
	var last *Conn
	for len(in) > 0 {
		var d Datagram
		d.Local, d.Remote = gidB, gidA
		op := in[0]
		in = in[1:]
		n := copy(d.MAD[:], in)
		in = in[n:]
		p.b.Receive(&d, p.now)
		if e, ok := p.b.Event(); ok {
			last = e.Conn
		}
		if last != nil {
			consumer(last, op, p.now)
		}
		p.now = p.now.Add(Timeout(op & 31))
		p.b.Expire(p.now)
	}
}

// consumer makes one of the calls.
func consumer(c *Conn, op byte, now clock.Time) {
	switch op >> 5 {
	case 0:
		c.Accept(reply(), now)
	case 1:
		c.Reject(RejConsumer, nil, nil, now)
	case 2:
		c.Extend(op&31, nil, now)
	case 3:
		c.Established(now)
	case 4:
		c.Disconnect(nil, now)
	case 5:
		c.Abandon(now)
	case 6:
		c.ReplySIDR(SIDRValid, 1, 2, nil, now)
	}
}

// drain wants b to come to rest, but for connections that are established.
func drain(p *pair) {
	for range 1000 {
		if p.b.Deadline() == clock.Never {
			break
		}
		p.now = max(p.now, p.b.Deadline())
		p.b.Expire(p.now)
	}
	for _, c := range p.b.conns {
		if c.state != Established {
			p.t.Fatalf("left in %v", c.state)
		}
	}
	if p.b.listen.waiting != 0 {
		p.t.Fatalf("%d wait", p.b.listen.waiting)
	}
	if p.b.halfOpen.Len() != 0 {
		p.t.Fatalf("%d half open", p.b.halfOpen.Len())
	}
}
