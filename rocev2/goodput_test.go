package rocev2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// The link of the goodput figures.
const (
	lossyGbps    = 25
	lossyDelay   = 10 * time.Microsecond // each way
	lossyMessage = 64 << 10
	lossyDepth   = 16
	lossyFrames  = 2 // that wait to be sent, so that what is in flight is on the link
)

// lossyLink is two Ports joined by a link that loses packets, in simulated time:
// a seed gives the same figure on every machine.
type lossyLink struct {
	t     testing.TB
	r     *rand.Rand
	loss  float64 // of the packets of each direction
	now   clock.Time
	ports [2]*Port
	ends  [2]Link // of the link, at each Port
	dirs  [2]lossyDirection
	x, y  *endpoint
	ring  wqeRing
	cq    countQueue
}

// lossyDirection is what a Port has sent.
type lossyDirection struct {
	free clock.Time // when the last of it has left the Port
	air  []lossyFrame
}

type lossyFrame struct {
	at   clock.Time
	data []byte
}

func newLossyLink(t testing.TB, c *lossCase, mtu ib.MTU, loss float64, seed uint64) *lossyLink {
	l := &lossyLink{t: t, r: rand.New(rand.NewPCG(seed, 25)), loss: loss, now: 1e9}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		x, y, err := NewPair(PairOptions{Frames: lossyFrames, Frag: wire.MaxPacketLen})
		if err != nil {
			t.Fatal(err)
		}
		l.ports[i], l.ends[i] = newPort(t, addr, true, addr, x), y
	}
	l.x, l.y = newEndpoint(t, l.ports[0], lossyMessage*lossyDepth, 1), newEndpoint(t, l.ports[1], lossyMessage*lossyDepth, 1)
	l.x.Destroy()
	var err error
	l.x.QP, err = l.ports[0].CreateQP(QPInit{PD: l.x.mr.PD, SQ: &l.ring, RQ: &l.x.rq, SendCQ: &l.cq, RecvCQ: &l.cq,
		Caps: qp.Caps{MaxSendWR: lossyDepth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, SigAll: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.x.QP.Destroy)
	join(t, l.x, l.y, mtu)
	fill(l.x.buf, seed)
	fill(l.y.buf, seed+1)
	for i := range lossyDepth {
		at := i % c.places * lossyMessage
		l.ring.wqes = append(l.ring.wqes, qp.SendWQE{Opcode: c.op, SGEs: l.x.sge(at, lossyMessage), RemoteAddr: uint64(at), RKey: l.y.mr.Key})
	}
	return l
}

// run keeps the send queue full for a time, and returns the Gb/s of the
// messages that were completed.
func (l *lossyLink) run(d time.Duration) float64 {
	start, before := l.now, l.cq.ok
	for l.now < start.Add(d) {
		l.ring.posted = l.cq.ok + lossyDepth
		l.x.Doorbell()
		for l.round() {
		}
		if l.cq.bad > 0 {
			l.t.Fatalf("a message failed after %v", l.now.Sub(start))
		}
		l.now = max(l.now+1, l.next())
	}
	return float64(l.cq.ok-before) * lossyMessage * 8 / float64(l.now.Sub(start))
}

// round lets happen what happens now.
func (l *lossyLink) round() (worked bool) {
	for i, p := range l.ports {
		l.arrive(i)
		worked = p.Workers()[0].Step(l.now) || worked
		worked = l.depart(i) || worked
	}
	return worked
}

// depart takes a frame of a Port, if the one before has left.
func (l *lossyLink) depart(i int) bool {
	d := &l.dirs[i]
	var f [1]RxFrame
	if d.free > l.now || l.ends[i].Recv(f[:]) == 0 {
		return false
	}
	b := bytes.Join(f[0].Frag[:], nil)
	l.ends[i].Release(f[:])
	d.free = l.now.Add(time.Duration(len(b)+ethernetOverhead) * 8 / lossyGbps)
	if l.r.Float64() >= l.loss {
		d.air = append(d.air, lossyFrame{d.free.Add(lossyDelay), b})
	}
	return true
}

// arrive delivers what has come to a Port.
func (l *lossyLink) arrive(i int) {
	d := &l.dirs[1-i]
	for len(d.air) > 0 && d.air[0].at <= l.now {
		var tx TxFrame
		if !l.ends[i].Reserve(&tx, len(d.air[0].data)) {
			break // the Port takes some first
		}
		copy(tx.Frag[0], d.air[0].data)
		l.ends[i].Send(&tx)
		d.air = d.air[1:]
	}
	if err := l.ends[i].Flush(); err != nil {
		l.t.Fatal(err)
	}
}

// next returns when something happens next.
func (l *lossyLink) next() clock.Time {
	next := clock.Never
	for i := range l.dirs {
		d := &l.dirs[i]
		if len(d.air) > 0 {
			next = min(next, d.air[0].at)
		}
		if d.free > l.now {
			next = min(next, d.free)
		}
		next = min(next, l.ports[i].Workers()[0].Deadline())
	}
	return next
}

// goodput returns the mean goodput in Gb/s of several seeds.
func goodput(t testing.TB, c *lossCase, mtu ib.MTU, loss float64, seeds int) (sum float64) {
	for seed := range seeds {
		l := newLossyLink(t, c, mtu, loss, uint64(seed+1))
		l.run(time.Millisecond)
		sum += l.run(20 * time.Millisecond)
		wantFilled(t, c, l)
	}
	return sum / float64(seeds)
}

// wantFilled checks that what the messages brought is what they should bring.
func wantFilled(t testing.TB, c *lossCase, l *lossyLink) {
	done := min(l.cq.ok, c.places) * lossyMessage
	if c.op == qp.WRRead {
		wantSame(t, "what was READ", l.y.buf[:done], l.x.buf[:done])
	} else {
		wantSame(t, "what was written", l.x.buf[:done], l.y.buf[:done])
	}
}

// inFlight is how many packets of a full path MTU are in flight when the first is
// answered: those on the link, one that is being sent, and those that wait.
func inFlight(mtu ib.MTU) float64 {
	packet := float64(mtu.Bytes()+14+20+8+12+4+ethernetOverhead) * 8 / lossyGbps // in nanoseconds
	return float64(2*lossyDelay)/packet + 1 + lossyFrames
}

// lossCase is an operation, and what part of the lossless goodput it should have
// at a loss.
type lossCase struct {
	name   string
	op     qp.WROpcode
	places int // of messages in memory
	ideal  func(p float64, mtu ib.MTU) float64
	least  float64 // of the ideal that TestGoodput wants
}

// READs lose just what the link loses. WRITEs go back by all that is in flight, as
// no responder keeps what comes behind a gap (IBA 9.7.5.1.3), and so do READs to one
// place, where none may land before the one ahead of it.
var lossCases = []lossCase{
	{"READ", qp.WRRead, lossyDepth, func(float64, ib.MTU) float64 { return 1 }, 0.95},
	{"WRITE", qp.WRWrite, lossyDepth, goBack, 0.95},
	{"READ to one place", qp.WRRead, 1, goBack, 0.9},
}

func goBack(p float64, mtu ib.MTU) float64 { return (1 - p) / (1 + p*inFlight(mtu)) }

// At a loss of 1 %, READs keep 0.95 of the lossless goodput, and what goes back 0.9
// or more of what that allows. Time is simulated: the figures are the same everywhere.
func TestGoodput(t *testing.T) {
	if testing.Short() {
		t.Skip("half a second of two ports at 25 Gb/s takes a while under the race detector")
	}
	const p = 0.01
	for i := range lossCases {
		c := &lossCases[i]
		for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU4096} {
			lossless := goodput(t, c, mtu, 0, 1)
			got := goodput(t, c, mtu, p, 5) / lossless
			t.Logf("%s, path MTU %d: %.2f Gb/s without loss; at 1 %% %.3f of it, of what is possible %.3f",
				c.name, mtu.Bytes(), lossless, got, got/c.ideal(p, mtu))
			if lossless < 23 || got < c.least*c.ideal(p, mtu) {
				t.Errorf("%s, path MTU %d: %.2f Gb/s without loss, at 1 %% %.3f of it, want %.3f",
					c.name, mtu.Bytes(), lossless, got, c.least*c.ideal(p, mtu))
			}
		}
	}
}

// BenchmarkGoodput gives the goodput of 64 KiB messages on a simulated link of
// 25 Gb/s and 10 µs that loses packets, as a part of the lossless goodput and of
// what is possible (x-ideal). The time that it takes says nothing.
func BenchmarkGoodput(b *testing.B) {
	for i := range lossCases {
		c := &lossCases[i]
		for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU4096} {
			for _, p := range []float64{0.001, 0.01, 0.02} {
				b.Run(fmt.Sprintf("%s/mtu=%d/loss=%g%%", c.name, mtu.Bytes(), 100*p), func(b *testing.B) {
					lossless, got := goodput(b, c, mtu, 0, 1), 0.0
					for b.Loop() {
						got = goodput(b, c, mtu, p, 5)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(got, "Gb/s")
					b.ReportMetric(got/lossless, "x-lossless")
					b.ReportMetric(got/lossless/c.ideal(p, mtu), "x-ideal")
				})
			}
		}
	}
}
