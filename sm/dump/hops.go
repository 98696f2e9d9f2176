package dump

import (
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/topo"
)

// hopCounter counts the links from a switch to LIDs, as the tables go and as
// they could go at best.
type hopCounter struct {
	t     *route.Tables
	dist  []int32
	queue []int32
}

func newHops(t *route.Tables) *hopCounter {
	return &hopCounter{t: t, dist: make([]int32, t.Graph.Switches())}
}

// from measures the distances of all switches from sw. Links work both ways, so
// these are those to sw as well.
func (h *hopCounter) from(sw int32) {
	g := h.t.Graph
	for i := range h.dist {
		h.dist[i] = -1
	}
	h.dist[sw] = 0
	h.queue = append(h.queue[:0], sw)
	for i := 0; i < len(h.queue); i++ {
		s := h.queue[i]
		for e := g.First[s]; e < g.First[s+1]; e++ {
			if t := g.To[e]; h.dist[t] < 0 {
				h.dist[t] = h.dist[s] + 1
				h.queue = append(h.queue, t)
			}
		}
	}
}

// last counts the hop from the last switch to a host.
func last(d topo.Dest) int32 {
	if d.IsHost() {
		return 1
	}
	return 0
}

func (h *hopCounter) least(d topo.Dest) int32 { return max(0, h.dist[d.Switch]) + last(d) }

// taken follows the tables. A walk longer than there are switches goes round.
func (h *hopCounter) taken(sw int32, d topo.Dest) int32 {
	n := int32(0)
	for e := h.t.Next(sw, d.LID); e != topo.None && int(n) <= h.t.Graph.Switches(); e = h.t.Next(h.t.Graph.To[e], d.LID) {
		n++
	}
	return n + last(d)
}
