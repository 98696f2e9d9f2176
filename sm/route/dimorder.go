package route

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/urxe/urxe/sm/topo"
)

// dimensionOrder routes grids along one dimension after the other, which closes
// no cycle but around the rings. There, paths that cross the dateline, between
// the last coordinate and the first, have another lane than those that don't:
// of the first, none is longer than half the ring, so they don't go all around
// it either. Each ring doubles the lanes; those that there are no lanes for are
// used as rows, and so is every ring in one lane. It returns nil when g is no
// grid. straight says that all paths are shortest.
func dimensionOrder(g *topo.Graph, lanes int) (t *Tables, straight bool) {
	gr := findGrid(g)
	if gr == nil {
		return nil, false
	}
	cross := gr.datelines(lanes)
	t = newTables("nue", g)
	for _, dest := range g.Dests {
		for s := range int32(g.Switches()) {
			if s != dest.Switch {
				e := gr.next(s, dest.Switch, cross)
				t.LFT[s][dest.LID] = g.Port[sideBySide(g, e, int(dest.LID))]
			}
		}
	}
	used := 0
	for i, d := range gr.dims {
		if d.ring && !cross[i] {
			t.Notes = append(t.Notes, fmt.Sprintf("there are no lanes for a ring of %d switches, which is used as a row", d.size))
		}
		used += b2i(d.ring && !cross[i])
	}
	gr.setLanes(t, cross)
	return t, used == 0
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// datelines chooses the dimensions whose datelines may be crossed, the largest
// rings first. Rings of three need no lane: no path there turns.
func (gr *grid) datelines(lanes int) (cross []bool) {
	cross = make([]bool, len(gr.dims))
	var order []int
	for i, d := range gr.dims {
		if cross[i] = d.ring && d.size == 3; d.ring && !cross[i] {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(gr.dims[b].size, gr.dims[a].size) })
	for _, i := range order {
		if lanes >= 2 {
			cross[i], lanes = true, lanes/2
		}
	}
	return cross
}

// way returns in which direction of dimension i paths from a to b go. Those from
// b to a come back the same way.
func (gr *grid) way(i int, a, b int32, cross bool) int {
	d := &gr.dims[i]
	from, to := d.at[a], d.at[b]
	if !cross {
		return b2i(to > from)
	}
	up := (to - from + d.size) % d.size
	if 2*up != d.size {
		return b2i(2*up < d.size)
	}
	// Both are as far. The choice hangs on what both ends of the path know.
	side := min(from, to)
	for j := i + 1; j < len(gr.dims); j++ {
		side += gr.dims[j].at[a] + gr.dims[j].at[b]
	}
	return b2i((side%2 == 0) == (from < to))
}

// next returns the link from s towards a switch.
func (gr *grid) next(s, dst int32, cross []bool) int32 {
	for i := range gr.dims {
		if d := &gr.dims[i]; d.at[s] != d.at[dst] {
			return d.to[gr.way(i, s, dst, cross[i])][s]
		}
	}
	return topo.None
}

// sideBySide returns one of the cables that go where e goes.
func sideBySide(g *topo.Graph, e int32, turn int) int32 {
	var all []int32
	for f := g.First[g.From[e]]; f < g.First[g.From[e]+1]; f++ {
		if g.To[f] == g.To[e] {
			all = append(all, f)
		}
	}
	return all[turn%len(all)]
}

// setLanes gives each pair the lane of the datelines that its paths cross.
func (gr *grid) setLanes(t *Tables, cross []bool) {
	n := int32(gr.g.Switches())
	for a := range n {
		for b := a + 1; b < n; b++ {
			lane, bit := uint8(0), uint8(1)
			for i := range gr.dims {
				d := &gr.dims[i]
				if !cross[i] || d.size == 3 {
					continue
				}
				up := gr.way(i, a, b, true) == higher
				if d.at[a] != d.at[b] && up != (d.at[b] > d.at[a]) {
					lane |= bit
				}
				bit <<= 1
			}
			t.setLane(a, b, lane)
		}
	}
}
