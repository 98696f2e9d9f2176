package sm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Runner drives a Manager over a port. Use NewRunner.
type Runner struct {
	port mad.Port
	m    *Manager
	in   chan received
	cmd  chan func(*Manager, clock.Time)
	gsi  func([]mad.Packet)
	free sync.Pool // of *batch
}

// batch is what one Recv may bring.
type batch [64]mad.Packet

type received struct {
	b *batch
	n int
}

// NewRunner returns a runner. Packets that are no subnet management (of the
// subnet administrator's class and others) go to gsi, which must not wait; nil
// drops them.
func NewRunner(port mad.Port, m *Manager, gsi func([]mad.Packet)) *Runner {
	r := &Runner{port: port, m: m, in: make(chan received, 64), cmd: make(chan func(*Manager, clock.Time)), gsi: gsi}
	r.free.New = func() any { return new(batch) }
	return r
}

// Do runs f between two packets, and returns when it has. It is how others get
// at the Manager while Run runs.
func (r *Runner) Do(ctx context.Context, f func(*Manager, clock.Time)) error {
	done := make(chan struct{})
	select {
	case r.cmd <- func(m *Manager, now clock.Time) { f(m, now); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// Run starts the Manager and carries packets until ctx ends, which is no error,
// or the port breaks.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.port.SetSM(true); err != nil {
		return fmt.Errorf("cannot become a subnet manager at this port: %w", err)
	}
	defer r.port.SetSM(false)
	broken := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go r.read(broken, stop)
	r.m.Start(clock.Now())
	for {
		if err := r.send(); err != nil {
			return err
		}
		if err := r.wait(ctx, broken); err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				return nil
			}
			return err
		}
	}
}

// read hands packets over until the port is closed.
func (r *Runner) read(broken chan<- error, stop <-chan struct{}) {
	for {
		b := r.free.Get().(*batch)
		n, err := r.port.Recv(b[:])
		if err != nil {
			broken <- err
			return
		}
		select {
		case r.in <- received{b, n}:
		case <-stop:
			return
		}
	}
}

func (r *Runner) send() error {
	var p mad.Packet
	for r.m.Next(&p, clock.Now()) {
		if err := r.port.Send(&p); err != nil {
			return fmt.Errorf("sending %v: %w", p.MAD(), err)
		}
	}
	return nil
}

// wait takes whatever comes next.
func (r *Runner) wait(ctx context.Context, broken <-chan error) error {
	var timer <-chan time.Time
	if d := r.m.Deadline(); d != clock.Never {
		t := time.NewTimer(d.Sub(clock.Now()))
		defer t.Stop()
		timer = t.C
	}
	select {
	case in := <-r.in:
		r.handle(in.b[:in.n])
		r.free.Put(in.b)
	case f := <-r.cmd:
		f(r.m, clock.Now())
	case <-timer:
		r.m.Expire(clock.Now())
	case err := <-broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (r *Runner) handle(ps []mad.Packet) {
	var others []mad.Packet
	for i := range ps {
		if ps[i].MAD().Class().Subnet() {
			r.m.Handle(&ps[i], clock.Now())
		} else {
			others = append(others, ps[i])
		}
	}
	if len(others) > 0 && r.gsi != nil {
		r.gsi(others)
	}
}
