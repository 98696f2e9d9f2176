package route

import (
	"fmt"

	"github.com/urxe/urxe/sm/topo"
)

// detour finds the ways between hosts and switches, and between switches, that
// an orientation leaves out. In a damaged fat tree some hosts and a spine reach
// each other only by going down and up again. Only management passes there
// (counters are read over the LIDs of switches), yet it can deadlock like
// anything else, so a detour is taken only if its turns close no cycle with
// those of all other paths. What stays out of reach is left to the check to
// report; hosts that cannot reach each other make the engine unfit.
func detour(t *Tables, o *orientation) {
	d := &detourer{t: t, g: t.Graph, o: o}
	d.idle(t.holes())
	for _, dest := range t.holes() {
		d.to(dest)
	}
	if d.count > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d ways between hosts and switches go down and up again; no traffic between hosts takes them", d.count))
	}
}

// holes lists the LIDs that some switch has no way to. It goes by switch, since
// the tables of large subnets are far apart in memory.
func (t *Tables) holes() (dests []topo.Dest) {
	hole := make([]bool, int(t.Graph.MaxLID)+1)
	for _, table := range t.LFT {
		for lid := range hole {
			if table[lid] == NoPort {
				hole[lid] = true
			}
		}
	}
	for _, d := range t.Graph.Dests {
		if hole[d.LID] {
			dests = append(dests, d)
		}
	}
	return dests
}

type detourer struct {
	t       *Tables
	g       *topo.Graph
	o       *orientation
	turns   *cdg // of all paths; nil until it is needed
	missing []int32
	count   int // ways that something uses
}

// idle gives ways that nothing takes to switches beside one that has a way, and
// leaves the others to to. It goes by switch as well.
func (d *detourer) idle(holes []topo.Dest) {
	for s := range int32(d.g.Switches()) {
		for _, dest := range holes {
			if !used(d.g, s, dest) && d.t.LFT[s][dest.LID] == NoPort {
				d.from(s, dest)
			}
		}
	}
}

// to gives switches without a way to dest one over a neighbour that has, until
// there are no more.
func (d *detourer) to(dest topo.Dest) {
	d.missing = d.missing[:0]
	for s := range d.t.LFT {
		if d.t.LFT[s][dest.LID] == NoPort {
			d.missing = append(d.missing, int32(s))
		}
	}
	for more := len(d.missing) > 0; more; {
		more = false
		left := d.missing[:0]
		for _, s := range d.missing {
			if d.from(s, dest) {
				more = true
			} else {
				left = append(left, s)
			}
		}
		d.missing = left
	}
}

// from tries the neighbours of s, in the same order for all LIDs: the fewer
// switches detours turn up at, the fewer cycles they could close.
func (d *detourer) from(s int32, dest topo.Dest) bool {
	for e := d.g.First[s]; e < d.g.First[s+1]; e++ {
		if d.t.LFT[d.g.To[e]][dest.LID] != NoPort && d.take(e, dest) {
			return true
		}
	}
	return false
}

// take routes the switch that link e leaves over it, if that closes no cycle.
func (d *detourer) take(e int32, dest topo.Dest) bool {
	s := d.g.From[e]
	if dest.IsHost() && d.g.Hosts[s] > 0 {
		return false
	}
	d.t.LFT[s][dest.LID] = d.g.Port[e]
	if !used(d.g, s, dest) {
		return true
	}
	if d.turns == nil {
		d.turns = turnsOf(d.t, d.o)
	}
	d.turns.mark()
	if pathTurns(d.t, s, dest.LID, func(e, f int32) bool { return d.turns.add(0, e, f) }) {
		d.count++
		return true
	}
	d.turns.undo()
	d.t.LFT[s][dest.LID] = NoPort
	return false
}

// turnsOf gathers the turns of all paths in one lane.
func turnsOf(t *Tables, o *orientation) *cdg {
	g := t.Graph
	c := newCDG(g)
	c.addLane(o)
	for _, d := range g.Dests {
		for s := range int32(g.Switches()) {
			if used(g, s, d) {
				c.mark()
				pathTurns(t, s, d.LID, func(e, f int32) bool { return c.add(0, e, f) })
			}
		}
	}
	return c
}
