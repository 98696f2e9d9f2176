package route

import "github.com/urxe/urxe/sm/topo"

// dag holds, for one destination switch, the links each other switch may take
// towards it. Following any of them never returns, so that every choice of one
// link per switch is a tree.
type dag struct {
	order []int32 // switches with a way there, nearest first, the destination itself first
	dist  []int32 // by switch: hops left, -1 when there is no way
	first []int32 // by switch, one more: cand[first[s]:first[s+1]]
	cand  []int32 // links

	down  []bool // scratch of the oriented kind: reaches the destination by going down only
	queue []int32
}

func newDAG(g *topo.Graph) *dag {
	n := g.Switches()
	return &dag{
		order: make([]int32, 0, n), dist: make([]int32, n), first: make([]int32, n+1),
		cand: make([]int32, 0, g.Links()), down: make([]bool, n), queue: make([]int32, 0, n),
	}
}

func (d *dag) links(s int32) []int32 { return d.cand[d.first[s]:d.first[s+1]] }

func (d *dag) reset() {
	d.order, d.cand, d.queue = d.order[:0], d.cand[:0], d.queue[:0]
	clear(d.down)
}

// minimal fills d with all the shortest ways to dst.
func (d *dag) minimal(g *topo.Graph, dst int32) {
	d.reset()
	d.order = g.Distances(d.dist, append(d.order, dst))
	for s := range d.dist {
		d.first[s] = int32(len(d.cand))
		for e := g.First[s]; e < g.First[s+1]; e++ {
			if d.dist[s] > 0 && d.dist[g.To[e]] == d.dist[s]-1 {
				d.cand = append(d.cand, e)
			}
		}
	}
	d.first[len(d.dist)] = int32(len(d.cand))
}

// oriented fills d with the ways to dst that never go up after they went down.
// A switch that can reach dst by going down alone does so, even when a way up
// would be shorter: the LFT does not know where a packet came from, and one
// that came from above must not go up again.
func (d *dag) oriented(g *topo.Graph, o *orientation, dst int32) {
	d.reset()
	for i := range d.dist {
		d.dist[i] = -1
	}
	d.dist[dst], d.down[dst] = 0, true
	d.order = append(d.order, dst)
	for i := 0; i < len(d.order); i++ {
		s := d.order[i]
		for _, e := range o.ups(s) {
			if t := g.To[e]; d.dist[t] < 0 {
				d.dist[t], d.down[t] = d.dist[s]+1, true
				d.order = append(d.order, t)
			}
		}
	}
	d.climb(g, o)
	for s := range int32(len(d.dist)) {
		d.first[s] = int32(len(d.cand))
		d.choices(g, o, s)
	}
	d.first[len(d.dist)] = int32(len(d.cand))
	sortByDist(d)
}

// climb gives the switches that must go up their distance. Those above come
// first in the order, so each finds its upper neighbours done.
func (d *dag) climb(g *topo.Graph, o *orientation) {
	for _, s := range o.topDown {
		if d.dist[s] >= 0 {
			continue
		}
		best := int32(-1)
		for _, e := range o.ups(s) {
			if h := d.dist[g.To[e]]; h >= 0 && (best < 0 || h < best) {
				best = h
			}
		}
		if best >= 0 {
			d.dist[s] = best + 1
			d.order = append(d.order, s)
		}
	}
}

func (d *dag) choices(g *topo.Graph, o *orientation, s int32) {
	if d.dist[s] <= 0 {
		return
	}
	links := o.ups(s)
	if d.down[s] {
		links = o.downs(s)
	}
	for _, e := range links {
		t := g.To[e]
		if d.dist[t] == d.dist[s]-1 && (!d.down[s] || d.down[t]) {
			d.cand = append(d.cand, e)
		}
	}
}

// sortByDist puts order into nearest-first order by counting.
func sortByDist(d *dag) {
	var count []int32
	for _, s := range d.order {
		for int(d.dist[s])+1 >= len(count) {
			count = append(count, 0)
		}
		count[d.dist[s]+1]++
	}
	for i := 1; i < len(count); i++ {
		count[i] += count[i-1]
	}
	d.queue = append(d.queue[:0], d.order...)
	for _, s := range d.queue {
		d.order[count[d.dist[s]]] = s
		count[d.dist[s]]++
	}
}
