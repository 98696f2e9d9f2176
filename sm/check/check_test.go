package check

import (
	"strings"
	"testing"

	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

func one(int32, int32) uint8 { return 0 }

// clockwise sends everything around a ring one way.
func clockwise(g *topo.Graph) [][]uint8 {
	lft := make([][]uint8, g.Switches())
	for s := range lft {
		lft[s] = make([]uint8, int(g.MaxLID)+1)
		for i := range lft[s] {
			lft[s][i] = 0xff
		}
		for _, d := range g.Dests {
			lft[s][d.LID] = 1
			if d.Switch == int32(s) {
				lft[s][d.LID] = d.Port
			}
		}
	}
	return lft
}

func TestLoopIsFound(t *testing.T) {
	g := topotest.Ring(5, 1).Graph()
	r := Run(Tables{Graph: g, LFT: clockwise(g), Lane: one, Lanes: 1})
	if len(r.Cycle) != 5 || r.NumBroken != 0 || r.Paths != 20 || r.MaxLoad != 10 {
		t.Errorf("%v", r)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "credit loop of 5") {
		t.Error(err)
	}
}

// TestLanesBreakTheLoop: what goes to one switch never uses the link that leaves it.
func TestLanesBreakTheLoop(t *testing.T) {
	g := topotest.Ring(5, 1).Graph()
	r := Run(Tables{Graph: g, LFT: clockwise(g), Lane: func(_, b int32) uint8 { return uint8(b) }, Lanes: 5})
	if !r.OK() {
		t.Error(r.Err())
	}
}

func TestBrokenPathsAreNamed(t *testing.T) {
	g := topotest.Ring(4, 1).Graph()
	for name, damage := range map[string]func(lft [][]uint8){
		"no route":         func(lft [][]uint8) { lft[2][1] = 0xff },
		"wrong host":       func(lft [][]uint8) { lft[0][1] = 4 },
		"not its own port": func(lft [][]uint8) { lft[0][1] = 1 },
		"forwarding loop":  func(lft [][]uint8) { lft[3][1] = 2 },
	} {
		lft := clockwise(g)
		damage(lft)
		r := Run(Tables{Graph: g, LFT: lft, Lane: one, Lanes: 1})
		if r.NumBroken == 0 || len(r.Broken) == 0 || !strings.Contains(r.Broken[0], "LID 1") {
			t.Errorf("%s: %d broken, %v", name, r.NumBroken, r.Broken)
		}
	}
}

func TestLoadsAndHops(t *testing.T) {
	// Two switches, two hosts each, one cable: four paths each way of two hops.
	g := topotest.FatTree2(1, 1, 2, 1).Graph()
	r := Run(Tables{Graph: g, LFT: clockwise(g), Lane: one, Lanes: 1})
	if r.Paths != 2 {
		t.Errorf("%d paths between two hosts at one switch: want 2", r.Paths)
	}
	if r.Hops != 2 || r.MaxLoad != 0 {
		t.Errorf("%d hops, load %d: want 2 and 0", r.Hops, r.MaxLoad)
	}
}

// TestPartsAgree: the work may be split in any way.
func TestPartsAgree(t *testing.T) {
	n, err := topotest.Load("../testdata/random20.net")
	if err != nil {
		t.Fatal(err)
	}
	g := n.Graph()
	tables := Tables{Graph: g, LFT: clockwise(g), Lane: func(a, b int32) uint8 { return uint8(a+b) % 2 }, Lanes: 2}
	whole := newState(tables)
	whole.columns(1)
	for _, parts := range []int{2, 3, 7, 100} {
		s := newState(tables)
		s.columns(parts)
		if a, b := whole.report().String(), s.report().String(); a != b {
			t.Errorf("%d parts: %s, want %s", parts, b, a)
		}
	}
}
