package route

import (
	"slices"

	"github.com/urxe/urxe/sm/topo"
)

// grid is a graph that is a product of rings and rows: a torus, a mesh, a
// hypercube, a ring. Rings of four are two dimensions of two each, which is the
// same graph.
type grid struct {
	g    *topo.Graph
	dims []dim
}

// dim is one dimension of a grid.
type dim struct {
	at   []int32    // by switch: its coordinate
	size int32      // coordinates are below
	ring bool       // the last is linked to the first
	to   [2][]int32 // by switch: the first link to the next lower and to the next higher, topo.None when there is none
}

const (
	lower  = 0
	higher = 1

	// mostNeighbours bounds the search for a grid: seven dimensions.
	mostNeighbours = 14
)

// findGrid returns the grid that g is, or nil.
func findGrid(g *topo.Graph) *grid {
	n := neighbours(g)
	if n == nil || g.Switches() < 3 || slices.Contains(distances(g, []int32{0}), -1) {
		return nil
	}
	kinds := kindsOfLinks(g, n)
	gr := &grid{g: g}
	product := int32(1)
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(kinds))) {
		d := newDim(g, kinds, kind)
		if d == nil {
			return nil
		}
		gr.dims = append(gr.dims, *d)
		product *= d.size
	}
	if product != int32(g.Switches()) || !gr.unique() {
		return nil
	}
	return gr
}

// neighbours lists, by switch, the first link to each of its neighbours. It
// returns nil when one has too many.
func neighbours(g *topo.Graph) [][]int32 {
	all := make([][]int32, g.Switches())
	for s := range all {
		for e := g.First[s]; e < g.First[s+1]; e++ {
			if !slices.ContainsFunc(all[s], func(f int32) bool { return g.To[f] == g.To[e] }) {
				all[s] = append(all[s], e)
			}
		}
		if len(all[s]) > mostNeighbours {
			return nil
		}
	}
	return all
}

// kindsOfLinks gives links of one dimension the same number. In a product of
// graphs, links of different dimensions at a switch are sides of a square, and
// opposite sides of a square are of one dimension.
func kindsOfLinks(g *topo.Graph, near [][]int32) []int32 {
	u := newUnion(g.Links())
	for e := range g.To {
		u.join(int32(e), g.Rev[e])
		for _, f := range near[g.From[e]] {
			if g.To[f] == g.To[e] {
				u.join(int32(e), f) // cables side by side
			}
		}
	}
	for _, links := range near {
		for i, e := range links {
			for _, f := range links[i+1:] {
				square := false
				for _, x := range near[g.To[e]] {
					for _, y := range near[g.To[f]] {
						if g.To[x] == g.To[y] && g.To[x] != g.From[e] {
							square = true
							u.join(e, y)
							u.join(f, x)
						}
					}
				}
				if !square {
					u.join(e, f)
				}
			}
		}
	}
	kinds := make([]int32, g.Links())
	for e := range kinds {
		kinds[e] = u.find(int32(e))
	}
	return kinds
}

// union is a set of disjoint sets.
type union []int32

func newUnion(n int) union {
	u := make(union, n)
	for i := range u {
		u[i] = int32(i)
	}
	return u
}

func (u union) find(x int32) int32 {
	for u[x] != x {
		u[x] = u[u[x]]
		x = u[x]
	}
	return x
}

func (u union) join(a, b int32) { u[u.find(a)] = u.find(b) }

// newDim returns the dimension of one kind of links, or nil when the slices
// between them are in no ring or row.
func newDim(g *topo.Graph, kinds []int32, kind int32) *dim {
	slice := newUnion(g.Switches())
	for e := range g.To {
		if kinds[e] != kind {
			slice.join(g.From[e], g.To[e])
		}
	}
	beside := map[int32][]int32{} // by slice
	for e := range g.To {
		if kinds[e] == kind {
			a, b := slice.find(g.From[e]), slice.find(g.To[e])
			if a == b {
				return nil
			}
			if !slices.Contains(beside[a], b) {
				beside[a] = append(beside[a], b)
			}
		}
	}
	order, ring := inOrder(beside)
	if order == nil {
		return nil
	}
	d := &dim{size: int32(len(order)), ring: ring, at: make([]int32, g.Switches())}
	for s := range d.at {
		d.at[s] = int32(slices.Index(order, slice.find(int32(s))))
	}
	return d.link(g, kinds, kind)
}

// inOrder returns the slices in the order in which they are beside each other,
// or nil when they are in no ring and no row.
func inOrder(beside map[int32][]int32) (order []int32, ring bool) {
	first, ring := topo.None, true
	for s, b := range beside {
		if len(b) > 2 {
			return nil, false
		}
		end := len(b) == 1
		if first == topo.None || end && ring || end != ring && s < first {
			first, ring = s, ring && !end
		}
	}
	if first == topo.None {
		return nil, false
	}
	order = append(order, first)
	for at := first; ; {
		next := topo.None
		for _, b := range beside[at] {
			if !slices.Contains(order, b) && (next == topo.None || b < next) {
				next = b
			}
		}
		if next == topo.None {
			break
		}
		order = append(order, next)
		at = next
	}
	if len(order) != len(beside) {
		return nil, false
	}
	return order, ring && len(order) > 2
}

// link notes the links to the next lower and the next higher coordinate, and
// returns nil when one is missing.
func (d *dim) link(g *topo.Graph, kinds []int32, kind int32) *dim {
	for way := range d.to {
		d.to[way] = make([]int32, g.Switches())
		for s := range d.to[way] {
			d.to[way][s] = topo.None
		}
	}
	for e := range int32(g.Links()) {
		if kinds[e] != kind {
			continue
		}
		s := g.From[e]
		way := lower
		if (d.at[s]+1)%d.size == d.at[g.To[e]] && (d.ring || d.at[s] < d.at[g.To[e]]) {
			way = higher
		}
		if d.to[way][s] == topo.None {
			d.to[way][s] = e
		}
	}
	for s, at := range d.at {
		if d.to[higher][s] == topo.None && (d.ring || at < d.size-1) || d.to[lower][s] == topo.None && (d.ring || at > 0) {
			return nil
		}
	}
	return d
}

// unique reports whether no two switches have the same coordinates.
func (gr *grid) unique() bool {
	taken := make([]bool, gr.g.Switches())
	for s := range taken {
		place := int32(0)
		for _, d := range gr.dims {
			place = place*d.size + d.at[s]
		}
		if taken[place] {
			return false
		}
		taken[place] = true
	}
	return true
}
