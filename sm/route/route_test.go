package route

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

var long = flag.Bool("long", false, "also route the fabrics that take more than a few seconds")

func netfile(t testing.TB, name string) *topotest.Net {
	t.Helper()
	n, err := topotest.Load("../testdata/" + name + ".net")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// shapes are small fabrics of every kind.
func shapes(t testing.TB) map[string]*topotest.Net {
	m := map[string]*topotest.Net{
		"one switch": topotest.Ring(1, 5), "two switches": topotest.FatTree2(1, 1, 3, 1),
		"k4 tree": topotest.KFat(4), "oversubscribed tree": topotest.KFatHosts(6, 5),
		"torus 3x5": topotest.Torus(3, 5, 1, 1), "torus 3x3x3": topotest.Torus(3, 3, 3, 1),
		"random 40": topotest.Random(40, 5, 2, 7),
	}
	for _, f := range []string{"ft32", "kfat8", "ring8", "torus4x4", "random20"} {
		m[f] = netfile(t, f)
	}
	return m
}

// TestEveryShapeIsRouted runs the whole of Compute over all shapes, engines and
// numbers of lanes: whatever an engine says, what comes out must hold.
func TestEveryShapeIsRouted(t *testing.T) {
	for name, n := range shapes(t) {
		for lmc := range uint8(2) {
			g := topo.NewGraph(n.Fabric(lmc))
			for _, e := range append(Engines(), "") {
				for _, lanes := range []int{1, 2, 8} {
					var names []string
					if e != "" {
						names = []string{e}
					}
					r, err := Compute(g, names, Options{Lanes: lanes})
					if err != nil {
						t.Fatalf("%s, %q: %v", name, e, err)
					}
					if !r.Report.OK() || r.Lanes > lanes {
						t.Errorf("%s, engine %q became %s in %d of %d lanes: %v", name, e, r.Engine, r.Lanes, lanes, r.Report.Err())
					}
				}
			}
		}
	}
}

// TestQuality holds the busiest link against that of OpenSM 3.3.23 on the same
// fabrics: its dfsssp, or its ftree on trees.
func TestQuality(t *testing.T) {
	for _, c := range []struct {
		net     string
		engine  string
		busiest int64
	}{
		{"kfat8", "ftree", 124},
		{"ft32", "ftree", 24},
		{"ring8", "nue", 40},
		{"torus4x4", "nue", 46},
		{"random20", "nue", 98},
		{"torus4x4x4", "nue", 150}, // OpenSM's dfsssp fails here
	} {
		r, err := Compute(netfile(t, c.net).Graph(), nil, Options{Lanes: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s: %v", c.net, r.Engine, r.Report)
		if r.Engine != c.engine || r.Report.MaxLoad > c.busiest {
			t.Errorf("%s: %s, busiest link %d: want %s, at most %d", c.net, r.Engine, r.Report.MaxLoad, c.engine, c.busiest)
		}
	}
}

// TestFewLanes: any subnet in as many lanes as there are, even one, and never
// worse than in one. OpenSM 3.3.23 on the same: dfsssp does not fit 6x6x6 into 8
// lanes; ring of 64: 2112, random: 657.
func TestFewLanes(t *testing.T) {
	random, sparse := topotest.Random(100, 6, 2, 3), topotest.Random(120, 4, 2, 5)
	for _, c := range []struct {
		name    string
		net     *topotest.Net
		lanes   int
		busiest int64
	}{
		{"4x4x4", netfile(t, "torus4x4x4"), 1, 128}, {"4x4x4", netfile(t, "torus4x4x4"), 4, 128},
		{"5x5x5", topotest.Torus(5, 5, 5, 1), 8, 75}, {"8x8", topotest.Torus(8, 8, 1, 2), 8, 288},
		{"6x6x6", topotest.Torus(6, 6, 6, 2), 8, 720}, {"6x6x6", topotest.Torus(6, 6, 6, 2), 1, 1296},
		{"8x8x8", topotest.Torus(8, 8, 8, 1), 8, 576}, {"ring of 64", topotest.Ring(64, 2), 8, 2112}, {"ring of 64", topotest.Ring(64, 2), 1, 1 << 20},
		{"random", random, 8, 657}, {"random", random, 4, 900}, {"random", random, 2, 1 << 20}, {"random", random, 1, 1 << 20},
		{"sparse random", sparse, 8, 1 << 20}, {"sparse random", sparse, 4, 1 << 20},
		{"dragonfly", topotest.Dragonfly(9, 8, 4), 8, 1024}, {"dragonfly", topotest.Dragonfly(9, 8, 4), 2, 1 << 20}, {"dragonfly", topotest.Dragonfly(9, 8, 4), 1, 1 << 20},
	} {
		g := c.net.Graph()
		one, err := updn(g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		start, limit := time.Now(), min(c.busiest, Check(one).MaxLoad)
		r, err := Compute(g, []string{"nue"}, Options{Lanes: c.lanes})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s in %d lanes, %v: %v %v", c.name, c.lanes, time.Since(start), r.Report, r.Notes)
		if !r.Report.OK() || r.Engine != "nue" || r.Lanes > c.lanes || r.Report.MaxLoad > limit {
			t.Errorf("%s: busiest link %d in %d of %d lanes: want at most %d", c.name, r.Report.MaxLoad, r.Lanes, c.lanes, limit)
		}
	}
}

// TestGrids: what is a product of rings and rows, and what is not.
func TestGrids(t *testing.T) {
	cut := topotest.Torus(5, 5, 1, 1)
	cut.Unlink("sw0_0_0", 1)
	for _, c := range []struct {
		name string
		net  *topotest.Net
		want string // sizes, rings marked
	}{
		{"ring", topotest.Ring(5, 1), "5o"}, {"torus", topotest.Torus(3, 5, 1, 1), "3o 5o"}, {"hypercube", topotest.Torus(4, 4, 1, 1), "2 2 2 2"},
		{"torus and one ring of four", topotest.Torus(4, 6, 1, 1), "2 2 6o"}, {"damaged", cut, ""},
		{"tree", topotest.FatTree2(4, 3, 1, 1), ""}, {"random", topotest.Random(30, 4, 1, 1), ""}, {"one switch", topotest.Ring(1, 2), ""},
	} {
		var dims []string
		if gr := findGrid(c.net.Graph()); gr != nil {
			for _, d := range gr.dims {
				dims = append(dims, fmt.Sprint(d.size)+map[bool]string{true: "o"}[d.ring])
			}
		}
		if slices.Sort(dims); strings.Join(dims, " ") != c.want {
			t.Errorf("%s: dimensions %q, want %q", c.name, dims, c.want)
		}
	}
}

// TestLanesAreTheSameBothWays keeps reversible paths safe.
func TestLanesAreTheSameBothWays(t *testing.T) {
	for _, net := range []string{"torus4x4x4", "ring8", "random20"} {
		r, err := Compute(netfile(t, net).Graph(), nil, Options{Lanes: 8})
		if err != nil {
			t.Fatal(err)
		}
		n := int32(r.Graph.Switches())
		for a := range n {
			for b := range n {
				if r.Lane(a, b) != r.Lane(b, a) || int(r.Lane(a, b)) >= r.Lanes {
					t.Fatalf("%s: lane %d one way, %d the other, of %d", net, r.Lane(a, b), r.Lane(b, a), r.Lanes)
				}
			}
		}
	}
}

// TestLoopsAreRefused: minhop on a ring can deadlock, and must not be used.
func TestLoopsAreRefused(t *testing.T) {
	r, err := Compute(netfile(t, "ring8").Graph(), []string{"minhop"}, Options{Lanes: 8})
	if err != nil {
		t.Fatal(err)
	}
	if r.Engine != "nue" || len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Error(), "credit loop") {
		t.Errorf("engine %s, refused %v: want nue, and the reason", r.Engine, r.Refused)
	}
}

// TestDamage takes links off one after another: as long as the switches are
// connected, every host stays reachable and nothing can deadlock.
func TestDamage(t *testing.T) {
	r := seeded.Rand(t)
	for _, net := range []string{"kfat8", "torus4x4", "random20", "ft32"} {
		n := netfile(t, net)
		for range 15 {
			sw := n.Switches()[r.IntN(len(n.Switches()))]
			if ports := n.Ports(sw); len(ports) > 0 {
				n.Unlink(sw, ports[r.IntN(len(ports))])
			}
			g := n.Graph()
			whole := !slices.Contains(distances(g, []int32{0}), -1)
			res, err := Compute(g, nil, Options{Lanes: 8})
			if err != nil {
				t.Fatal(err)
			}
			if res.Report.Cycle != nil || whole && res.Report.NumBroken > 0 {
				t.Fatalf("%s: %v; refused: %v", net, res.Report.Err(), res.Refused)
			}
		}
	}
}

// TestDamagedTreeStaysATree: one link less is no reason to give up ftree.
func TestDamagedTreeStaysATree(t *testing.T) {
	n := netfile(t, "kfat8")
	n.Unlink("agg0_0", 5)
	r, err := Compute(n.Graph(), nil, Options{Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Report, r.Notes, r.Refused)
	if r.Engine != "ftree" || r.Report.MaxLoad > 2*124 {
		t.Errorf("%s, busiest link %d: want ftree, at most %d; refused: %v", r.Engine, r.Report.MaxLoad, 2*124, r.Refused)
	}
}

// TestHostOnSpine: a management node at the top must not hide the tree.
func TestHostOnSpine(t *testing.T) {
	n := topotest.FatTree2(4, 2, 8, 2)
	f := n.Fabric(0)
	i, err := f.AddNode(topo.Node{GUID: 0x900000, Type: topo.CA, NumPorts: 1, Desc: "manager"})
	if err != nil {
		t.Fatal(err)
	}
	p := f.Port(i, 1)
	f.Ports[p].LID = 100
	spine := f.Node(0x200004)
	for num := range f.NodePorts(spine) {
		if q := f.Port(spine, uint8(num)); num > 0 && f.Ports[q].Peer == topo.None {
			if err := f.Connect(p, q); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	r, err := Compute(topo.NewGraph(f), nil, Options{})
	if err != nil || !r.Report.OK() {
		t.Fatal(err, r.Report)
	}
	t.Log(r.Engine, r.Report, r.Refused)
}

func TestRootsAsGiven(t *testing.T) {
	g := netfile(t, "ring8").Graph()
	r, err := Compute(g, []string{"updn"}, Options{Roots: []ib.GUID{g.GUID[3]}})
	if err != nil || r.Engine != "updn" || r.Rank[3] != 0 || r.Rank[7] != 4 {
		t.Errorf("%v, ranks %v, error %v", r.Engine, r.Rank, err)
	}
}

// TestSameInputSameTables: a link that comes back must bring the old tables back.
func TestSameInputSameTables(t *testing.T) {
	for _, e := range Engines() {
		a, errA := One(e, netfile(t, "random20").Graph(), Options{Lanes: 8})
		b, errB := One(e, netfile(t, "random20").Graph(), Options{Lanes: 8})
		if (errA == nil) != (errB == nil) {
			t.Fatal(errA, errB)
		}
		if errA == nil && !slices.EqualFunc(a.LFT, b.LFT, slices.Equal) {
			t.Errorf("%s gave two different routings of one fabric", e)
		}
	}
}

func TestParseEngines(t *testing.T) {
	known, unknown := ParseEngines("ftree, lash,none,no_fallback")
	if fmt.Sprint(known, unknown) != "[ftree minhop] [lash]" {
		t.Errorf("known %v, unknown %v", known, unknown)
	}
}

// cpu is the processor time that this process has used: on a machine that
// others use as well, wall time says little.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestScale measures the routing of trees up to 47,824 LIDs.
func TestScale(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: run with -long")
	}
	var times []time.Duration
	for _, k := range []int{24, 36, 56} {
		g := topotest.KFat(k).Graph()
		var tb *Tables
		took := time.Duration(math.MaxInt64)
		for range 3 { // the quietest counts
			tb = nil
			runtime.GC()
			start := cpu()
			var err error
			if tb, err = ftree(g, Options{}); err != nil {
				t.Fatal(err)
			}
			took = min(took, cpu()-start)
		}
		times = append(times, took)
		start := cpu()
		rep := Check(tb)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("k=%d: %d LIDs routed in %v, checked in %v of processor time, heap %d MB: %v", k, len(g.Dests), took, cpu()-start, m.HeapAlloc>>20, rep)
		if !rep.OK() {
			t.Error(rep.Err())
		}
	}
	r := float64(times[2]) / float64(times[1])
	if t.Logf("48,000 LIDs took %.1f times as long as 11,664 hosts", r); r > 12 {
		t.Error("want at most 12")
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, k := range []int{16, 24} {
		g := topotest.KFat(k).Graph()
		for _, e := range Engines() {
			b.Run(fmt.Sprintf("hosts=%d/%s", k*k*k/4, e), func(b *testing.B) {
				for b.Loop() {
					if _, err := One(e, g, Options{Lanes: 8}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
