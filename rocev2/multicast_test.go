package rocev2

import (
	"fmt"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// theGroup is the one that the tests use.
var theGroup = gid("239.1.2.3")

// attached makes n datagram QPs, on the workers in turn, that are in theGroup.
func attached(t testing.TB, p *Port, n int) (list []*endpoint) {
	t.Helper()
	for range n {
		e := newDatagrams(t, p, 0)
		if err := e.AttachMcast(theGroup, 0); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// came checks that what completed at e are the receives of ids, with n bytes of a
// datagram to theGroup each.
func (e *endpoint) came(t testing.TB, from ib.QPN, n int, ids ...uint64) {
	t.Helper()
	cs := e.cq.take()
	if len(cs) != len(ids) {
		t.Fatalf("%d datagrams came, want %d: %+v", len(cs), len(ids), cs)
	}
	for i, c := range cs {
		if c.ID != ids[i] || c.Status != qp.Success || c.ByteLen != uint32(qp.GRHLen+n) || c.SrcQP != from || c.Flags != qp.WCGRH {
			t.Errorf("datagram %d: %+v, want receive %d, %d bytes from %v", i, c, ids[i], n, from)
		}
	}
}

// verdicts returns what a Port has counted since before.
func verdicts(p *Port, before [wire.NumVerdicts]uint64) map[wire.Verdict]uint64 {
	m := map[wire.Verdict]uint64{}
	for v, n := range p.Drops() {
		if n > before[v] {
			m[wire.Verdict(v)] = n - before[v]
		}
	}
	return m
}

// wantVerdicts checks them, and that each copy has one.
func wantVerdicts(t testing.TB, p *Port, want map[wire.Verdict]uint64) {
	t.Helper()
	got := verdicts(p, [wire.NumVerdicts]uint64{})
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: verdicts %v, want %v", p.Name(), got, want)
	}
	var sum uint64
	for _, n := range got {
		sum += n
	}
	if c := p.Counters(); sum != c.RcvdPkts-c.MulticastRcvd+c.MulticastCopies {
		t.Errorf("%s: %d verdicts for %d packets, %d of them to groups, with %d copies", p.Name(), sum, c.RcvdPkts, c.MulticastRcvd, c.MulticastCopies)
	}
}

// Each member gets one copy, on whichever worker it lives and whichever queue the
// packet came by. Who has posted no receive, or has another Q_Key, gets none, and
// takes none from others.
func TestMulticast(t *testing.T) {
	conform.Row(t, "bug/57", "5.6/multicast-qpn")
	a, b := newCrossed(t, true, PairOptions{})
	x := newDatagrams(t, a, 0)
	members := attached(t, b, 6)
	bystander := newDatagrams(t, b, 0)
	slow, other := members[2], members[3]
	if err := other.Modify(&qp.Attr{QKey: dgramKey + 1}, qp.AttrQKey); err != nil {
		t.Fatal(err)
	}
	for i, e := range append(members, bystander) {
		if e != slow {
			e.recv(uint64(i), 0, 2000)
		}
	}
	fill(x.buf, 1)
	x.sendTo(9, ahTo(t, a, theGroup), ib.QPNMulticast, 1000)
	settle(t, 1, nil, a, b)
	wantCompletions(t, &x.cq, 9)
	for i, e := range members {
		if e == slow || e == other {
			e.came(t, x.Number(), 1000)
			continue
		}
		e.came(t, x.Number(), 1000, uint64(i))
		wantSame(t, "copy", x.buf[:1000], e.buf[qp.GRHLen:][:1000])
		if grh := e.buf[:qp.GRHLen]; [4]byte(grh[32:]) != [4]byte{10, 0, 0, 1} || [4]byte(grh[36:]) != [4]byte{239, 1, 2, 3} {
			t.Errorf("GRH % x", grh)
		}
	}
	bystander.came(t, x.Number(), 1000)
	wantVerdicts(t, b, map[wire.Verdict]uint64{wire.Accepted: 4, wire.DropRNR: 1, wire.DropQKey: 1})
	for _, p := range []*Port{a, b} {
		if n := framesOut(p); n != 0 {
			t.Errorf("%d frames did not come back", n)
		}
	}
}

// What a sender's own port has of members gets copies, too, the sender among
// them unless it doesn't want that.
func TestMulticastLoopback(t *testing.T) {
	conform.Row(t, "bug/57")
	for _, block := range []bool{false, true} {
		a, b := newCrossed(t, true, PairOptions{})
		far, near := attached(t, b, 2), attached(t, a, 4)
		x := near[1]
		x.blockSelf = block
		for _, e := range append(far, near...) {
			for i := range uint64(3) {
				e.recv(i, 4096, 2000)
			}
		}
		fill(x.buf, 1)
		for i := range uint64(3) {
			x.sendTo(10+i, ahTo(t, a, theGroup), ib.QPNMulticast, 700)
		}
		settle(t, 1, nil, a, b)
		for _, e := range append(far, near...) {
			if e != x {
				e.came(t, x.Number(), 700, 0, 1, 2)
				wantSame(t, "copy", x.buf[:700], e.buf[4096+qp.GRHLen:][:700])
			}
		}
		cs := x.cq.take()
		own := slices.DeleteFunc(slices.Clone(cs), func(c qp.Completion) bool { return c.Opcode == qp.WCSend })
		if want := map[bool]int{false: 3, true: 0}[block]; len(own) != want || len(cs) != want+3 {
			t.Errorf("blocking %v: the sender has completions %+v", block, cs)
		}
		wantVerdicts(t, a, map[wire.Verdict]uint64{wire.Accepted: uint64(9 + len(own))})
		for _, p := range []*Port{a, b} {
			if n := framesOut(p); n != 0 {
				t.Errorf("%d frames did not come back", n)
			}
		}
	}
}

// Who is alone in a group and doesn't want its own gets nothing, and nothing is
// copied for it.
func TestMulticastOfOneself(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	x := attached(t, a, 1)[0]
	x.blockSelf = true
	x.recv(1, 0, 100)
	x.sendTo(2, ahTo(t, a, theGroup), ib.QPNMulticast, 8)
	settle(t, 1, nil, a, b)
	wantCompletions(t, &x.cq, 2)
	wantVerdicts(t, a, map[wire.Verdict]uint64{})
	wantVerdicts(t, b, map[wire.Verdict]uint64{wire.DropNoMember: 1})
}

// A datagram whose memory is gone is sent neither to others nor to the own port.
func TestMulticastVoid(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	list := append(attached(t, a, 2), attached(t, b, 1)...)
	for _, e := range list {
		e.recv(1, 0, 100)
	}
	x := list[0]
	x.sq.Post(&qp.SendWQE{ID: 5, Opcode: qp.WRSend, SGEs: []qp.SGE{{Addr: 0, Length: 8, LKey: x.mr.Key + 1}},
		AH: ahTo(t, a, theGroup).Handle(), RemoteQPN: ib.QPNMulticast, RemoteQKey: dgramKey})
	x.Doorbell()
	settle(t, 1, nil, a, b)
	if cs := x.cq.take(); len(cs) != 1 || cs[0].Status != qp.LocProtErr {
		t.Errorf("completions %+v", cs)
	}
	for _, p := range []*Port{a, b} {
		if n := p.Counters().RcvdPkts + uint64(framesOut(p)); n != 0 {
			t.Errorf("%s: %d packets came or are out", p.Name(), n)
		}
	}
}

// A datagram that is too long for the interface is lost with its copy, and takes
// nothing with it.
func TestMulticastTooLong(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	list := append(attached(t, a, 2), attached(t, b, 1)...)
	for _, e := range list {
		e.recv(1, 4096, 2000)
		e.recv(2, 4096, 2000)
	}
	x, w := list[0], list[0].worker
	x.blockSelf = true
	longest := w.longest
	w.longest = 600
	x.sendTo(10, ahTo(t, a, theGroup), ib.QPNMulticast, 700)
	x.sendTo(11, ahTo(t, a, theGroup), ib.QPNMulticast, 100)
	settle(t, 1, nil, a, b)
	w.longest = longest
	for _, e := range list[1:] {
		e.came(t, x.Number(), 100, 1)
	}
	if n := framesOut(a) + framesOut(b); n != 0 {
		t.Errorf("%d frames did not come back", n)
	}
}

// A packet for QP 0xffffff must be to a group, and one to a group for QP 0xffffff
// (IBA 9.6.1).
func TestMulticastHeaders(t *testing.T) {
	conform.Row(t, "5.6/multicast-qpn")
	p := newPeer(t)
	e := attached(t, p.port, 1)[0]
	rc := newTyped(t, p.port, qp.RC)
	e.recv(1, 0, 100)
	own, unknown, six := p.flow.Dst, gid("239.1.2.4"), gid("ff0e::1")
	now := clock.Time(1)
	for _, c := range []struct {
		to   ib.GID
		h    wire.Header
		want wire.Verdict
	}{
		{own, wire.Header{DestQP: ib.QPNMulticast}, wire.DropAddress},
		{theGroup, wire.Header{DestQP: e.Number()}, wire.DropAddress},
		{theGroup, wire.Header{DestQP: rc.Number(), Opcode: wire.RCSendOnly, PSN: 100}, wire.DropAddress},
		{theGroup, wire.Header{DestQP: 0x777777}, wire.DropNoQP},
		{unknown, wire.Header{DestQP: ib.QPNMulticast}, wire.DropNoMember},
		{six, wire.Header{DestQP: ib.QPNMulticast}, wire.DropNoMember},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast, QKey: 1}, wire.DropQKey},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast, PKey: 0x8001}, wire.DropPKey},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast, Opcode: wire.RCSendOnly}, wire.DropTransport},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast, Opcode: wire.CongestionNotify}, wire.DropCNP},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast}, wire.Accepted},
		{theGroup, wire.Header{DestQP: ib.QPNMulticast}, wire.DropRNR},
	} {
		if c.h.Opcode == 0 && c.want != wire.DropTransport {
			c.h.Opcode = wire.UDSendOnly
		}
		if c.h.PKey == 0 {
			c.h.PKey = ib.PKeyDefault
		}
		if c.h.QKey == 0 {
			c.h.QKey = dgramKey
		}
		p.flow.Dst, p.flow.Src = c.to, gid("10.0.0.1")
		if !c.to.Is4() {
			p.flow.Src = gid("fd00::1")
		}
		before := p.port.Drops()
		n := 8
		if c.h.Opcode == wire.CongestionNotify {
			n = 0
		}
		p.send(c.h, n, nil)
		now = settle(t, now, nil, p.port)
		if got := verdicts(p.port, before); len(got) != 1 || got[c.want] != 1 {
			t.Errorf("to %v, %+v: %v, want %v", c.to, c.h, got, c.want)
		}
	}
}

// Who sends to a group names QP 0xffffff, and who names it sends to a group.
func TestMulticastPosts(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	for _, c := range []struct {
		to ib.GID
		n  ib.QPN
	}{{theGroup, 5}, {b.GIDs()[0], ib.QPNMulticast}} {
		x := newDatagrams(t, a, 0)
		x.sendTo(1, ahTo(t, a, c.to), c.n, 8)
		settle(t, 1, nil, a, b)
		if cs := x.cq.take(); len(cs) != 1 || cs[0].Status != qp.LocQPOpErr || x.Query().State != qp.SQE {
			t.Errorf("QP %v at %v: %+v", c.n, c.to, cs)
		}
	}
	if n := b.Counters().RcvdPkts; n != 0 {
		t.Errorf("%d packets came", n)
	}
}

// verdictsOf is a Sink that keeps the verdicts.
type verdictsOf struct{ got []wire.Verdict }

func (s *verdictsOf) Received(_ *wire.Frame, v wire.Verdict) { s.got = append(s.got, v) }
func (s *verdictsOf) Sent(*wire.Frame)                       {}

// A capture has a packet once, accepted if anyone took it, else with a reason.
func TestMulticastCapture(t *testing.T) {
	for _, c := range []struct {
		takes int // of four members, on two workers
		want  wire.Verdict
	}{{0, wire.DropRNR}, {1, wire.Accepted}, {2, wire.Accepted}, {4, wire.Accepted}} {
		a, b := newCrossed(t, true, PairOptions{})
		x := newDatagrams(t, a, 0)
		s := new(verdictsOf)
		defer b.Capture(s)()
		for i, e := range attached(t, b, 4) {
			if i < c.takes {
				e.recv(1, 0, 100)
			}
		}
		x.sendTo(1, ahTo(t, a, theGroup), ib.QPNMulticast, 8)
		settle(t, 1, nil, a, b)
		if len(s.got) != 1 || s.got[0] != c.want {
			t.Errorf("%d members take it: %v, want %v", c.takes, s.got, c.want)
		}
	}
}

func TestMulticastDoesNotAllocate(t *testing.T) {
	a, b := newCrossed(t, true, PairOptions{})
	members := append(attached(t, b, 4), attached(t, a, 4)...)
	x := members[4]
	h := ahTo(t, a, theGroup)
	now := clock.Time(1)
	wqe := &qp.SendWQE{Opcode: qp.WRSend, SGEs: x.sge(0, 500), AH: h.Handle(), RemoteQPN: ib.QPNMulticast, RemoteQKey: dgramKey}
	rqe := make([]*qp.RecvWQE, len(members))
	for i, e := range members {
		rqe[i] = &qp.RecvWQE{SGEs: e.sge(0, 1000)}
		e.cq.cs = make([]qp.Completion, 0, 64)
	}
	step := func() {
		for i, e := range members {
			e.rq.Post(rqe[i])
			e.cq.cs = e.cq.cs[:0]
		}
		x.sq.Post(wqe)
		x.Doorbell()
		for range 4 {
			now += 1000
			for _, p := range []*Port{a, b} {
				for _, w := range p.Workers() {
					w.Step(now)
				}
			}
		}
	}
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations a datagram", n)
	}
	for i, e := range members {
		if got, want := len(e.cq.cs), map[bool]int{true: 2, false: 1}[e == x]; got != want {
			t.Errorf("member %d: %d completions in the last round, want %d", i, got, want)
		}
	}
}
