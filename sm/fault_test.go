package sm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

// TestLoss: with a fifth of the MADs of a switch lost, every node comes up.
func TestLoss(t *testing.T) {
	for _, net := range []string{"ft32", "kfat8", "torus4x4"} {
		f := load(t, net)
		f.Seed(seeded.Seed(t))
		var sw *fabric.Node
		for _, n := range f.Nodes() {
			if n.Type() == mad.NodeSwitch {
				sw = n
				break
			}
		}
		f.SetLosses(fabric.Loss{Node: sw, Requests: 0.1, Answers: 0.1})
		b := newBed(t, f, "h0", Config{})
		start := b.now
		b.m.Start(b.now)
		b.sweep()
		took := b.now.Sub(start)
		f.SetLosses()
		b.up()
		t.Logf("%s: up in %v of fabric time, %d of %d MADs lost", net, took, b.m.line.lost, b.m.Progress().Sent)
	}
}

// TestLossEverywhere: a fifth of all MADs, each way.
func TestLossEverywhere(t *testing.T) {
	f := load(t, "kfat8")
	f.Seed(seeded.Seed(t))
	f.SetLosses(fabric.Loss{Requests: 0.1, Answers: 0.1})
	b := swept(t, f, "h0", Config{})
	b.run(2 * time.Minute) // what was given up is tried again
	f.SetLosses()
	b.run(time.Minute)
	b.up()
}

// TestNeverUpWhileMissing: a node that takes no Set keeps the subnet from being
// up, is named, and is tried again until it works.
func TestNeverUpWhileMissing(t *testing.T) {
	f := load(t, "ft32")
	deaf := f.Node("h9")
	f.SetLosses(fabric.Loss{Node: deaf, Requests: 1})
	b := swept(t, f, "h0", Config{})
	if len(b.snap.Missing) != 1 || !strings.Contains(b.snap.Missing[0], `behind "leaf1"`) {
		t.Fatalf("missing %q: want the port that h9 is behind", b.snap.Missing)
	}
	if b.said("SUBNET UP") || !b.said("SUBNET INCOMPLETE") {
		t.Error("the report says that the subnet is up")
	}
	f.SetLosses()
	b.run(time.Minute)
	b.up()
	if !b.said("SUBNET UP") {
		t.Error("the subnet is whole, and not reported up")
	}
}

// said reports whether an event had this text.
func (b *bed) said(text string) bool {
	for _, e := range b.events {
		if strings.Contains(e.Text, text) {
			return true
		}
	}
	return false
}

// TestLinkLoss: one link of a tree lost, and back. Only what changes is sent.
func TestLinkLoss(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	all := b.m.lftBlocks
	agg := f.Node("agg0_0")
	sent := b.m.Progress().Sent
	if err := agg.Unlink(5); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	b.up()
	t.Logf("link lost: %d of %d LFT blocks, %d MADs", b.m.lftBlocks, all, b.m.Progress().Sent-sent)
	if b.m.lftBlocks == 0 || b.m.lftBlocks > all/2 {
		t.Errorf("%d of %d LFT blocks sent", b.m.lftBlocks, all)
	}
	sent = b.m.Progress().Sent
	if err := agg.Relink(5); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	b.up()
	t.Logf("link back: %d LFT blocks, %d MADs", b.m.lftBlocks, b.m.Progress().Sent-sent)
	if b.snap.Routing.Report.MaxLoad != 124 {
		t.Errorf("busiest link %d after the link came back: want 124", b.snap.Routing.Report.MaxLoad)
	}
}

// TestHostLoss: a host that leaves and returns keeps its LID and changes no table.
func TestHostLoss(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	h := f.Node("h77")
	lid := h.Info(1).LID()
	blocks := f.Stats().Sets[mad.AttrLinearFT]
	if err := h.Unlink(1); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	if _, there := b.snap.ByLID[lid]; there {
		t.Fatal("the host is still there")
	}
	if err := h.Relink(1); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	b.up()
	if now := h.Info(1).LID(); now != lid {
		t.Errorf("the host came back with LID %d: want its own, %d", now, lid)
	}
	if sent := f.Stats().Sets[mad.AttrLinearFT] - blocks; sent != 0 {
		t.Errorf("%d LFT blocks sent for a host that left and came back", sent)
	}
}

// TestSwitchReset: a switch that comes back without its settings gets all again.
func TestSwitchReset(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{})
	for _, name := range []string{"core3", "agg2_1", "edge7_3"} {
		n := f.Node(name)
		n.Fail()
		b.run(2 * time.Second)
		if _, there := b.snap.ByGUID[n.GUID()]; there {
			t.Fatalf("%s is still there", name)
		}
		n.Return()
		b.run(2 * time.Second)
		b.up()
	}
}

// TestSwitchBack: a core switch of 3,456 hosts that was away gets its tables, the
// switches beside it the blocks that change, and no other switch gets any.
func TestSwitchBack(t *testing.T) {
	f := fatTree(t, 24)
	b := swept(t, f, "h0", Config{})
	first, blocks := b.tables(), b.m.lftBlocks
	core := f.Node("core7")
	beside := map[ib.GUID]bool{}
	for i := 1; i <= core.NumPorts(); i++ {
		peer, _ := core.Peer(i)
		beside[peer.GUID()] = true
	}
	core.Fail()
	b.run(time.Second)
	before, total := b.tables(), f.Stats().Sets[mad.AttrLinearFT]
	core.Return()
	b.run(time.Second)
	b.up()
	after, changed := b.tables(), len(first[core.GUID()])/64
	for guid, table := range after {
		if n := blocksUnlike(before[guid], table); n > 0 && guid != core.GUID() {
			if changed += n; !beside[guid] {
				t.Errorf("%d blocks of switch %v have changed, which is not beside the one that came back", n, guid)
			}
		}
		if blocksUnlike(first[guid], table) > 0 {
			t.Errorf("switch %v has not got its old table again", guid)
		}
	}
	if sent := f.Stats().Sets[mad.AttrLinearFT] - total; int(sent) != changed {
		t.Errorf("%d LFT blocks sent: want %d", sent, changed)
	}
	t.Logf("%d of %d LFT blocks sent", changed, blocks)
	if b.said("routed anew") {
		t.Error("all was routed anew")
	}
}

// tables reads the forwarding tables of all switches that are there.
func (b *bed) tables() map[ib.GUID][]byte {
	t := map[ib.GUID][]byte{}
	for guid, n := range b.m.nodes {
		for blk := 0; n.isSwitch() && !n.gone && blk*64 <= int(b.snap.Routing.Graph.MaxLID); blk++ {
			t[guid] = append(t[guid], b.read(n, mad.AttrLinearFT, uint32(blk))...)
		}
	}
	return t
}

func blocksUnlike(a, b []byte) (n int) {
	for at := 0; at < len(b); at += 64 {
		if at >= len(a) || !bytes.Equal(a[at:at+64], b[at:at+64]) {
			n++
		}
	}
	return n
}

// TestChurn: random failures and returns of links and switches; after each the
// tables that the switches hold must be right, and what is cut off must be named.
func TestChurn(t *testing.T) {
	rounds := 20
	if *long {
		rounds = 1000
	}
	s := seeded.Seed(t)
	for i, net := range []string{"kfat8", "torus4x4", "torus4x4x4", "random20", "ring8"} {
		t.Run(net, func(t *testing.T) { churn(t, net, rand.New(rand.NewPCG(s, uint64(i))), rounds) })
	}
}

func churn(t *testing.T, net string, r *rand.Rand, rounds int) {
	f := load(t, net)
	b := swept(t, f, "h0", Config{})
	var broken []func() string
	kinds := map[string]int{}
	for range rounds {
		what := ""
		if len(broken) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(broken))
			what = broken[i]()
			broken = append(broken[:i], broken[i+1:]...)
		} else {
			var undo func() string
			if what, undo = damage(f, r); undo != nil {
				broken = append(broken, undo)
			}
		}
		before := b.snap
		b.events = nil
		b.run(10 * time.Second)
		if !b.m.Idle() {
			t.Fatalf("after %s the sweep does not end: %+v", what, b.m.Progress())
		}
		if len(b.snap.Missing) > 0 {
			t.Fatalf("after %s: missing %q", what, b.snap.Missing)
		}
		b.complete(before, what)
		if err := b.audit().Err(); err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		count(kinds, b.events)
	}
	t.Logf("%d rounds: %v", rounds, kinds)
	for _, undo := range broken {
		undo()
	}
	b.run(2 * time.Minute)
	b.up()
}

// count adds up how routings came about.
func count(kinds map[string]int, events []Event) {
	for _, e := range events {
		for _, kind := range []string{"tables repaired", "routed anew", "cut off"} {
			if strings.Contains(e.Text, kind) {
				kinds[kind]++
			}
		}
	}
}

// complete fails the test unless the snapshot has all that is connected, and
// nothing else, and what it has no more was reported.
func (b *bed) complete(before *subnet.Snapshot, what string) {
	b.t.Helper()
	there := b.reachable()
	for _, n := range b.f.Nodes() {
		is, was := b.snap.Fabric.Node(n.GUID()) != topo.None, before.Fabric.Node(n.GUID()) != topo.None
		switch {
		case is != there[n]:
			b.t.Fatalf("after %s: %v is connected: %v, in the subnet: %v", what, n, there[n], is)
		case was && !is && !b.said(fmt.Sprintf("(0x%016x) left the subnet", uint64(n.GUID()))):
			b.t.Fatalf("after %s: nothing says that %v is cut off", what, n)
		}
	}
}

// reachable finds what is connected to the manager.
func (b *bed) reachable() map[*fabric.Node]bool {
	there := map[*fabric.Node]bool{b.node: true}
	for queue := []*fabric.Node{b.node}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if n != b.node && n.Type() != mad.NodeSwitch {
			continue
		}
		for i := 1; i <= n.NumPorts(); i++ {
			if p, _ := n.Peer(i); p != nil && !there[p] && n.Info(i).PortPhysicalState() == mad.PhysLinkUp {
				there[p] = true
				queue = append(queue, p)
			}
		}
	}
	return there
}

// damage breaks something and returns how to mend it.
func damage(f *fabric.Fabric, r *rand.Rand) (string, func() string) {
	nodes := f.Nodes()
	n := nodes[r.IntN(len(nodes))]
	if n.ID() == "h0" {
		return "nothing", nil
	}
	if r.IntN(5) == 0 && n.Type() == mad.NodeSwitch {
		if peer, _ := f.Node("h0").Peer(1); n.Failed() || n == peer {
			return "nothing", nil
		}
		n.Fail()
		return "loss of " + n.ID(), func() string { n.Return(); return "return of " + n.ID() }
	}
	p := 1 + r.IntN(n.NumPorts())
	peer, _ := n.Peer(p)
	if peer == nil || peer.ID() == "h0" || n.Unlink(p) != nil {
		return "nothing", nil
	}
	name := fmt.Sprintf("%s port %d", n.ID(), p)
	return "loss of " + name, func() string { _ = n.Relink(p); return "return of " + name }
}
