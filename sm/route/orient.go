package route

import (
	"cmp"
	"slices"

	"github.com/urxe/urxe/sm/topo"
)

// orientation is a total order of the switches, by rank and then by number. A
// link to a switch earlier in the order goes up. Since the order is total, no
// path of up links and none of down links ever closes.
type orientation struct {
	rank    []int32
	topDown []int32 // switches in the order, highest first
	pos     []int32 // by switch: its place in topDown

	first []int32 // by switch, one more: links sorted into ups, then downs
	mid   []int32 // by switch: where its downs begin
	link  []int32
}

func newOrientation(g *topo.Graph, rank []int32) *orientation {
	n := g.Switches()
	o := &orientation{rank: rank, pos: make([]int32, n), first: g.First, mid: make([]int32, n), link: make([]int32, 0, g.Links())}
	for s := range int32(n) {
		o.topDown = append(o.topDown, s)
	}
	slices.SortStableFunc(o.topDown, func(a, b int32) int { return cmp.Compare(rank[a], rank[b]) })
	for i, s := range o.topDown {
		o.pos[s] = int32(i)
	}
	for s := range int32(n) {
		o.add(g, s, true)
		o.mid[s] = int32(len(o.link))
		o.add(g, s, false)
	}
	return o
}

func (o *orientation) add(g *topo.Graph, s int32, up bool) {
	for e := g.First[s]; e < g.First[s+1]; e++ {
		if o.up(g, e) == up {
			o.link = append(o.link, e)
		}
	}
}

// up reports whether link e goes up.
func (o *orientation) up(g *topo.Graph, e int32) bool { return o.pos[g.To[e]] < o.pos[g.From[e]] }

func (o *orientation) ups(s int32) []int32   { return o.link[o.first[s]:o.mid[s]] }
func (o *orientation) downs(s int32) []int32 { return o.link[o.mid[s]:o.first[s+1]] }

// distances returns the hops of each switch from the nearest of some, -1 when
// there is no way.
func distances(g *topo.Graph, from []int32) []int32 {
	dist := make([]int32, g.Switches())
	g.Distances(dist, slices.Clone(from))
	return dist
}

// treeRank returns ranks of a fat tree, roots 0, or nil when the graph is none:
// when two switches of one level are linked. Levels are hops from the leaf
// switches. A spine with a few hosts of its own (a management node, a gateway)
// is no leaf: the second try takes for leaves only switches with many hosts.
func treeRank(g *topo.Graph) []int32 {
	most := slices.Max(append([]int32{0}, g.Hosts...))
	for _, least := range [2]int32{1, max(2, most/4)} {
		var leaves []int32
		for s, h := range g.Hosts {
			if h >= least {
				leaves = append(leaves, int32(s))
			}
		}
		if level := distances(g, leaves); len(leaves) > 0 && levelled(g, level) {
			return upsideDown(level)
		}
	}
	return nil
}

// rootRank returns ranks by distance from the roots, or nil when some switch
// cannot be reached from them.
func rootRank(g *topo.Graph, roots []int32) []int32 {
	rank := distances(g, roots)
	if len(roots) == 0 || slices.Contains(rank, -1) {
		return nil
	}
	return rank
}

func levelled(g *topo.Graph, level []int32) bool {
	for e := range g.To {
		if level[g.From[e]] == level[g.To[e]] {
			return false
		}
	}
	return !slices.Contains(level, -1)
}

func upsideDown(level []int32) []int32 {
	top := slices.Max(level)
	for i := range level {
		level[i] = top - level[i]
	}
	return level
}

// centre returns, for each connected part of the graph, the switch from which
// the hosts are nearest on average; of equal ones the one with the most links,
// then the lowest GUID. As the one root of an up/down routing it reaches
// everything.
func centre(g *topo.Graph) (roots []int32) {
	seen := make([]bool, g.Switches())
	for s := range int32(g.Switches()) {
		if seen[s] {
			continue
		}
		var part []int32
		for t, d := range distances(g, []int32{s}) {
			if d >= 0 {
				seen[t] = true
				part = append(part, int32(t))
			}
		}
		roots = append(roots, mostCentral(g, part))
	}
	return roots
}

// centreTries bounds the work of finding a centre: one breadth-first search each.
const centreTries = 256

func mostCentral(g *topo.Graph, part []int32) int32 {
	best, bestSum := part[0], int64(-1)
	step := max(1, len(part)/centreTries)
	for i := 0; i < len(part); i += step {
		s := part[i]
		var sum int64
		for t, d := range distances(g, part[i:i+1]) {
			if d > 0 {
				sum += int64(d) * int64(g.Hosts[t]*16+1)
			}
		}
		degree := func(s int32) int32 { return g.First[s+1] - g.First[s] }
		if bestSum < 0 || sum < bestSum || sum == bestSum && degree(s) > degree(best) {
			best, bestSum = s, sum
		}
	}
	return best
}

// anyOrientation returns the order of switches most likely to suit shortest paths.
func anyOrientation(g *topo.Graph) *orientation {
	if rank := treeRank(g); rank != nil {
		return newOrientation(g, rank)
	}
	return newOrientation(g, distances(g, centre(g)))
}
