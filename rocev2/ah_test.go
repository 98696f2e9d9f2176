package rocev2

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// neighbours is a Net that knows some next hops.
type neighbours struct {
	FixedNet
	mu     sync.Mutex
	known  map[ib.GID]bool
	gone   error // why there is no way at all
	notify func()
}

func (n *neighbours) Notify(f func()) { n.notify = f }

func (n *neighbours) Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (wire.Flow, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, _, err := n.FixedNet.Resolve(sgid, vlan, dgid)
	return f, n.known[dgid], errors.Join(err, n.gone)
}

func (n *neighbours) Known(_ ib.GID, _ uint16, dgid ib.GID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[dgid]
}

// learn makes the next hop to g known.
func (n *neighbours) learn(g ib.GID) {
	n.mu.Lock()
	n.known[g] = true
	n.mu.Unlock()
	n.notify()
}

const dgramKey = 0x77

// newDatagrams makes a UD QP in RTS.
func newDatagrams(t testing.TB, p *Port, number ib.QPN) *endpoint {
	t.Helper()
	e := &endpoint{port: p, buf: make([]byte, 1<<14)}
	pd := new(mem.PD)
	var err error
	e.mr, err = p.Keys().Register(pd, mem.NewBytes(e.buf, 0), 0, 0, uint64(len(e.buf)), mem.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	e.QP, err = p.CreateQP(QPInit{Type: qp.UD, Number: number, PD: pd, SQ: &e.sq, RQ: &e.rq, SendCQ: &e.cq, RecvCQ: &e.cq,
		Caps: qp.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}, SigAll: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Destroy)
	for _, s := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, Port: 1, QKey: dgramKey}, qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey},
		{qp.Attr{State: qp.RTR}, qp.AttrState}, {qp.Attr{State: qp.RTS, SQPSN: 100}, qp.AttrState | qp.AttrSQPSN},
	} {
		if err := e.Modify(&s.a, s.mask); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// sendTo posts a datagram.
func (e *endpoint) sendTo(id uint64, a *AH, to ib.QPN, n int) {
	e.sq.Post(&qp.SendWQE{ID: id, Opcode: qp.WRSend, SGEs: e.sge(0, n), AH: a.Handle(), RemoteQPN: to, RemoteQKey: dgramKey})
	e.Doorbell()
}

func ahTo(t testing.TB, p *Port, g ib.GID) *AH {
	t.Helper()
	a, err := p.CreateAH(qp.AV{DGID: g})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A next hop that isn't known holds up what goes there, and nothing else.
func TestDatagramsWaitForTheirNextHop(t *testing.T) {
	l, far, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known, unknown, never := gid("10.0.0.2"), gid("10.0.0.3"), gid("10.0.0.4")
	net := &neighbours{FixedNet: FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}, Tags: []uint16{5}}, known: map[ib.GID]bool{known: true}}
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: net, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, c := range []struct {
		av    qp.AV
		known bool
		fails bool
	}{{qp.AV{DGID: known}, true, false}, {qp.AV{DGID: unknown}, false, false}, {qp.AV{DGID: net.Addresses[0]}, true, false}, {qp.AV{DGID: gid("fe80::1")}, false, true}} {
		for _, ask := range []bool{false, true} {
			if is, err := p.NextHopKnown(c.av, ask); is != c.known || c.fails != (err != nil) {
				t.Errorf("%v, asked %v: %v, %v", c.av.DGID, ask, is, err)
			}
		}
	}
	e := newDatagrams(t, p, 0)
	now := clock.Time(1)
	// arrived returns the destinations of what was sent.
	arrived := func() (to []ib.GID) {
		var f [8]RxFrame
		for n := far.Recv(f[:]); n > 0; n = far.Recv(f[:]) {
			for i := range f[:n] {
				var pkt wire.Packet
				if v := wire.Parse(&pkt, &f[i].Frame); v != wire.Accepted || pkt.VLAN != 5 || pkt.QKey != dgramKey || pkt.SrcQP != e.Number() {
					t.Fatalf("%v: %+v", v, pkt.Header)
				}
				to = append(to, pkt.DstGID())
			}
			far.Release(f[:n])
		}
		return to
	}
	step := func() {
		for p.Workers()[0].Step(now) {
			now++
		}
	}
	for i, g := range []ib.GID{unknown, known, never, known, unknown} {
		e.sendTo(uint64(i), ahTo(t, p, g), 9, 8)
	}
	step()
	if got := arrived(); len(got) != 2 || got[0] != known || got[1] != known {
		t.Fatalf("sent to %v, want twice to %v", got, known)
	}
	if n := e.cq.len(); n != 0 {
		t.Fatalf("%d completions before the first is sent", n)
	}
	net.learn(unknown)
	step()
	if got := arrived(); len(got) != 2 || got[0] != unknown || got[1] != unknown {
		t.Fatalf("sent to %v, want twice to %v", got, unknown)
	}
	wantCompletions(t, &e.cq, 0, 1)
	now = now.Add(time.Second)
	step()
	wantCompletions(t, &e.cq, 2, 3, 4)
	if got := arrived(); len(got) != 0 {
		t.Errorf("sent to %v", got)
	}
	if n := p.Counters().Unsent; n != 1 {
		t.Errorf("%d unsent, want 1", n)
	}
	net.gone = errors.New("no route to host")
	if _, err := p.CreateAH(qp.AV{DGID: known}); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("without a route: %v", err)
	}
}

// Datagrams to this port and to others alternate between the loop and the wire.
func TestDatagramsCrossSides(t *testing.T) {
	a, b := newPorts(t, true, 2, PairOptions{})
	x, own, other := newDatagrams(t, a, 0), newDatagrams(t, a, 0), newDatagrams(t, b, 0)
	here, there := ahTo(t, a, a.GIDs()[0]), ahTo(t, a, b.GIDs()[0])
	var ids []uint64
	for i := range uint64(20) {
		own.recv(i, 0, 100)
		other.recv(i, 0, 100)
	}
	for i := range uint64(20) {
		x.sendTo(2*i, here, own.Number(), 8)
		x.sendTo(2*i+1, there, other.Number(), 8)
		ids = append(ids, 2*i, 2*i+1)
	}
	settle(t, 1, nil, a, b)
	wantCompletions(t, &x.cq, ids...)
	for _, e := range []*endpoint{own, other} {
		cs := e.cq.take()
		if len(cs) != 20 {
			t.Fatalf("%d messages came, want 20", len(cs))
		}
		for i, c := range cs {
			if c.ID != uint64(i) || c.ByteLen != 48 || c.SrcQP != x.Number() || c.Flags != qp.WCGRH {
				t.Errorf("message %d: %+v", i, c)
			}
		}
	}
}

// Each drop of a datagram has its counter.
func TestDatagramDrops(t *testing.T) {
	p := newPeer(t)
	e := newDatagrams(t, p.port, 0)
	good := wire.Header{Opcode: wire.UDSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), QKey: dgramKey, SrcQP: 9}
	now := clock.Time(1)
	for _, c := range []struct {
		want wire.Verdict
		do   func()
	}{
		{wire.DropRNR, func() { p.send(good, 8, nil) }},
		{wire.DropTooLong, func() { e.recv(1, 0, 47); p.send(good, 8, nil) }},
		{wire.DropQKey, func() { h := good; h.QKey++; p.send(h, 4, nil) }},
		{wire.DropPKey, func() { h := good; h.PKey = 0x8001; p.send(h, 4, nil) }},
		{wire.DropTransport, func() { h := good; h.Opcode = wire.RCSendOnly; p.send(h, 4, nil) }},
		{wire.DropAddress, func() {
			right := p.flow
			p.flow.Dst = gid("10.0.0.9")
			p.send(good, 4, nil)
			p.flow = right
		}},
		{wire.Accepted, func() { p.flow.Src = gid("10.0.0.77"); p.send(good, 7, nil) }}, // from anyone
	} {
		before := p.port.Drops()
		c.do()
		now = settle(t, now, nil, p.port)
		after := p.port.Drops()
		if after[c.want] != before[c.want]+1 {
			t.Errorf("no packet counted as %v", c.want)
		}
	}
	if cs := e.cq.take(); len(cs) != 1 || cs[0].ByteLen != 47 {
		t.Errorf("completions %+v", cs)
	}
}

func TestOneOwnerOfQP1(t *testing.T) {
	a, _ := newPorts(t, true, 2, PairOptions{})
	init := QPInit{Type: qp.GSI, PD: new(mem.PD), SQ: new(qptest.SendQueue), RQ: new(qptest.RecvQueue), SendCQ: new(compQueue), RecvCQ: new(compQueue)}
	q, err := a.CreateQP(init)
	if err != nil || q.Number() != 1 {
		t.Fatalf("%v, %v", q, err)
	}
	if _, err := a.CreateQP(init); !errors.Is(err, ErrGSIOwned) {
		t.Errorf("a second one: %v", err)
	}
	q.Destroy()
	if q, err = a.CreateQP(init); err != nil || q.Number() != 1 {
		t.Errorf("after the first: %v, %v", q, err)
	}
	init.Type = 9
	if _, err := a.CreateQP(init); err == nil || !strings.Contains(err.Error(), "want RC, UC, UD or GSI") {
		t.Errorf("no type: %v", err)
	}
}

// Without a flow label each address handle has a source port of its own, and
// with one that of the label.
func TestSourcePortsOfDatagrams(t *testing.T) {
	seen := map[uint16]bool{}
	for i := range uint32(1000) {
		p := spread(0, i)
		if p < 0xc000 {
			t.Fatalf("source port %#x", p)
		}
		seen[p] = true
	}
	if len(seen) < 900 {
		t.Errorf("%d different ports for 1000 handles", len(seen))
	}
	for label, want := range map[uint32]uint16{0x12345: 0xe341, 0xfffff: 0xffc0} {
		if got := spread(label, 1); got != want {
			t.Errorf("flow label %#x: source port %#x, want %#x", label, got, want)
		}
	}
}

// What an MTU that changes allows.
func TestDatagramsFollowTheMTU(t *testing.T) {
	l, far, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	net := &neighbours{FixedNet: FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}, LinkMTU: 1500}, known: map[ib.GID]bool{gid("10.0.0.2"): true}}
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: net, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e := newDatagrams(t, p, 0)
	a := ahTo(t, p, gid("10.0.0.2"))
	for i, c := range []struct{ mtu, sent int }{{1500, 0}, {9000, 1}, {1500, 0}} {
		net.LinkMTU = c.mtu
		net.notify()
		before := p.Counters().SentPkts
		e.sendTo(uint64(i), a, 9, 2048)
		settle(t, clock.Time(1+i), func() bool { return e.cq.len() > i }, p)
		if got := p.Counters().SentPkts - before; got != uint64(c.sent) {
			t.Errorf("MTU %d: %d packets of 2048 bytes sent, want %d", c.mtu, got, c.sent)
		}
	}
}

func TestDatagramsDoNotAllocate(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	var ring wqeRing
	var cq countQueue
	rq := new(recvRing)
	x, y := newDatagrams(t, a, 0), newDatagrams(t, b, 0)
	x.Destroy()
	y.Destroy()
	ah := ahTo(t, a, b.GIDs()[0])
	var err error
	if x.QP, err = a.CreateQP(QPInit{Type: qp.UD, PD: x.mr.PD, SQ: &ring, RQ: &x.rq, SendCQ: &cq, RecvCQ: &cq, Caps: qp.Caps{MaxSendWR: 16}}); err != nil {
		t.Fatal(err)
	}
	if y.QP, err = b.CreateQP(QPInit{Type: qp.UD, PD: y.mr.PD, SQ: &y.sq, RQ: rq, SendCQ: &cq, RecvCQ: &cq, Caps: qp.Caps{MaxRecvWR: 16}}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*QP{x.QP, y.QP} {
		for _, s := range []qp.State{qp.Init, qp.RTR, qp.RTS} {
			mask := map[qp.State]qp.AttrMask{qp.Init: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey, qp.RTS: qp.AttrSQPSN}[s]
			if err := q.Modify(&qp.Attr{State: s, Port: 1, QKey: dgramKey}, mask|qp.AttrState); err != nil {
				t.Fatal(err)
			}
		}
	}
	rq.wqe.SGEs, rq.filled = y.sge(0, 2000), true
	for range 16 {
		ring.wqes = append(ring.wqes, qp.SendWQE{Opcode: qp.WRSend, SGEs: x.sge(0, 1000), AH: ah.Handle(), RemoteQPN: y.Number(), RemoteQKey: dgramKey})
	}
	defer func() { rq.filled = false }()
	now := clock.Time(1)
	run := func() {
		ring.posted += 16
		x.Doorbell()
		for end := cq.ok + 16; cq.ok < end; {
			now++
			if !a.Workers()[0].Step(now) && !b.Workers()[0].Step(now) {
				t.Fatalf("nothing happens any more: %d of %d", cq.ok, end)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("%v allocations in 16 datagrams", n)
	}
}

// recvRing is a receive queue that never runs dry once it is filled.
type recvRing struct {
	wqe    qp.RecvWQE
	filled bool
}

func (r *recvRing) Next() *qp.RecvWQE {
	if !r.filled {
		return nil
	}
	return &r.wqe
}

func (r *recvRing) Retire(*qp.RecvWQE) {}
