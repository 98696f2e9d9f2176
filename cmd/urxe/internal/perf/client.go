package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/verbs"
)

// runClient runs the test at each size with the server.
func runClient(ctx context.Context, d *verbs.Device, o Options) error {
	if err := rig.CheckMTU(d, o.Test.MTU); err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(o.Host, fmt.Sprint(o.Port)))
	if err != nil {
		return fmt.Errorf("couldn't connect to %s:%d: %w (is urxe perf running there as a server?)", o.Host, o.Port, err)
	}
	defer c.Close()
	defer closeWith(ctx, c)()
	gid, err := rig.PickGID(d, o.GID, rig.PeerGID(c))
	if err != nil {
		return err
	}
	cl := &client{d, o, gid, newTalk(c)}
	for _, size := range o.Sizes {
		r, err := cl.round(ctx, size)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		o.Each(r)
	}
	return nil
}

type client struct {
	dev *verbs.Device
	o   Options
	gid int
	*talk
}

// round runs the test at one size.
func (c *client) round(ctx context.Context, size int) (r Result, err error) {
	t := c.o.Test
	t.Size = size
	side, err := t.side(c.dev, c.o.PKeyIndex)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, side.Close()) }()
	local, err := side.Address(c.gid)
	if err != nil {
		return r, err
	}
	if err := c.say(message{Test: &t, Address: &local}); err != nil {
		return r, err
	}
	m, err := c.hear()
	if err != nil {
		return r, err
	}
	if m.Address == nil {
		return r, errors.New("the server told no address")
	}
	if err := t.connect(side, *m.Address, c.gid); err != nil {
		return r, err
	}
	during, last := c.listen(ctx)
	if r, err = c.active(during, &t, side, *m.Address); err != nil {
		return r, err
	}
	if err := c.say(message{Done: true}); err != nil {
		return r, err
	}
	return r, <-last
}

// active measures.
func (c *client) active(ctx context.Context, t *Test, s *rig.Side, to rig.Address) (Result, error) {
	j := t.job()
	r := Result{Op: t.Op, Mode: t.Mode, Size: j.Size, QPs: t.QPs}
	if c.o.Progress != nil {
		j.Progress = func(b bench.Bandwidth) { c.o.Progress(j.Size, b) }
	}
	if t.Mode == Latency {
		l, err := bench.Ping(ctx, s, to, j)
		r.Messages, r.QPs = l.N, 1
		r.MinUs, r.MedianUs, r.AvgUs, r.P99Us, r.MaxUs = usec(l.Min), usec(l.Median), usec(l.Avg), usec(l.P99), usec(l.Max)
		return r, err
	}
	b, err := bench.Send(ctx, s, to, j)
	if err == nil {
		r.Messages, r.Seconds, r.MBps, r.Rate = b.Messages, b.Elapsed.Seconds(), b.MBps(), b.PerSecond()
	}
	return r, err
}

func usec(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
