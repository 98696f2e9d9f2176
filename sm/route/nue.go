package route

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/sm/topo"
)

// nue routes any subnet in any number of lanes. It begins with balanced
// shortest paths. As long as they need more lanes than there are, it bends those
// left over, and it routes again with a price on turns outside a base: a set of
// turns without a cycle, grown from the paths themselves. The dearer, the fewer
// lanes, and the less balanced. Of these and of an orientation, which fits one
// lane always, it takes what loads the busiest link the least.
//
// The name is that of the engine of Domke, Hoefler and Matsuoka (HPDC 2016),
// which serves the same end. Theirs gives lanes to destinations, which is of no
// use to connections that take one SL for both directions.
func nue(g *topo.Graph, o Options) (*Tables, error) {
	if g.Switches() == 0 {
		return nil, errors.New("no switches to route")
	}
	var best candidate
	t, straight := dimensionOrder(g, o.lanes())
	best.offer(t)
	if t != nil && (straight && best.even || g.Switches()*len(g.Dests) > smallRouting) {
		return t, nil
	}
	for _, price := range turnPrices(g) {
		t, fits := priced(g, o, price, !straight)
		if fits && best.t == nil {
			return t, nil
		}
		if best.offer(t); fits {
			return best.t, nil
		}
	}
	if straight {
		return best.t, nil
	}
	t, err := updn(g, Options{})
	if err != nil {
		return nil, err
	}
	t.Engine = "nue"
	t.Notes = append(t.Notes, fmt.Sprintf("no use of %d lanes is better balanced than all paths up and down in one", o.lanes()))
	best.offer(t)
	return best.t, nil
}

// candidate is the best of some routings: whose busiest link carries the least.
type candidate struct {
	t       *Tables
	busiest int64
	even    bool // that is hardly more than the mean
}

func (c *candidate) offer(t *Tables) {
	if t == nil {
		return
	}
	rep := Check(t)
	if c.t == nil || rep.OK() && rep.MaxLoad < c.busiest {
		mean := (rep.Hops - rep.Paths) / int64(max(1, t.Graph.Links()))
		c.t, c.busiest, c.even = t, rep.MaxLoad, rep.MaxLoad <= mean+mean/5
	}
}

// turnPrices are the prices to try, in mean link tolls. Subnets so large that a
// try takes long get fewer.
func turnPrices(g *topo.Graph) []int64 {
	if g.Switches()*len(g.Dests) > smallRouting && treeRank(g) == nil {
		return []int64{0, 4, 64}
	}
	return []int64{0, 1, 2, 4, 16}
}

// fewLeft is one part in so many of the pairs. Bending more than that makes
// ways so long that one lane is better.
const fewLeft = 32

// priced returns balanced paths in lanes, or nil when they are far from fitting.
// With bent, those that do not fit are not shortest; fits says that all are.
func priced(g *topo.Graph, o Options, price int64, bent bool) (t *Tables, fits bool) {
	t = newTables("nue", g)
	b, d := newBalancer(g), newDAG(g)
	fill := func(d *dag, sw int32) { d.minimal(g, sw) }
	if price == 0 {
		b.spread(t, fill)
	} else {
		b.pass(t, d, fill, false)
		b.base = newCDG(g)
		b.base.addLane(anyOrientation(g))
		b.price = max(1, price*b.meanSquare())
		b.settle(t, d, fill)
	}
	left := assignLanes(t, o.lanes(), b.base)
	if left == 0 {
		return t, true
	}
	if n := g.Switches(); !bent || left > n*(n-1)/2/fewLeft {
		return nil, false
	}
	return bend(t, o.lanes(), b.base), false
}

// settle makes the passes of a routing whose turns have a price. The first two
// look at nothing else, so that paths agree on turns before they spread: on a
// torus they come close to going along one dimension after the other.
func (b *balancer) settle(t *Tables, d *dag, fill func(*dag, int32)) {
	for pass := range 5 {
		b.blind = pass < 2
		b.pass(t, d, fill, true)
	}
}
