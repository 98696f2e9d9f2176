package route

import (
	"cmp"
	"slices"

	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/topo"
)

// MaxLanes is the most lanes an engine uses: one VL is kept from data by
// management (VL15).
const MaxLanes = 15

// cdg holds the channel dependency graphs of all lanes. Its vertices are links;
// an edge e → f says that some path of the lane leaves by f after it came by e.
// It accepts a dependency only if the lane stays free of cycles, which it knows
// by keeping a topological order that is mended locally (Pearce and Kelly).
type cdg struct {
	g      *topo.Graph
	degree int32
	dep    []uint16  // by link and place of the next link at its switch: a bit for each lane
	ord    [][]int32 // by lane and link: the order

	added []added // since mark, to take back
	stamp []int32 // by link: search that met it last
	now   int32
	fwd   []int32
	bwd   []int32
	stack []int32
	slots []int32
}

type added struct {
	slot int32
	lane uint8
}

func newCDG(g *topo.Graph) *cdg {
	c := &cdg{g: g, degree: int32(g.MaxDegree()), stamp: make([]int32, g.Links())}
	c.dep = make([]uint16, g.Links()*int(c.degree))
	return c
}

// cdgOf returns the dependencies that a checked routing has in g, which must be
// free of cycles. o, which may be nil, is the orientation that most keep to.
func cdgOf(s *check.State, g *topo.Graph, lanes int, o *orientation) *cdg {
	c := newCDG(g)
	for e := range int32(g.Links()) {
		t, in := g.To[e], g.Port[g.Rev[e]]
		for f := g.First[t]; f < g.First[t+1]; f++ {
			c.dep[c.slot(e, f)] = s.Turns(t, in, g.Port[f])
		}
	}
	var first []int32
	if o != nil {
		first = upDownOrder(g, o)
	}
	for lane := range lanes {
		if first == nil || !c.suits(uint8(lane), first) {
			c.ord = append(c.ord, c.sort(uint8(lane)))
		} else {
			c.ord = append(c.ord, slices.Clone(first))
		}
	}
	return c
}

// suits reports whether all dependencies of a lane follow an order.
func (c *cdg) suits(lane uint8, ord []int32) bool {
	for e := range int32(c.g.Links()) {
		t := c.g.To[e]
		for f := c.g.First[t]; f < c.g.First[t+1]; f++ {
			if c.has(lane, e, f) && ord[e] > ord[f] {
				return false
			}
		}
	}
	return true
}

// sort returns an order that all dependencies of a lane follow.
func (c *cdg) sort(lane uint8) []int32 {
	before := make([]int32, c.g.Links()) // dependencies that lead to a link
	for e := range int32(c.g.Links()) {
		t := c.g.To[e]
		for f := c.g.First[t]; f < c.g.First[t+1]; f++ {
			if c.has(lane, e, f) {
				before[f]++
			}
		}
	}
	ord, queue := make([]int32, c.g.Links()), make([]int32, 0, c.g.Links())
	for e := range before {
		if before[e] == 0 {
			queue = append(queue, int32(e))
		}
	}
	for i := 0; i < len(queue); i++ {
		e := queue[i]
		ord[e] = int32(i)
		t := c.g.To[e]
		for f := c.g.First[t]; f < c.g.First[t+1]; f++ {
			if c.has(lane, e, f) {
				if before[f]--; before[f] == 0 {
					queue = append(queue, f)
				}
			}
		}
	}
	return ord
}

// addLane starts the next lane with an order in which the up and down links of
// o follow each other, so that paths that keep to it never disturb it.
func (c *cdg) addLane(o *orientation) { c.ord = append(c.ord, upDownOrder(c.g, o)) }

// upDownOrder numbers the links so that every path that goes up and then down
// meets rising numbers: the up links from the bottom, then the down links from
// the top.
func upDownOrder(g *topo.Graph, o *orientation) []int32 {
	n := int32(g.Switches())
	key := func(e int32) int32 {
		if o.up(g, e) {
			return n - o.pos[g.From[e]]
		}
		return 2*n + o.pos[g.From[e]]
	}
	links := make([]int32, g.Links())
	for e := range links {
		links[e] = int32(e)
	}
	slices.SortStableFunc(links, func(a, b int32) int { return cmp.Compare(key(a), key(b)) })
	ord := make([]int32, g.Links())
	for i, e := range links {
		ord[e] = int32(i)
	}
	return ord
}

func (c *cdg) slot(e, f int32) int32 { return e*c.degree + f - c.g.First[c.g.To[e]] }

// has reports whether a lane has the dependency e → f.
func (c *cdg) has(lane uint8, e, f int32) bool { return c.dep[c.slot(e, f)]>>lane&1 != 0 }

// mark begins a group of additions that undo takes back together.
func (c *cdg) mark() { c.added = c.added[:0] }

// undo removes what add put in since mark. The order stays: it suits the fewer
// dependencies as well.
func (c *cdg) undo() { c.undoTo(0) }

func (c *cdg) undoTo(n int) {
	for _, a := range c.added[n:] {
		c.dep[a.slot] &^= 1 << a.lane
	}
	c.added = c.added[:n]
}

// add puts e → f into a lane and reports whether it could: false means that it
// would close a cycle, and nothing changed.
func (c *cdg) add(lane uint8, e, f int32) bool {
	s := c.slot(e, f)
	if c.dep[s]>>lane&1 != 0 {
		return true
	}
	if ord := c.ord[lane]; ord[e] > ord[f] && !c.reorder(lane, e, f) {
		return false
	}
	c.dep[s] |= 1 << lane
	c.added = append(c.added, added{s, lane})
	return true
}

// reorder mends the order so that e comes before f, which now comes first.
// Only links between the two in the order can be affected.
func (c *cdg) reorder(lane uint8, e, f int32) bool {
	ord := c.ord[lane]
	c.now++
	if !c.forward(lane, f, e) {
		return false
	}
	c.backward(lane, e, ord[f])
	byOrd := func(a, b int32) int { return cmp.Compare(ord[a], ord[b]) }
	slices.SortFunc(c.fwd, byOrd)
	slices.SortFunc(c.bwd, byOrd)
	c.slots = c.slots[:0]
	for _, x := range c.bwd {
		c.slots = append(c.slots, ord[x])
	}
	for _, x := range c.fwd {
		c.slots = append(c.slots, ord[x])
	}
	slices.Sort(c.slots)
	for i, x := range append(c.bwd, c.fwd...) {
		ord[x] = c.slots[i]
	}
	return true
}

// forward collects what depends on f, up to e's place, and reports false when
// that includes e itself.
func (c *cdg) forward(lane uint8, f, e int32) bool {
	ord := c.ord[lane]
	limit := ord[e]
	c.fwd, c.stack = append(c.fwd[:0], f), append(c.stack[:0], f)
	c.stamp[f] = c.now
	for len(c.stack) > 0 {
		x := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		t := c.g.To[x]
		for y := c.g.First[t]; y < c.g.First[t+1]; y++ {
			if ord[y] > limit || c.stamp[y] == c.now || !c.has(lane, x, y) {
				continue
			}
			if y == e {
				return false
			}
			c.stamp[y] = c.now
			c.fwd, c.stack = append(c.fwd, y), append(c.stack, y)
		}
	}
	return true
}

// backward collects what e depends on, down to place limit in the order.
func (c *cdg) backward(lane uint8, e, limit int32) {
	ord := c.ord[lane]
	c.bwd, c.stack = append(c.bwd[:0], e), append(c.stack[:0], e)
	c.stamp[e] = c.now
	for len(c.stack) > 0 {
		y := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		s := c.g.From[y]
		for out := c.g.First[s]; out < c.g.First[s+1]; out++ {
			x := c.g.Rev[out]
			if ord[x] < limit || c.stamp[x] == c.now || !c.has(lane, x, y) {
				continue
			}
			c.stamp[x] = c.now
			c.bwd, c.stack = append(c.bwd, x), append(c.stack, x)
		}
	}
}
