// Package demo shows what urxe does: two devices on one machine, every
// operation of a reliable connection between them, each byte checked, and how
// fast it was.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// Options are what a demonstration is like. Link and MTU must be set.
type Options struct {
	Link     string // LinkAFXDP, LinkAFPacket or LinkMem
	MTU      ib.MTU
	Duration time.Duration // of each measurement
	Progress io.Writer     // where to say what is being done; nil: nowhere
}

// Result is what was found.
type Result struct {
	Link        string      `json:"link"`
	Description string      `json:"description"`
	Rung        string      `json:"rung,omitempty"`         // how the link was opened
	Reasons     []string    `json:"rung_reasons,omitempty"` // what was wrong with each better way
	PathMTU     int         `json:"path_mtu"`
	GIDs        [2]string   `json:"gids"`
	Operations  []Operation `json:"operations"`
}

// Operation is what was found of one operation.
type Operation struct {
	Name          string  `json:"name"`
	Verified      bool    `json:"verified"` // every byte of every message, and those around it
	Messages      int     `json:"messages"` // that were verified
	Bytes         int64   `json:"bytes"`
	LatencySize   int     `json:"latency_size"`
	LatencyUsec   float64 `json:"latency_usec"` // median of round trips
	BandwidthSize int     `json:"bandwidth_size"`
	BandwidthMBps float64 `json:"bandwidth_MBps"`
	MessageRate   float64 `json:"messages_per_second"` // at that size
}

const (
	bandwidthSize = 1 << 16
	depth         = 32
)

// operations in the order in which they are shown.
var operations = []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead,
	verbs.OpCompareSwap, verbs.OpFetchAdd}

// Run opens the devices, runs everything and closes them again.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	open := openMem
	switch o.Link {
	case LinkAFXDP:
		open = func() (*link, error) { return openVeth(o.MTU, verbs.LinkAFXDP) }
	case LinkAFPacket:
		open = func() (*link, error) { return openVeth(o.MTU, verbs.LinkAFPacket) }
	}
	l, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	d := &demo{o: o, l: l, r: &Result{Link: l.name, Description: l.describe, Rung: l.rung, Reasons: l.reasons, PathMTU: o.MTU.Bytes()}}
	for i, dev := range l.devices {
		g, err := dev.QueryGID(gidIndex(dev))
		if err != nil {
			return nil, err
		}
		d.r.GIDs[i] = g.String()
	}
	for _, op := range operations {
		if err := d.show(ctx, op); err != nil {
			return nil, fmt.Errorf("%v: %w", op, err)
		}
	}
	return d.r, nil
}

type demo struct {
	o Options
	l *link
	r *Result
}

// gidIndex is the first IPv4 GID; both kinds of links have one.
func gidIndex(d *verbs.Device) int {
	for i, g := range d.GIDs() {
		if g.Is4() {
			return i
		}
	}
	return 0
}

// show verifies and measures one operation.
func (d *demo) show(ctx context.Context, op verbs.Opcode) (err error) {
	if d.o.Progress != nil {
		fmt.Fprintf(d.o.Progress, "%v …\n", op)
	}
	o := Operation{Name: op.String(), LatencySize: 8, BandwidthSize: bandwidthSize}
	if o.Messages, o.Bytes, err = d.verify(ctx, op); err != nil {
		return err
	}
	o.Verified = true
	job := bench.Job{Op: op, Size: 8, Depth: depth, Duration: d.o.Duration}
	if job.Atomic() {
		o.BandwidthSize = 8
	}
	lat, err := d.latency(ctx, job)
	if err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	job.Size = o.BandwidthSize
	bw, err := d.bandwidth(ctx, job)
	if err != nil {
		return fmt.Errorf("bandwidth: %w", err)
	}
	o.LatencyUsec = float64(lat.Median.Nanoseconds()) / 1e3
	o.BandwidthMBps, o.MessageRate = bw.MBps(), bw.PerSecond()
	d.r.Operations = append(d.r.Operations, o)
	return nil
}

// pair is two connected sides, and what each knows of the other.
type pair struct {
	sides [2]*rig.Side
	addrs [2]rig.Address
}

// connect makes fresh sides.
func (d *demo) connect(size int) (p *pair, err error) {
	p = &pair{}
	for i, dev := range d.l.devices {
		if p.sides[i], err = rig.NewSide(dev, rig.Config{Size: size, Depth: depth}); err != nil {
			return nil, err
		}
		if p.addrs[i], err = p.sides[i].Address(gidIndex(dev)); err != nil {
			return nil, err
		}
	}
	for i, s := range p.sides {
		o := verbs.ConnectOptions{GIDIndex: gidIndex(s.Dev), PathMTU: d.o.MTU, MinRNRTimer: 1}
		if err := s.Connect(p.addrs[1-i], o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pair) close() error { return errors.Join(p.sides[0].Close(), p.sides[1].Close()) }

func (d *demo) verify(ctx context.Context, op verbs.Opcode) (messages int, bytes int64, err error) {
	p, err := d.connect(verifySize)
	if err != nil {
		return 0, 0, err
	}
	v := &verifier{ctx: ctx, a: p.sides[0], b: p.sides[1], to: p.addrs[1], op: op}
	err = errors.Join(v.run(), p.close())
	return v.messages, v.bytes, err
}

func (d *demo) latency(ctx context.Context, j bench.Job) (l bench.Latency, err error) {
	err = d.both(ctx, j, func(ctx context.Context, p *pair) error { return bench.Pong(ctx, p.sides[1], p.addrs[0], j) },
		func(ctx context.Context, p *pair) error {
			l, err = bench.Ping(ctx, p.sides[0], p.addrs[1], j)
			return err
		})
	return l, err
}

func (d *demo) bandwidth(ctx context.Context, j bench.Job) (b bench.Bandwidth, err error) {
	err = d.both(ctx, j, func(ctx context.Context, p *pair) error { return bench.Receive(ctx, p.sides[1], j) },
		func(ctx context.Context, p *pair) error {
			b, err = bench.Send(ctx, p.sides[0], p.addrs[1], j)
			return err
		})
	return b, err
}

// both runs the passive side of a measurement while the active one is at work.
func (d *demo) both(ctx context.Context, j bench.Job, passive, active func(context.Context, *pair) error) error {
	p, err := d.connect(bench.BufferFor(j.Size))
	if err != nil {
		return err
	}
	for _, s := range p.sides {
		if err := bench.PostReceives(s, j); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		if failed = passive(ctx, p); failed != nil {
			cancel()
		}
	})
	err = active(ctx, p)
	cancel()
	wg.Wait()
	return errors.Join(failed, err, p.close())
}
