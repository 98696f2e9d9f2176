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

// from measures the distances of all switches from sw, which are those to it as well.
func (h *hopCounter) from(sw int32) {
	h.queue = h.t.Graph.Distances(h.dist, append(h.queue[:0], sw))
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
