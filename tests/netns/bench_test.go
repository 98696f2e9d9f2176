package netns

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/barexdp"
	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/xdp"
)

const (
	// headers are the bytes of a packet in the middle of a WRITE that are no
	// payload: Ethernet, IPv4, UDP, BTH and ICRC.
	headers = 14 + 20 + 8 + 12 + 4
	// turn is how long the transport and its yardstick run by turns.
	turn = 50 * time.Millisecond
	// message is the size of the WRITEs, and depth how many are in flight.
	message = 64 << 10
	depth   = 16
)

// BenchmarkWrite gives the rate of 64 KiB WRITEs over a veth pair and its ratio
// to the rate of bare AF_XDP frames of the size of their packets over the same
// pair. Both take turns, opening the pair anew each time, and the ratio is the
// median of the turns': the machine may be busy with something else.
func BenchmarkWrite(b *testing.B) {
	for _, mtu := range []ib.MTU{ib.MTU1024, ib.MTU2048, ib.MTU4096} {
		b.Run(fmt.Sprintf("path-mtu=%d", mtu.Bytes()), func(b *testing.B) {
			pair := nettest.New(b, nettest.Config{MTU: max(1500, mtu.Bytes()+ib.RoCEOverhead)})
			var bare, ours, ratio []float64
			for b.Loop() {
				x := must(bareRate(pair, mtu.Bytes()+headers))
				y := writeRate(b, pair, mtu)
				bare, ours, ratio = append(bare, x/1e3), append(ours, y/1e3), append(ratio, y/x)
			}
			b.ReportMetric(median(ours)*float64(mtu.Bytes())/1e3, "MB/s")
			b.ReportMetric(median(ours), "kpps")
			b.ReportMetric(median(bare), "bare-kpps")
			b.ReportMetric(median(ratio), "x-bare")
		})
	}
}

// bareRate returns bare frames per second, of whichever way to drive the ends is
// the faster.
func bareRate(pair *nettest.Pair, size int) (pps float64, err error) {
	w, err := barexdp.Over(pair, xdp.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for k, run := range []func(int, int) (barexdp.Rate, error){w.OneGoroutine, w.TwoGoroutines} {
		r, err := run(size, 2000)
		if err != nil {
			return 0, err
		}
		c := cpu()
		if r, err = run(size, int(r.PPS()*turn.Seconds())); err != nil {
			return 0, err
		}
		fmt.Println("bare", k, int(r.PPS()/1e3), (cpu()-c)/time.Duration(r.Packets))
		pps = max(pps, r.PPS())
	}
	return pps, nil
}

func cpu() time.Duration {
	var u unix.Rusage
	unix.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writeRate returns packets per second of WRITEs, of whichever way to drive the
// ends is the faster: the responder's by the program too, or by its worker.
func writeRate(b *testing.B, pair *nettest.Pair, mtu ib.MTU) (pps float64) {
	var devs [2]*verbs.Device
	for i, e := range pair.Ends {
		if err := e.NS.Do(func() (err error) { devs[i], err = verbs.Open(e.Name, verbs.Options{}); return err }); err != nil {
			b.Fatal(err)
		}
		defer devs[i].Close()
	}
	s, to := newSides(b, pair, devs, depth*message, verbs.ConnectOptions{PathMTU: mtu})
	w := &writer{side: s, to: to, wcs: make([]verbs.WC, depth)}
	packets := float64(message / mtu.Bytes())
	for _, both := range []bool{true, false} {
		w.both = both
		w.run(b, turn/10)
		c := cpu()
		n, elapsed := w.run(b, turn)
		fmt.Println("ours", both, int(float64(n)*packets/elapsed.Seconds()/1e3), (cpu()-c)/time.Duration(float64(n)*packets))
		pps = max(pps, float64(n)*packets/elapsed.Seconds())
	}
	return pps
}

// writer keeps WRITEs in flight.
type writer struct {
	*side
	to   *side
	both bool // poll at the other side, too
	wcs  []verbs.WC
	next int
}

func (w *writer) run(b *testing.B, limit time.Duration) (done int, elapsed time.Duration) {
	start := time.Now()
	for posted := 0; done < posted || elapsed < limit; elapsed = time.Since(start) {
		for ; posted-done < depth && elapsed < limit; posted++ {
			w.write(b, w.to, 0, w.next%depth*message, message)
			w.next++
		}
		n := w.cq.Poll(w.wcs)
		for i := range n {
			if err := w.wcs[i].Err(); err != nil {
				b.Fatal(err)
			}
		}
		done += n
		if w.both {
			w.to.cq.Poll(w.wcs[:1])
		} else if n == 0 {
			runtime.Gosched()
		}
	}
	return done, elapsed
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
