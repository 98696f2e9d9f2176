package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/ibsim"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm"
	"github.com/urxe/urxe/sm/subnet"
)

// setCounter is a port that counts the Sets of subnet management.
type setCounter struct {
	mad.Port
	sets atomic.Int64
}

func (c *setCounter) Send(p *mad.Packet) error {
	if m := p.MAD(); m.Class().Subnet() && m.Method() == mad.MethodSet {
		c.sets.Add(1)
	}
	return c.Port.Send(p)
}

// TestSecondSweepSetsNothing: the simulator's ports keep neither M_Key nor
// lease, and its switches say that they enforce nothing; they are told once.
func TestSecondSweepSetsNothing(t *testing.T) {
	for _, key := range []uint64{0, 0x77} {
		s := ibsimtest.Start(t, "../testdata/ft32.net")
		p, err := ibsim.Open(ibsim.Options{SockName: s.Name, Node: "h0"})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		local, err := p.Local()
		if err != nil {
			t.Fatal(err)
		}
		port, swept := &setCounter{Port: p}, make(chan *subnet.Snapshot, 4)
		cfg := sm.Config{
			MKey: key, MKeyLease: 60, MKeyProtect: 1, Enforce: sm.EnforceBoth, SweepInterval: -1,
			PKeys:   func(sm.Member) []ib.PKey { return []ib.PKey{0xffff, 0x8010} },
			Changed: func(s *subnet.Snapshot) { swept <- s },
		}
		r := sm.NewRunner(port, sm.New(cfg, local), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		first := (<-swept).Missing
		before := port.sets.Load()
		if err := r.Do(ctx, func(m *sm.Manager, now clock.Time) { m.Sweep(now) }); err != nil {
			t.Fatal(err)
		}
		second := (<-swept).Missing
		if len(first)+len(second) > 0 || before == 0 || port.sets.Load() != before {
			t.Errorf("M_Key %#x: %d Sets in the first sweep, %d in the second; missing %v, %v", key, before, port.sets.Load()-before, first, second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
