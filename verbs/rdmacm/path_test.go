package rdmacm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

// sent is what a test looks at of a packet.
type sent struct {
	cm        bool
	pkey      ib.PKey
	srcPort   uint16
	flowLabel uint32
	tclass    uint8
}

// tap keeps what a port sends; it is a rocev2.Sink.
type tap struct {
	mu  sync.Mutex
	all []sent
}

func (*tap) Received(*wire.Frame, wire.Verdict) {}

func (x *tap) Sent(f *wire.Frame) {
	var p wire.Packet
	if wire.Parse(&p, &wire.Frame{Frag: [2][]byte{bytes.Join(f.Frag[:], nil)}}) != wire.Accepted {
		return
	}
	s := sent{cm: p.DestQP == ib.QPNGeneralServices, pkey: p.PKey, srcPort: p.SrcPort, tclass: p.IPHeader()[1]}
	if p.IPv6 {
		word := binary.BigEndian.Uint32(p.IPHeader())
		s.flowLabel, s.tclass = word&0xfffff, uint8(word>>20)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, s)
}

// want says which of the packets so far aren't as they should be, and that there are some of QP1 and others.
func (x *tap) want(t *testing.T, who string, right func(sent) bool) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	n := map[bool]int{}
	for _, s := range x.all {
		n[s.cm]++
		if !right(s) {
			t.Errorf("%s sent %+v", who, s)
		}
	}
	if n[true] == 0 || n[false] == 0 {
		t.Errorf("%s sent %d packets of QP1, and %d others", who, n[true], n[false])
	}
}

// newPairOf is newPair of ports as they are configured, whose links and names it makes; and what each sends.
func newPairOf(t *testing.T, ca, cb rocev2.Config) (a, b *side, sentA, sentB *tap) {
	t.Helper()
	la, lb := must2(rocev2.NewPair(rocev2.PairOptions{}))
	open := func(name string, c rocev2.Config, l rocev2.Link, last byte) (*side, *tap) {
		c.Name, c.Links = name, []rocev2.Link{l}
		if c.Net == nil {
			c.Net = &rocev2.FixedNet{Addresses: []ib.GID{{0xfe, 0x80, 15: last}, gidOf(netip.AddrFrom4([4]byte{192, 0, 2, last}))}}
		}
		p := must(rocev2.NewPort(c))
		x := &tap{}
		p.Capture(x)
		d := verbs.OpenPort(p, verbs.Options{NodeGUID: ib.GUID(last)})
		t.Cleanup(func() { d.Close(); ended(t, d) })
		return newSide(t, d), x
	}
	a, sentA = open("a", ca, la, 1)
	b, sentB = open("b", cb, lb, 2)
	return a, b, sentA, sentB
}

func must2[T, U any](x T, y U, err error) (T, U) { must(x, err); return x, y }

// send has data go from one end to the other.
func send(t *testing.T, a, b *side, wr verbs.SendWR, q *verbs.QP) {
	t.Helper()
	wr.Opcode, wr.Flags, wr.InlineData = verbs.OpSend, verbs.Signaled, []byte("data")
	must(q.PostSend(wr))
	if wc := a.wait(); wc.Status != verbs.Success {
		t.Fatalf("sent: %v", wc.Status)
	}
	if wc := b.wait(); wc.Status != verbs.Success {
		t.Fatalf("received: %v", wc.Status)
	}
}

var (
	pkeysA = ib.PKeyTable{0xffff, 0x8001, 0x0002}
	pkeysB = ib.PKeyTable{0x8002, 0xffff, 0x8001}
)

// A connection, and all messages about it, are in the partition that Dial names, by the P_Key that either end has there.
func TestPartition(t *testing.T) {
	for indexA, indexB := range []uint16{1, 2, 0} {
		a, b, sentA, sentB := newPairOf(t, rocev2.Config{PKeys: pkeysA}, rocev2.Config{PKeys: pkeysB})
		l := must(Listen(b.dev, netip.AddrPort{}, ListenOptions{PKey: pkeysB[indexB]}))
		qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
		accepted := serve(t, l, Options{QP: qb})
		dial := DialOptions{Options: Options{QP: qa, Connect: verbs.ConnectOptions{PKeyIndex: uint16(indexA)}}}
		ca, err := Dial(ctx(t), a.dev, b.addr(true, l.Addr().Port()), dial)
		if err != nil {
			t.Fatal(err)
		}
		cb := <-accepted
		send(t, a, b, verbs.SendWR{}, qa)
		send(t, b, a, verbs.SendWR{}, qb)
		if x, y := must(qa.Query()).PKeyIndex, must(qb.Query()).PKeyIndex; int(x) != indexA || y != indexB {
			t.Errorf("QPs with P_Key indices %d and %d, want %d and %d", x, y, indexA, indexB)
		}
		if err := ca.Disconnect(ctx(t), nil); err != nil {
			t.Error(err)
		}
		sentA.want(t, "a", func(s sent) bool { return s.pkey == pkeysA[indexA] })
		sentB.want(t, "b", func(s sent) bool { return s.pkey == pkeysB[indexB] })
		for _, e := range []error{ca.Close(), cb.Close(), l.Close()} {
			if e != nil {
				t.Error(e)
			}
		}
	}
}

// A listener of one partition hears nothing of another; and a partition that isn't the port's can't be asked for.
func TestOtherPartition(t *testing.T) {
	a, b, _, _ := newPairOf(t, rocev2.Config{PKeys: pkeysA}, rocev2.Config{PKeys: pkeysB})
	l := must(Listen(b.dev, b.addr(true, 7777), ListenOptions{PKey: 0xffff}))
	defer l.Close()
	u := must(ListenUD(b.dev, b.addr(true, 7777), ListenOptions{PKey: 0xffff}))
	defer u.Close()
	dial := func(index uint16) error {
		_, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC), Connect: verbs.ConnectOptions{PKeyIndex: index}}})
		return err
	}
	resolve := func(index uint16) error {
		_, err := ResolveUD(ctx(t), a.dev, l.Addr(), ResolveOptions{PKeyIndex: index})
		return err
	}
	var r *RejectedError
	if err := dial(1); !errors.As(err, &r) || r.Reason != InvalidServiceID {
		t.Errorf("dial in another partition: %v", err)
	}
	if err := resolve(1); !errors.As(err, &r) || r.Status != cm.SIDRUnsupportedService {
		t.Errorf("resolve in another partition: %v", err)
	}
	for _, err := range []error{dial(3), resolve(3)} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("P_Key index 3: %v", err)
		}
	}
	if _, err := Listen(b.dev, b.addr(true, 0), ListenOptions{PKey: 0x8003}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("listen in partition 3: %v", err)
	}
}

// Datagrams, too, are in the partition that was asked in. A QP that isn't there can't be told.
func TestDatagramPartition(t *testing.T) {
	a, b, sentA, sentB := newPairOf(t, rocev2.Config{PKeys: pkeysA}, rocev2.Config{PKeys: pkeysB})
	l := must(ListenUD(b.dev, b.addr(true, 0), ListenOptions{}))
	defer l.Close()
	ud := func(s *side, index uint16) *verbs.QP {
		q := s.qp(verbs.UD)
		if err := errors.Join(q.Modify(verbs.QPAttr{State: verbs.StateInit, PKeyIndex: index}, verbs.AttrState|verbs.AttrPKeyIndex), q.Start(verbs.ConnectOptions{})); err != nil {
			t.Fatal(err)
		}
		return q
	}
	qa, qb := ud(a, 1), ud(b, 2)
	go func() {
		r := must(l.Accept(ctx(t)))
		if err := r.AcceptUD(ud(b, 1), QKeyUDP, nil); r.PKeyIndex() != 2 || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("asked in the partition of index %d; a QP of index 1: %v", r.PKeyIndex(), err)
		}
		if err := r.AcceptUD(qb, QKeyUDP, nil); err != nil {
			t.Error(err)
		}
	}()
	d, err := ResolveUD(ctx(t), a.dev, l.Addr(), ResolveOptions{PKeyIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	send(t, a, b, verbs.SendWR{AH: must(a.pd.CreateAH(d.AV)), RemoteQPN: d.QPN, RemoteQKey: d.QKey}, qa)
	d.AV.DGID = gidOf(a.addr(true, 0).Addr())
	d.AV.SGIDIndex = 1
	send(t, b, a, verbs.SendWR{AH: must(b.pd.CreateAH(d.AV)), RemoteQPN: qa.Number(), RemoteQKey: QKeyUDP}, qb)
	sentA.want(t, "a", func(s sent) bool { return s.pkey == 0x8001 })
	sentB.want(t, "b", func(s sent) bool { return s.pkey == 0x8001 })
}

// Both ends send with the flow label that the REQ names, whatever the passive one would have chosen: so both have one UDP
// source port.
func TestFlowLabel(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		a, b, sentA, sentB := newPairOf(t, rocev2.Config{NoCongestionControl: true}, rocev2.Config{NoCongestionControl: true})
		l := must(Listen(b.dev, b.addr(v4, 0), ListenOptions{}))
		qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
		accepted := serve(t, l, Options{QP: qb, Connect: verbs.ConnectOptions{FlowLabel: 0x777, TClass: 4}})
		ca, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: qa, Connect: verbs.ConnectOptions{FlowLabel: 0x12345, TClass: 0x68}}})
		if err != nil {
			t.Fatal(err)
		}
		cb := <-accepted
		send(t, a, b, verbs.SendWR{}, qa)
		send(t, b, a, verbs.SendWR{}, qb)
		right := func(s sent) bool {
			return s.srcPort == 0xe341 && s.tclass == 0x68 && (v4 || s.flowLabel == 0x12345)
		}
		sentA.want(t, "a", right)
		sentB.want(t, "b", right)
		for _, e := range []error{ca.Close(), cb.Close(), l.Close()} {
			if e != nil {
				t.Error(e)
			}
		}
	}
	conform.Row(t, "5.6/sport-3", "5.6/sport-symmetric", "5.10/req")
}

// Each end is told whether the other's QP has an SRQ, and gives credits.
func TestPeerBits(t *testing.T) {
	for _, c := range []struct {
		typ         verbs.QPType
		srq, credit bool
	}{{verbs.RC, false, true}, {verbs.RC, true, false}, {verbs.UC, false, false}} {
		a, b := newPair(t, verbs.PairOptions{})
		l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
		qp := func(s *side) *verbs.QP {
			i := verbs.QPInitAttr{Type: c.typ, SendCQ: s.cq, RecvCQ: s.cq}
			if c.srq {
				i.SRQ = must(s.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}))
			}
			return must(s.pd.CreateQP(i))
		}
		asked, accepted := make(chan Peer, 1), make(chan *Conn, 1)
		go func() {
			r := must(l.Accept(ctx(t)))
			asked <- r.Peer()
			accepted <- must(r.Accept(ctx(t), Options{QP: qp(b)}))
		}()
		conn := must(Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: qp(a)}}))
		(<-accepted).Close()
		for who, p := range map[string]Peer{"active": <-asked, "passive": conn.Peer()} {
			if p.SRQ != c.srq || p.FlowControl != c.credit {
				t.Errorf("%v, SRQ %v: the %s side says SRQ %v, flow control %v", c.typ, c.srq, who, p.SRQ, p.FlowControl)
			}
		}
		conn.Close()
		l.Close()
	}
	conform.Row(t, "5.10/req", "5.10/rep")
}

// partNet is a Net that doesn't know the next hops of some.
type partNet struct {
	*rocev2.FixedNet
	unknown func(ib.GID) bool
}

func (n partNet) Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (wire.Flow, bool, error) {
	f, known, err := n.FixedNet.Resolve(sgid, vlan, dgid)
	return f, known && !n.unknown(dgid), err
}

func (n partNet) Known(sgid ib.GID, vlan uint16, dgid ib.GID) bool {
	_, known, _ := n.Resolve(sgid, vlan, dgid)
	return known
}

func v4(a, b, c, d byte) ib.GID { return gidOf(netip.AddrFrom4([4]byte{a, b, c, d})) }

// Requests from addresses whose next hop nobody knows, as forged ones are, come in a flood. Others are served meanwhile.
func TestForgedSources(t *testing.T) {
	net := &rocev2.FixedNet{Addresses: []ib.GID{v4(192, 0, 2, 1)}}
	for i := range byte(200) {
		net.Addresses = append(net.Addresses, v4(10, 9, 0, i))
	}
	forged := func(g ib.GID) bool { return g[12] == 10 }
	a, b, _, _ := newPairOf(t, rocev2.Config{Net: net}, rocev2.Config{Net: partNet{&rocev2.FixedNet{Addresses: []ib.GID{v4(192, 0, 2, 2)}}, forged}})
	l := must(Listen(b.dev, b.addr(true, 7777), ListenOptions{}))
	defer l.Close()
	flood, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, g := range net.Addresses[1:] {
		all.Go(func() {
			for flood.Err() == nil {
				Dial(flood, a.dev, b.addr(true, 1), DialOptions{Options: Options{QP: a.qp(verbs.RC)}, LocalAddr: g.Addr(), ResponseTimeout: 1, PacketLifetime: 1, MaxRetries: 15})
			}
		})
	}
	defer all.Wait()
	defer stop()
	waitFor(t, "the flood", func() bool {
		g := agentOf(b.dev)
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.m.Counters.Refused > 1000
	})
	for range 5 {
		accepted := serve(t, l, Options{QP: b.qp(verbs.RC)})
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		c, err := Dial(soon, a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		(<-accepted).Close()
	}
}

func agentOf(d *verbs.Device) *agent {
	agents.Lock()
	defer agents.Unlock()
	return agents.of[d]
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s doesn't come", what)
		}
	}
}

// Neither end knows the other's MAC address at first. The connection doesn't wait for a message to be sent again.
func TestFirstContact(t *testing.T) {
	var begun, known atomic.Int64
	config := func(last byte) rocev2.Config {
		return rocev2.Config{Net: partNet{&rocev2.FixedNet{Addresses: []ib.GID{v4(192, 0, 2, last)}}, func(ib.GID) bool {
			begun.CompareAndSwap(0, time.Now().UnixNano())
			return time.Since(time.Unix(0, begun.Load())) < 100*time.Millisecond && known.Add(1) > 0
		}}}
	}
	a, b, _, _ := newPairOf(t, config(1), config(2))
	l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
	defer l.Close()
	accepted := serve(t, l, Options{QP: b.qp(verbs.RC)})
	start := time.Now()
	c, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}})
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 3*time.Second || known.Load() == 0 {
		t.Errorf("connected after %v; the next hop wasn't known %d times", d, known.Load())
	}
	c.Close()
	(<-accepted).Close()
}

// Requests that come to nothing leave nothing behind.
func TestRefusedRequestsLeaveNothing(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
	u := must(ListenUD(b.dev, b.addr(true, 0), ListenOptions{}))
	defer l.Close()
	defer u.Close()
	go func() {
		for range 5 {
			must(l.Accept(ctx(t))).Reject(ConsumerReject, nil)
			must(u.Accept(ctx(t))).AcceptUD(b.qp(verbs.UD), QKeyUDP, nil)
		}
	}()
	for range 5 {
		Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}})
		must(ResolveUD(ctx(t), a.dev, u.Addr(), ResolveOptions{}))
	}
	for _, s := range []*side{a, b} {
		agentOf(s.dev).conns.Range(func(c, _ any) bool {
			t.Errorf("%s: a connection with %v is left", s.dev.Name(), c.(*Conn).remote)
			return true
		})
	}
}

// One address may be in several VLANs: a request is answered, and its connection made, in the one that it came in.
func TestVLANOfRequest(t *testing.T) {
	fe80 := func(last byte) ib.GID { return ib.GID{0xfe, 0x80, 15: last} }
	a, b, _, _ := newPairOf(t, rocev2.Config{Net: &rocev2.FixedNet{Addresses: []ib.GID{fe80(1)}, Tags: []uint16{5}}},
		rocev2.Config{Net: &rocev2.FixedNet{Addresses: []ib.GID{fe80(2), fe80(2)}, Tags: []uint16{0, 5}}})
	l := must(Listen(b.dev, b.addr(false, 0), ListenOptions{}))
	defer l.Close()
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	accepted := serve(t, l, Options{QP: qb})
	c, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: qa}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer (<-accepted).Close()
	send(t, a, b, verbs.SendWR{}, qa)
	if i := must(qb.Query()).AV.SGIDIndex; i != 1 {
		t.Errorf("SGID index %d", i)
	}
}
