package netns

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/xdp"
)

const (
	// headers are the bytes of a packet in the middle of a WRITE, and of a SEND of
	// one packet, that are no payload: Ethernet, IPv4, UDP, BTH and ICRC.
	headers = 14 + 20 + 8 + 12 + 4
	// turn is how long the transport and its yardstick run by turns, and turns how
	// many of each a round of a benchmark has.
	turn  = 50 * time.Millisecond
	turns = 5
	// message is the size of the WRITEs, and depth how many are in flight. All are
	// of one buffer, as ib_write_bw's are.
	message = 64 << 10
	depth   = 16
)

// duel collects what two sides that take turns have reached. Of the turns of each
// the quiet ones count, so that a busy machine does not make one look worse than
// the other.
type duel struct {
	bare, ours []float64
	rate       bool // more is better
}

func (d *duel) add(bare, ours float64) { d.bare, d.ours = append(d.bare, bare), append(d.ours, ours) }

func (d *duel) report(b *testing.B, unit string) {
	bare, ours := d.quiet(d.bare), d.quiet(d.ours)
	b.ReportMetric(ours, unit)
	b.ReportMetric(bare, "bare-"+unit)
	b.ReportMetric(ours/bare, "x-bare")
	b.ReportMetric(0, "ns/op") // it means nothing
}

// quiet returns the value that a fifth of all are better than.
func (d *duel) quiet(v []float64) float64 {
	slices.Sort(v)
	if d.rate {
		return v[len(v)-1-len(v)/5]
	}
	return v[len(v)/5]
}

// rounds runs a benchmark's loop, with turns of each side in each iteration.
func rounds(b *testing.B) iter.Seq[int] {
	return func(yield func(int) bool) {
		for b.Loop() {
			for i := range turns {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// withWire runs f over bare sockets at the ends of a pair.
func withWire(pair *nettest.Pair, f func(*barexdp.Wire) error) error {
	w, err := barexdp.Over(pair, xdp.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(w), w.Close())
}

// withSides runs f with connected sides over devices at the ends of a pair.
func withSides(b *testing.B, pair *nettest.Pair, o verbs.ConnectOptions, f func(x, y *side)) {
	withSidesOver(b, pair, verbs.LinkAFXDP, o, f)
}

func withSidesOver(b *testing.B, pair *nettest.Pair, link verbs.LinkKind, o verbs.ConnectOptions, f func(x, y *side)) {
	var devs [2]*verbs.Device
	for i, e := range pair.Ends {
		if err := e.NS.Do(func() (err error) { devs[i], err = verbs.Open(e.Name, verbs.Options{Link: link}); return err }); err != nil {
			b.Fatal(err)
		}
	}
	f(newSides(b, pair, devs, message, o))
	for _, d := range devs {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkWrite gives the packet rate of 64 KiB WRITEs over a veth pair and its
// ratio to that of bare AF_XDP frames of the size of their packets over the same
// pair, each driven in the way that is fastest for it.
func BenchmarkWrite(b *testing.B) {
	for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU2048, ib.MTU4096} {
		b.Run(fmt.Sprintf("path-mtu=%d", mtu.Bytes()), func(b *testing.B) {
			pair := nettest.New(b, nettest.Config{MTU: max(1500, mtu.Bytes()+ib.RoCEOverhead)})
			d := duel{rate: true}
			for range rounds(b) {
				var bare, ours float64
				if err := withWire(pair, func(w *barexdp.Wire) (err error) { bare, err = bareRate(w, mtu.Bytes()+headers); return err }); err != nil {
					b.Fatal(err)
				}
				withSides(b, pair, verbs.ConnectOptions{PathMTU: mtu}, func(x, y *side) {
					ours = writeRate(b, x, y) * float64(message/mtu.Bytes())
				})
				d.add(bare/1e3, ours/1e3)
			}
			b.ReportMetric(d.quiet(d.ours)*float64(mtu.Bytes())/1e3, "MB/s")
			d.report(b, "kpps")
		})
	}
}

// BenchmarkAFPacket gives the packet rate of 64 KiB WRITEs and the round trip of an
// 8-byte SEND over AF_PACKET, and their ratios to those over AF_XDP, on the same veth
// pair. Veth makes an skb of each packet of AF_XDP, too: on other devices AF_XDP
// gains more.
func BenchmarkAFPacket(b *testing.B) {
	links := []verbs.LinkKind{verbs.LinkAFXDP, verbs.LinkAFPacket}
	for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU4096} {
		b.Run(fmt.Sprintf("write/path-mtu=%d", mtu.Bytes()), func(b *testing.B) {
			compareLinks(b, links, mtu, duel{rate: true}, "kpps", func(x, y *side) float64 {
				return writeRate(b, x, y) * float64(message/mtu.Bytes()) / 1e3
			})
		})
	}
	b.Run("round-trip", func(b *testing.B) {
		compareLinks(b, links, ib.MTU1024, duel{}, "p50-ns", func(x, y *side) float64 { return float64(roundTrip(b, x, y, true)) })
	})
}

// compareLinks measures over the first and the second kind of link by turns.
func compareLinks(b *testing.B, links []verbs.LinkKind, mtu ib.MTU, d duel, unit string, measure func(x, y *side) float64) {
	pair := nettest.New(b, nettest.Config{MTU: max(1500, mtu.Bytes()+ib.RoCEOverhead)})
	for range rounds(b) {
		var got [2]float64
		for i, link := range links {
			withSidesOver(b, pair, link, verbs.ConnectOptions{PathMTU: mtu}, func(x, y *side) { got[i] = measure(x, y) })
		}
		d.add(got[0], got[1])
	}
	first, second := d.quiet(d.bare), d.quiet(d.ours)
	b.ReportMetric(second, unit)
	b.ReportMetric(first, fmt.Sprintf("%v-%s", links[0], unit))
	b.ReportMetric(second/first, fmt.Sprintf("x-%v", links[0]))
	b.ReportMetric(0, "ns/op") // it means nothing
}

// bareRate returns bare frames per second: by one goroutine or by two.
func bareRate(w *barexdp.Wire, size int) (pps float64, err error) {
	for _, run := range []func(int, int) (barexdp.Rate, error){w.OneGoroutine, w.TwoGoroutines} {
		r, err := run(size, 2000)
		if err != nil {
			return 0, err
		}
		if r, err = run(size, int(r.PPS()*turn.Seconds())); err != nil {
			return 0, err
		}
		pps = max(pps, r.PPS())
	}
	return pps, nil
}

// ways are how the responder's side is driven.
type way int

const (
	byWorker  way = iota // not at all: its worker's goroutine does it
	byPoster             // polled by the goroutine that posts, by turns
	byAnother            // polled by a goroutine of its own
	ways
)

// writeRate returns WRITEs per second, of the fastest way.
func writeRate(b *testing.B, x, y *side) (rate float64) {
	w := &writer{side: x, to: y, wcs: make([]verbs.WC, depth)}
	for w.way = range ways {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for wcs := make([]verbs.WC, 1); w.way == byAnother; y.cq.Poll(wcs) {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		w.run(b, turn/10)
		n, elapsed := w.run(b, turn)
		rate = max(rate, float64(n)/elapsed.Seconds())
		close(stop)
		<-stopped
	}
	return rate
}

// writer keeps WRITEs in flight.
type writer struct {
	*side
	to  *side
	way way
	wcs []verbs.WC
}

func (w *writer) run(b *testing.B, limit time.Duration) (done int, elapsed time.Duration) {
	start := time.Now()
	for posted := 0; ; {
		for ; posted-done < depth && elapsed < limit; posted++ {
			w.write(b, w.to, 0, 0, message)
		}
		if posted == done {
			return done, elapsed
		}
		n := w.cq.Poll(w.wcs)
		for i := range n {
			if err := w.wcs[i].Err(); err != nil {
				b.Fatal(err)
			}
		}
		if done += n; n > 0 {
			elapsed = time.Since(start)
		}
		if w.way == byPoster {
			w.to.cq.Poll(w.wcs[:1])
		}
	}
}

// pingSize is the payload of a SEND whose round trip is measured.
const pingSize = 8

// BenchmarkSendRoundTrip gives the round trip of an 8-byte SEND over a veth pair
// and its ratio to that of a bare AF_XDP frame of the size of its packet over the
// same pair, both ends driven by one goroutine, or each by its own.
func BenchmarkSendRoundTrip(b *testing.B) {
	for _, two := range []bool{false, true} {
		name := map[bool]string{false: "one-goroutine", true: "two-goroutines"}[two]
		b.Run(name, func(b *testing.B) {
			pair := nettest.New(b, nettest.Config{})
			var d duel
			for range rounds(b) {
				var bare barexdp.Latency
				err := withWire(pair, func(w *barexdp.Wire) (err error) {
					run := w.RoundTrip
					if two {
						run = w.RoundTripTwo
					}
					bare, err = run(pingSize+headers, trips)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				withSides(b, pair, verbs.ConnectOptions{}, func(x, y *side) {
					d.add(float64(bare.P50), float64(roundTrip(b, x, y, two)))
				})
			}
			d.report(b, "p50-ns")
		})
	}
}

// trips are the round trips of a turn.
const trips = 4000

// roundTrip returns the median time of round trips.
func roundTrip(b *testing.B, x, y *side, two bool) time.Duration {
	p := [2]*player{newPlayer(b, x), newPlayer(b, y)}
	times := make([]time.Duration, trips)
	ended := make(chan struct{})
	if two {
		go func() {
			defer close(ended)
			for range trips {
				p[1].await(b, p[1])
				p[1].send(b)
			}
		}()
	}
	for i := range times {
		start := time.Now()
		p[0].send(b)
		if two {
			p[0].await(b, p[0])
		} else {
			p[1].await(b, p[0])
			p[1].send(b)
			p[0].await(b, p[1])
		}
		times[i] = time.Since(start)
	}
	if two {
		<-ended
	}
	slices.Sort(times)
	return times[trips/2]
}

// player is one end of a round trip.
type player struct {
	*side
	wcs      [8]verbs.WC
	received int
}

func newPlayer(b *testing.B, s *side) *player {
	p := &player{side: s}
	for range 64 {
		p.postRecv(b)
	}
	return p
}

func (p *player) postRecv(b *testing.B) {
	if _, err := p.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{p.mr.SGE(0, pingSize)}}); err != nil {
		b.Fatal(err)
	}
}

func (p *player) send(b *testing.B) {
	if _, err := p.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, SGEs: []verbs.SGE{p.mr.SGE(64, pingSize)}}); err != nil {
		b.Fatal(err)
	}
}

// await polls until the next message came, if need be at the end that sent it, too.
func (p *player) await(b *testing.B, sender *player) {
	for p.poll(b); p.received == 0; p.poll(b) {
		if sender != p {
			sender.poll(b)
		}
	}
	p.received--
}

func (p *player) poll(b *testing.B) {
	n := p.cq.Poll(p.wcs[:])
	for i := range n {
		if err := p.wcs[i].Err(); err != nil {
			b.Fatal(err)
		}
		if p.wcs[i].Opcode == verbs.WCRecv {
			p.received++
			p.postRecv(b)
		}
	}
}
