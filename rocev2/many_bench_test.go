package rocev2

import (
	"runtime"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
)

// manyQPs is many connected pairs of QPs on a memory pair, whose requesters WRITE
// 1 KiB messages, one region and one CQ for all.
type manyQPs struct {
	x, y   *Port
	qps    []*QP // the requesters
	rings  []wqeRing
	cq     countQueue
	posted int
	next   int // whose turn it is
	now    clock.Time
}

const manyDepth = 16 // work requests of a QP

func newMany(t testing.TB, n int) *manyQPs {
	x, y := newPorts(t, true, 1, PairOptions{})
	return newManyOf(t, n, x, y)
}

// newManyOf makes n pairs of QPs of two Ports.
func newManyOf(t testing.TB, n int, x, y *Port) *manyQPs {
	c := &manyQPs{x: x, y: y, now: 1, rings: make([]wqeRing, n)}
	var mrs [2]*mem.MR
	for i, p := range []*Port{c.x, c.y} {
		var err error
		buf := make([]byte, 64<<10)
		if mrs[i], err = p.Keys().Register(new(mem.PD), mem.NewBytes(buf, 0), 0, 0, uint64(len(buf)), mem.LocalWrite|mem.RemoteWrite); err != nil {
			t.Fatal(err)
		}
	}
	caps := qp.Caps{MaxSendWR: manyDepth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	wqes := make([]qp.SendWQE, manyDepth)
	for i := range wqes {
		at := i % 64 << 10
		wqes[i] = qp.SendWQE{Opcode: qp.WRWrite, SGEs: []qp.SGE{{Addr: uint64(at), Length: 1 << 10, LKey: mrs[0].Key}}, RemoteAddr: uint64(at), RKey: mrs[1].Key}
	}
	for i := range n {
		c.rings[i].wqes = wqes
		x, err := c.x.CreateQP(QPInit{PD: mrs[0].PD, SQ: &c.rings[i], RQ: new(qptest.RecvQueue), SendCQ: &c.cq, RecvCQ: &c.cq, Caps: caps, SigAll: true})
		if err != nil {
			t.Fatal(err)
		}
		y, err := c.y.CreateQP(QPInit{PD: mrs[1].PD, SQ: new(qptest.SendQueue), RQ: new(qptest.RecvQueue), SendCQ: &c.cq, RecvCQ: &c.cq, Caps: caps})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range [][2]*QP{{x, y}, {y, x}} {
			if err := (&endpoint{QP: e[0]}).connect(e[1].Number(), e[1].worker.port.GIDs()[0], ib.MTU1024); err != nil {
				t.Fatal(err)
			}
		}
		c.qps = append(c.qps, x)
	}
	return c
}

// run makes n messages of the first active QPs, which take turns of depth.
func (c *manyQPs) run(t testing.TB, n, active, depth int) {
	const inFlight = 64
	for end := c.posted + n; c.cq.ok < end; {
		for c.posted < end && c.posted-c.cq.ok <= inFlight-depth {
			r := &c.rings[c.next]
			r.posted += depth
			c.posted += depth
			c.qps[c.next].Doorbell()
			c.next = (c.next + 1) % active
		}
		c.now += 1000
		x := c.x.Workers()[0].Step(c.now)
		y := c.y.Workers()[0].Step(c.now)
		if c.cq.bad > 0 || !x && !y {
			t.Fatalf("%d of %d messages done, %d failed", c.cq.ok, end, c.cq.bad)
		}
	}
}

// post makes a message of each of the first n QPs.
func (c *manyQPs) post(n int) {
	for i := range n {
		c.rings[i].posted++
		c.qps[i].Doorbell()
	}
}

// Whether a port's QPs are touched ahead or not, each gets what is its own.
func TestManyQPs(t *testing.T) {
	for _, n := range []int{fewQPs, fewQPs + 1, 3 * burst} {
		c := newMany(t, n)
		c.run(t, 10*n, n, 1)
		c.run(t, 10*n, n, 5)
		for i := range c.rings {
			if r := &c.rings[i]; r.retired != r.posted {
				t.Errorf("%d QPs: number %d had %d work requests, and %d are done", n, i, r.posted, r.retired)
			}
		}
	}
}

// perPacket returns the nanoseconds that a packet costs, acknowledgements counted.
func (c *manyQPs) perPacket(t testing.TB, active, depth int) float64 {
	sent := func() uint64 { return c.x.Workers()[0].traffic.sentPkts + c.y.Workers()[0].traffic.sentPkts }
	before, start := sent(), time.Now()
	c.run(t, 4096, active, depth)
	return float64(time.Since(start).Nanoseconds()) / float64(sent()-before)
}

// BenchmarkManyQPs gives the cost of a packet when a port has 10,000 QPs: when
// one of them is in use, and when all are, with their timers; and the ratio to
// that of the same turns on one QP alone. bytes/QP is what a QP takes beside its rings.
func BenchmarkManyQPs(b *testing.B) {
	const many = 10_000
	one := newMany(b, 1)
	before := liveBytes()
	c := newMany(b, many)
	perQP := float64(liveBytes()-before) / (2 * many)
	for _, m := range []struct {
		name          string
		active, depth int
	}{{"one-active", 1, manyDepth}, {"all-active", many, 1}} {
		b.Run(m.name, func(b *testing.B) {
			c.next = 0
			c.run(b, 2*many, m.active, m.depth)
			one.run(b, 2*many, 1, m.depth)
			var alone, among []float64
			for b.Loop() {
				among = append(among, c.perPacket(b, m.active, m.depth))
				alone = append(alone, one.perPacket(b, 1, m.depth))
			}
			b.ReportMetric(quiet(among), "ns/packet")
			b.ReportMetric(quiet(alone), "ns/alone")
			b.ReportMetric(quiet(among)/quiet(alone), "x-alone")
			b.ReportMetric(perQP, "bytes/QP")
		})
	}
}

func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
