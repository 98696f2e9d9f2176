package sm

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

var long = flag.Bool("long", false, "also run what takes minutes")

func load(t testing.TB, name string) *fabric.Fabric {
	t.Helper()
	f := fabric.New(fabric.Defaults{})
	if err := f.Load("testdata/" + name + ".net"); err != nil {
		t.Fatal(err)
	}
	return f
}

// fatTree makes a fat tree of three levels of switches with k ports.
func fatTree(t testing.TB, k int) *fabric.Fabric {
	t.Helper()
	f := fabric.New(fabric.Defaults{})
	if err := f.BuildFatTree(k); err != nil {
		t.Fatal(err)
	}
	return f
}

// star makes a fabric of a switch, sw, and nodes whose ports are all at it.
func star(t testing.TB, nodes ...fabric.NodeSpec) *fabric.Fabric {
	t.Helper()
	f := fabric.New(fabric.Defaults{})
	sw, err := f.Add(fabric.NodeSpec{ID: "sw", Type: mad.NodeSwitch, Ports: 4})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, s := range nodes {
		n, err := f.Add(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= n.NumPorts(); i++ {
			at++
			if err := f.Link(n, i, sw, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// bed is a manager on a fabric, with the events that it reported.
type bed struct {
	t      testing.TB
	f      *fabric.Fabric
	node   *fabric.Node // that it is attached to
	m      *Manager
	end    *fabric.Endpoint
	now    clock.Time
	inbox  []mad.Packet
	await  map[uint32]wait
	events []Event
	snap   *subnet.Snapshot
	mu     sync.Mutex
}

type wait struct {
	p  mad.Packet
	at clock.Time
}

// newBed attaches a manager to a fabric, in a time of its own: packets take no
// time, and one that gets lost comes back when its time is up.
func newBed(t testing.TB, f *fabric.Fabric, node string, cfg Config) *bed {
	t.Helper()
	b := &bed{t: t, f: f, now: clock.Time(time.Second), await: map[uint32]wait{}}
	n := f.Node(node)
	num := 1
	if n.Type() == mad.NodeSwitch {
		num = 0
	}
	end, err := f.Attach(n, num, func(p *mad.Packet) {
		b.mu.Lock()
		b.inbox = append(b.inbox, *p)
		b.mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	b.end, b.node = end, n
	if err := end.SetSM(true); err != nil {
		t.Fatal(err)
	}
	cfg.Report = func(e Event) {
		b.events = append(b.events, e)
		if e.Level == LevelError {
			t.Logf("%v %s: %s: %s", time.Duration(b.now), e.Code, e.Where, e.Text)
		}
	}
	cfg.Changed = func(s *subnet.Snapshot) { b.snap = s }
	b.m = New(cfg, end.Local())
	return b
}

// swept is a bed whose first sweep has ended.
func swept(t testing.TB, f *fabric.Fabric, node string, cfg Config) *bed {
	t.Helper()
	b := newBed(t, f, node, cfg)
	b.m.Start(b.now)
	b.sweep()
	return b
}

// step sends what is to be sent and handles what came; it reports false when
// nothing happened.
func (b *bed) step() bool {
	did := false
	var p mad.Packet
	for b.m.Next(&p, b.now) {
		did = true
		if p.Timeout > 0 {
			b.await[p.Key()] = wait{p, b.now.Add(p.Timeout)}
		}
		if err := b.end.Inject(&p); err != nil {
			b.t.Fatal(err)
		}
	}
	in := b.inbox
	b.inbox = nil
	for i := range in {
		did = true
		if in[i].MAD().IsResponse() {
			delete(b.await, in[i].Key())
		}
		b.m.Handle(&in[i], b.now)
	}
	return did
}

// expire lets time pass to the next deadline, at most to limit, and reports
// whether there was one.
func (b *bed) expire(limit clock.Time) bool {
	next := b.next()
	if next > limit {
		b.now = limit
		return false
	}
	b.fire(next)
	return true
}

// next is when something is due.
func (b *bed) next() clock.Time {
	next := b.m.Deadline()
	for _, w := range b.await {
		next = min(next, w.at)
	}
	return next
}

// fire lets time pass to at, and does what is due then.
func (b *bed) fire(at clock.Time) {
	b.now = max(b.now, at)
	for k, w := range b.await {
		if w.at <= b.now {
			delete(b.await, k)
			w.p.Err = mad.ErrTimeout
			b.m.Handle(&w.p, b.now)
		}
	}
	b.m.Expire(b.now)
}

// run lets time pass.
func (b *bed) run(d time.Duration) {
	limit := b.now.Add(d)
	for b.step() || b.expire(limit) {
	}
}

// sweep lets the sweep under way end.
func (b *bed) sweep() {
	b.t.Helper()
	limit := b.now.Add(10 * time.Minute)
	for !b.m.Idle() || b.m.sweeps == 0 {
		if !b.step() && !b.m.Idle() && !b.expire(limit) {
			b.t.Fatalf("the sweep does not end: %+v", b.m.Progress())
		}
	}
	for b.step() {
	}
}

// audit reads the whole fabric back, not from what the manager believes but
// from what the nodes hold, and checks it.
func (b *bed) audit() *check.Report {
	b.t.Helper()
	s := b.snap
	if s == nil {
		b.t.Fatal("no snapshot")
	}
	r, g := s.Routing, topo.NewGraph(s.Fabric)
	lft := make([][]uint8, g.Switches())
	number := make([]int32, g.Switches())
	for i := range lft {
		number[i] = r.Graph.Switch(g.GUID[i])
		n := b.m.nodes[g.GUID[i]]
		for blk := 0; blk*64 <= int(g.MaxLID); blk++ {
			lft[i] = append(lft[i], b.read(n, mad.AttrLinearFT, uint32(blk))...)
		}
	}
	lane := func(a, b int32) uint8 { return r.Lane(number[a], number[b]) }
	return check.Run(check.Tables{Graph: g, LFT: lft, Lane: lane, Lanes: r.Lanes})
}

// read asks a node directly.
func (b *bed) read(n *node, attr mad.AttributeID, mod uint32) []byte {
	b.t.Helper()
	p := mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(mad.MethodGet, attr, mod, n.path); err != nil {
		b.t.Fatal(err)
	}
	p.MAD().SetTID(0xfffffff0)
	if err := b.end.Inject(&p); err != nil {
		b.t.Fatal(err)
	}
	if len(b.inbox) != 1 || b.inbox[0].MAD().Status() != mad.StatusOK {
		b.t.Fatalf("%s does not answer attribute %#x: %v", n.name(), attr, b.inbox)
	}
	a := b.inbox[0]
	b.inbox = nil
	return a.MAD().Data()
}

// up fails the test unless everything in the fabric is up and routed.
func (b *bed) up() {
	b.t.Helper()
	if len(b.snap.Missing) > 0 {
		b.t.Fatalf("missing: %v", b.snap.Missing)
	}
	if b.snap.Routing != nil {
		if err := b.audit().Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	lids := map[ib.LID]string{}
	for _, n := range b.f.Nodes() {
		b.upNode(n, lids)
	}
}

func (b *bed) upNode(n *fabric.Node, lids map[ib.LID]string) {
	b.t.Helper()
	if n.Failed() {
		return
	}
	for i := 0; i <= n.NumPorts(); i++ {
		sw := n.Type() == mad.NodeSwitch
		if i == 0 && !sw {
			continue
		}
		info := n.Info(i)
		if peer, _ := n.Peer(i); i > 0 && peer != nil && info.PortPhysicalState() == mad.PhysLinkUp && info.PortState() != ib.PortActive {
			b.t.Fatalf("%v port %d is %v", n, i, info.PortState())
		}
		if sw == (i == 0) && (i == 0 || info.PortState() == ib.PortActive) {
			if other := lids[info.LID()]; other != "" || info.LID() == 0 {
				b.t.Fatalf("%v and %v have LID %d", n, other, info.LID())
			}
			if info.MasterSMLID() != b.snap.SMLID {
				b.t.Fatalf("%v has the SM at LID %d, not %d", n, info.MasterSMLID(), b.snap.SMLID)
			}
			lids[info.LID()] = n.ID()
		}
	}
}

var small = []string{"ft32", "kfat8", "ring8", "torus4x4", "random20", "torus4x4x4"}

func TestBringUp(t *testing.T) {
	for _, net := range small {
		for _, at := range []string{"h0", "h7", ""} {
			t.Run(fmt.Sprintf("%s from %q", net, at), func(t *testing.T) {
				f := load(t, net)
				if at == "" {
					for _, n := range f.Nodes() {
						if n.Type() == mad.NodeSwitch {
							at = n.ID()
							break
						}
					}
				}
				b := swept(t, f, at, Config{})
				b.up()
				p := b.m.Progress()
				t.Logf("%d nodes, %d MADs, %d LFT blocks, %s", p.Nodes, p.Sent, p.LFTBlocks, b.snap.Routing.Engine)
			})
		}
	}
}

// TestSecondSweepSendsNothing: a subnet that is as it should be is left alone.
func TestSecondSweepSendsNothing(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{})
	sets := f.Stats().Sets
	before := fmt.Sprint(sets)
	b.m.Sweep(b.now)
	b.sweep()
	b.up()
	if after := fmt.Sprint(f.Stats().Sets); after != before {
		t.Errorf("the second sweep set %s: want nothing beyond %s", after, before)
	}
	b.run(time.Minute)
	if after := fmt.Sprint(f.Stats().Sets); after != before {
		t.Errorf("light sweeps set %s: want nothing beyond %s", after, before)
	}
}

func TestRunner(t *testing.T) {
	f := load(t, "ft32")
	port, err := f.Open("h0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	up := make(chan *subnet.Snapshot, 8)
	local, _ := port.Local()
	m := New(Config{Changed: func(s *subnet.Snapshot) { up <- s }}, local)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- NewRunner(port, m, nil).Run(ctx) }()
	select {
	case s := <-up:
		if len(s.Missing) > 0 {
			t.Error(s.Missing)
		}
	case <-ctx.Done():
		t.Error("not up after 20 s")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
