package xdp_test

import (
	"fmt"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/xdp"
)

// The L2 bytes of a RoCEv2 packet over IPv4 beyond its payload, in the middle of a message.
const overhead = 58

func wire(b *testing.B, mtu int) *barexdp.Wire {
	nettest.Require(b)
	w, err := barexdp.New(mtu, xdp.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	return w
}

// BenchmarkBare is the rate of bare frames of the sizes of path MTU 1024, 2048
// and 4096 over a veth pair.
func BenchmarkBare(b *testing.B) {
	shapes := []struct {
		name string
		run  func(*barexdp.Wire, int, int) (barexdp.Rate, error)
	}{
		{"one-goroutine", (*barexdp.Wire).OneGoroutine},
		{"two-goroutines", (*barexdp.Wire).TwoGoroutines},
	}
	for _, size := range []int{64, 1024 + overhead, 2048 + overhead, 4096 + overhead} {
		for _, shape := range shapes {
			b.Run(fmt.Sprintf("%s/%d", shape.name, size), func(b *testing.B) {
				w := wire(b, 4200)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				r, err := shape.run(w, size, b.N)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.PPS()/1e3, "kpps")
				b.ReportMetric(float64(r.Lost), "lost")
			})
		}
	}
}

// BenchmarkRoundTrip is the round trip of a bare 64-byte frame.
func BenchmarkRoundTrip(b *testing.B) {
	shapes := []struct {
		name string
		run  func(*barexdp.Wire, int, int) (barexdp.Latency, error)
	}{
		{"one-goroutine", (*barexdp.Wire).RoundTrip},
		{"two-goroutines", (*barexdp.Wire).RoundTripTwo},
	}
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			w := wire(b, 1500)
			b.ResetTimer()
			l, err := shape.run(w, 64, b.N)
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(l.P50.Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(l.P99.Nanoseconds()), "p99-ns")
		})
	}
}
