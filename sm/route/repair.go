package route

import (
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/topo"
)

// Repair adapts a routing to a subnet that has lost links or hosts and is the
// same otherwise. Only LIDs that were reached over a lost link get other
// routes, and only from where the old ones do not go on. The result is checked
// like any other, at the cost of the LIDs that changed.
//
// It reports false when the change is of another kind, or when what comes out
// does not hold; then Compute must route anew. old must not be used any more.
func Repair(old *Result, g *topo.Graph) (*Result, bool) {
	if old.state == nil || !sameSwitches(old.Graph, g) {
		return nil, false
	}
	g, ok := inherit(old.Graph, g)
	if !ok {
		return nil, false
	}
	lost, ok := lostLinks(old.Graph, g)
	if !ok {
		return nil, false
	}
	r := newRepairer(old, g)
	lids := r.affected(lost)
	for sw := range int32(g.Switches()) {
		r.reroute(sw, lids)
	}
	r.turns.Release()
	res := &Result{Tables: r.t, state: old.state}
	res.Report = old.state.Update(checkTables(r.t), lids)
	return res, res.Report.OK()
}

func sameSwitches(a, b *topo.Graph) bool {
	return slices.Equal(a.GUID, b.GUID) && slices.EqualFunc(a.Node, b.Node, func(x, y int32) bool {
		return a.Fabric.Nodes[x].NumPorts == b.Fabric.Nodes[y].NumPorts
	})
}

// inherit returns g with the LIDs of old: hosts that left keep their routes. It
// reports false when g has a LID that old has not, or at another place.
func inherit(old, g *topo.Graph) (*topo.Graph, bool) {
	here := make(map[ib.LID]topo.Dest, len(g.Dests))
	for _, d := range g.Dests {
		here[d.LID] = d
	}
	n := *g
	n.Dests = slices.Clone(old.Dests)
	n.DestsAt, n.Order, n.Hosts, n.MaxLID = old.DestsAt, old.Order, old.Hosts, old.MaxLID
	for i := range n.Dests {
		d := &n.Dests[i]
		now, there := here[d.LID]
		switch {
		case !there:
			d.End = g.Fabric.Port(g.Node[d.Switch], d.Port)
		case now.Switch != d.Switch || now.Port != d.Port:
			return nil, false
		default:
			d.End = now.End
			delete(here, d.LID)
		}
	}
	return &n, len(here) == 0
}

// out is a switch and one of its ports.
type out struct {
	sw   int32
	port uint8
}

// lostLinks lists the links that g has no more. It reports false when g has
// others than old.
func lostLinks(old, g *topo.Graph) (lost []out, ok bool) {
	for e := range old.To {
		o := out{old.From[e], old.Port[e]}
		if g.Link(o.sw, o.port) == topo.None {
			lost = append(lost, o)
		}
	}
	for e := range g.To {
		was := old.Link(g.From[e], g.Port[e])
		if was == topo.None || old.To[was] != g.To[e] || old.Port[old.Rev[was]] != g.Port[g.Rev[e]] {
			return nil, false
		}
	}
	return lost, true
}

type repairer struct {
	t     *Tables
	old   *Tables
	g     *topo.Graph
	o     *orientation // nil when the routing is by lanes
	b     *balancer
	d     *dag
	turns *check.Turns
	own   []bool // by switch: its table is a copy, and may be written
	found []bool
	order []int32 // switches with a way to the LID in hand, nearest first
	queue []int32
}

func newRepairer(old *Result, g *topo.Graph) *repairer {
	t := *old.Tables
	t.Graph, t.LFT, t.Notes = g, slices.Clone(t.LFT), nil
	n := g.Switches()
	r := &repairer{t: &t, old: old.Tables, g: g, b: newBalancer(g), d: newDAG(g), own: make([]bool, n), found: make([]bool, n)}
	r.turns = old.state.Turns(g)
	if t.Rank != nil {
		r.o = newOrientation(g, t.Rank)
	}
	for e := range g.To {
		r.b.load[e] = old.state.Load(g.From[e], g.Port[e]) * hostFlow
	}
	return r
}

// affected returns the LIDs that were reached over links lost.
func (r *repairer) affected(lost []out) map[ib.LID]bool {
	lids := map[ib.LID]bool{}
	for _, o := range lost {
		for lid, port := range r.old.LFT[o.sw] {
			if port == o.port {
				lids[ib.LID(lid)] = true
			}
		}
	}
	return lids
}

// reroute routes those of the LIDs that are at a switch.
func (r *repairer) reroute(sw int32, lids map[ib.LID]bool) {
	filled := false
	for _, i := range r.g.At(sw) {
		dest := r.g.Dests[i]
		if !lids[dest.LID] {
			continue
		}
		if !filled {
			filled = true
			r.fill(sw)
		}
		r.tree(dest)
		r.rest(dest)
	}
}

func (r *repairer) fill(sw int32) {
	if r.o != nil {
		r.d.oriented(r.g, r.o, sw)
	} else {
		r.d.minimal(r.g, sw)
	}
}

// tree keeps each switch on its old way if that is one of those there are now,
// and gives the others the best of them.
func (r *repairer) tree(dest topo.Dest) {
	clear(r.found)
	r.b.cost[dest.Switch], r.b.pick[dest.Switch] = 0, topo.None
	r.found[dest.Switch] = true
	r.order = append(r.order[:0], dest.Switch)
	for _, s := range r.d.order[1:] {
		if e := r.way(s, dest); e != topo.None {
			r.b.pick[s], r.b.cost[s] = e, r.b.cost[r.g.To[e]]+r.b.toll(e)
			r.found[s] = true
			r.order = append(r.order, s)
		}
	}
	r.b.addTree(r.order, r.b.pick, dest, 1)
}

// way enters a way from s into the table and returns its link, or topo.None
// when all would close a cycle, which cannot happen under an orientation.
func (r *repairer) way(s int32, dest topo.Dest) int32 {
	links := r.d.links(s)
	if e := r.g.Link(s, r.old.LFT[s][dest.LID]); e != topo.None && slices.Contains(links, e) && r.suits(e, dest) {
		return e
	}
	if e, _ := r.b.choose(links, int(dest.LID)+int(s)); r.suits(e, dest) {
		return e
	}
	for _, e := range links {
		if r.suits(e, dest) {
			return e
		}
	}
	return topo.None
}

func (r *repairer) suits(e int32, dest topo.Dest) bool {
	if r.o == nil {
		return r.take(e, dest)
	}
	r.set(r.g.From[e], dest.LID, r.g.Port[e])
	return true
}

// rest routes the switches that the orientation leaves out: by their old way
// if it leads to one with a way, else over the first link that does without
// closing a cycle.
func (r *repairer) rest(dest topo.Dest) {
	r.queue = r.queue[:0]
	for s := range int32(r.g.Switches()) {
		if !r.found[s] {
			r.queue = append(r.queue, s)
		}
	}
	r.settle(dest, func(s int32) bool {
		e := r.g.Link(s, r.old.LFT[s][dest.LID])
		return e != topo.None && r.take(e, dest)
	})
	r.settle(dest, func(s int32) bool {
		degree := r.g.First[s+1] - r.g.First[s]
		for i := range degree {
			if r.take(r.g.First[s]+(int32(dest.LID)+i)%degree, dest) {
				return true
			}
		}
		return false
	})
	for _, s := range r.queue {
		r.set(s, dest.LID, NoPort)
	}
}

// take routes the switch that link e leaves over it, if a way goes on from
// there and its turns close no cycle.
func (r *repairer) take(e int32, dest topo.Dest) bool {
	if !r.found[r.g.To[e]] {
		return false
	}
	s := r.g.From[e]
	r.set(s, dest.LID, r.g.Port[e])
	lane := r.t.Lane(s, dest.Switch)
	return !used(r.g, s, dest) || pathTurns(r.t, s, dest.LID, func(e, f int32) bool { return r.turns.Grant(lane, e, f) })
}

// settle gives ways to the switches in the queue, as long as one finds any, and
// leaves the others there.
func (r *repairer) settle(dest topo.Dest, way func(int32) bool) {
	for more := len(r.queue) > 0; more; {
		more = false
		left := r.queue[:0]
		for _, s := range r.queue {
			if !way(s) {
				left = append(left, s)
				continue
			}
			r.found[s], more = true, true
		}
		r.queue = left
	}
}

func (r *repairer) set(s int32, lid ib.LID, port uint8) {
	if r.t.LFT[s][lid] == port {
		return
	}
	if !r.own[s] {
		r.own[s] = true
		r.t.LFT[s] = slices.Clone(r.t.LFT[s])
	}
	r.t.LFT[s][lid] = port
}
