package rocev2

import (
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
)

// engine is a requester and a responder on a memory pair, which one goroutine
// drives: WRITEs of size bytes in packets of 1 KiB, depth of them at a time.
type engine struct {
	x, y *endpoint
	ring wqeRing
	cq   countQueue
	now  clock.Time
}

// wqeRing is a send queue of one goroutine: the same work requests for ever.
type wqeRing struct {
	wqes                   []qp.SendWQE // a power of two
	posted, taken, retired int
}

func (r *wqeRing) Next() *qp.SendWQE {
	if r.taken == r.posted {
		return nil
	}
	r.taken++
	return &r.wqes[(r.taken-1)&(len(r.wqes)-1)]
}

func (r *wqeRing) Retire() { r.retired++ }

// countQueue is a CQ that counts.
type countQueue struct{ ok, bad int }

func (c *countQueue) Push(cs []qp.Completion) bool {
	for i := range cs {
		if cs[i].Status == qp.Success {
			c.ok++
		} else {
			c.bad++
		}
	}
	return true
}

func newEngine(t testing.TB, size, depth int) *engine {
	a, b := newPorts(t, true, 1, PairOptions{})
	e := &engine{now: 1, x: newEndpoint(t, a, size*depth, depth), y: newEndpoint(t, b, size*depth, depth)}
	e.x.Destroy()
	for range depth {
		e.ring.wqes = append(e.ring.wqes, qp.SendWQE{})
	}
	var err error
	e.x.QP, err = a.CreateQP(QPInit{PD: e.x.mr.PD, SQ: &e.ring, RQ: &e.x.rq, SendCQ: &e.cq, RecvCQ: &e.cq,
		Caps: qp.Caps{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, SigAll: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.x.QP.Destroy)
	join(t, e.x, e.y, ib.MTU1024)
	for i := range e.ring.wqes {
		e.ring.wqes[i] = qp.SendWQE{Opcode: qp.WRWrite, SGEs: e.x.sge(i*size, size), RemoteAddr: uint64(i * size), RKey: e.y.mr.Key}
	}
	return e
}

// run makes n messages.
func (e *engine) run(t testing.TB, n int) {
	for end := e.ring.posted + n; e.cq.ok < end; {
		e.ring.posted = min(end, e.cq.ok+len(e.ring.wqes))
		e.x.Doorbell()
		e.now += 1000
		x := e.x.Worker().Step(e.now)
		y := e.y.Worker().Step(e.now)
		if e.cq.bad > 0 || !x && !y {
			t.Fatalf("%d of %d messages done, %d failed", e.cq.ok, end, e.cq.bad)
		}
	}
}

func TestEngineDoesNotAllocate(t *testing.T) {
	for _, size := range []int{1 << 10, 64 << 10} {
		e := newEngine(t, size, 16)
		e.run(t, 200)
		if n := testing.AllocsPerRun(10, func() { e.run(t, 50) }); n != 0 {
			t.Errorf("%d-byte messages: %v allocations in 50", size, n)
		}
	}
}

const packetSize = 1 << 10

// bare is the least that packets cost: from the source into a frame, out of it
// to the destination, and a CRC at both ends. The memory is as much, and goes
// round, as the engine's.
type bare struct {
	src, dst, frames []byte
	at, frame        int
	sum              uint32
}

func newBare(size int) *bare {
	return &bare{src: make([]byte, size), dst: make([]byte, size), frames: make([]byte, burst*packetSize)}
}

func (b *bare) run(n int) {
	for range n {
		frame := b.frames[b.frame : b.frame+packetSize]
		copy(frame, b.src[b.at:])
		b.sum += crc32.ChecksumIEEE(frame)
		b.sum += crc32.ChecksumIEEE(frame)
		copy(b.dst[b.at:], frame)
		b.at = (b.at + packetSize) % len(b.src)
		b.frame = (b.frame + packetSize) % len(b.frames)
	}
}

// BenchmarkEngine gives the cost of a 1 KiB packet, requester, responder and
// acknowledgements together, and its ratio to what is unavoidable. Slices of
// both take turns, and the quiet ones count, so that a busy machine does not
// make one look worse than the other.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct{ size, depth int }{{64 << 10, 16}, {1 << 10, 64}} {
		b.Run(fmt.Sprintf("%dKiB", c.size>>10), func(b *testing.B) {
			e, bare := newEngine(b, c.size, c.depth), newBare(c.size*c.depth)
			e.run(b, 1000)
			packets := c.size / packetSize
			slice := max(1, 512/packets) // messages
			var ours, least []float64
			b.ReportAllocs()
			b.SetBytes(int64(slice * c.size))
			for b.Loop() {
				ours = append(ours, perPacket(slice*packets, func() { e.run(b, slice) }))
				b.StopTimer()
				least = append(least, perPacket(slice*packets, func() { bare.run(slice * packets) }))
				b.StartTimer()
			}
			b.ReportMetric(quiet(ours), "ns/packet")
			b.ReportMetric(quiet(least), "ns/bare")
			b.ReportMetric(quiet(ours)/quiet(least), "x-bare")
		})
	}
}

func perPacket(n int, f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// quiet returns the value that a fifth of all are below.
func quiet(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/5]
}
