package route

import (
	"fmt"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// bender brings into the lanes what shortest paths leave over. Every lane keeps
// the turns of one spanning tree free. It then takes the switches with pairs
// left over, and routes their LIDs again from where paths have no lane: over
// any link, in any lane, that closes no cycle. Where there is none, all paths to
// a switch go along the tree, which fits every lane; so it always ends well.
type bender struct {
	planner
	left   [][2]int32
	onTree []bool // by link
	sunk   int    // switches whose LIDs are reached along the tree
}

// bend gives lanes to all pairs. base is as in assignLanes. It first tries
// without the tree, whose turns cost room in the lanes.
func bend(t *Tables, lanes int, base *cdg) *Tables {
	for _, tree := range [][]bool{nil, spanningTree(t.Graph)} {
		b := newBender(t, lanes, base, tree)
		if b.all() {
			return b.t
		}
	}
	return nil // cannot be: the tree always fits
}

func newBender(t *Tables, lanes int, base *cdg, tree []bool) *bender {
	t = t.clone()
	l := newLaner(t)
	l.tree = tree
	l.pack(lanes, base, false)
	b := &bender{planner: newPlanner(t, t.LFT, t.LFT), left: l.left, onTree: tree}
	b.lanes, b.turns, b.lent = lanes, l.cdg, true
	b.unset()
	for _, d := range b.g.Dests {
		b.tally(b.present(d), 1)
	}
	return b
}

// all routes again what is left over, and reports false when there is no tree
// and something finds no way.
func (b *bender) all() bool {
	for _, sw := range b.worst() {
		if !b.reroute(sw) {
			return false
		}
	}
	for _, p := range b.left {
		if b.t.Lane(p[0], p[1]) == noLane { // both ends are on the tree
			b.t.setLane(p[0], p[1], uint8(int(p[0]+p[1])%b.lanes))
		}
	}
	if b.sunk > 0 {
		b.t.Notes = append(b.t.Notes, fmt.Sprintf("%d of %d ways between switches go along one tree", b.sunk, b.g.Switches()*(b.g.Switches()-1)))
	}
	return true
}

// spanningTree marks the links, both directions, of breadth-first trees from the
// centre of each part of the graph.
func spanningTree(g *topo.Graph) (on []bool) {
	on = make([]bool, g.Links())
	queue := centre(g)
	seen := make([]bool, g.Switches())
	for _, s := range queue {
		seen[s] = true
	}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		for e := g.First[s]; e < g.First[s+1]; e++ {
			if t := g.To[e]; !seen[t] {
				seen[t], on[e], on[g.Rev[e]] = true, true, true
				queue = append(queue, t)
			}
		}
	}
	return on
}

// unset takes the lanes off the pairs left over.
func (b *bender) unset() {
	n := b.g.Switches()
	if b.t.lane == nil {
		b.t.lane = make([]uint8, n*n)
	}
	for _, p := range b.left {
		b.t.putLane(p[0], p[1], noLane)
	}
}

// present is the routes to a LID that are in the tables.
func (b *bender) present(d topo.Dest) *plan {
	p := newPlan(d, b.g.Switches())
	for s := range p.port {
		p.port[s] = b.t.LFT[s][d.LID]
	}
	return p
}

// worst lists the switches with pairs left over, those with the most first.
func (b *bender) worst() (order []int32) {
	pairs := make([]int, b.g.Switches())
	for _, p := range b.left {
		pairs[p[0]]++
		pairs[p[1]]++
	}
	for s, n := range pairs {
		if n > 0 {
			order = append(order, int32(s))
		}
	}
	slices.SortStableFunc(order, func(x, y int32) int { return pairs[y] - pairs[x] })
	return order
}

// reroute routes the LIDs at a switch again, as far as their paths have no lane.
// A switch that finds no way goes along the tree, and so do those it passes
// there; then the others try again. It reports false when that happens and there
// is no tree.
func (b *bender) reroute(sw int32) bool {
	up := b.upTree(sw)
	pinned := make([]bool, b.g.Switches())
	for _, i := range b.g.At(sw) {
		b.tally(b.present(b.g.Dests[i]), -1)
	}
	for {
		turns, lanes := len(b.turns.added), len(b.changes)
		plans := b.plans(sw, func(ib.LID) bool { return true })
		stuck := b.attempt(plans, up, pinned)
		if len(stuck) == 0 {
			b.enter(plans)
			return true
		}
		if b.onTree == nil {
			return false
		}
		b.undo(turns)
		b.takeBack(lanes)
		for _, s := range stuck {
			for ; s != sw && !pinned[s]; s = b.g.To[up[s]] {
				pinned[s] = true
				b.sunk++
			}
		}
	}
}

// attempt makes the plans, and returns switches that find no way.
func (b *bender) attempt(plans []*plan, up []int32, pinned []bool) (stuck []int32) {
	for _, p := range plans {
		for s, pin := range pinned {
			if pin {
				p.port[s] = b.g.Port[up[s]]
			}
		}
		b.open(p)
		b.walkPlan()
		b.walkAll(b.home, b.grant)
	}
	for _, p := range plans {
		b.find(p)
		if stuck = b.misses(); len(stuck) > 0 {
			return stuck
		}
	}
	return nil
}

// enter writes plans into the tables.
func (b *bender) enter(plans []*plan) {
	for _, p := range plans {
		b.tally(p, 1)
		for s, port := range p.port {
			b.t.LFT[s][p.dest.LID] = port
		}
		b.ports[p.dest.LID] = nil
	}
}

// misses lists the switches that need a way to the LID in hand and have none.
func (b *bender) misses() (stuck []int32) {
	b.fill()
	for s := range int32(b.g.Switches()) {
		if !b.found[s] && b.d.dist[s] >= 0 && used(b.g, s, b.plan.dest) {
			stuck = append(stuck, s)
		}
	}
	return stuck
}

// upTree returns, by switch, the link along the tree to one switch.
func (b *bender) upTree(sw int32) []int32 {
	queue, up := []int32{sw}, make([]int32, b.g.Switches())
	for i := range up {
		up[i] = topo.None
	}
	for i := 0; i < len(queue) && b.onTree != nil; i++ {
		s := queue[i]
		for e := b.g.First[s]; e < b.g.First[s+1]; e++ {
			if t := b.g.To[e]; b.onTree[e] && t != sw && up[t] == topo.None {
				up[t] = b.g.Rev[e]
				queue = append(queue, t)
			}
		}
	}
	return up
}
