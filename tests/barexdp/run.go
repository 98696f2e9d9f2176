package barexdp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// stall is how long a run waits for a frame that does not come.
const stall = 2 * time.Second

// OneGoroutine sends packets frames of size from end 0 to end 1, with one
// goroutine driving both: a packet is in the peer's ring when the send returns.
func (w *Wire) OneGoroutine(size, packets int) (Rate, error) {
	a, b := w.ends[0], w.ends[1]
	if err := w.begin(size); err != nil {
		return Rate{}, err
	}
	sent, got, last := 0, 0, time.Now()
	start := last
	for got < sent || sent < packets {
		n, err := a.send(size, packets-sent)
		if err != nil {
			return Rate{}, err
		}
		sent += n
		if m := b.receive(); m > 0 {
			got += m
			last = time.Now()
		} else if time.Since(last) > stall/20 {
			break // what is missing was dropped
		}
	}
	return Rate{Packets: got, Lost: sent - got, Elapsed: last.Sub(start)}, nil
}

// TwoGoroutines is the same with a goroutine for each end. The sender keeps at
// most as many frames on the way as the receiver has room for, so that nothing is
// lost to a receiver that is merely late.
func (w *Wire) TwoGoroutines(size, packets int) (Rate, error) {
	a, b := w.ends[0], w.ends[1]
	if err := w.begin(size); err != nil {
		return Rate{}, err
	}
	var sent, got atomic.Int64
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- a.pump(size, packets, w.window(size), &sent, &got) }()
	last := start
	for got.Load() < int64(packets) {
		if n := b.receive(); n > 0 {
			got.Add(int64(n))
			last = time.Now()
		} else if time.Since(last) > stall {
			break
		}
	}
	err := <-done
	n := int(got.Load())
	return Rate{Packets: n, Lost: int(sent.Load()) - n, Elapsed: last.Sub(start)}, err
}

// window is how many packets may be on the way: half of the frames that the
// receiver is sure to have in the kernel.
func (w *Wire) window(size int) int64 {
	frags := 1 + int64(size/3841)
	return int64(min(w.ports[1].Info().RxFrames, 1024)) / 2 / frags
}

// pump sends while the window has room.
func (e *end) pump(size, packets int, window int64, sent, got *atomic.Int64) error {
	last := time.Now()
	for sent.Load() < int64(packets) {
		room := min(window-(sent.Load()-got.Load()), int64(packets)-sent.Load())
		n, err := e.send(size, int(max(room, 0)))
		if err != nil {
			return err
		}
		if sent.Add(int64(n)); n > 0 {
			last = time.Now()
		} else if time.Since(last) > stall {
			return fmt.Errorf("barexdp: stalled with %d of %d packets received: lost on the way", got.Load(), packets)
		}
	}
	return nil
}

// begin drains the receiver and prepares the sender's frames.
func (w *Wire) begin(size int) error {
	for _, e := range w.ends {
		if size > e.s.MaxSend() || size > e.s.MaxReceive() {
			return fmt.Errorf("barexdp: frames of %d bytes need multi-buffer: %v", size, w.Info())
		}
		e.prepare(size)
		for e.receive() > 0 {
		}
	}
	return nil
}

// Latency is a distribution of round trip times: half of them, and 99 in 100, were
// no longer.
type Latency struct{ P50, P99 time.Duration }

var errLost = errors.New("barexdp: a frame was lost")

// RoundTrip measures n round trips of a frame of size, with one goroutine
// driving both ends.
func (w *Wire) RoundTrip(size, n int) (Latency, error) {
	if err := w.begin(size); err != nil {
		return Latency{}, err
	}
	times := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		for i := range w.ends {
			if _, err := w.ends[i].send(size, 1); err != nil {
				return Latency{}, err
			}
			if !w.ends[1-i].await() {
				return Latency{}, errLost
			}
		}
		times = append(times, time.Since(start))
	}
	return latency(times), nil
}

// RoundTripTwo is the same with a goroutine for each end, both spinning.
func (w *Wire) RoundTripTwo(size, n int) (Latency, error) {
	if err := w.begin(size); err != nil {
		return Latency{}, err
	}
	echo := make(chan error, 1)
	go func() { echo <- w.ends[1].echo(size, n) }()
	times := make([]time.Duration, 0, n)
	var err error
	for range n {
		start := time.Now()
		if _, err = w.ends[0].send(size, 1); err != nil {
			break
		}
		if !w.ends[0].await() {
			err = errLost
			break
		}
		times = append(times, time.Since(start))
	}
	return latency(times), errors.Join(err, <-echo)
}

func (e *end) echo(size, n int) error {
	for range n {
		if !e.await() {
			return errLost
		}
		if _, err := e.send(size, 1); err != nil {
			return err
		}
	}
	return nil
}

// await spins until a frame comes.
func (e *end) await() bool {
	for i := 0; ; i++ {
		if e.receive() > 0 {
			return true
		}
		if i%1024 != 1023 {
			continue
		}
		if i > 1<<28 {
			return false
		}
		runtime.Gosched()
	}
}

func latency(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	n := len(times)
	return Latency{P50: times[n/2], P99: times[n*99/100]}
}
