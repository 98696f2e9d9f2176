package sm

import (
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
)

// TestLostTrapOfNeighbour: a switch dies, and one of its neighbours cannot say
// so, since its trap goes through the dead one. The switch is gone all the same,
// and soon.
func TestLostTrapOfNeighbour(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
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
	b := swept(t, f, "h0", Config{})
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

// raise sends a trap of a port so many times, a tenth of a second apart.
func (b *bed) raise(n *fabric.Node, num int, number mad.TrapNumber, times int) {
	b.t.Helper()
	for range times {
		if err := n.RaiseTrap(num, number); err != nil {
			b.t.Fatal(err)
		}
		b.run(100 * time.Millisecond)
	}
}

// routed counts the LIDs that a switch forwards by a port.
func (b *bed) routed(n *fabric.Node, num uint8) (count int) {
	b.t.Helper()
	g := b.snap.Routing.Graph
	x := b.m.nodes[n.GUID()]
	for blk := 0; blk*64 <= int(g.MaxLID); blk++ {
		for _, out := range b.read(x, mad.AttrLinearFT, uint32(blk)) {
			if out == num {
				count++
			}
		}
	}
	return count
}

// TestTrapsAreRepressed: every trap is answered, with the M_Key.
func TestTrapsAreRepressed(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{MKey: 0x1234, MKeyProtect: 1})
	leaf := f.Node("leaf1")
	for _, number := range []mad.TrapNumber{mad.TrapLinkIntegrity, mad.TrapBufferOverrun, mad.TrapFlowControl} {
		b.raise(leaf, 3, number, 1)
	}
	f.Node("h9").SetDescription("renamed")
	f.Node("h9").SetSystemGUID(0x77)
	if err := leaf.Unlink(9); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	b.up()
	f.ResendTraps() // what found no way when the link went
	b.run(time.Second)
	before := f.Stats().Delivered
	f.ResendTraps()
	if again := f.Stats().Delivered - before; again != 0 {
		t.Errorf("%d traps come again after they were answered", again)
	}
}

// TestBabblingLinkIsRoutedAround: more than ten traps about a link in a row, and
// nothing goes over it until it has been quiet for a minute.
func TestBabblingLinkIsRoutedAround(t *testing.T) {
	for _, number := range []mad.TrapNumber{mad.TrapLinkIntegrity, mad.TrapBufferOverrun, mad.TrapFlowControl} {
		f := load(t, "kfat8")
		b := swept(t, f, "h0", Config{})
		agg := f.Node("agg0_0")
		full := b.routed(agg, 5)
		b.raise(agg, 5, number, babbling)
		if n := b.routed(agg, 5); n != full || full == 0 {
			t.Errorf("trap %d: %d LIDs go by the port after %d traps, %d before", number, n, babbling, full)
		}
		b.raise(agg, 5, number, 3)
		if n := b.routed(agg, 5); n != 0 {
			t.Errorf("trap %d: %d LIDs still go by the port that babbles", number, n)
		}
		b.up()
		b.run(50 * time.Second)
		if n := b.routed(agg, 5); n != 0 {
			t.Errorf("trap %d: %d LIDs go by the port before a minute is over", number, n)
		}
		b.run(15 * time.Second)
		if n := b.routed(agg, 5); n != full {
			t.Errorf("trap %d: %d LIDs go by the port when it was quiet again, %d before", number, n, full)
		}
		b.up()
		if !b.said("babbles about errors") || !b.said("is quiet again") {
			t.Errorf("trap %d: the report is silent about it", number)
		}
	}
}

// TestOnlyWayStaysInUse: a link that babbles and is the only one is no reason to
// cut the subnet in two; the same holds for a host's.
func TestOnlyWayStaysInUse(t *testing.T) {
	f := fabric.New(fabric.Defaults{})
	if err := f.BuildTree(2, 1, 2, 1); err != nil {
		t.Fatal(err)
	}
	b := swept(t, f, "h0", Config{})
	for _, n := range f.Nodes() {
		if n.Type() == mad.NodeSwitch {
			for p := 1; p <= n.NumPorts(); p++ {
				b.raise(n, p, mad.TrapLinkIntegrity, babbling+2)
			}
		}
	}
	b.run(5 * time.Second)
	b.up()
	if want := len(f.Nodes()); len(b.snap.Fabric.Nodes) != want {
		t.Errorf("%d nodes: want %d", len(b.snap.Fabric.Nodes), want)
	}
	if !b.said("the only way") || !b.said("no way around the link of a host") {
		t.Error("the report does not say why nothing is done")
	}
}

// TestBabblingPortIsDisabled: where the operator wants it, after 250 traps; at
// the end of the link that we can reach without it.
func TestBabblingPortIsDisabled(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{DisableBabbling: true})
	h := f.Node("h9")
	sw, num := h.Peer(1)
	b.raise(h, 1, mad.TrapFlowControl, silencing-1)
	if s := sw.Info(num).PortPhysicalState(); s != mad.PhysLinkUp {
		t.Fatalf("%v after %d traps", s, silencing-1)
	}
	b.raise(h, 1, mad.TrapFlowControl, 1)
	b.run(time.Second)
	if s := sw.Info(num).PortPhysicalState(); s != mad.PhysDisabled {
		t.Errorf("the port is %v: want it disabled", s)
	}
	if _, there := b.snap.ByGUID[h.PortGUID(1)]; there {
		t.Error("the host behind it is still there")
	}
	own, at := f.Node("h0").Peer(1)
	b.raise(own, at, mad.TrapFlowControl, silencing+1)
	b.up()
	if s := own.Info(at).PortPhysicalState(); s != mad.PhysLinkUp || !b.said("our own way out") {
		t.Errorf("the port that we are behind is %v", s)
	}
}

// TestFlapping: a link that goes up and down all the time costs a sweep a
// second, and its last state is found.
func TestFlapping(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	agg := f.Node("agg3_1")
	before := b.m.sweeps
	for i := range 401 {
		change := agg.Unlink
		if i%2 == 1 {
			change = agg.Relink
		}
		if err := change(5); err != nil {
			t.Fatal(err)
		}
		b.run(50 * time.Millisecond)
	}
	b.run(2 * time.Second)
	b.up()
	if n := b.m.sweeps - before; n > 50 {
		t.Errorf("%d sweeps for 400 changes in 20 s", n)
	}
	if b.m.nodes[agg.GUID()].port(5).peer != nil {
		t.Error("the link that was lost last is still there")
	}
	if !b.said("times in a row") {
		t.Error("the report does not say that the switch babbles")
	}
}

// TestLocalChanges: traps 144 and 145 cost a few packets, not a sweep of all.
func TestLocalChanges(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	h, sw := f.Node("h77"), f.Node("agg3_1")
	sent := b.m.Progress().Sent
	h.SetDescription("h77 HCA-1")
	sw.SetSystemGUID(0x5151)
	if err := h.Enable(1, fabric.LinkSpec{Width: 1}); err != nil {
		t.Logf("width: %v", err)
	}
	b.run(time.Second)
	b.up()
	i := b.snap.Fabric.Node(h.GUID())
	if got := b.snap.Desc[i]; got != "h77 HCA-1" {
		t.Errorf("description %q", got)
	}
	if got := b.snap.Fabric.Nodes[b.snap.Fabric.Node(sw.GUID())].SystemGUID; got != 0x5151 {
		t.Errorf("system image GUID %v", got)
	}
	if n := b.m.Progress().Sent - sent; n > 40 {
		t.Errorf("%d packets sent for three local changes", n)
	}
}

// TestCutOffSwitch: a switch whose links go one after the other has told of it
// itself, and is not waited for once its neighbours have.
func TestCutOffSwitch(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	n := f.Node("edge3_1")
	for round := range 3 {
		for p := 1; p <= n.NumPorts(); p++ {
			if err := n.Unlink(p); err != nil {
				t.Fatal(err)
			}
		}
		b.run(700 * time.Millisecond)
		if _, there := b.snap.ByGUID[n.GUID()]; there {
			t.Errorf("round %d: still there after 0.7 s", round)
		}
		for p := 1; p <= n.NumPorts(); p++ {
			if err := n.Relink(p); err != nil {
				t.Fatal(err)
			}
		}
		b.run(5 * time.Second)
		b.up()
	}
}

// TestForgedPortTrap: a node speaks of its own ports only.
func TestForgedPortTrap(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{DisableBabbling: true})
	leaf := f.Node("leaf1")
	forger, err := f.Attach(f.Node("h9"), 1, func(*mad.Packet) {})
	if err != nil {
		t.Fatal(err)
	}
	p := mad.Packet{}
	p.Addr.LID = b.snap.SMLID
	p.MAD().Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
	n := mad.Notice(p.MAD().Data())
	n.SetIsGeneric(true)
	n.SetTrapNumber(mad.TrapFlowControl)
	n.SetIssuerLID(leaf.Info(0).LID())
	mad.DetailsPort(n.Details()).SetLID(leaf.Info(0).LID())
	mad.DetailsPort(n.Details()).SetPortNumber(9)
	for range silencing + 1 {
		if err := forger.Inject(&p); err != nil {
			t.Fatal(err)
		}
		b.run(10 * time.Millisecond)
	}
	if s := leaf.Info(9).PortState(); s != ib.PortActive || len(b.m.sick) > 0 {
		t.Errorf("the port that a host spoke ill of is %v; sick %v", s, b.m.sick)
	}
	if !b.said("whose port that is not") {
		t.Error("the report does not speak of the forger")
	}
}
