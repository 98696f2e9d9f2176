package rocev2

import (
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
)

// engine is a requester and a responder on a memory pair, which one goroutine
// drives: WRITEs of size bytes in packets of 1 KiB, depth of them at a time.
type engine struct {
	x, y  *endpoint
	wqes  []qp.SendWQE
	now   clock.Time
	count countQueue
	todo  int
}

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
	join(t, e.x, e.y, ib.MTU1024)
	e.x.sendCQ.cq = &e.count
	e.wqes = make([]qp.SendWQE, depth)
	for i := range e.wqes {
		e.wqes[i] = qp.SendWQE{Opcode: qp.WRWrite, SGEs: e.x.sge(i*size, size), RemoteAddr: uint64(i * size), RKey: e.y.mr.Key}
	}
	return e
}

// run makes n messages.
func (e *engine) run(t testing.TB, n int) {
	posted, start := 0, e.count.ok
	for e.count.ok-start < n {
		for ; posted < n && posted-(e.count.ok-start) < len(e.wqes); posted++ {
			e.x.sq.post(&e.wqes[posted%len(e.wqes)])
		}
		e.x.Doorbell()
		e.now += 1000
		x := e.x.Worker().Step(e.now)
		y := e.y.Worker().Step(e.now)
		if e.count.bad > 0 || !x && !y {
			t.Fatalf("%d of %d messages done, %d failed", e.count.ok-start, n, e.count.bad)
		}
	}
}

func TestEngineDoesNotAllocate(t *testing.T) {
	for _, size := range []int{1 << 10, 64 << 10} {
		e := newEngine(t, size, 16)
		e.run(t, 1000)
		if n := testing.AllocsPerRun(20, func() { e.run(t, 100) }); n != 0 {
			t.Errorf("%d-byte messages: %v allocations in 100", size, n)
		}
	}
}

// twoCopiesTwoCRCs is the least that a 1 KiB packet costs: into a frame, out of
// it, and its CRC at both ends.
func twoCopiesTwoCRCs(n int) time.Duration {
	const packet, frames = 1024, 64
	src, dst := make([]byte, packet*frames), make([]byte, packet*frames)
	var frame [packet]byte
	var sum uint32
	start := time.Now()
	for i := range n {
		at := i % frames * packet
		copy(frame[:], src[at:at+packet])
		sum += crc32.ChecksumIEEE(frame[:])
		sum += crc32.ChecksumIEEE(frame[:])
		copy(dst[at:at+packet], frame[:])
	}
	d := time.Since(start)
	src[0] = byte(sum)
	return d / time.Duration(n)
}

// BenchmarkEngine gives the cost of a 1 KiB packet, requester, responder and
// acknowledgements together, and its ratio to what is unavoidable.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct{ size, depth int }{{64 << 10, 16}, {1 << 10, 64}} {
		b.Run(fmt.Sprintf("%dKiB", c.size>>10), func(b *testing.B) {
			e := newEngine(b, c.size, c.depth)
			e.run(b, 100)
			b.ReportAllocs()
			b.SetBytes(int64(c.size))
			bare := twoCopiesTwoCRCs(50_000)
			b.ResetTimer()
			e.run(b, b.N)
			b.StopTimer()
			bare = (bare + twoCopiesTwoCRCs(50_000)) / 2
			perPacket := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(c.size>>10)
			b.ReportMetric(perPacket, "ns/packet")
			b.ReportMetric(float64(bare.Nanoseconds()), "ns/bare")
			b.ReportMetric(perPacket/float64(bare.Nanoseconds()), "x-bare")
		})
	}
}
