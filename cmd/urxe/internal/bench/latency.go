package bench

import (
	"context"
	"fmt"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/verbs"
)

// Ping measures round trips on the first QP: the message goes over and one of its kind comes back, which Pong at the other
// side sees to. A READ or an atomic is a round trip by itself. A WRITE is seen by its last byte changing.
func Ping(ctx context.Context, s *rig.Side, to rig.Address, j Job) (Latency, error) {
	p, t := newPlayer(s, to, j), newTrips()
	start := clock.Now()
	told := start
	for last := start; j.Iters == 0 || t.n < j.Iters; {
		if err := p.trip(ctx); err != nil {
			return t.latency(), err
		}
		now := clock.Now()
		t.add(now.Sub(last))
		if last = now; j.Progress != nil && now.Sub(told) >= progressEvery {
			j.Progress(Bandwidth{Messages: t.n, Elapsed: now.Sub(start)})
			told = now
			last = clock.Now() // telling is no part of a trip
		}
		if j.Duration > 0 && now.Sub(start) >= j.Duration {
			break
		}
	}
	return t.latency(), nil
}

// Pong answers Ping until ctx ends; then it returns nil.
func Pong(ctx context.Context, s *rig.Side, to rig.Address, j Job) error {
	p := newPlayer(s, to, j)
	for {
		if err := p.await(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := p.post(ctx); err != nil {
			return err
		}
	}
}

// player is one side of a ping-pong.
type player struct {
	s    *rig.Side
	j    Job
	wr   verbs.SendWR
	tag  uint8 // the last byte of the WRITE that is sent or awaited
	wcs  [16]verbs.WC
	rcvd int // receives that were completed and not awaited yet
	sent int // sends in flight
}

func newPlayer(s *rig.Side, to rig.Address, j Job) *player {
	return &player{s: s, j: j, wr: j.request(s, &to)}
}

// oneSided reports whether the operation is a round trip by itself.
func (p *player) oneSided() bool { return p.j.Op == verbs.OpRead || p.j.Atomic() }

// trip is one round trip.
func (p *player) trip(ctx context.Context) error {
	p.tag++
	if err := p.post(ctx); err != nil {
		return err
	}
	if p.oneSided() {
		return p.reap(ctx, func() bool { return p.sent == 0 })
	}
	return p.awaitTag(ctx)
}

// await waits for the other side's next message.
func (p *player) await(ctx context.Context) error {
	p.tag++
	return p.awaitTag(ctx)
}

func (p *player) awaitTag(ctx context.Context) error {
	if p.j.Op == verbs.OpWrite {
		last := len(p.s.Buf)/2 + p.j.Size - 1
		return p.reap(ctx, func() bool { return p.s.MR.Load8(last) == p.tag })
	}
	if err := p.reap(ctx, func() bool { return p.rcvd > 0 }); err != nil {
		return err
	}
	p.rcvd--
	return nil
}

// post sends one message. The one before it has arrived, as the other side answered it; but only its completion says that
// its memory may be changed, and that its place in the queue is free.
func (p *player) post(ctx context.Context) error {
	most := p.s.QPs[0].InitAttr().Caps.MaxSendWR - 1
	if p.j.Op == verbs.OpWrite {
		most = 0
	}
	if err := p.reap(ctx, func() bool { return p.sent <= most }); err != nil {
		return err
	}
	if p.j.Op == verbs.OpWrite {
		p.s.Buf[p.j.Size-1] = p.tag
	}
	p.sent++
	_, err := p.s.QPs[0].PostSend(p.wr)
	return err
}

// reap takes completions until done says so.
func (p *player) reap(ctx context.Context, done func() bool) error {
	for i := 1; !done(); i++ {
		n := p.s.CQ.Poll(p.wcs[:])
		if n == 0 && i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for k := range p.wcs[:n] {
			if err := p.completed(&p.wcs[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) completed(wc *verbs.WC) error {
	if err := wc.Err(); err != nil {
		return err
	}
	if wc.ID&receiveID == 0 {
		p.sent--
		return nil
	}
	p.rcvd++
	return postReceive(p.s, int(wc.ID&^receiveID), &p.j)
}

// CheckPing says whether the latency of a job can be measured.
func CheckPing(j Job) error {
	if j.Op == verbs.OpWrite && j.Size == 0 {
		return fmt.Errorf("a WRITE of 0 bytes can't be seen by who waits for it: size 1 at least")
	}
	return nil
}
