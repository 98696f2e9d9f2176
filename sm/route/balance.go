package route

import "github.com/urxe/urxe/sm/topo"

const (
	// hostFlow is what a path between two hosts adds to the load of its links;
	// one to a switch, which carries counters now and then, adds 1.
	hostFlow = 64

	// maxChoices bounds how many links of a switch are compared for one LID.
	// Further ones get their turn for other LIDs.
	maxChoices = 16
)

// balancer chooses among the ways of a dag so that paths spread over the links.
type balancer struct {
	g    *topo.Graph
	load []int64 // by link: paths over it, in units of 1/hostFlow
	cost []int64 // by switch: what the way chosen for it costs
	flow []int64 // by switch: paths that come through it
	pick []int32 // by switch: the link chosen

	base  *cdg  // turns that are free; nil when all are
	price int64 // of another turn
	blind bool  // loads cost nothing
}

func newBalancer(g *topo.Graph) *balancer {
	n := g.Switches()
	return &balancer{
		g: g, load: make([]int64, g.Links()),
		cost: make([]int64, n), flow: make([]int64, n), pick: make([]int32, n),
	}
}

// route enters the cheapest tree to dest into t.
func (b *balancer) route(t *Tables, d *dag, dest topo.Dest) {
	b.cost[dest.Switch], b.pick[dest.Switch] = 0, topo.None
	for _, s := range d.order[1:] {
		b.pick[s], b.cost[s] = b.choose(d.links(s), int(dest.LID)+int(s))
		t.LFT[s][dest.LID] = b.g.Port[b.pick[s]]
	}
	b.add(d, dest, 1)
	if b.base != nil {
		b.grow(d)
	}
}

// toll is the price of a link. Squares make one busy link dearer than two half
// as busy.
func (b *balancer) toll(e int32) int64 {
	if b.blind {
		return 0
	}
	l := b.load[e] / hostFlow
	return l * l
}

// choose returns the link with the cheapest way to the destination behind it.
func (b *balancer) choose(links []int32, turn int) (int32, int64) {
	if len(links) > maxChoices {
		at := turn % (len(links) - maxChoices + 1)
		links = links[at : at+maxChoices]
	}
	best, bestCost := links[0], int64(1)<<62
	for _, e := range links {
		c := b.cost[b.g.To[e]] + b.toll(e)
		if b.base != nil && c < bestCost && b.strays(e) {
			c += b.price
		}
		if c < bestCost {
			best, bestCost = e, c
		}
	}
	return best, bestCost
}

// strays reports whether going on from link e takes a turn that base has not.
func (b *balancer) strays(e int32) bool {
	next := b.pick[b.g.To[e]]
	return next != topo.None && !b.base.has(0, e, next)
}

// grow gives base those turns of the tree just picked that it can take.
func (b *balancer) grow(d *dag) {
	b.base.mark()
	for _, s := range d.order[1:] {
		if next := b.pick[b.g.To[b.pick[s]]]; next != topo.None {
			b.base.add(0, b.pick[s], next)
		}
	}
}

// add counts the paths of the tree just picked. A sign of -1 takes them off again.
func (b *balancer) add(d *dag, dest topo.Dest, sign int64) { b.addTree(d.order, b.pick, dest, sign) }

// addTree counts the paths of a tree, farthest switch first, so that each one's
// own flow is complete when it is passed on. order has the destination first.
func (b *balancer) addTree(order, pick []int32, dest topo.Dest, sign int64) {
	unit := sign
	if dest.IsHost() {
		unit *= hostFlow
	}
	for _, s := range order {
		b.flow[s] = int64(b.g.Hosts[s])
	}
	for i := len(order) - 1; i > 0; i-- {
		s := order[i]
		b.load[pick[s]] += b.flow[s] * unit
		b.flow[b.g.To[pick[s]]] += b.flow[s]
	}
}

// remove takes the paths that t has for dest off the loads. d must be the dag
// that they were chosen from.
func (b *balancer) remove(t *Tables, d *dag, dest topo.Dest) {
	for _, s := range d.order[1:] {
		b.pick[s] = t.Next(s, dest.LID)
	}
	b.add(d, dest, -1)
}

// Passes improve a routing: each takes every LID off and routes it again. They
// cost as much as the first one, so large subnets get fewer.
const (
	smallRouting = 128 << 10 // table entries
	largeRouting = 4 << 20
	mostPasses   = 8
)

func passes(g *topo.Graph) int {
	switch n := g.Switches() * len(g.Dests); {
	case n <= smallRouting:
		return mostPasses
	case n <= largeRouting:
		return 4
	}
	return 1
}

// spread routes every LID over the ways that fill gives for its switch, then
// takes each off and routes it again when the loads of all the others are known.
func spread(t *Tables, fill func(*dag, int32)) { newBalancer(t.Graph).spread(t, fill) }

func (b *balancer) spread(t *Tables, fill func(*dag, int32)) {
	d := newDAG(b.g)
	for pass := range passes(b.g) {
		b.pass(t, d, fill, pass > 0)
	}
	if passes(b.g) == mostPasses {
		b.relieve(t, d, fill)
	}
}

func (b *balancer) pass(t *Tables, d *dag, fill func(*dag, int32), again bool) {
	for sw := range int32(b.g.Switches()) {
		fill(d, sw)
		for _, i := range b.g.At(sw) {
			if again {
				b.remove(t, d, b.g.Dests[i])
			}
			b.route(t, d, b.g.Dests[i])
		}
	}
}

// meanSquare is the mean over all links of the squared load.
func (b *balancer) meanSquare() int64 {
	sum := int64(0)
	for _, l := range b.load {
		sum += (l / hostFlow) * (l / hostFlow)
	}
	return sum / int64(max(1, len(b.load)))
}
