package cm

import (
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

var (
	gidA = ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	gidB = ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}
)

const service ServiceID = 0x0000000001064853

// pair is two managers, a active and b passive, and what is between them.
type pair struct {
	t    *testing.T
	now  clock.Time
	a, b *end
	lose func(from *end, m mad.MAD) bool
	see  func(from *end, d *Datagram) // each that was sent
	log  []mad.AttributeID            // what was sent, lost or not
}

// end is one of them.
type end struct {
	*Manager
	gid    ib.GID
	listen *Listener
}

func newPair(t *testing.T) *pair { return newPairOf(t, Config{}, Config{}, ListenOptions{}) }

func newPairOf(t *testing.T, ca, cb Config, o ListenOptions) *pair {
	t.Helper()
	ca.GUID, cb.GUID = 0xa, 0xb
	p := &pair{t: t, now: clock.Time(time.Hour)}
	p.a, p.b = &end{Manager: New(ca), gid: gidA}, &end{Manager: New(cb), gid: gidB}
	p.b.listen = must(p.b.Listen(service, o))
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// request is what a asks b.
func request() Request {
	return Request{Service: service, Local: gidA, Remote: gidB, QPN: 0x11, PSN: 0x123456, ResponderResources: 8, InitiatorDepth: 4,
		RetryCount: 5, RNRRetry: 6, Private: []byte("question")}
}

func reply() Reply {
	return Reply{QPN: 0x22, PSN: 0x654321, ResponderResources: 16, InitiatorDepth: 16, RNRRetry: 7, Private: []byte("answer")}
}

// deliver delivers all that was sent, in order, until there is no more.
func (p *pair) deliver() {
	for {
		n := p.from(p.a, p.b) + p.from(p.b, p.a)
		if n == 0 {
			return
		}
	}
}

// arrived is what d is at the other end, whose P_Key table is the same.
func (d *Datagram) arrived() *Datagram {
	back := *d
	back.Local, back.Remote = d.Remote, d.Local
	return &back
}

func (p *pair) from(x, y *end) (n int) {
	var d Datagram
	for ; x.Next(&d); n++ {
		m := mad.MAD(slices.Clone(d.MAD[:]))
		p.log = append(p.log, m.Attribute())
		if d.Local != x.gid || d.Remote != y.gid {
			p.t.Fatalf("sent from %v to %v", d.Local, d.Remote)
		}
		if p.see != nil {
			p.see(x, &d)
		}
		if p.lose != nil && p.lose(x, m) {
			continue
		}
		y.Receive(d.arrived(), p.now)
	}
	return n
}

// pass lets time pass, to the deadlines on the way.
func (p *pair) pass(d time.Duration) {
	p.t.Helper()
	end := p.now.Add(d)
	for steps := 0; ; steps++ {
		p.deliver()
		next := min(p.a.Deadline(), p.b.Deadline())
		if next > end {
			p.now = end
			return
		}
		if steps > 10000 {
			p.t.Fatal("the deadlines don't end")
		}
		p.now = max(p.now, next)
		p.a.Expire(p.now)
		p.b.Expire(p.now)
	}
}

// event takes the next event, which is of that type.
func (p *pair) event(e *end, want EventType) Event {
	p.t.Helper()
	p.deliver()
	got, ok := e.Event()
	if !ok || got.Type != want {
		p.t.Fatalf("event %v (%v, private data %q), want %v", got.Type, got.Reason, got.Private, want)
	}
	return got
}

// await lets time pass until an event of that type comes.
func (p *pair) await(e *end, want EventType) Event {
	p.t.Helper()
	for p.deliver(); len(e.events) == 0; p.deliver() {
		next := min(p.a.Deadline(), p.b.Deadline())
		if next == clock.Never {
			p.t.Fatalf("%v doesn't come", want)
		}
		p.pass(next.Sub(p.now))
	}
	return p.event(e, want)
}

// quiet wants no events.
func (p *pair) quiet() {
	p.t.Helper()
	p.deliver()
	for _, m := range []*end{p.a, p.b} {
		if e, ok := m.Event(); ok {
			p.t.Fatalf("event %v (%v)", e.Type, e.Reason)
		}
	}
}

// empty waits until the managers have forgotten everything.
func (p *pair) empty() {
	p.t.Helper()
	p.pass(10 * time.Minute)
	for _, e := range []*end{p.a, p.b} {
		if n := [5]int{len(e.conns), len(e.peers), len(e.peerQPs), e.timers.Len(), e.waiting()}; n != [5]int{} {
			p.t.Fatalf("connections, peers, their QPs, timers, waiting: %v", n)
		}
	}
}

func (e *end) waiting() int {
	if e.listen == nil {
		return 0
	}
	return e.listen.waiting
}

// asked makes a ask b, and returns both ends.
func (p *pair) asked() (a, b *Conn) {
	p.t.Helper()
	a = must(p.a.Connect(request(), p.now))
	return a, p.event(p.b, EventRequest).Conn
}

// connected connects a with b.
func (p *pair) connected() (a, b *Conn) {
	p.t.Helper()
	a, b = p.asked()
	p.ok(b.Accept(reply(), p.now))
	p.event(p.a, EventReply)
	p.ok(a.Ready([]byte("ready"), p.now))
	p.event(p.a, EventEstablished)
	p.event(p.b, EventEstablished)
	return a, b
}

func (p *pair) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// state wants an end to be in a state.
func (p *pair) state(c *Conn, want State) {
	p.t.Helper()
	p.deliver()
	if c.State() != want {
		p.t.Fatalf("state %v, want %v", c.State(), want)
	}
}

// first loses the first n messages of a kind.
func first(n int, a mad.AttributeID) func(*end, mad.MAD) bool {
	return func(_ *end, m mad.MAD) bool {
		if m.Attribute() == a && n > 0 {
			n--
			return true
		}
		return false
	}
}

// sent counts the messages of a kind.
func (p *pair) sent(a mad.AttributeID) (n int) {
	p.deliver()
	for _, x := range p.log {
		if x == a {
			n++
		}
	}
	return n
}
