package sm

import (
	"fmt"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
)

// TestChainBeyondDirectedRoutes: a directed route has at most 63 hops. What is
// farther away is missing, and the sweep ends.
func TestChainBeyondDirectedRoutes(t *testing.T) {
	f := fabric.New(fabric.Defaults{})
	var last *fabric.Node
	for i := range 70 {
		n, err := f.Add(fabric.NodeSpec{ID: fmt.Sprintf("s%d", i), Type: mad.NodeSwitch, Ports: 2})
		if err != nil {
			t.Fatal(err)
		}
		if last != nil {
			if err := f.Link(last, 2, n, 1); err != nil {
				t.Fatal(err)
			}
		}
		last = n
	}
	b := swept(t, f, "s0", Config{})
	if len(b.snap.Fabric.Nodes) != 64 || len(b.snap.Missing) == 0 || b.said("SUBNET UP") {
		t.Errorf("%d nodes, missing: %q", len(b.snap.Fabric.Nodes), b.snap.Missing)
	}
}

// TestReconfigureInMidSweep: a configuration that comes at any moment of a sweep
// with lanes waits for its end.
func TestReconfigureInMidSweep(t *testing.T) {
	for steps := range 40 {
		b := newBed(t, load(t, "torus4x4"), "h0", Config{Engines: []string{"dfsssp"}})
		b.m.Start(b.now)
		for range steps {
			b.step()
		}
		b.m.Reconfigure(Config{Engines: []string{"dfsssp"}, Report: b.m.cfg.Report, Changed: b.m.cfg.Changed}, b.now)
		b.run(time.Minute)
		b.sweep()
		b.up()
	}
}

// TestTrapsOfStrangers: who forges traps of LIDs that nobody has cannot keep the
// manager sweeping.
func TestTrapsOfStrangers(t *testing.T) {
	b := swept(t, load(t, "ring8"), "h0", Config{})
	before := b.m.sweeps
	for i := range 1000 {
		var p mad.Packet
		p.MAD().Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
		n := mad.Notice(p.MAD().Data())
		n.SetIsGeneric(true)
		n.SetTrapNumber(mad.TrapLinkState)
		n.Details()[0], n.Details()[1] = 0x40, byte(i)
		b.m.Handle(&p, b.now)
		b.run(time.Millisecond)
	}
	b.run(time.Minute)
	if n := b.m.sweeps - before; n < babbling || n > babbling+5 {
		t.Errorf("%d sweeps for 1000 forged traps in a second", n)
	}
}
