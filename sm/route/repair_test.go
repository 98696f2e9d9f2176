package route

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

var rounds = flag.Int("rounds", 60, "rounds of churn")

// patient is a fabric that is damaged and mended, and its routing.
type patient struct {
	t      *testing.T
	name   string
	engine string
	lanes  int
	net    *topotest.Net
	r      *Result
	undo   []func() string

	repaired, anew int
	why            map[string]int
}

func newPatient(t *testing.T, name, engine string, lanes int, net *topotest.Net) *patient {
	p := &patient{t: t, name: name + "/" + engine, engine: engine, lanes: lanes, net: net, why: map[string]int{}}
	p.compute()
	return p
}

func (p *patient) compute() {
	r, err := Compute(p.net.Graph(), []string{p.engine}, Options{Lanes: p.lanes})
	if err != nil {
		p.t.Fatal(p.name, err)
	}
	p.r = r
}

// whole reports whether all switches that are there are connected.
func (p *patient) whole() bool { return !slices.Contains(distances(p.net.Graph(), []int32{0}), -1) }

// treat repairs or routes anew, and checks from scratch what comes out.
func (p *patient) treat(what string) {
	p.t.Helper()
	before := p.r.Tables
	next, err := Repair(p.r, p.net.Fabric(0))
	if err != nil {
		p.anew++
		p.why[err.Error()]++
		p.compute()
		return
	}
	p.repaired++
	if whole := Check(next.Tables); whole.String() != next.Report.String() || !whole.OK() {
		p.t.Fatalf("%s, %s: from scratch %v, repaired %v: %v", p.name, what, whole, next.Report, whole.Err())
	}
	if n := changedRows(before, next.Tables); n > 0 && next.Blocks == 0 {
		p.t.Fatalf("%s, %s: %d tables changed, and no block", p.name, what, n)
	}
	p.r = next
}

// hurt loses a link or a switch, if the others stay connected.
func (p *patient) hurt(rng *rand.Rand) string {
	sw := p.net.Switches()[rng.IntN(len(p.net.Switches()))]
	ports := p.net.Ports(sw)
	if len(ports) == 0 || p.net.IsAway(sw) {
		return "nothing"
	}
	var what string
	var undo func() string
	if rng.IntN(3) == 0 {
		p.net.SetAway(sw, true)
		what, undo = "loss of "+sw, func() string { p.net.SetAway(sw, false); return "return of " + sw }
	} else {
		port := ports[rng.IntN(len(ports))]
		peer, q := p.net.Peer(sw, port)
		p.net.Unlink(sw, port)
		name := fmt.Sprintf("%s[%d]", sw, port)
		what, undo = "loss of "+name, func() string { p.net.Relink(sw, port, peer, q); return "return of " + name }
	}
	if !p.whole() {
		undo()
		return "nothing"
	}
	p.undo = append(p.undo, undo)
	return what
}

func (p *patient) mend(rng *rand.Rand) string {
	i := rng.IntN(len(p.undo))
	what := p.undo[i]()
	p.undo = slices.Delete(p.undo, i, i+1)
	return what
}

func changedRows(a, b *Tables) (n int) {
	for s := range a.LFT {
		if !slices.Equal(a.LFT[s], b.LFT[s]) {
			n++
		}
	}
	return n
}

// churn loses links, hosts and switches and gets them back, in any order: each
// repair must hold and agree with a check from scratch. Once all is there again and
// it was repairs alone, the old tables are, too.
func (p *patient) churn(rng *rand.Rand) {
	p.t.Helper()
	healthy := p.r.LFT
	for range *rounds {
		if len(p.undo) > rng.IntN(4) {
			p.treat(p.mend(rng))
		} else {
			p.treat(p.hurt(rng))
		}
	}
	for len(p.undo) > 0 {
		p.treat(p.mend(rng))
	}
	if p.anew == 0 && !slices.EqualFunc(healthy, p.r.LFT, slices.Equal) {
		p.t.Errorf("%s: the subnet is whole again, and its tables are others", p.name)
	}
}

// TestRepair: most damage is repaired; by seed, there are 6 to 34 new routings to
// 100 repairs, and up to 210 on the fabric that has the most.
func TestRepair(t *testing.T) {
	s := seeded.Seed(t)
	repaired, anew := 0, 0
	for i, c := range []struct {
		name, engine string
		lanes        int
		net          *topotest.Net
	}{
		{"kfat8", "ftree", 1, netfile(t, "kfat8")}, {"kfat8", "nue", 8, netfile(t, "kfat8")},
		{"torus4x4", "nue", 8, netfile(t, "torus4x4")}, {"torus4x4", "updn", 1, netfile(t, "torus4x4")},
		{"torus4x4", "nue", 1, netfile(t, "torus4x4")}, {"torus 3x3x3", "nue", 8, topotest.Torus(3, 3, 3, 1)},
		{"random20", "nue", 8, netfile(t, "random20")}, {"random20", "nue", 2, netfile(t, "random20")},
	} {
		p := newPatient(t, c.name, c.engine, c.lanes, c.net)
		p.churn(rand.New(rand.NewPCG(s, uint64(i))))
		t.Logf("%s: %d repaired, %d routed anew: %v", p.name, p.repaired, p.anew, p.why)
		repaired, anew = repaired+p.repaired, anew+p.anew
		if p.repaired*5 < p.anew {
			t.Errorf("%s: %d repaired, %d routed anew", p.name, p.repaired, p.anew)
		}
	}
	if repaired < 2*anew {
		t.Errorf("%d repaired, %d routed anew", repaired, anew)
	}
}

// TestAllHome: in few lanes the ways home of some LIDs were in those of others, so
// that, looked at one by one, not all came home.
func TestAllHome(t *testing.T) {
	for _, seed := range []uint64{1390254069, 1390254091, 1390254097, 1390254105, 1390254108, 1390254584} {
		p := newPatient(t, "random20", "nue", 2, netfile(t, "random20"))
		if p.churn(rand.New(rand.NewPCG(seed, 7))); p.anew > 0 && *rounds == 60 {
			t.Errorf("seed %d: %d routed anew: %v", seed, p.anew, p.why)
		}
	}
}

// TestSwitchBack: a core switch that leaves 3,456 hosts and returns changes the
// tables of the switches beside it, and no others.
func TestSwitchBack(t *testing.T) {
	p := newPatient(t, "k=24", "ftree", 1, topotest.KFat(24))
	healthy := p.r
	beside := map[string]bool{"core7": true}
	for _, port := range p.net.Ports("core7") {
		peer, _ := p.net.Peer("core7", port)
		beside[peer] = true
	}
	for _, away := range []bool{true, false} {
		before := p.r
		p.net.SetAway("core7", away)
		p.treat(fmt.Sprintf("core7 away: %v", away))
		t.Logf("away: %v: %d of %d LIDs looked at, %d of %d LFT blocks changed, %v", away, p.r.Rerouted, len(p.r.Graph.Dests), p.r.Blocks, healthy.Blocks, p.r.Report)
		for s := range p.r.LFT {
			if name := healthy.Graph.Desc(int32(s)); !slices.Equal(before.LFT[s], p.r.LFT[s]) && !beside[name] {
				t.Errorf("core7 away: %v: the table of %s is another", away, name)
			}
		}
	}
	if p.anew > 0 || p.r.Report.String() != healthy.Report.String() {
		t.Errorf("routed anew: %v; %v, and was %v", p.why, p.r.Report, healthy.Report)
	}
}

// TestNewLID: one LID more is one LFT block more for each switch, whether it is
// in the middle of the tables or beyond their end.
func TestNewLID(t *testing.T) {
	n := netfile(t, "kfat8")
	for _, lid := range []ib.LID{5, 500} {
		f := n.Fabric(0)
		port := f.Port(f.Node(0x100000), 1)
		was := f.Ports[port].LID
		f.Ports[port].LID = 0
		r, err := Compute(topo.NewGraph(f), nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if lid == 5 {
			lid = was
		}
		f = n.Fabric(0)
		f.Ports[port].LID = lid
		next, err := Repair(r, f)
		if err != nil {
			t.Fatal(err)
		}
		if next.Rerouted != 1 || next.Report.Paths != 128*127 || next.Report.MaxLoad > 2*124 {
			t.Errorf("LID %d: %d LIDs looked at; %v", lid, next.Rerouted, next.Report)
		}
		each := max(1, (tableSize(lid)-tableSize(r.Graph.MaxLID))/BlockSize)
		if want := r.Graph.Switches() * each; next.Blocks != want {
			t.Errorf("LID %d: %d blocks changed: want %d", lid, next.Blocks, want)
		}
	}
}

// TestMovedHost: a host at another port keeps its LID, and all ways lead there.
func TestMovedHost(t *testing.T) {
	n := topotest.FatTree2(4, 2, 3, 2)
	n.Unlink("h11", 1) // makes room at leaf3
	r, err := Compute(n.Graph(), nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.Unlink("h0", 1)
	if r, err = Repair(r, n.Fabric(0)); err != nil || r.Blocks != 0 {
		t.Fatalf("%v, %d blocks: a host that left changes nothing", err, r.Blocks)
	}
	n.Relink("h0", 1, "leaf3", 3)
	if r, err = Repair(r, n.Fabric(0)); err != nil {
		t.Fatal(err)
	}
	leaf0, leaf3 := r.Graph.Switch(0x200000), r.Graph.Switch(0x200003)
	if r.Graph.Hosts[leaf0] != 2 || r.Graph.Hosts[leaf3] != 3 || r.Rerouted != 1 || Check(r.Tables).String() != r.Report.String() {
		t.Errorf("hosts %v, %d LIDs looked at, %v", r.Graph.Hosts, r.Rerouted, r.Report)
	}
}

// TestWhyAnew: what no repair is for.
func TestWhyAnew(t *testing.T) {
	hosts := func(n *topotest.Net, away bool) {
		for i := range 19 {
			n.SetAway(fmt.Sprintf("h%d", i), away)
		}
	}
	for _, c := range []struct {
		why           string
		before, after func(n *topotest.Net)
	}{
		{"missing", func(n *topotest.Net) {
			n.Unlink("leaf3", 21)
			n.Unlink("leaf3", 22)
			n.Unlink("leaf3", 23)
			n.Unlink("leaf3", 24)
		}, func(*topotest.Net) {}},
		{`switch "spine1" is new`, func(n *topotest.Net) { n.SetAway("spine1", true) }, func(n *topotest.Net) { n.SetAway("spine1", false) }},
		{"link between", func(*topotest.Net) {}, func(n *topotest.Net) { n.Unlink("h0", 1); n.Relink("leaf0", 1, "spine0", 0) }},
		{"first host", func(*topotest.Net) {}, func(n *topotest.Net) { n.Unlink("h0", 1); n.Relink("h0", 1, "spine0", 0) }},
		{"LIDs are new", func(n *topotest.Net) { hosts(n, true) }, func(n *topotest.Net) { hosts(n, false) }},
		{"busiest link", func(*topotest.Net) {}, func(n *topotest.Net) { n.Unlink("leaf0", 21); n.Unlink("leaf0", 22); n.Unlink("leaf0", 23) }},
	} {
		n := topotest.FatTree2(4, 4, 20, 1)
		c.before(n)
		r, err := Compute(n.Graph(), []string{"updn"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.after(n)
		if _, err := Repair(r, n.Fabric(0)); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: want %q", err, c.why)
		}
	}
}

func BenchmarkRepair(b *testing.B) {
	for _, what := range []string{"link", "switch"} {
		n := topotest.KFat(24)
		g := n.Graph()
		if what == "link" {
			n.Unlink("agg0_0", 13)
		} else {
			n.SetAway("core7", true)
		}
		cut, healthy := n.Fabric(0), g.Fabric
		for _, e := range []string{"ftree", "nue"} {
			b.Run(what+"/"+e, func(b *testing.B) {
				r, err := Compute(g, []string{e}, Options{Lanes: 8})
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					for _, f := range []*topo.Fabric{cut, healthy} {
						if r, err = Repair(r, f); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
