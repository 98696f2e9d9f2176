// Package bench measures the bandwidth and the latency of operations between
// two connected sides.
package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/verbs"
)

// Job is one measurement.
type Job struct {
	Op       verbs.Opcode
	Size     int           // bytes of a message; atomics have 8
	Depth    int           // messages in flight on each QP; for bandwidth
	Iters    int           // messages, or round trips; 0: as many as fit in Duration
	Duration time.Duration // 0: Iters decides

	Progress func(Bandwidth) // now and then, if set; of a latency, the messages are round trips, and the bytes 0
}

// Atomic reports whether the operation is an atomic.
func (j *Job) Atomic() bool { return j.Op == verbs.OpCompareSwap || j.Op == verbs.OpFetchAdd }

// Received reports whether the operation takes a receive at the other side.
func (j *Job) Received() bool {
	return j.Op == verbs.OpSend || j.Op == verbs.OpSendImm || j.Op == verbs.OpWriteImm
}

// BufferFor is how many bytes of buffer a side needs for messages of up to size bytes: one half to send from, the other
// to receive in.
func BufferFor(size int) int { return 2 * half(size) }

func half(size int) int { return (max(size, 8) + 63) &^ 63 }

// Bandwidth is what was moved in what time.
type Bandwidth struct {
	Messages int
	Bytes    int64
	Elapsed  time.Duration
}

// MBps returns 10^6 bytes a second.
func (b Bandwidth) MBps() float64 { return float64(b.Bytes) / b.Elapsed.Seconds() / 1e6 }

// PerSecond returns messages a second.
func (b Bandwidth) PerSecond() float64 { return float64(b.Messages) / b.Elapsed.Seconds() }

// Latency is how long round trips, or operations, took.
type Latency struct {
	N                          int
	Min, Median, Avg, P99, Max time.Duration
}

// request makes the job's work request towards the peer's receiving half.
func (j *Job) request(s *rig.Side, to *rig.Address) verbs.SendWR {
	n := j.Size
	if j.Atomic() {
		n = 8
	}
	return verbs.SendWR{Opcode: j.Op, Flags: verbs.Signaled, SGEs: []verbs.SGE{s.MR.SGE(0, n)},
		RemoteAddr: to.Addr + uint64(to.Size/2), RKey: to.RKey, CompareAdd: 1}
}

// Send measures how fast messages get to the other side, which runs Receive.
func Send(ctx context.Context, s *rig.Side, to rig.Address, j Job) (Bandwidth, error) {
	b := &sender{s: s, j: &j, wr: j.request(s, &to), start: clock.Now()}
	for i := range s.QPs {
		if err := b.fill(i, j.Depth); err != nil {
			return b.bw, err
		}
	}
	wcs := make([]verbs.WC, 64)
	for b.inFlight > 0 {
		n, err := s.Wait(ctx, wcs)
		if err != nil {
			return b.bw, err
		}
		if err := b.completed(wcs[:n]); err != nil {
			return b.bw, err
		}
	}
	return b.bw, nil
}

// sender keeps messages in flight.
type sender struct {
	s        *rig.Side
	j        *Job
	wr       verbs.SendWR
	start    clock.Time
	posted   int
	inFlight int
	over     bool
	told     time.Duration
	bw       Bandwidth
}

// progressEvery is how often Progress is told.
const progressEvery = 200 * time.Millisecond

// fill posts up to n messages on the i-th QP.
func (b *sender) fill(i, n int) error {
	b.wr.ID = uint64(i)
	for ; n > 0 && !b.over; n-- {
		if b.j.Iters > 0 && b.posted == b.j.Iters {
			b.over = true
			break
		}
		if _, err := b.s.QPs[i].PostSend(b.wr); err != nil {
			return err
		}
		b.posted++
		b.inFlight++
	}
	return nil
}

func (b *sender) completed(wcs []verbs.WC) error {
	b.bw.Elapsed = clock.Now().Sub(b.start)
	b.over = b.over || b.j.Duration > 0 && b.bw.Elapsed >= b.j.Duration
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			return err
		}
		b.inFlight--
		b.bw.Messages++
		b.bw.Bytes += int64(b.wr.SGEs[0].Length)
		if err := b.fill(int(wcs[i].ID), 1); err != nil {
			return err
		}
	}
	if b.j.Progress != nil && b.bw.Elapsed-b.told >= progressEvery {
		b.told = b.bw.Elapsed
		b.j.Progress(b.bw)
	}
	return nil
}

// PostReceives fills the receive queues of a side; before the other one sends.
func PostReceives(s *rig.Side, j Job) error {
	if !j.Received() {
		return nil
	}
	for i, q := range s.QPs {
		for range q.InitAttr().Caps.MaxRecvWR {
			if err := postReceive(s, i, &j); err != nil {
				return err
			}
		}
	}
	return nil
}

func postReceive(s *rig.Side, i int, j *Job) error {
	wr := verbs.RecvWR{ID: receiveID | uint64(i), SGEs: []verbs.SGE{s.MR.SGE(len(s.Buf)/2, j.Size)}}
	if j.Op == verbs.OpWriteImm {
		wr.SGEs = nil
	}
	_, err := s.QPs[i].PostRecv(wr)
	return err
}

// receiveID marks the work request ids of receives; the rest is the QP's place.
const receiveID = 1 << 32

// Receive takes what Send sends until ctx ends; then it returns nil. It has to be called for every operation, since it
// also keeps this side's transport going.
func Receive(ctx context.Context, s *rig.Side, j Job) error {
	wcs := make([]verbs.WC, 64)
	for {
		n, err := s.Wait(ctx, wcs)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
			if wcs[i].ID&receiveID == 0 {
				return fmt.Errorf("a completion of work request %d, which isn't a receive", wcs[i].ID)
			}
			if err := postReceive(s, int(wcs[i].ID&^receiveID), &j); err != nil {
				return err
			}
		}
	}
}
