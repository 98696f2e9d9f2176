package sm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/lid"
)

// TestLMC: four LIDs for each host, aligned, all of them routed.
func TestLMC(t *testing.T) {
	f := load(t, "kfat8")
	b := swept(t, f, "h0", Config{LMC: 2})
	for _, n := range f.Nodes() {
		if n.Type() == mad.NodeSwitch {
			continue
		}
		if i := n.Info(1); i.LMC() != 2 || i.LID()%4 != 0 || i.LID() == 0 {
			t.Fatalf("%v: LID %d, LMC %d", n, i.LID(), i.LMC())
		}
	}
	if err := b.audit().Err(); err != nil {
		t.Error(err)
	}
	if got := len(b.snap.ByLID); got != 128*4+80 {
		t.Errorf("%d LIDs: want %d", got, 128*4+80)
	}
}

// TestBackToBack: two hosts and a cable are a subnet, too.
func TestBackToBack(t *testing.T) {
	f := fabric.New(fabric.Defaults{})
	a, err := f.Add(fabric.NodeSpec{ID: "a", Type: mad.NodeCA, Ports: 2})
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Add(fabric.NodeSpec{ID: "b", Type: mad.NodeCA, Ports: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Link(a, 1, c, 1); err != nil {
		t.Fatal(err)
	}
	b := swept(t, f, "a", Config{})
	b.up()
	if a.Info(1).LID() == 0 || c.Info(1).LID() == 0 || c.Info(1).MasterSMLID() != a.Info(1).LID() {
		t.Errorf("LIDs %d and %d, SM at %d", a.Info(1).LID(), c.Info(1).LID(), c.Info(1).MasterSMLID())
	}
	if err := a.Unlink(1); err != nil {
		t.Fatal(err)
	}
	b.run(30 * time.Second)
	if len(b.snap.ByLID) != 1 {
		t.Errorf("%d LIDs after the cable was pulled: want our own", len(b.snap.ByLID))
	}
	if err := a.Relink(1); err != nil {
		t.Fatal(err)
	}
	b.run(30 * time.Second)
	b.up()
}

// TestSecondPort: a host with two ports at one switch has two LIDs.
func TestSecondPort(t *testing.T) {
	f := star(t, fabric.NodeSpec{ID: "dual", Type: mad.NodeCA, Ports: 2})
	n := f.Node("dual")
	b := swept(t, f, "dual", Config{})
	b.up()
	if one, two := n.Info(1).LID(), n.Info(2).LID(); one == two || one == 0 || two == 0 {
		t.Errorf("LIDs %d and %d", one, two)
	}
}

// TestPKeys: tables as configured, and changed by Reconfigure.
func TestPKeys(t *testing.T) {
	f := load(t, "ft32")
	keys := []ib.PKey{0x7fff, 0x8010}
	table := func(m Member) []ib.PKey {
		if m.Self {
			return []ib.PKey{0xffff}
		}
		return keys
	}
	b := newBed(t, f, "h0", Config{PKeys: table})
	check := func() {
		t.Helper()
		b.up()
		for _, h := range []string{"h0", "h5"} {
			n := b.m.nodes[f.Node(h).GUID()]
			got := mad.PKeyTable(b.read(n, mad.AttrPKeyTable, 1<<16))
			want := table(Member{Self: h == "h0"})
			for i, k := range want {
				if got.PKey(i) != k {
					t.Fatalf("%s: P_Key %d is %v: want %v", h, i, got.PKey(i), k)
				}
			}
		}
	}
	b.m.Start(b.now)
	b.sweep()
	check()
	keys = []ib.PKey{0x7fff}
	cfg := b.m.cfg
	b.m.Reconfigure(cfg, b.now)
	b.sweep()
	check()
}

// TestLIDsArePersistent: another manager with the same table gives the same LIDs.
func TestLIDsArePersistent(t *testing.T) {
	var tb lid.Table
	f := load(t, "ft32")
	swept(t, f, "h3", Config{LIDs: &tb})
	want := f.Node("h17").Info(1).LID()
	g := load(t, "ft32") // all LIDs are 0 again
	c := swept(t, g, "h20", Config{LIDs: &tb})
	c.up()
	if got := g.Node("h17").Info(1).LID(); got != want {
		t.Errorf("LID %d: want %d as before", got, want)
	}
}

// TestDuplicateLIDs: two hosts that come with the same LID get different ones.
func TestDuplicateLIDs(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{})
	n := b.m.nodes[f.Node("h9").GUID()]
	p := mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(mad.MethodSet, mad.AttrPortInfo, 1, n.path); err != nil {
		t.Fatal(err)
	}
	info := slices.Clone(n.ports[1].info)
	info.SetLID(f.Node("h10").Info(1).LID())
	info.SetPortState(0)
	copy(p.MAD().Data(), info)
	if err := b.end.Inject(&p); err != nil {
		t.Fatal(err)
	}
	b.inbox = nil
	b.m.Sweep(b.now)
	b.sweep()
	b.up()
}

// TestGUIDClash: two nodes of one GUID are named, and keep the subnet from being
// called up; the others work.
func TestGUIDClash(t *testing.T) {
	var hosts []fabric.NodeSpec
	for i, guid := range []ib.GUID{0x10, 0x20, 0x20} {
		hosts = append(hosts, fabric.NodeSpec{ID: fmt.Sprintf("h%d", i), Type: mad.NodeCA, Ports: 1, GUID: guid})
	}
	b := swept(t, star(t, hosts...), "h0", Config{})
	if !b.said("is in the subnet twice") || b.said("SUBNET UP") {
		t.Errorf("missing: %q", b.snap.Missing)
	}
}

// TestPortGUIDClash: two nodes whose ports have one GUID would have the same LIDs.
func TestPortGUIDClash(t *testing.T) {
	var hosts []fabric.NodeSpec
	for i, port := range []ib.GUID{0x88, 0x99, 0x99} {
		hosts = append(hosts, fabric.NodeSpec{ID: fmt.Sprintf("h%d", i), Type: mad.NodeCA, Ports: 1, GUID: ib.GUID(0x10 * (i + 1)),
			PortGUIDs: map[int]ib.GUID{1: port}})
	}
	b := swept(t, star(t, hosts...), "h0", Config{})
	if !b.said("port GUID 0x0000000000000099 is in the subnet twice") || b.said("SUBNET UP") {
		t.Errorf("missing: %q", b.snap.Missing)
	}
}

// TestClientsRegisterAgain: a new master tells the ports that can be told.
func TestClientsRegisterAgain(t *testing.T) {
	for _, off := range []bool{false, true} {
		f := load(t, "ft32")
		b := newBed(t, f, "h0", Config{NoReregister: off})
		told := 0
		for step := 0; step < 10000 && (b.m.sweeps == 0 || !b.m.Idle()); step++ {
			var p mad.Packet
			for b.m.Next(&p, b.now) {
				if m := p.MAD(); m.Method() == mad.MethodSet && m.Attribute() == mad.AttrPortInfo && mad.PortInfo(m.Data()).ClientReregister() {
					told++
				}
				if err := b.end.Inject(&p); err != nil {
					t.Fatal(err)
				}
			}
			in := b.inbox
			b.inbox = nil
			for i := range in {
				b.m.Handle(&in[i], b.now)
			}
			if step == 0 {
				b.m.Start(b.now)
			}
		}
		caps := f.Node("h5").Info(1).CapabilityMask()&mad.CapClientReregistration != 0
		if want := caps && !off; (told >= 32) != want {
			t.Errorf("NoReregister %v: %d ports told; they can be told: %v", off, told, caps)
		}
	}
}

// pair runs two managers on one fabric in the same time.
type pair struct{ a, b *bed }

func (p pair) run(d time.Duration) {
	limit := p.a.now.Add(d)
	for {
		for p.a.step() || p.b.step() {
		}
		next := min(p.a.next(), p.b.next())
		if next > limit {
			p.a.now, p.b.now = limit, limit
			return
		}
		for _, x := range []*bed{p.a, p.b} {
			x.fire(next)
		}
	}
}

// TestStandbyTakesOver: the lower manager stands by, and becomes master soon
// after the master is gone.
func TestStandbyTakesOver(t *testing.T) {
	f := load(t, "ft32")
	p := pair{newBed(t, f, "h0", Config{Priority: 5}), newBed(t, f, "h9", Config{Priority: 3})}
	p.a.m.Start(p.a.now)
	p.run(time.Second)
	p.b.m.Start(p.b.now)
	p.run(20 * time.Second)
	if p.a.m.State() != mad.SMMaster || p.b.m.State() != mad.SMStandby {
		t.Fatalf("states %v and %v", p.a.m.State(), p.b.m.State())
	}
	if err := f.Node("h0").Unlink(1); err != nil {
		t.Fatal(err)
	}
	p.run(15 * time.Second)
	if p.b.m.State() != mad.SMMaster {
		t.Fatalf("the other is %v after 15 s without a master", p.b.m.State())
	}
	p.b.up()
}

// FuzzHandle: whatever comes in, the manager lives, and the subnet stays right.
func FuzzHandle(f *testing.F) {
	var p mad.Packet
	p.MAD().Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
	f.Add(p.Data[:], uint8(0))
	for _, number := range []mad.TrapNumber{mad.TrapLinkState, mad.TrapLinkIntegrity, mad.TrapCapabilityMask, mad.TrapSystemImageGUID, mad.TrapBadMKey, mad.TrapBadPKey, mad.TrapBadPKeySwitch} {
		p.MAD().Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
		n := mad.Notice(p.MAD().Data())
		n.SetIsGeneric(true)
		n.SetTrapNumber(number)
		n.Details()[1], n.Details()[6] = 3, 1 // a LID and a port, where most have them
		f.Add(p.Data[:], uint8(15))
	}
	_ = p.MAD().InitSMP(mad.MethodGetResp, mad.AttrNodeInfo, 0, []byte{1})
	f.Add(p.Data[:], uint8(1))
	p.MAD().Init(mad.ClassSubnLID, mad.MethodSet, mad.AttrSMInfo, mad.SMInfoHandover)
	f.Add(p.Data[:], uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, when uint8) {
		fab := fabric.New(fabric.Defaults{})
		if err := fab.BuildTree(2, 1, 2, 1); err != nil {
			t.Fatal(err)
		}
		b := newBed(t, fab, "h0", Config{})
		b.m.Start(b.now)
		for range when % 16 {
			b.step()
		}
		var p mad.Packet
		copy(p.Data[:], data)
		for tid := range uint64(32) { // some of them answer requests under way
			if p.MAD().IsResponse() {
				p.MAD().SetTID(tid)
			}
			b.m.Handle(&p, b.now)
		}
		b.run(time.Minute)
	})
}
