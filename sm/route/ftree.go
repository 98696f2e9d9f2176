package route

import (
	"errors"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

var errNoTree = errors.New("the subnet is no fat tree: switches of one level are linked")

// ftree routes fat trees, whole or damaged. Each LID gets a trunk: a chain of
// switches from its leaf up to one root, by the downward links that the fewest
// LIDs use. Every other switch climbs towards the trunk and comes down on it.
// LIDs of one leaf get different trunks, so on a whole tree each downward link
// carries the same number of paths, and each upward link too.
func ftree(g *topo.Graph, o Options) (*Tables, error) {
	rank := treeRank(g)
	if roots := o.roots(g); len(roots) > 0 {
		if rank = rootRank(g, roots); rank != nil && !levelled(g, rank) {
			rank = nil
		}
	}
	if rank == nil {
		return nil, errNoTree
	}
	t := newTables("ftree", g)
	t.Rank = rank
	f := &ftreeRouter{t: t, g: g, o: newOrientation(g, rank)}
	f.alloc()
	for sw := range int32(g.Switches()) {
		for _, i := range g.At(sw) {
			f.route(g.Dests[i])
		}
	}
	f.flush()
	detour(t, f.o)
	return t, nil
}

type ftreeRouter struct {
	t *Tables
	g *topo.Graph
	o *orientation

	down []int32 // by link: LIDs that come down it, trunks only
	used []int64 // by link that goes down: paths of hosts that go up the same cable
	far  []uint8 // by link: its port at the other end

	hops  []int32 // by switch: hops to the LID being routed, -1 while it has no route
	chain []int32 // the trunk, from the LID's switch up
	layer []int32 // breadth-first search: this layer and the next
	next  []int32
	found []int32 // by switch: the link down to it that it would climb by

	// Tables of large subnets are far apart in memory, so the entries of a block
	// of LIDs are gathered first.
	block   int      // the LIDs gathered are those of this block
	pending []ib.LID // which of them
	entries []uint8  // by place in the block and switch
	column  []uint8  // of these, those of the LID being routed
	blank   []uint8  // no entries
	nowhere []int32  // no hops

	// Nothing but management goes up from switches without hosts where no trunk
	// passes, so all LIDs at a switch share these ways.
	idle    []idleWay // by switch
	sharing int32     // the switch that they lead to
}

// idleWay is a way up that LIDs at one switch share.
type idleWay struct {
	port uint8 // 0 is none
	hops int32
}

func (f *ftreeRouter) alloc() {
	n := f.g.Switches()
	f.down, f.used = make([]int32, f.g.Links()), make([]int64, f.g.Links())
	f.far = make([]uint8, f.g.Links())
	for e := range f.far {
		f.far[e] = f.g.Port[f.g.Rev[e]]
	}
	f.hops, f.found = make([]int32, n), make([]int32, n)
	f.entries, f.idle, f.sharing = make([]uint8, n*BlockSize), make([]idleWay, n), topo.None
	f.blank, f.nowhere = slices.Repeat([]uint8{NoPort}, n), slices.Repeat([]int32{-1}, n)
	for i := range f.found {
		f.found[i] = topo.None
	}
}

func (f *ftreeRouter) route(d topo.Dest) {
	f.open(d)
	copy(f.hops, f.nowhere)
	f.hops[d.Switch] = 0
	f.trunk(d)
	f.descend(d)
	for _, s := range f.chain {
		f.climbTo(s, d)
	}
	f.climbRest(d)
}

// open makes room for the entries of a LID.
func (f *ftreeRouter) open(d topo.Dest) {
	if b := int(d.LID) / BlockSize; b != f.block {
		f.flush()
		f.block = b
	}
	if f.sharing != d.Switch {
		f.sharing = d.Switch
		clear(f.idle)
	}
	f.pending = append(f.pending, d.LID)
	n, at := f.g.Switches(), int(d.LID)%BlockSize
	f.column = f.entries[at*n : (at+1)*n]
	copy(f.column, f.blank)
	f.column[d.Switch] = d.Port
}

// flush writes what was gathered into the tables.
func (f *ftreeRouter) flush() {
	n := f.g.Switches()
	for s, table := range f.t.LFT {
		for _, l := range f.pending {
			table[l] = f.entries[int(l)%BlockSize*n+s]
		}
	}
	f.pending = f.pending[:0]
}

// trunk picks the chain of switches above d and routes each down to the one
// below it.
func (f *ftreeRouter) trunk(d topo.Dest) {
	f.chain = append(f.chain[:0], d.Switch)
	for s := d.Switch; ; s = f.chain[len(f.chain)-1] {
		up := f.leastDown(s)
		if up == topo.None {
			return
		}
		back := f.g.Rev[up]
		if d.IsHost() {
			f.down[back]++
		}
		f.set(f.g.To[up], f.far[up], f.hops[s]+1)
		f.chain = append(f.chain, f.g.To[up])
	}
}

// leastDown returns the upward link of s whose way back the fewest LIDs use.
func (f *ftreeRouter) leastDown(s int32) int32 {
	best := topo.None
	for _, e := range f.o.ups(s) {
		if best == topo.None || f.down[f.g.Rev[e]] < f.down[f.g.Rev[best]] {
			best = e
		}
	}
	return best
}

func (f *ftreeRouter) set(s int32, port uint8, hops int32) { f.column[s], f.hops[s] = port, hops }

// descend routes the other switches from which d is reached by going down alone.
func (f *ftreeRouter) descend(d topo.Dest) {
	f.layer = append(f.layer[:0], f.chain...)
	for i := 0; i < len(f.layer); i++ {
		s := f.layer[i]
		for _, up := range f.o.ups(s) {
			t := f.g.To[up]
			if f.hops[t] >= 0 {
				continue
			}
			f.set(t, f.far[up], f.hops[s]+1)
			f.layer = append(f.layer, t)
		}
	}
}

// climbTo routes the switches below top that have no route yet up to it.
func (f *ftreeRouter) climbTo(top int32, d topo.Dest) {
	f.layer = append(f.layer[:0], top)
	for hops := f.hops[top] + 1; len(f.layer) > 0; hops++ {
		f.next = f.next[:0]
		for _, s := range f.layer {
			f.look(s)
		}
		for _, s := range f.next {
			f.take(s, d, f.found[s], hops)
			f.found[s] = topo.None
		}
		f.layer, f.next = f.next, f.layer
	}
}

// look notes for the switches just below s the least used cable up to this layer.
func (f *ftreeRouter) look(s int32) {
	for _, e := range f.o.downs(s) {
		t := f.g.To[e]
		switch {
		case f.hops[t] >= 0:
		case f.found[t] == topo.None:
			f.found[t] = e
			f.next = append(f.next, t)
		case f.used[e] < f.used[f.found[t]]:
			f.found[t] = e
		}
	}
}

// take routes s up the cable that comes down by link e.
func (f *ftreeRouter) take(s int32, d topo.Dest, e, hops int32) {
	f.set(s, f.far[e], hops)
	if d.IsHost() {
		f.used[e] += int64(f.g.Hosts[s])
	}
}

// climbRest routes what is below no switch of the trunk: it goes up to where a
// route is. The order is from the top, so those above are done.
func (f *ftreeRouter) climbRest(d topo.Dest) {
	for _, s := range f.o.topDown {
		if f.hops[s] >= 0 {
			continue
		}
		if way := f.idle[s]; way.port != 0 {
			f.column[s], f.hops[s] = way.port, way.hops
			continue
		}
		up := f.nearestUp(s, int(d.LID))
		if up == topo.None {
			continue
		}
		f.take(s, d, f.g.Rev[up], f.hops[f.g.To[up]]+1)
		if f.g.Hosts[s] == 0 {
			f.idle[s] = idleWay{f.g.Port[up], f.hops[s]}
		}
	}
}

// fewChoices are compared for switches without hosts. On a whole tree nothing
// but their own management passes where they choose.
const fewChoices = 2

// nearestUp returns the upward link of s behind which the route is shortest, of
// equal ones the least used. Where none is used, turn spreads the LIDs.
func (f *ftreeRouter) nearestUp(s int32, turn int) int32 {
	ups := f.o.ups(s)
	best, choices := topo.None, maxChoices
	if f.g.Hosts[s] == 0 {
		choices = fewChoices
	}
	for i := range ups {
		if best != topo.None && i >= choices {
			break
		}
		e := ups[(turn+i)%len(ups)]
		h := f.hops[f.g.To[e]]
		if h < 0 {
			continue
		}
		if best == topo.None || h < f.hops[f.g.To[best]] ||
			h == f.hops[f.g.To[best]] && f.used[f.g.Rev[e]] < f.used[f.g.Rev[best]] {
			best = e
		}
	}
	return best
}
