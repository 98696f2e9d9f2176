package rocev2

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/tests/conform"
)

// Two Ports WRITE without end to a third, through a switch whose port there has
// 10 Gb/s and marks by RED, as in the DCQCN paper: each gets its half, the queue
// stays short, nothing is lost. With congestion control off, the switch holds
// what the senders' windows are worth.
func TestTwoPortsShareOne(t *testing.T) {
	if testing.Short() {
		t.Skip("120 ms of three ports and a switch take a while under the race detector")
	}
	conform.Row(t, "5.9/reaction")
	for name, c := range map[string]Config{"paper": {}, "mlx5": {Congestion: cc.MLX5}, "off": {NoCongestionControl: true}} {
		t.Run(name, func(t *testing.T) {
			s := newCrossing(t, c)
			s.run(40 * time.Millisecond) // they come to terms
			s.measured, s.got, s.queued, s.steps = s.now, [2]int{}, 0, 0
			s.run(80 * time.Millisecond)
			x, y := s.rate(0), s.rate(1)
			mean := s.queued / s.steps
			t.Logf("%.2f and %.2f Gb/s, %d KB wait on average, %d KB at most, %d frames lost", x, y, mean/1000, s.longest/1000, s.lost)
			if min(x, y) < 4 || max(x, y) > 6 {
				t.Errorf("%.2f and %.2f Gb/s, want each within 20 %% of 5", x, y)
			}
			if s.lost > 0 || s.longest > room/2 {
				t.Errorf("%d frames lost, %d bytes wait at most", s.lost, s.longest)
			}
			if c.NoCongestionControl != (mean > kmax) {
				t.Errorf("%d bytes wait on average", mean)
			}
		})
	}
}

const (
	kmin, kmax = 5_000, 200_000 // bytes that wait: from here on some are marked, and all
	pmax       = 0.01           // part of those marked at kmax
	room       = 1 << 20        // bytes that the switch's port holds
	message    = 1 << 16
	cable      = 2 * time.Microsecond
)

// crossing is two senders, the switch, and the receiver.
type crossing struct {
	t        *testing.T
	r        *rand.Rand
	now      clock.Time
	ports    [3]*Port // the receiver is the last
	ends     [3]Link  // of the cables, at the switch
	senders  [2]*endpoint
	peers    [2]*endpoint
	free     clock.Time // the congested port has sent what it holds
	there    flying     // to the receiver
	back     flying     // from it
	got      [2]int     // bytes of each sender since measured
	measured clock.Time
	longest  int
	queued   int // bytes that waited, summed over steps
	steps    int
	lost     int
}

// flying are frames on their way, in order.
type flying []struct {
	at    clock.Time
	to    int
	frame []byte
}

func newCrossing(t *testing.T, c Config) *crossing {
	s := &crossing{t: t, r: rand.New(rand.NewPCG(1, 2)), now: 1e9}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		x, y, err := NewPair(PairOptions{Frames: 4096})
		if err != nil {
			t.Fatal(err)
		}
		c.Name, c.Links, c.Manual, c.Net = addr, []Link{x}, true, &FixedNet{Addresses: []ib.GID{gid(addr)}}
		if s.ports[i], err = NewPort(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.ports[i].Close() })
		s.ends[i] = y
	}
	for i := range s.senders {
		s.senders[i], s.peers[i] = newEndpoint(t, s.ports[i], message, 16), newEndpoint(t, s.ports[2], message, 16)
		join(t, s.senders[i], s.peers[i], ib.MTU1024)
		for range 8 {
			s.post(i)
		}
	}
	return s
}

func (s *crossing) post(i int) {
	x := s.senders[i]
	x.sq.Post(&qp.SendWQE{ID: 1, Opcode: qp.WRWrite, SGEs: x.sge(0, message), RKey: s.peers[i].mr.Key})
	x.Doorbell()
}

// rate returns the Gb/s of a sender since measured.
func (s *crossing) rate(i int) float64 { return float64(s.got[i]) * 8 / float64(s.now.Sub(s.measured)) }

// run lets a time pass, a microsecond a step.
func (s *crossing) run(d time.Duration) {
	for end := s.now.Add(d); s.now < end; s.now = s.now.Add(time.Microsecond) {
		for i, p := range s.ports {
			for p.Workers()[0].Step(s.now) {
			}
			s.takes(i)
		}
		s.there = s.arrive(s.there)
		s.back = s.arrive(s.back)
		for i, x := range s.senders {
			for _, c := range x.cq.take() {
				if c.Status != qp.Success {
					s.t.Fatalf("sender %d: %+v", i, c)
				}
				s.post(i)
			}
		}
		s.queued += s.waiting(s.now)
		s.steps++
	}
}

// waiting returns the bytes that wait in the congested port.
func (s *crossing) waiting(now clock.Time) int {
	return max(0, int(s.free.Sub(now))*10/8)
}

// takes takes what a port has sent into the switch.
func (s *crossing) takes(from int) {
	var f [64]RxFrame
	for n := s.ends[from].Recv(f[:]); n > 0; n = s.ends[from].Recv(f[:]) {
		for i := range n {
			b := bytes.Join(f[i].Frag[:], nil)
			if from < 2 {
				s.enqueue(from, b)
				continue
			}
			to := int(b[33]) - 1 // the last byte of the IPv4 destination
			s.back = append(s.back, flying{{s.now.Add(2 * cable), to, b}}...)
		}
		s.ends[from].Release(f[:n])
	}
}

// enqueue has a frame wait for the congested port, and be marked.
func (s *crossing) enqueue(from int, b []byte) {
	at := s.now.Add(cable)
	queue := s.waiting(at)
	s.longest = max(s.longest, queue)
	if queue+len(b) > room {
		s.lost++
		return
	}
	ect := b[15]&ecnMask == ecnECT0
	if ect && (queue > kmax || queue > kmin && s.r.Float64() < pmax*float64(queue-kmin)/(kmax-kmin)) {
		b[15] |= ecnCE
	}
	onWire := len(b) + ethernetOverhead
	s.free = max(s.free, at).Add(time.Duration(onWire * 8 / 10))
	s.got[from] += onWire
	s.there = append(s.there, flying{{s.free.Add(cable), 2, b}}...)
}

// arrive delivers what is due.
func (s *crossing) arrive(f flying) flying {
	for len(f) > 0 && f[0].at <= s.now {
		var tx TxFrame
		end := s.ends[f[0].to]
		if !end.Reserve(&tx, len(f[0].frame)) {
			s.t.Fatal("no frame")
		}
		tx.Frag[0] = tx.Frag[0][:copy(tx.Frag[0][:len(f[0].frame)], f[0].frame)]
		end.Send(&tx)
		if err := end.Flush(); err != nil {
			s.t.Fatal(err)
		}
		f = f[1:]
	}
	return f
}
