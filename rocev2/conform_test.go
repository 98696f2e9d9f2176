package rocev2

import (
	"errors"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// However many packets wait, one Step takes a burst of them; and however many are to be
// sent again, it sends a burst.
func TestStepIsBounded(t *testing.T) {
	conform.Row(t, "bug/19")
	p := newPeer(t)
	e := newEndpoint(t, p.port, 1000, 4)
	if err := e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	settle(t, 1, nil, p.port)
	const sent = 200
	for range sent {
		p.send(wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 105}, 8, nil) // a gap
	}
	for step := 1; p.port.Counters().RcvdPkts < sent; step++ {
		p.port.Workers()[0].Step(2)
		if got := p.port.Counters().RcvdPkts; got > uint64(step*burst) || got == 0 {
			t.Fatalf("%d packets taken in %d Steps, want at most %d each", got, step, burst)
		}
	}

	x, y := newPorts(t, true, 1, PairOptions{})
	from, to := newEndpoint(t, x, 1<<20, 4), newEndpoint(t, y, 1<<20, 4)
	join(t, from, to, ib.MTU256)
	now := settle(t, 1, nil, x, y)
	from.write(1, to, 0, 1<<20)
	w := x.Workers()[0]
	drained := func() uint64 {
		for before := x.Counters().SentPkts; ; {
			more := w.Step(now)
			after := x.Counters().SentPkts
			if after-before > burst {
				t.Fatalf("%d packets sent in a Step, want at most %d", after-before, burst)
			}
			if before = after; !more {
				return before
			}
		}
	}
	first := drained() // what the window allows: the peer doesn't get its turn
	now += 1 << 40     // and a timeout has all of it sent again
	if again := drained() - first; first < 2*burst || again != first {
		t.Errorf("%d packets sent, and %d of them again; want all of more than two bursts", first, again)
	}
}

const typedQKey ib.QKey = 7

// newTyped makes a QP of a type in RTS, with a receive. A connected one's peer is
// QP 9 at 10.0.0.1.
func newTyped(t testing.TB, p *Port, typ qp.Type) *endpoint {
	t.Helper()
	e := &endpoint{port: p, buf: make([]byte, 8192)}
	pd := new(mem.PD)
	var err error
	if e.mr, err = p.Keys().Register(pd, mem.NewBytes(e.buf, 0), 0, 0, uint64(len(e.buf)), mem.LocalWrite|mem.RemoteWrite); err != nil {
		t.Fatal(err)
	}
	if e.QP, err = p.CreateQP(QPInit{Type: typ, PD: pd, SQ: &e.sq, RQ: &e.rq, SendCQ: &e.cq, RecvCQ: &e.cq,
		Caps: qp.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Destroy)
	e.recv(1, 0, len(e.buf))
	switch typ {
	case qp.RC:
		err = e.connect(9, gid("10.0.0.1"), ib.MTU1024)
	case qp.UC:
		err = errors.Join(
			e.Modify(&qp.Attr{State: qp.Init, Port: 1, Access: mem.RemoteWrite}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess),
			e.Modify(&qp.Attr{State: qp.RTR, AV: qp.AV{DGID: gid("10.0.0.1")}, PathMTU: ib.MTU1024, DestQPN: 9, RQPSN: 100},
				qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN),
			e.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState|qp.AttrSQPSN))
	case qp.GSI:
		err = errors.Join(
			e.Modify(&qp.Attr{State: qp.Init, QKey: ib.QKeyGSI}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrQKey),
			e.Modify(&qp.Attr{State: qp.RTR}, qp.AttrState),
			e.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState|qp.AttrSQPSN))
	case qp.UD:
		err = errors.Join(
			e.Modify(&qp.Attr{State: qp.Init, Port: 1, QKey: typedQKey}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrQKey),
			e.Modify(&qp.Attr{State: qp.RTR}, qp.AttrState),
			e.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState|qp.AttrSQPSN))
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// answers returns how many packets the Port has sent.
func (p *peer) answers() (n int) {
	var f [16]RxFrame
	for k := p.link.Recv(f[:]); k > 0; k = p.link.Recv(f[:]) {
		p.link.Release(f[:k])
		n += k
	}
	return n
}

// judged sends a packet and returns the one verdict that it got.
func (p *peer) judged(h wire.Header, n int, spoil func(*wire.Frame)) (v wire.Verdict) {
	p.t.Helper()
	before := p.port.Drops()
	p.send(h, n, spoil)
	settle(p.t, 1, nil, p.port)
	verdicts := 0
	for i, n := range p.port.Drops() {
		if d := int(n - before[i]); d > 0 {
			v = wire.Verdict(i)
			verdicts += d
		}
	}
	if verdicts != 1 {
		p.t.Fatalf("opcode %#02x: %d verdicts, the last %v", uint8(h.Opcode), verdicts, v)
	}
	return v
}

var types = []qp.Type{qp.RC, qp.UC, qp.UD}

// Every opcode to a QP of every type: what isn't of its transport is dropped and
// counted, and harms nothing.
func TestEveryOpcodeToEveryType(t *testing.T) {
	conform.Row(t, "5.11/18", "5.1/op-other", "bug/5")
	p := newPeer(t)
	for _, typ := range types {
		for op := range 256 {
			e, o := newTyped(t, p.port, typ), wire.Opcode(op)
			n := 0
			if i := o.Info(); i.Payload {
				n = 8
			}
			h := wire.Header{Opcode: o, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 100, QKey: typedQKey, RKey: e.mr.Key, Length: uint32(n)}
			v := p.judged(h, n, nil)
			sent, state := p.answers(), e.Query().State
			var fine bool
			switch own := o.Transport() == typ.Transport(); {
			case !o.Valid() && op >= 0x20:
				fine = v == wire.DropOpcode && sent == 0 && state == qp.RTS
			case o == wire.CongestionNotify && typ == qp.UD:
				fine = v == wire.DropCNP && sent == 0 && state == qp.RTS
			case o == wire.CongestionNotify:
				fine = v == wire.Accepted && sent == 0 && state == qp.RTS
			case !own:
				fine = v == wire.DropTransport && sent == 0 && state == qp.RTS
			case typ != qp.RC:
				fine = v != wire.DropTransport && v != wire.DropOpcode && sent == 0 && state == qp.RTS
			case !o.Valid():
				fine = v == wire.DropRejected && sent == 1 && state == qp.Err
			default:
				fine = v != wire.DropTransport && v != wire.DropOpcode && sent <= 1
			}
			if !fine {
				t.Errorf("%v, opcode %#02x: %v, %d packets sent, state %v", typ, op, v, sent, state)
			}
			e.Destroy()
		}
	}
}

// What header validation drops is answered by nothing, whatever the type of the
// QP; one counter moves, and the QP goes on (IBA 9.6.1).
func TestSilence(t *testing.T) {
	conform.Row(t, "5.8/resp-silent")
	p := newPeer(t)
	good := p.flow
	for _, typ := range types {
		e := newTyped(t, p.port, typ)
		other := map[qp.Type]wire.Opcode{qp.RC: wire.UCSendOnly, qp.UC: wire.UDSendOnly, qp.UD: wire.RCSendOnly}[typ]
		h := wire.Header{Opcode: wire.RCSendOnly | wire.Opcode(typ.Transport()), PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 100, QKey: typedQKey, AckReq: true}
		for _, c := range []struct {
			want  wire.Verdict
			do    func(h *wire.Header)
			spoil func(*wire.Frame)
			skip  bool
		}{
			{want: wire.DropICRC, spoil: func(f *wire.Frame) { f.Frag[0][len(f.Frag[0])-1] ^= 1 }},
			{want: wire.DropVersion, spoil: func(f *wire.Frame) { f.Frag[0][43] |= 1 }},
			{want: wire.DropPKey, do: func(h *wire.Header) { h.PKey = 0x8001 }},
			{want: wire.DropPKey, do: func(h *wire.Header) { h.PKey = 0 }},
			{want: wire.DropQKey, do: func(h *wire.Header) { h.QKey++ }, skip: typ != qp.UD},
			{want: wire.DropNoQP, do: func(h *wire.Header) { h.DestQP ^= 1 }},
			{want: wire.DropTransport, do: func(h *wire.Header) { h.Opcode = other }},
			{want: wire.DropAddress, do: func(*wire.Header) { p.flow.Src = gid("10.0.0.9") }, skip: typ == qp.UD}, // anyone may send one
			{want: wire.DropAddress, do: func(*wire.Header) { p.flow.Dst = gid("10.0.0.9") }},
		} {
			if c.skip {
				continue
			}
			bad := h
			if c.do != nil {
				c.do(&bad)
			}
			v := p.judged(bad, 8, c.spoil)
			p.flow = good
			if sent, state := p.answers(), e.Query().State; v != c.want || sent != 0 || state != qp.RTS || e.cq.len() != 0 {
				t.Errorf("%v: %v, want %v; %d packets sent, state %v, %d completions", typ, v, c.want, sent, state, e.cq.len())
			}
		}
		if v := p.judged(h, 8, nil); v != wire.Accepted || e.cq.len() != 1 {
			t.Errorf("%v: a good packet afterwards: %v, %d completions", typ, v, e.cq.len())
		}
		p.answers()
	}
}
