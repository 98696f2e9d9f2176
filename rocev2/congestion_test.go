package rocev2

import (
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// crowd is a Port with a connected QP, and its peer, which the test plays.
type crowd struct {
	*peer
	e    *endpoint
	now  clock.Time
	psn  int
	sent []wire.Packet // by the Port, without payload
}

func newCrowd(t *testing.T, c Config) *crowd {
	x, y, err := NewPair(PairOptions{Frames: 4096})
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Links, c.Manual, c.Net = "b", []Link{y}, true, &FixedNet{Addresses: []ib.GID{gid("10.0.0.2")}}
	port, err := NewPort(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	r := &crowd{now: 1e9, peer: &peer{t: t, link: x, flow: wire.Flow{Src: gid("10.0.0.1"), Dst: gid("10.0.0.2"), SrcPort: 0xc000}, port: port}}
	r.e = newEndpoint(t, port, 1<<20, 64)
	if err := r.e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	r.step()
	return r
}

// step lets the Port do what it can now, and takes what it sends.
func (r *crowd) step() {
	r.t.Helper()
	var f [16]RxFrame
	for more := true; more; {
		more = r.port.Workers()[0].Step(r.now)
		n := r.link.Recv(f[:])
		for i := range n {
			var p wire.Packet
			if v := wire.Parse(&p, &f[i].Frame); v != wire.Accepted {
				r.t.Fatalf("the Port sent a packet that is %v", v)
			}
			p.Frame, p.Payload = nil, [2][]byte{}
			r.sent = append(r.sent, p)
		}
		r.link.Release(f[:n])
		more = more || n > 0
	}
}

// write sends a WRITE of no bytes with those ECN bits.
func (r *crowd) write(ecn uint8) {
	r.t.Helper()
	r.writeTo(r.e, r.psn, ecn)
	r.psn++
}

// writeTo is write to another QP, of which it is the packet n.
func (r *crowd) writeTo(e *endpoint, n int, ecn uint8) {
	r.t.Helper()
	r.flow.TClass = ecn
	r.send(wire.Header{Opcode: wire.RCWriteOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: ib.PSN(100).Add(n)}, 0, nil)
	r.step()
}

func (r *crowd) cnp() {
	r.t.Helper()
	r.send(wire.Header{Opcode: wire.CongestionNotify, PKey: ib.PKeyDefault, BECN: true, DestQP: r.e.Number()}, 0, nil)
	r.step()
}

// take returns the packets sent since the last time.
func (r *crowd) take() (sent []wire.Packet) {
	sent, r.sent = r.sent, nil
	return sent
}

// A mark of congestion makes a CNP, to the QP that sent the packet, one in 50 µs;
// to a peer that drops it nothing else changes.
func TestMarksMakeCNPs(t *testing.T) {
	conform.Row(t, "5.9/cnp", "5.9/cnp-rate", "5.9/cnp-deaf")
	r := newCrowd(t, Config{})
	var at []clock.Time
	for range 100 {
		r.write(3)
		for _, p := range r.take() {
			if p.Opcode != wire.CongestionNotify || p.DestQP != 9 || !p.BECN || p.PSN != 0 || p.DstGID() != gid("10.0.0.1") {
				t.Fatalf("sent %+v", p.Header)
			}
			at = append(at, r.now)
		}
		r.now = r.now.Add(5 * time.Microsecond)
	}
	if len(at) != 10 || at[1].Sub(at[0]) != 50*time.Microsecond {
		t.Errorf("CNPs at %v, want one each 50 µs", at)
	}
	for _, ecn := range []uint8{0, 1, 2} {
		r.write(ecn)
		r.now = r.now.Add(time.Millisecond)
	}
	if sent := r.take(); len(sent) != 0 {
		t.Errorf("without a mark: %+v", sent)
	}
	c := r.port.Counters()
	if c.MarkedPkts != 100 || c.CNPSent != 10 || r.port.Drops()[wire.Accepted] != 103 {
		t.Errorf("%d marks, %d CNPs, drops %v", c.MarkedPkts, c.CNPSent, r.port.Drops())
	}
}

// Each QP has its own 50 µs: that one has just sent a CNP holds back no other's.
func TestCNPsOfEachQP(t *testing.T) {
	conform.Row(t, "5.9/cnp-rate")
	r := newCrowd(t, Config{})
	other := newEndpoint(t, r.port, 1<<10, 4)
	if err := other.connect(10, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	r.step()
	for i := range 2 {
		r.write(3)
		r.writeTo(other, i, 3)
	}
	var to []ib.QPN
	for _, p := range r.take() {
		to = append(to, p.DestQP)
	}
	if !slices.Equal(to, []ib.QPN{9, 10}) {
		t.Errorf("CNPs to %v, want one to each of 9 and 10", to)
	}
}

// A CNP halves the rate; then it comes back.
func TestCNPsSlowDown(t *testing.T) {
	conform.Row(t, "5.9/reaction")
	r := newCrowd(t, Config{Congestion: cc.Params{LineRate: 8 * cc.Gbps}}) // a byte a nanosecond
	const n = 1 << 20
	r.e.sq.Post(&qp.SendWQE{ID: 1, Opcode: qp.WRWrite, SGEs: r.e.sge(0, n)})
	r.e.Doorbell()
	// rate returns the bytes a nanosecond that leave in a time, while all is acknowledged.
	rate := func(d time.Duration) float64 {
		sent := 0
		for end := r.now.Add(d); r.now < end; r.now = r.now.Add(time.Microsecond) {
			r.step()
			for _, p := range r.take() {
				sent += p.Len + 74 + ethernetOverhead
				if p.AckReq {
					r.send(wire.Header{Opcode: wire.RCAck, PKey: ib.PKeyDefault, DestQP: r.e.Number(), PSN: p.PSN, Syndrome: wire.SyndromeAck}, 0, nil)
				}
			}
		}
		return float64(sent) / float64(d)
	}
	r.cnp()
	r.now = r.now.Add(time.Microsecond)
	burst := rate(10 * time.Microsecond) // made up for at most
	if got := rate(40 * time.Microsecond); got < 0.45 || got > 0.55 || burst > 3 {
		t.Errorf("%.2f of the line's rate after a CNP, and before it a burst at %.2f", got, burst)
	}
	r.cnp()
	if got := rate(40 * time.Microsecond); got < 0.2 || got > 0.3 {
		t.Errorf("%.2f of the line's rate after another CNP", got)
	}
	r.now = r.now.Add(20 * time.Millisecond)
	rate(50 * time.Microsecond)
	if r.e.congestion.limiter.Limited() {
		t.Errorf("still limited, to %d b/s", r.e.congestion.limiter.Rate(r.port.congestion))
	}
	if c := r.port.Counters(); c.CNPHandled != 2 {
		t.Errorf("%d CNPs counted, want 2", c.CNPHandled)
	}
	r.cnp()
	if err := r.e.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil || r.e.congestion != (congestion{}) {
		t.Errorf("in RESET: %v, %+v", err, r.e.congestion)
	}
}

// Whom a CNP is for: a live connection takes it from its peer; for a datagram QP,
// for none, and from anyone else it is dropped.
func TestCNPsForWhom(t *testing.T) {
	conform.Row(t, "5.11/28", "5.1/op-81")
	r := newCrowd(t, Config{})
	ud := newTyped(t, r.port, qp.UD)
	for _, c := range []struct {
		to   ib.QPN
		from string
		pkey ib.PKey
		want wire.Verdict
	}{
		{r.e.Number(), "10.0.0.1", 0xffff, wire.Accepted},
		{r.e.Number(), "10.0.0.3", 0xffff, wire.DropAddress},
		{r.e.Number(), "10.0.0.1", 0x8001, wire.DropPKey},
		{ud.Number(), "10.0.0.1", 0xffff, wire.DropCNP},
		{r.e.Number() ^ 1, "10.0.0.1", 0xffff, wire.DropNoQP},
	} {
		before := r.port.Drops()
		r.flow.Src = gid(c.from)
		r.send(wire.Header{Opcode: wire.CongestionNotify, PKey: c.pkey, BECN: true, DestQP: c.to}, 0, nil)
		r.step()
		if after := r.port.Drops(); after[c.want] != before[c.want]+1 {
			t.Errorf("to QP %v from %s: drops %v, want one %v more", c.to, c.from, after, c.want)
		}
	}
	if c := r.port.Counters(); c.CNPHandled != 1 {
		t.Errorf("%d CNPs taken, want 1", c.CNPHandled)
	}
	if sent := r.take(); len(sent) != 0 {
		t.Errorf("answered by %+v", sent)
	}
}

// Packets of connections are capable of ECN while their rate is controlled,
// whatever the address vector says; those of datagrams never are.
func TestECT(t *testing.T) {
	conform.Row(t, "5.9/ect")
	for _, off := range []bool{false, true} {
		r := newCrowd(t, Config{NoCongestionControl: off})
		r.e.sq.Post(&qp.SendWQE{ID: 1, Opcode: qp.WRWrite, SGEs: r.e.sge(0, 10)})
		r.e.Doorbell()
		r.write(0)
		r.write(0)
		for _, tclass := range []uint8{0, 0x68, 0x6a, 0xff} {
			want := tclass &^ 3
			if !off {
				want |= 2
			}
			if got := r.port.ecn(tclass); got != want {
				t.Errorf("off %v: traffic class %#x becomes %#x, want %#x", off, tclass, got, want)
			}
		}
		want := uint8(2)
		if off {
			want = 0
		}
		sent := r.take()
		if len(sent) == 0 || sent[0].TClass != want {
			t.Errorf("off %v: sent %+v, want traffic class %d", off, sent, want)
		}
	}
	flow := flowOf(&qp.AV{TClass: 0x6b}, ends{}, &hop{})
	if flow.TClass != 0x68 {
		t.Errorf("a datagram has traffic class %#x, want 0x68", flow.TClass)
	}
}

// Switched off: marks are counted, nothing is said, nothing is slowed down.
func TestWithoutCongestionControl(t *testing.T) {
	r := newCrowd(t, Config{NoCongestionControl: true})
	r.write(3)
	r.cnp()
	if sent := r.take(); len(sent) != 0 {
		t.Errorf("sent %+v", sent)
	}
	c, d := r.port.Counters(), r.port.Drops()
	if c.MarkedPkts != 1 || c.CNPSent != 0 || c.CNPHandled != 0 || d[wire.DropCNP] != 1 {
		t.Errorf("%+v, drops %v", c, d)
	}
	if r.e.congestion.limiter.Limited() {
		t.Error("limited")
	}
}

// A connection of a limited member takes the CNPs of its peer whether they have the P_Key
// of that, a full member, or that of its own packets; none of another limited key.
func TestCNPsToALimitedMember(t *testing.T) {
	r := newCrowd(t, Config{PKeys: ib.PKeyTable{0x7fff, 0x8001}})
	for _, k := range []ib.PKey{0xffff, 0x7fff, 0x0001, 0x8001} {
		r.send(wire.Header{Opcode: wire.CongestionNotify, PKey: k, BECN: true, DestQP: r.e.Number()}, 0, nil)
		r.step()
	}
	if d := r.port.Drops(); r.port.Counters().CNPHandled != 2 || d[wire.DropPKey] != 2 {
		t.Errorf("%d CNPs taken, drops %v, want 2 each", r.port.Counters().CNPHandled, d)
	}
}
