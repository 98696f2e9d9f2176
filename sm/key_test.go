package sm

import (
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/seeded"
)

// keyed fails the test unless all end ports have an M_Key and its protection.
func (b *bed) keyed(key uint64, protect uint8, lease uint16) {
	b.t.Helper()
	for _, n := range b.f.Nodes() {
		num := 1
		if n.Type() == mad.NodeSwitch {
			num = 0
		}
		if i := n.Info(num); i.MKey() != key || i.MKeyProtectBits() != protect || i.MKeyLeasePeriod() != lease {
			b.t.Fatalf("%v has M_Key %#x, protection %d, lease %d s", n, i.MKey(), i.MKeyProtectBits(), i.MKeyLeasePeriod())
		}
	}
}

// TestMKey: set everywhere, used for all that follows, and changed.
func TestMKey(t *testing.T) {
	for protect := range uint8(4) {
		f := load(t, "kfat8")
		cfg := Config{MKey: 0xfeed, MKeyProtect: protect, MKeyLease: 60}
		b := swept(t, f, "h0", cfg)
		if len(b.snap.Missing) > 0 {
			t.Fatalf("protection %d: missing %v", protect, b.snap.Missing)
		}
		b.keyed(0xfeed, protect, 60)
		if err := f.Node("agg3_1").Unlink(5); err != nil {
			t.Fatal(err)
		}
		b.run(time.Second)
		f.Node("edge2_1").Fail()
		b.run(2 * time.Second)
		f.Node("edge2_1").Return() // without its key
		b.run(2 * time.Second)
		b.keyed(0xfeed, protect, 60)
		again := b.m.cfg
		again.MKey, again.MKeyLease = 0xbeef, 0
		f.Seed(seeded.Seed(t))
		f.SetLosses(fabric.Loss{Attr: mad.AttrPortInfo, Answers: 0.2}) // then the port has the new key, and we don't know
		b.m.Reconfigure(again, b.now)
		b.sweep()
		b.run(time.Minute)
		f.SetLosses()
		b.run(time.Minute)
		if len(b.snap.Missing) > 0 {
			t.Fatalf("protection %d, new key: missing %v", protect, b.snap.Missing)
		}
		b.keyed(0xbeef, protect, 0)
	}
}

// TestForeignMKey: ports that another manager left under its key are named, and
// taken over once their lease is over.
func TestForeignMKey(t *testing.T) {
	for protect := range uint8(4) {
		f := load(t, "ft32")
		a := newBed(t, f, "h0", Config{MKey: 1, MKeyProtect: protect, MKeyLease: 20})
		f.SetClock(func() clock.Time { return a.now })
		a.m.Start(a.now)
		a.sweep()
		a.end.Detach()
		b := newBed(t, f, "h0", Config{MKey: 2, MKeyProtect: protect, MKeyLease: 20})
		f.SetClock(func() clock.Time { return b.now })
		b.m.Start(b.now)
		b.run(10 * time.Second)
		if readable := protect == 0; (b.snap != nil && len(b.snap.Missing) == 0) != readable {
			t.Errorf("protection %d: up under a foreign key: want %v", protect, readable)
		}
		if protect == 1 && !b.said("another M_Key") {
			t.Error("the report does not speak of the M_Key")
		}
		b.run(3 * time.Minute)
		if b.snap == nil || len(b.snap.Missing) > 0 {
			t.Fatalf("protection %d: not up after the lease", protect)
		}
		b.keyed(2, protect, 20)
	}
}

// TestBadMKeyTrap: who tries it with a wrong key is told of.
func TestBadMKeyTrap(t *testing.T) {
	f := load(t, "ft32")
	b := swept(t, f, "h0", Config{MKey: 7, MKeyProtect: 2})
	p := mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(mad.MethodSet, mad.AttrPortInfo, 1, b.m.nodes[f.Node("h9").GUID()].path); err != nil {
		t.Fatal(err)
	}
	p.MAD().SetMKey(8)
	if err := b.end.Inject(&p); err != nil {
		t.Fatal(err)
	}
	b.run(time.Second)
	if !b.said(`"h9" (0x0000000000100012) refused method 0x02 of attribute 0x0015 from a directed route: wrong M_Key`) {
		t.Errorf("events %v", b.events[len(b.events)-1])
	}
}

// TestPartEnforce: switch ports check what end ports send and get, by the end
// port's own table; links between switches don't.
func TestPartEnforce(t *testing.T) {
	for _, how := range []Enforce{0, EnforceIn, EnforceOut, EnforceBoth} {
		f := load(t, "ft32")
		table := func(m Member) []ib.PKey {
			if m.GUID%2 == 0 {
				return []ib.PKey{0x7fff, 0x8010}
			}
			return []ib.PKey{0xffff, 0x8020, 0x0030}
		}
		b := swept(t, f, "h0", Config{PKeys: table, Enforce: how})
		b.up()
		b.enforced(table, how)
		sets := f.Stats().Sets
		b.m.Sweep(b.now)
		b.sweep()
		if again := f.Stats().Sets; again[mad.AttrPKeyTable] != sets[mad.AttrPKeyTable] || again[mad.AttrPortInfo] != sets[mad.AttrPortInfo] {
			t.Errorf("enforcement %d: a second sweep sets P_Keys or ports again", how)
		}
		if err := f.Node("h9").Unlink(1); err != nil {
			t.Fatal(err)
		}
		b.run(time.Second)
		if err := f.Node("h9").Relink(1); err != nil {
			t.Fatal(err)
		}
		b.run(time.Second)
		b.enforced(table, how)
		off := b.m.cfg
		off.Enforce = 0
		b.m.Reconfigure(off, b.now)
		b.sweep()
		b.enforced(table, 0)
	}
}

// enforced fails the test unless the switches enforce what they are to.
func (b *bed) enforced(table func(Member) []ib.PKey, how Enforce) {
	b.t.Helper()
	for _, n := range b.f.Nodes() {
		for i := 1; n.Type() == mad.NodeSwitch && i <= n.NumPorts(); i++ {
			peer, at := n.Peer(i)
			if peer == nil {
				continue
			}
			want := how
			if peer.Type() == mad.NodeSwitch {
				want = 0
			}
			info := n.Info(i)
			if in, out := info.PartitionEnforcementInbound(), info.PartitionEnforcementOutbound(); in != (want&EnforceIn != 0) || out != (want&EnforceOut != 0) {
				b.t.Fatalf("%v port %d to %v enforces in %v, out %v: want %d", n, i, peer, in, out, want)
			}
			if want == 0 {
				continue
			}
			got := mad.PKeyTable(b.read(b.m.nodes[n.GUID()], mad.AttrPKeyTable, uint32(i)<<16))
			for k, key := range table(Member{GUID: peer.PortGUID(at)}) {
				if got.PKey(k) != key {
					b.t.Fatalf("%v port %d: P_Key %d is %v, want %v", n, i, k, got.PKey(k), key)
				}
			}
		}
	}
}

// TestPartEnforceNeedsRoom: a switch that cannot hold all P_Keys of a host
// enforces none of them, and the host still works.
func TestPartEnforceNeedsRoom(t *testing.T) {
	f := load(t, "ft32")
	many := make([]ib.PKey, 9) // a switch of the simulator holds 8
	for i := range many {
		many[i] = 0x8001 + ib.PKey(i)
	}
	many[0] = 0xffff
	table := func(m Member) []ib.PKey {
		if m.GUID == f.Node("h9").PortGUID(1) {
			return many
		}
		return many[:1]
	}
	b := swept(t, f, "h0", Config{PKeys: table, Enforce: EnforceBoth})
	b.up()
	sw, num := f.Node("h9").Peer(1)
	if i := sw.Info(num); i.PartitionEnforcementInbound() || i.PartitionEnforcementOutbound() {
		t.Error("a table that is cut off is enforced")
	}
	if i := sw.Info(num%4 + 1); !i.PartitionEnforcementInbound() || !b.said("enforces no partitions") {
		t.Error("the others are not enforced, or the report does not say why one is not")
	}
}

// TestRival: two that are master at a time, since the lower one does not see the
// other's key, are told of.
func TestRival(t *testing.T) {
	f := load(t, "ft32")
	p := pair{newBed(t, f, "h0", Config{Priority: 5}), newBed(t, f, "h9", Config{Priority: 3})}
	p.a.m.Start(p.a.now)
	p.run(time.Second)
	p.b.m.Start(p.b.now)
	p.run(5 * time.Second)
	p.b.m.state, p.b.m.phase = mad.SMMaster, idle
	p.a.m.Sweep(p.a.now)
	p.run(5 * time.Second)
	n := 0
	for _, e := range p.a.events {
		if e.Code == "6050" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the other master is told of %d times", n)
	}
}
