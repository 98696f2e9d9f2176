package route

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// dfsssp takes balanced shortest paths and gives each pair of switches a lane
// in which its paths, both ways, close no cycle. It fails when there are too
// few lanes for that.
func dfsssp(g *topo.Graph, o Options) (*Tables, error) {
	t := newTables("dfsssp", g)
	spread(t, func(d *dag, sw int32) { d.minimal(g, sw) })
	if left := assignLanes(t, o.lanes(), nil); left > 0 {
		return nil, fmt.Errorf("balanced shortest paths do not fit into %d lanes: %d pairs of switches are left over", o.lanes(), left)
	}
	return t, nil
}

// laner gives lanes to pairs of switches, lane by lane. Each lane begins with
// pairs that cannot close a cycle together: those whose turns an acyclic base
// has, or those that go up and then down under one orientation. Other pairs
// join as long as they close none.
type laner struct {
	t    *Tables
	g    *topo.Graph
	cdg  *cdg
	left [][2]int32
	tree []bool // by link: turns between these are kept free in every lane; may be nil
}

func newLaner(t *Tables) *laner {
	l := &laner{t: t, g: t.Graph, cdg: newCDG(t.Graph)}
	l.pairs()
	return l
}

// assignLanes returns the number of pairs that did not fit. base, which may be
// nil, is what the first lane begins with.
func assignLanes(t *Tables, lanes int, base *cdg) int {
	l := newLaner(t)
	l.pack(lanes, base, true)
	return len(l.left)
}

// pack fills the lanes one after the other. With hasty it stops when it sees
// that they will not do.
func (l *laner) pack(lanes int, base *cdg, hasty bool) {
	for lane := 0; lane < lanes && !(hasty && len(l.left) == 0); lane++ {
		before := len(l.left)
		l.begin(uint8(lane), base)
		l.fill(uint8(lane), func(a, b int32) bool { return true })
		// Later lanes hardly ever take more than earlier ones did.
		if took := before - len(l.left); hasty && len(l.left) > took*(lanes-lane-1) {
			return
		}
	}
}

// pairs lists all pairs of switches that anything passes between.
func (l *laner) pairs() {
	n := int32(l.g.Switches())
	for a := range n {
		for b := a + 1; b < n; b++ {
			if !hostless(l.g, a, b) {
				l.left = append(l.left, [2]int32{a, b})
			}
		}
	}
}

// begin opens a lane with pairs that belong together.
func (l *laner) begin(lane uint8, base *cdg) {
	if lane == 0 && base != nil {
		l.cdg.ord = append(l.cdg.ord, base.ord[0])
		l.reserve(lane)
		l.fill(lane, func(a, b int32) bool { return l.within(base, a, b) && l.within(base, b, a) })
		return
	}
	o := l.bestOrientation()
	l.cdg.addLane(o)
	l.reserve(lane)
	l.fill(lane, func(a, b int32) bool { return l.legal(o, a, b) && l.legal(o, b, a) })
}

// reserve takes the turns of the tree into an empty lane.
func (l *laner) reserve(lane uint8) {
	for e := range l.tree {
		t := l.g.To[e]
		for f := l.g.First[t]; l.tree[e] && f < l.g.First[t+1]; f++ {
			if l.tree[f] && f != l.g.Rev[e] {
				l.cdg.add(lane, int32(e), f)
			}
		}
	}
}

// fill puts those pairs left that try allows into a lane, if they fit.
func (l *laner) fill(lane uint8, try func(a, b int32) bool) {
	left := l.left[:0]
	for _, p := range l.left {
		if try(p[0], p[1]) && l.place(lane, p[0], p[1]) {
			l.t.setLane(p[0], p[1], lane)
		} else {
			left = append(left, p)
		}
	}
	l.left = left
}

// place adds the paths between a and b to a lane, or none of them.
func (l *laner) place(lane uint8, a, b int32) bool {
	l.cdg.mark()
	add := func(e, f int32) bool { return l.cdg.add(lane, e, f) }
	if l.turns(a, b, add) && l.turns(b, a, add) {
		return true
	}
	l.cdg.undo()
	return false
}

// turns calls ok for each pair of links that follow each other on the paths
// from a to the LIDs at b, until it says false.
func (l *laner) turns(a, b int32, ok func(e, f int32) bool) bool {
	for _, i := range l.g.At(b) {
		if d := l.g.Dests[i]; used(l.g, a, d) && !pathTurns(l.t, a, d.LID, ok) {
			return false
		}
	}
	return true
}

// used reports whether anything is sent from switch a to a LID: a switch
// without hosts sends to hosts only.
func used(g *topo.Graph, a int32, d topo.Dest) bool { return d.IsHost() || g.Hosts[a] > 0 }

// pathTurns calls ok for each pair of links that follow each other on the path
// from s to a LID, until it says false.
func pathTurns(t *Tables, s int32, lid ib.LID, ok func(e, f int32) bool) bool {
	e := t.Next(s, lid)
	for e != topo.None {
		f := t.Next(t.Graph.To[e], lid)
		if f != topo.None && !ok(e, f) {
			return false
		}
		e = f
	}
	return true
}

func (l *laner) within(base *cdg, a, b int32) bool {
	return l.turns(a, b, func(e, f int32) bool { return base.has(0, e, f) })
}

// legal reports whether the paths from a to b go up, then down.
func (l *laner) legal(o *orientation, a, b int32) bool {
	return l.turns(a, b, func(e, f int32) bool { return o.up(l.g, e) || !o.up(l.g, f) })
}

const (
	orientationTries = 16    // roots tried for a lane
	orientationPairs = 20000 // pairs looked at for each
)

// bestOrientation returns the orientation that suits the most pairs left.
func (l *laner) bestOrientation() (best *orientation) {
	if rank := treeRank(l.g); rank != nil && l.t.lane == nil {
		return newOrientation(l.g, rank)
	}
	most, n := -1, l.g.Switches()
	for s := 0; s < n; s += max(1, n/orientationTries) {
		o := newOrientation(l.g, distances(l.g, []int32{int32(s)}))
		count := 0
		for i := 0; i < len(l.left); i += max(1, len(l.left)/orientationPairs) {
			if p := l.left[i]; l.legal(o, p[0], p[1]) && l.legal(o, p[1], p[0]) {
				count++
			}
		}
		if count > most {
			best, most = o, count
		}
	}
	return best
}
