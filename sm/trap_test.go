package sm

import (
	"testing"
	"time"

	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
)

// TestLostTrapOfNeighbour: a switch dies, and one of its neighbours cannot say
// so, since its trap goes through the dead one. The switch is gone all the same,
// and soon.
func TestLostTrapOfNeighbour(t *testing.T) {
	f := load(t, "kfat8")
	b := newBed(t, f, "h0", Config{})
	b.m.Start(b.now)
	b.sweep()
	f.SetLosses(fabric.Loss{Node: f.Node("edge7_2"), Attr: mad.AttrNotice, Answers: 1})
	dead := f.Node("agg7_0")
	dead.Fail()
	b.run(5 * time.Second)
	if _, there := b.snap.ByGUID[dead.GUID()]; there {
		t.Error("the dead switch is still there")
	}
	b.up()
}

// TestLostTrapBesideProblem: something that stays missing does not keep light
// sweeps from finding what no trap told of.
func TestLostTrapBesideProblem(t *testing.T) {
	f := load(t, "kfat8")
	deaf := fabric.Loss{Node: f.Node("h9"), Requests: 1}
	f.SetLosses(deaf)
	b := newBed(t, f, "h0", Config{})
	b.m.Start(b.now)
	b.sweep()
	f.SetLosses(deaf, fabric.Loss{Attr: mad.AttrNotice, Answers: 1})
	if err := f.Node("agg3_1").Unlink(5); err != nil {
		t.Fatal(err)
	}
	b.run(time.Minute)
	if err := b.audit().Err(); err != nil {
		t.Error(err)
	}
	if len(b.snap.Missing) != 1 {
		t.Errorf("missing %q: want the port that h9 is behind", b.snap.Missing)
	}
	if p := b.m.nodes[f.Node("agg3_1").GUID()].port(5); p.peer != nil {
		t.Error("the link that was lost is still there")
	}
}
