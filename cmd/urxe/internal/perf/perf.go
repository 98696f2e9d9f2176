// Package perf measures operations between two machines: a server waits, a
// client says over TCP what to run, and both run it.
package perf

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// Options are those of client and server; the server uses Port and GID only, the client tells it the rest.
type Options struct {
	PKeyIndex uint16 // of the QPs
	Host      string // of the server; empty: be the server
	Port      int    // TCP
	GID       int    // index of the local GID; negative: one that fits the peer's
	Test      Test
	Sizes     []int
	Progress  func(size int, b bench.Bandwidth)
	Each      func(Result) // is told each result as it comes
}

// Test is what is run, as the client tells the server.
type Test struct {
	Op       string        `json:"op"`   // write, read, send or atomic
	Mode     string        `json:"mode"` // bw or lat
	MTU      ib.MTU        `json:"mtu"`
	QPs      int           `json:"qps"`
	Depth    int           `json:"depth"` // messages in flight on each QP
	Iters    int           `json:"iters"` // 0: Duration decides
	Duration time.Duration `json:"duration"`
	Events   bool          `json:"events"` // sleep on completions
	Size     int           `json:"size"`   // of this round
}

// Modes.
const (
	Bandwidth = "bw"
	Latency   = "lat"
)

// Ops are the operations by the names that a user gives them.
var Ops = map[string]verbs.Opcode{"write": verbs.OpWrite, "read": verbs.OpRead, "send": verbs.OpSend, "atomic": verbs.OpFetchAdd}

// Limits of what a client may ask for.
const (
	MaxSize  = 1 << 28
	MaxQPs   = 256
	MaxDepth = 8192
)

// Result is what was measured at one size.
type Result struct {
	Op       string  `json:"op"`
	Mode     string  `json:"mode"`
	Size     int     `json:"size"`
	QPs      int     `json:"qps"`
	Messages int     `json:"messages"`
	Seconds  float64 `json:"seconds,omitempty"`
	MBps     float64 `json:"MBps,omitempty"`
	Rate     float64 `json:"messages_per_second,omitempty"`
	MinUs    float64 `json:"min_us,omitempty"`
	MedianUs float64 `json:"median_us,omitempty"`
	AvgUs    float64 `json:"avg_us,omitempty"`
	P99Us    float64 `json:"p99_us,omitempty"`
	MaxUs    float64 `json:"max_us,omitempty"`
}

// Check says what of the test can't be.
func (t *Test) Check() error {
	if _, ok := Ops[t.Op]; !ok {
		return fmt.Errorf("operation %q: want write, read, send or atomic", t.Op)
	}
	if t.Mode != Bandwidth && t.Mode != Latency {
		return fmt.Errorf("mode %q: want bw or lat", t.Mode)
	}
	for _, v := range []struct {
		name       string
		n, min, mx int
	}{{"size", t.Size, 0, MaxSize}, {"QPs", t.QPs, 1, MaxQPs}, {"depth", t.Depth, 1, MaxDepth}, {"iterations", t.Iters, 0, 1 << 40}} {
		if v.n < v.min || v.n > v.mx {
			return fmt.Errorf("%s %d: want %d to %d", v.name, v.n, v.min, v.mx)
		}
	}
	if !t.MTU.Valid() {
		return fmt.Errorf("path MTU: %v", t.MTU)
	}
	if t.Duration < 0 || t.Iters == 0 && t.Duration == 0 {
		return fmt.Errorf("duration %v and %d iterations: want one of them above 0, and none below", t.Duration, t.Iters)
	}
	if t.Mode == Latency {
		return bench.CheckPing(t.job())
	}
	return nil
}

func (t *Test) job() bench.Job {
	j := bench.Job{Op: Ops[t.Op], Size: t.Size, Depth: t.Depth, Iters: t.Iters, Duration: t.Duration}
	if j.Atomic() {
		j.Size = 8
	}
	return j
}

// side makes this machine's side of a round.
func (t *Test) side(d *verbs.Device, pkeyIndex uint16) (*rig.Side, error) {
	return rig.NewSide(d, rig.Config{
		PKeyIndex: pkeyIndex,
		Size:      bench.BufferFor(t.Size), QPs: t.QPs, Depth: max(t.Depth, 16), Events: t.Events && t.Mode == Bandwidth,
	})
}

func (t *Test) connect(s *rig.Side, remote rig.Address, gid int) error {
	if err := s.Connect(remote, verbs.ConnectOptions{GIDIndex: gid, PathMTU: t.MTU, MinRNRTimer: 1}); err != nil {
		return err
	}
	return bench.PostReceives(s, t.job())
}

// Run is the client or the server, whichever the options say.
func Run(ctx context.Context, d *verbs.Device, o Options) error {
	if o.Host == "" {
		return serve(ctx, d, o)
	}
	return runClient(ctx, d, o)
}

// closeWith closes c when ctx ends; the returned function undoes that.
func closeWith(ctx context.Context, c net.Conn) func() bool {
	return context.AfterFunc(ctx, func() { c.Close() })
}
