package cc

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/seeded"
)

// Two senders into one port of 10 Gb/s, the second later than the first: each
// gets its half, the queue stays bounded, and nothing is lost.
func TestTwoSendersShareAPort(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if s := seeded.Given(); s != 0 {
		seeds = []uint64{s}
	}
	for name, params := range map[string]Params{"paper": {}, "mlx5": MLX5} {
		for _, s := range seeds {
			n := newBottleneck(s, params, 2)
			n.senders[1].at = clock.Time(20 * time.Millisecond)
			n.run(clock.Time(200 * time.Millisecond)) // they come to terms
			n.measure()
			n.run(clock.Time(400 * time.Millisecond))
			a, b := n.rate(0), n.rate(1)
			t.Logf("%s, -seed=%d: %.2f and %.2f Gb/s, queue at most %d KB, %d CNPs, %d lost", name, s, a, b, n.longest/1000, n.cnps, n.lost)
			if min(a, b) < 4 || max(a, b) > 6 {
				t.Errorf("%s, seed %d: %.2f and %.2f Gb/s, want each within 20 %% of 5", name, s, a, b)
			}
			if n.lost > 0 || n.longest > buffer*3/4 {
				t.Errorf("%s, seed %d: %d frames were lost, and the queue grew to %d of %d bytes", name, s, n.lost, n.longest, buffer)
			}
		}
	}
}

// And without: the same senders, whose CNPs are lost, overflow the port.
func TestTwoSendersWithoutControl(t *testing.T) {
	n := newBottleneck(1, Params{CNPInterval: time.Hour}, 2)
	n.senders[0].notifier.next, n.senders[1].notifier.next = clock.Never, clock.Never
	n.run(clock.Time(20 * time.Millisecond))
	if n.lost == 0 || n.longest < buffer-frameBytes {
		t.Errorf("%d frames were lost, the queue grew to %d bytes: the port is no bottleneck", n.lost, n.longest)
	}
}

// The port: what it holds, and where it marks (the paper's RED).
const (
	portRate   = 10 * Gbps
	buffer     = 1 << 20
	kmin, kmax = 5_000, 200_000 // bytes in the queue
	pmax       = 0.01           // at kmax; above it, everything is marked
	frameBytes = 1024 + 74 + 24 // path MTU 1024, headers, what Ethernet adds
	flight     = 5_000          // ns from one end of a cable to the other
)

// bottleneck is a network of senders, a port that they share, and a receiver.
type bottleneck struct {
	r        *rand.Rand
	params   Params
	senders  []sender
	free     clock.Time // the port has sent all that it holds
	longest  int
	lost     int
	cnps     int
	measured clock.Time
	now      clock.Time
}

type sender struct {
	limiter  Limiter
	notifier Notifier // at the receiver, for this QP
	at       clock.Time
	cnps     []clock.Time // on their way, by arrival
	sent     int          // bytes that came through since measure
}

func newBottleneck(seed uint64, p Params, senders int) *bottleneck {
	return &bottleneck{r: rand.New(rand.NewPCG(seed, 0)), params: p.WithDefaults(), senders: make([]sender, senders)}
}

func (n *bottleneck) measure() {
	n.measured = n.now
	for i := range n.senders {
		n.senders[i].sent = 0
	}
}

// rate returns the Gb/s that came through of a sender since measure.
func (n *bottleneck) rate(i int) float64 {
	return float64(n.senders[i].sent) * 8 / float64(n.now.Sub(n.measured))
}

// run lets the senders send until a time.
func (n *bottleneck) run(until clock.Time) {
	for {
		s := &n.senders[0]
		for i := range n.senders {
			if n.senders[i].at < s.at {
				s = &n.senders[i]
			}
		}
		if s.at >= until {
			n.now = until
			return
		}
		n.turn(s)
	}
}

// turn lets a sender send a frame if it may, at the time that it is due.
func (n *bottleneck) turn(s *sender) {
	now := s.at
	for len(s.cnps) > 0 && s.cnps[0] <= now {
		s.limiter.CNP(s.cnps[0], &n.params)
		s.cnps = s.cnps[1:]
	}
	if s.at = s.limiter.Ready(now, &n.params); s.at > now {
		return
	}
	s.limiter.Sent(frameBytes, now, &n.params)
	s.at = now.Add(onWire(n.params.LineRate))
	n.arrives(s, now.Add(flight))
}

func onWire(r Rate) time.Duration {
	return time.Duration(frameBytes * 8 * uint64(time.Second) / uint64(r))
}

// arrives has a frame wait in the port's queue, be marked there, and come to the
// receiver, whose CNP goes back.
func (n *bottleneck) arrives(s *sender, now clock.Time) {
	n.free = max(n.free, now)
	queue := int(uint64(n.free.Sub(now)) * uint64(portRate/Gbps) / 8)
	n.longest = max(n.longest, queue)
	if queue+frameBytes > buffer {
		n.lost++
		return
	}
	marked := queue > kmax || queue > kmin && n.r.Float64() < pmax*float64(queue-kmin)/(kmax-kmin)
	n.free = n.free.Add(onWire(portRate))
	s.sent += frameBytes
	if at := n.free.Add(flight); marked && s.notifier.Marked(at, &n.params) {
		n.cnps++
		s.cnps = append(s.cnps, at.Add(2*flight))
	}
}
