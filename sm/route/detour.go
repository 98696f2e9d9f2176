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
	var c *cdg
	count := 0
	for _, d := range t.Graph.Dests {
		if !unreached(t, d) {
			continue
		}
		if c == nil {
			c = turnsOf(t, o)
		}
		count += detourTo(t, c, d)
	}
	if count > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d ways between hosts and switches go down and up again; no traffic between hosts takes them", count))
	}
}

func unreached(t *Tables, d topo.Dest) bool {
	for s := range t.LFT {
		if t.LFT[s][d.LID] == NoPort {
			return true
		}
	}
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

// detourTo works outwards from the switches that reach d, and returns how many
// others it gave a way.
func detourTo(t *Tables, c *cdg, d topo.Dest) (count int) {
	g := t.Graph
	var queue []int32
	for s := range int32(g.Switches()) {
		if t.LFT[s][d.LID] != NoPort {
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		r := queue[i]
		for e := g.First[r]; e < g.First[r+1]; e++ {
			s := g.To[e]
			if t.LFT[s][d.LID] == NoPort && detourFrom(t, c, d, g.Rev[e]) {
				queue = append(queue, s)
				if used(g, s, d) {
					count++
				}
			}
		}
	}
	return count
}

// detourFrom routes the switch that link e leaves over it, if that closes no cycle.
func detourFrom(t *Tables, c *cdg, d topo.Dest, e int32) bool {
	s := t.Graph.From[e]
	t.LFT[s][d.LID] = t.Graph.Port[e]
	if !used(t.Graph, s, d) {
		return true
	}
	if d.IsHost() && t.Graph.Hosts[s] > 0 {
		t.LFT[s][d.LID] = NoPort
		return false
	}
	c.mark()
	if pathTurns(t, s, d.LID, func(e, f int32) bool { return c.add(0, e, f) }) {
		return true
	}
	c.undo()
	t.LFT[s][d.LID] = NoPort
	return false
}
