package golden

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// wireNet is the network as the captures show it: who is at which address.
type wireNet struct {
	rocev2.FixedNet
	flow wire.Flow // from the port to its peer
}

func (n *wireNet) Resolve(_ ib.GID, _ uint16, dgid ib.GID) (wire.Flow, bool, error) {
	f := wire.Flow{SrcMAC: n.flow.SrcMAC, DstMAC: n.flow.DstMAC, Src: n.flow.Src, Dst: dgid}
	return f, true, nil
}

// bench is a port on a wire whose other end is the test.
type bench struct {
	t    *testing.T
	port *rocev2.Port
	link rocev2.Link
	now  clock.Time
}

// newBench makes the port that sends packets of a flow.
func newBench(t *testing.T, flow wire.Flow) *bench {
	t.Helper()
	near, far, err := rocev2.NewPair(rocev2.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	net := &wireNet{rocev2.FixedNet{Addresses: []ib.GID{flow.Src}, Tags: []uint16{flow.VLAN & wire.VLANMask}}, flow}
	// Without congestion control no packet is capable of ECN, as rxe's aren't.
	p, err := rocev2.NewPort(rocev2.Config{Name: "bench", Links: []rocev2.Link{near}, Manual: true, Net: net, NoCongestionControl: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &bench{t, p, far, clock.Now()}
}

// give hands the port a packet and returns what became of it, and what it sends.
func (b *bench) give(p *packet) (v wire.Verdict, sent []*packet) {
	b.t.Helper()
	before := b.port.Drops()
	data := p.frame()
	var f rocev2.TxFrame
	if !b.link.Reserve(&f, len(data)) {
		b.t.Fatal("the wire is full")
	}
	copy(f.Frag[1], data[copy(f.Frag[0], data):])
	b.link.Send(&f)
	b.link.Flush()
	sent = b.step()
	for v, n := range b.port.Drops() {
		if n != before[v] {
			return wire.Verdict(v), sent
		}
	}
	return wire.Accepted, sent
}

// step runs the port until it has nothing to do, and returns what it sent.
func (b *bench) step() (sent []*packet) {
	b.t.Helper()
	b.now = b.now.Add(1000)
	for w := b.port.Workers()[0]; w.Step(b.now); {
	}
	var frames [64]rocev2.RxFrame
	for n := b.link.Recv(frames[:]); n > 0; n = b.link.Recv(frames[:]) {
		for i := range frames[:n] {
			p, err := takeApart(bytes.Join(frames[i].Frag[:], nil))
			if err != nil {
				b.t.Fatalf("the port sent a packet that is %v", err)
			}
			sent = append(sent, p)
		}
		b.link.Release(frames[:n])
		b.link.Flush()
	}
	return sent
}

type completions struct{ got []qp.Completion }

func (c *completions) Push(cs []qp.Completion) bool {
	c.got = append(c.got, cs...)
	return true
}

// start takes a QP to RTS.
func start(q *rocev2.QP, typ qp.Type, a qp.Attr) error {
	const reliable = qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
	const connected = qp.AttrAccess | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
	without := qp.AttrQKey
	switch typ {
	case qp.UC:
		without |= reliable
	case qp.UD:
		without = reliable | connected
	case qp.GSI:
		without = reliable | connected | qp.AttrPort
	}
	for _, step := range []struct {
		to   qp.State
		mask qp.AttrMask
	}{
		{qp.Init, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess | qp.AttrQKey},
		{qp.RTR, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		{qp.RTS, qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic},
	} {
		a.State = step.to
		if err := q.Modify(&a, step.mask&^without|qp.AttrState); err != nil {
			return err
		}
	}
	return nil
}

func reverse(f wire.Flow) wire.Flow {
	f.Src, f.Dst, f.SrcMAC, f.DstMAC = f.Dst, f.Src, f.DstMAC, f.SrcMAC
	return f
}
