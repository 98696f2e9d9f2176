package route

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/sm/topo"
)

// nue routes any subnet in any number of lanes. It begins with balanced
// shortest paths. As long as they need more lanes than there are, it routes
// again with a price on turns outside a base: a set of turns without a cycle,
// grown from the paths themselves. The dearer, the fewer lanes, and the less
// balanced. What no price brings into the lanes gets one lane and an
// orientation, which fits always.
//
// The name is that of the engine of Domke, Hoefler and Matsuoka (HPDC 2016),
// which serves the same end. Theirs gives lanes to destinations, which is of no
// use to connections that take one SL for both directions.
func nue(g *topo.Graph, o Options) (*Tables, error) {
	if g.Switches() == 0 {
		return nil, errors.New("no switches to route")
	}
	for _, price := range turnPrices(g) {
		if t := priced(g, o, price); t != nil {
			return t, nil
		}
	}
	t, err := updn(g, Options{})
	if err != nil {
		return nil, err
	}
	t.Engine = "nue"
	t.Notes = append(t.Notes, fmt.Sprintf("shortest paths do not fit into %d lanes; all paths go up and down in one", o.lanes()))
	return t, nil
}

// turnPrices are the prices to try, in mean link tolls. Subnets so large that a
// try takes long get fewer.
func turnPrices(g *topo.Graph) []int64 {
	if g.Switches()*len(g.Dests) > smallRouting && treeRank(g) == nil {
		return []int64{0, 4, 64}
	}
	return []int64{0, 1, 2, 4, 16}
}

// priced returns balanced shortest paths in lanes, or nil when they don't fit.
func priced(g *topo.Graph, o Options, price int64) *Tables {
	t := newTables("nue", g)
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
	if assignLanes(t, o.lanes(), b.base) > 0 {
		return nil
	}
	return t
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
