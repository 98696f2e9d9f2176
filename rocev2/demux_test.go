package rocev2

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// peer sends packets of its own making to a Port.
type peer struct {
	t    testing.TB
	link Link
	flow wire.Flow
	port *Port
}

// newPeer makes a Port at 10.0.0.2 and a peer at 10.0.0.1 at the other end.
func newPeer(t testing.TB) *peer {
	t.Helper()
	x, y, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, link: x, flow: wire.Flow{Src: gid("10.0.0.1"), Dst: gid("10.0.0.2"), SrcPort: 0xc000},
		port: newPort(t, "b", true, "10.0.0.2", y)}
}

// send makes a packet with n bytes of payload, lets spoil change its frame, and
// sends it.
func (p *peer) send(h wire.Header, n int, spoil func(f *wire.Frame)) {
	p.t.Helper()
	var f TxFrame
	if !p.link.Reserve(&f, wire.MaxPacketLen) {
		p.t.Fatal("no frame")
	}
	var tm wire.Template
	tm.Set(&p.flow)
	h.MigReq = true
	tm.Emit(&f.Frame, &h, n)
	tm.Seal(&f.Frame)
	if spoil != nil {
		spoil(&f.Frame)
	}
	p.link.Send(&f)
	if err := p.link.Flush(); err != nil {
		p.t.Fatal(err)
	}
}

func TestEachDropHasItsCounter(t *testing.T) {
	p := newPeer(t)
	ready := newEndpoint(t, p.port, 1000, 4) // connected to 10.0.0.1, QPN 9
	if err := ready.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	reset := newEndpoint(t, p.port, 1000, 4)
	datagram := newTyped(t, p.port, qp.UD)
	send := func(q *endpoint) wire.Header {
		return wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: q.Number(), PSN: 100}
	}
	now := settle(t, 1, nil, p.port)
	for _, c := range []struct {
		want wire.Verdict
		do   func()
	}{
		{wire.DropNoQP, func() { h := send(ready); h.DestQP ^= 1; p.send(h, 8, nil) }},
		{wire.DropNoQP, func() { h := send(ready); h.DestQP = 1; p.send(h, 8, nil) }},
		{wire.DropQPState, func() { p.send(send(reset), 8, nil) }},
		{wire.DropTransport, func() { h := send(ready); h.Opcode = wire.UCSendOnly; p.send(h, 8, nil) }},
		{wire.DropTransport, func() { h := send(ready); h.Opcode = wire.UDSendOnly; p.send(h, 8, nil) }},
		{wire.DropCNP, func() { h := send(datagram); h.Opcode = wire.CongestionNotify; p.send(h, 0, nil) }},
		{wire.DropPKey, func() { h := send(ready); h.PKey = 0x8001; p.send(h, 8, nil) }},
		{wire.DropPKey, func() { h := send(ready); h.PKey = 0; p.send(h, 8, nil) }},
		{wire.DropAddress, func() {
			good := p.flow
			p.flow.Src = gid("10.0.0.3")
			p.send(send(ready), 8, nil)
			p.flow = good
		}},
		{wire.DropAddress, func() {
			good := p.flow
			p.flow.Src, p.flow.Dst = gid("fe80::1"), gid("fe80::2")
			p.send(send(ready), 8, nil)
			p.flow = good
		}},
		{wire.DropICRC, func() { p.send(send(ready), 8, func(f *wire.Frame) { f.Frag[0][60] ^= 1 }) }},
		{wire.DropTruncated, func() { p.send(send(ready), 8, func(f *wire.Frame) { f.Frag[0] = f.Frag[0][:60] }) }},
		{wire.DropNotRoCE, func() { p.send(send(ready), 8, func(f *wire.Frame) { f.Frag[0][12] = 9 }) }},
		{wire.DropRNR, func() { p.send(send(ready), 8, nil) }},
		{wire.Accepted, func() { ready.recv(1, 0, 100); p.send(send(ready), 8, nil) }},
		{wire.Accepted, func() { h := send(ready); h.PKey, h.PSN = 0x7fff, 101; ready.recv(2, 0, 100); p.send(h, 8, nil) }},
		{wire.DropGhost, func() { h := send(ready); h.Opcode = wire.RCAck; h.Syndrome = wire.SyndromeAck; p.send(h, 0, nil) }},
	} {
		before := p.port.Drops()
		c.do()
		now = settle(t, now, nil, p.port)
		after := p.port.Drops()
		for v := range after {
			want := uint64(0)
			if wire.Verdict(v) == c.want {
				want = 1
			}
			if got := after[v] - before[v]; got != want {
				t.Errorf("case %v: %d packets counted as %v, want %d", c.want, got, wire.Verdict(v), want)
			}
		}
	}
	cs := ready.cq.take()
	if len(cs) != 2 || cs[0].Status != qp.Success || cs[0].ByteLen != 8 {
		t.Errorf("completions %+v, want two of 8 bytes", cs)
	}
}

// After its end a QP's number is no one's, whoever got its last packet.
func TestDestroyedQPGetsNothing(t *testing.T) {
	p := newPeer(t)
	e := newEndpoint(t, p.port, 1000, 4)
	if err := e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	h := wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 100}
	e.recv(1, 0, 100)
	e.recv(2, 0, 100)
	p.send(h, 8, nil)
	now := settle(t, 1, nil, p.port)
	e.Destroy()
	h.PSN++
	p.send(h, 8, nil)
	settle(t, now, nil, p.port)
	if d := p.port.Drops(); d[wire.DropNoQP] != 1 {
		t.Errorf("%d packets for no QP, want 1", d[wire.DropNoQP])
	}
	if n := e.cq.len(); n != 1 {
		t.Errorf("%d completions, want the one from before", n)
	}
}

// Random frames never do more than be counted.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(make([]byte, 60), uint8(17))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		p := newPeer(t)
		e := newEndpoint(t, p.port, 1000, 4)
		if err := e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
			t.Fatal(err)
		}
		// As a packet of the QP whose bytes after the BTH are b.
		h := wire.Header{Opcode: wire.Opcode(cut), PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 100}
		if h.Opcode.Valid() && len(b) <= 1024 {
			p.send(h, len(b), func(f *wire.Frame) {
				at := f.Len() - wire.ICRCLen - len(b) // near the payload
				for i, v := range b {
					if at+i < len(f.Frag[0]) {
						f.Frag[0][at+i] = v
					}
				}
			})
		}
		var raw TxFrame
		if n := min(len(b), wire.MaxPacketLen); n > 0 && p.link.Reserve(&raw, n) {
			copy(raw.Frag[1], b[copy(raw.Frag[0], b):])
			p.link.Send(&raw)
			_ = p.link.Flush()
		}
		for range 4 {
			p.port.Workers()[0].Step(1000)
		}
	})
}
