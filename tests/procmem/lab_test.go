package procmem

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// lab has two ports that are joined: there, whose QPs work on the memory of
// children, and here, whose QPs work on memory of this process.
type lab struct {
	t           *testing.T
	here, there *rocev2.Port
	now         clock.Time
	answers     []answer // ACKs and NAKs that here received, and the ends of responses
}

// answer is what matters of a packet that the responder sent.
type answer struct {
	To  ib.QPN
	Op  wire.Opcode
	PSN ib.PSN
	Syn wire.Syndrome
	MSN ib.MSN
}

// Received implements rocev2.Sink.
func (l *lab) Received(f *wire.Frame, v wire.Verdict) {
	var p wire.Packet
	if wire.Parse(&p, f) == wire.Accepted && !p.Opcode.Info().Request {
		l.answers = append(l.answers, answer{p.DestQP, p.Opcode, p.PSN, p.Syndrome, p.MSN})
	}
}

// Sent implements rocev2.Sink.
func (l *lab) Sent(*wire.Frame) {}

// side is one end of a connection.
type side struct {
	*rocev2.QP
	t              *testing.T
	sq             qptest.SendQueue
	rq             qptest.RecvQueue
	sends, recvs   completions
	events         []qp.Event
	mr             *mem.MR
	buf            []byte // its memory, if it is this process's
	nextID, nextRQ uint64
}

// conn is a connection from here to there.
type conn struct{ here, there *side }

type completions struct{ got []qp.Completion }

func (c *completions) Push(cs []qp.Completion) bool {
	c.got = append(c.got, cs...)
	return true
}

const (
	mtu      = 1024
	firstPSN = 0xfffff8 // of requests from here; soon it wraps
	backPSN  = 0x000100 // of requests from there
	iova     = 0x1000_0000
	access   = mem.LocalWrite | mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic
)

func psn(n int) ib.PSN { return ib.PSN(firstPSN).Add(n) }

func gid(last byte) ib.GID { return ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: last} }

func newLab(t *testing.T) *lab {
	t.Helper()
	x, y, err := rocev2.NewPair(rocev2.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, now: clock.Now()}
	l.here, l.there = l.newPort("here", 1, x), l.newPort("there", 2, y)
	t.Cleanup(l.here.Capture(l))
	return l
}

func (l *lab) newPort(name string, addr byte, link rocev2.Link) *rocev2.Port {
	l.t.Helper()
	p, err := rocev2.NewPort(rocev2.Config{Name: name, Links: []rocev2.Link{link}, Manual: true,
		Net: &rocev2.FixedNet{Addresses: []ib.GID{gid(addr)}}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			l.t.Error(err)
		}
	})
	return p
}

// connect makes a connection whose far end works on all pages of c.
func (l *lab) connect(c *child) *conn {
	l.t.Helper()
	k := &conn{l.newSide(l.here, nil), l.newSide(l.there, c)}
	l.raise(k.here, k.there.Number(), 2, firstPSN, backPSN)
	l.raise(k.there, k.here.Number(), 1, backPSN, firstPSN)
	return k
}

// newSide makes a QP with memory of the child, or of this process.
func (l *lab) newSide(p *rocev2.Port, c *child) *side {
	l.t.Helper()
	s, pd := &side{t: l.t}, new(mem.PD)
	var err error
	if c != nil {
		s.mr, err = p.Keys().Register(pd, c.proc, c.addr, iova, uint64(pages*page), access)
	} else {
		s.buf = make([]byte, pages*page)
		s.mr, err = p.Keys().Register(pd, mem.NewBytes(s.buf, iova), iova, iova, uint64(pages*page), access)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	s.QP, err = p.CreateQP(rocev2.QPInit{PD: pd, SQ: &s.sq, RQ: &s.rq, SendCQ: &s.sends, RecvCQ: &s.recvs, SigAll: true,
		Caps:    qp.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4},
		OnEvent: func(e qp.Event) { s.events = append(s.events, e) }})
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// raise takes s to RTS.
func (l *lab) raise(s *side, peer ib.QPN, addr byte, own, theirs ib.PSN) {
	l.t.Helper()
	for _, step := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, Port: 1, Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic},
			qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess},
		{qp.Attr{State: qp.RTR, AV: qp.AV{DGID: gid(addr)}, PathMTU: ib.MTU1024, DestQPN: peer, RQPSN: theirs, MaxDestRdAtomic: 8, MinRNRTimer: 1},
			qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		{qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: own, MaxRdAtomic: 8},
			qp.AttrState | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic},
	} {
		if err := s.Modify(&step.a, step.mask); err != nil {
			l.t.Fatal(err)
		}
	}
}

// post posts a request on n bytes at off, to or from the peer's memory at to.
func (s *side) post(o qp.WROpcode, off, n int, peer *side, to int) {
	s.nextID++
	s.sq.Post(&qp.SendWQE{ID: s.nextID, Opcode: o, RemoteAddr: iova + uint64(to), RKey: peer.mr.Key,
		SGEs: []qp.SGE{{Addr: iova + uint64(off), Length: uint32(n), LKey: s.mr.Key}}, CompareAdd: 1})
	s.Doorbell()
}

// recv posts a receive of n bytes at off.
func (s *side) recv(off, n int) {
	s.nextRQ++
	s.rq.Post(&qp.RecvWQE{ID: s.nextRQ, SGEs: []qp.SGE{{Addr: iova + uint64(off), Length: uint32(n), LKey: s.mr.Key}}})
}

// step lets a port run until it has nothing to do; what it sends waits for the
// other port, which so receives it as one burst.
func (l *lab) step(p *rocev2.Port) {
	l.t.Helper()
	w := p.Workers()[0]
	for range 1000 {
		if !w.Step(l.now) && w.Deadline() > l.now {
			return
		}
	}
	l.t.Fatal("a port is never done")
}

// settle runs both ports until neither has anything to do.
func (l *lab) settle() {
	l.t.Helper()
	for range 100 {
		l.step(l.there)
		l.step(l.here)
	}
}

// wantStatuses says how a queue's work requests have ended: in order, once each.
func (s *side) wantStatuses(what string, cs []qp.Completion, want ...qp.WCStatus) {
	s.t.Helper()
	var got []qp.WCStatus
	for i, c := range cs {
		if c.ID != uint64(i+1) {
			s.t.Fatalf("%s: completion %d is of work request %d", what, i, c.ID)
		}
		got = append(got, c.Status)
	}
	if d := cmp.Diff(want, got); d != "" {
		s.t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (s *side) wantEvents(want ...qp.Event) {
	s.t.Helper()
	if d := cmp.Diff(want, s.events); d != "" {
		s.t.Fatalf("events (-want +got):\n%s", d)
	}
}

// wantNAK says what the last answer to a QP must be.
func (l *lab) wantNAK(k *conn, s wire.Syndrome, psn ib.PSN, msn ib.MSN) {
	l.t.Helper()
	var last answer
	naks := 0
	for _, a := range l.answers {
		if a.To == k.here.Number() {
			last = a
			if a.Op == wire.RCAck && !a.Syn.IsAck() {
				naks++
			}
		}
	}
	want := answer{k.here.Number(), wire.RCAck, psn, s, msn}
	if last != want || naks != 1 {
		l.t.Fatalf("the last answer is %+v, want %+v; %d NAKs, want 1", last, want, naks)
	}
}

func (k *conn) wantStates(want qp.State) {
	k.here.t.Helper()
	if h, t := k.here.Query().State, k.there.Query().State; h != want || t != want {
		k.here.t.Fatalf("states %v here, %v there, want %v", h, t, want)
	}
}

// fill puts n random-looking bytes at off of a side's own memory.
func (s *side) fill(off, n int) []byte {
	b := s.buf[off : off+n]
	for i := range b {
		b[i] = byte((off + i) * 131 >> 3)
	}
	return b
}

// repeat returns n times v, and then more.
func repeat(n int, v qp.WCStatus, more ...qp.WCStatus) (s []qp.WCStatus) {
	for range n {
		s = append(s, v)
	}
	return append(s, more...)
}
