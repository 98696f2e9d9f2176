package route

import (
	"cmp"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// plan is the new routes to one LID.
type plan struct {
	dest topo.Dest
	port []uint8 // by switch
}

// planner finds routes for single LIDs beside those that others have. A way is
// taken only if it keeps to the orientation, if there is one, and if its turns
// close no cycle with those of all other paths.
type planner struct {
	t       *Tables
	lanes   int       // that may be used
	old     [][]uint8 // tables before
	home    [][]uint8 // tables to go back to
	g       *topo.Graph
	o       *orientation // nil when the routing is by lanes
	b       *balancer
	d       *dag
	turns   *cdg      // of all paths
	filled  int32     // the switch that d is filled for
	moved   []bool    // by LID: some of its paths are in other lanes than before
	ports   [][]uint8 // by LID: its plan's ports, nil when it has none
	lent    bool      // t's lanes may be written
	astray  []bool    // by LID: home and old may differ
	changes []change  // of lanes

	refused map[turn]bool // turns that would close a cycle

	plan  plan    // the one in hand
	found []bool  // by switch: it has a way
	falls []bool  // by switch: that goes down only
	order []int32 // switches with a way, next hops first
	queue []int32
	tried []bool // by switch: looked at in this round
}

// newPlanner returns a planner that enters lanes into t and reads old and home.
func newPlanner(t *Tables, old, home [][]uint8) planner {
	g := t.Graph
	n, lids := g.Switches(), int(g.MaxLID)+1
	p := planner{
		t: t, lanes: t.Lanes, old: old, home: home, g: g, b: newBalancer(g), d: newDAG(g), filled: topo.None,
		moved: make([]bool, lids), ports: make([][]uint8, lids), refused: map[turn]bool{},
		found: make([]bool, n), falls: make([]bool, n), tried: make([]bool, n),
	}
	if t.Rank != nil {
		p.o = newOrientation(g, t.Rank)
	}
	return p
}

// turn is a way on from one link to another, in a lane.
type turn struct {
	e, f int32
	lane uint8
}

// take adds a turn to those of all paths, unless it would close a cycle.
func (p *planner) take(lane uint8, e, f int32) bool {
	if p.turns.has(lane, e, f) {
		return true
	}
	at := turn{e, f, lane}
	if p.refused[at] {
		return false
	}
	if !p.turns.add(lane, e, f) {
		p.refused[at] = true
		return false
	}
	return true
}

// undo takes back the turns added since there were n.
func (p *planner) undo(n int) {
	if len(p.turns.added) > n {
		clear(p.refused)
	}
	p.turns.undoTo(n)
}

// plans makes an empty plan for each LID at a switch that want is true of.
func (p *planner) plans(sw int32, want func(ib.LID) bool) (plans []*plan) {
	for _, i := range p.g.At(sw) {
		if d := p.g.Dests[i]; want(d.LID) {
			plan := newPlan(d, p.g.Switches())
			p.ports[d.LID] = plan.port
			plans = append(plans, plan)
		}
	}
	return plans
}

func newPlan(d topo.Dest, switches int) *plan {
	p := &plan{dest: d, port: make([]uint8, switches)}
	for s := range p.port {
		p.port[s] = NoPort
	}
	p.port[d.Switch] = d.Port
	return p
}

// open takes a plan in hand.
func (p *planner) open(of *plan) {
	p.plan = *of
	clear(p.found)
	p.order = p.order[:0]
	p.join(of.dest.Switch, topo.None)
}

// join notes that switch s has a way, over link e.
func (p *planner) join(s, e int32) {
	p.found[s] = true
	p.order = append(p.order, s)
	p.b.pick[s], p.b.cost[s], p.falls[s] = e, 0, true
	if e != topo.None {
		next := p.g.To[e]
		p.b.cost[s] = p.b.cost[next] + p.b.toll(e)
		p.falls[s] = p.falls[next] && !p.rises(e)
	}
}

func (p *planner) rises(e int32) bool { return p.o != nil && p.o.up(p.g, e) }

// stay plans the ways that are as in the home routing, as far as its links are
// there, and then those that can stay as they were.
func (p *planner) stay(of *plan) {
	p.open(of)
	p.walkAll(p.home, p.grant)
	if lid := p.plan.dest.LID; int(lid) >= len(p.astray) || p.astray[lid] {
		p.walkAll(p.old, p.fits)
	}
}

// find plans the ways that are missing.
func (p *planner) find(of *plan) {
	if len(p.order) == 0 || p.plan.dest != of.dest {
		p.open(of)
		p.walkPlan()
	}
	if len(p.order) < p.g.Switches() {
		p.nearest()
		p.anyWay()
	}
}

// tally adds the paths of a plan to the loads, or takes them off.
func (p *planner) tally(of *plan, sign int64) {
	if len(p.order) == 0 || p.plan.dest != of.dest {
		p.open(of)
		p.walkPlan()
	}
	p.b.addTree(p.order, p.b.pick, of.dest, sign)
}

// walkAll lets each switch without a way follow its table to one that has.
func (p *planner) walkAll(tables [][]uint8, fits func(e int32) bool) {
	lid := p.plan.dest.LID
	clear(p.tried)
	for s := range int32(p.g.Switches()) {
		p.walk(s, func(s int32) int32 { return p.g.Link(s, entry(tables[s], lid)) }, fits)
	}
}

// walkPlan does the same along what is planned already.
func (p *planner) walkPlan() {
	clear(p.tried)
	for s := range int32(p.g.Switches()) {
		p.walk(s, func(s int32) int32 { return p.g.Link(s, p.plan.port[s]) }, func(int32) bool { return true })
	}
}

func entry(row []uint8, lid ib.LID) uint8 {
	if int(lid) >= len(row) {
		return NoPort
	}
	return row[lid]
}

// walk goes from s over the links that next gives until it meets a way, and
// takes it for all the switches that it came by, as long as it fits.
func (p *planner) walk(s int32, next func(int32) int32, fits func(e int32) bool) {
	p.queue = p.queue[:0]
	for !p.found[s] {
		e := next(s)
		if p.tried[s] || e == topo.None {
			return
		}
		p.tried[s] = true
		p.queue = append(p.queue, e)
		s = p.g.To[e]
	}
	for i := len(p.queue) - 1; i >= 0; i-- {
		if !fits(p.queue[i]) {
			return
		}
		p.join(p.g.From[p.queue[i]], p.queue[i])
	}
}

// fits plans link e for the switch that it leaves, if what follows is a way that
// may be gone on from there.
func (p *planner) fits(e int32) bool {
	if p.o != nil && !p.rises(e) && !p.falls[p.g.To[e]] {
		return false
	}
	return p.grant(e)
}

// grant plans link e for the switch that it leaves, if that closes no cycle.
func (p *planner) grant(e int32) bool {
	s, dest := p.g.From[e], p.plan.dest
	if used(p.g, s, dest) {
		lane := p.t.Lane(s, dest.Switch)
		if lane == noLane {
			return false
		}
		for at := e; ; {
			next := p.b.pick[p.g.To[at]]
			if next == topo.None {
				break
			}
			if !p.take(lane, at, next) {
				return false
			}
			at = next
		}
	}
	p.plan.port[s] = p.g.Port[e]
	return true
}

// fill fills the dag for the plan in hand.
func (p *planner) fill() {
	if dst := p.plan.dest.Switch; p.filled != dst {
		p.filled = dst
		if p.o != nil {
			p.d.oriented(p.g, p.o, dst)
		} else {
			p.d.minimal(p.g, dst)
		}
	}
}

// nearest gives switches without a way the best of the shortest ones.
func (p *planner) nearest() {
	p.fill()
	for _, s := range p.d.order {
		if p.found[s] {
			continue
		}
		e := p.usual(s)
		if e == topo.None {
			e = p.cheapest(p.d.links(s))
		}
		if e == topo.None {
			e = p.relane(s, p.byCost(s))
		}
		if e != topo.None {
			p.join(s, e)
		}
	}
}

// usual plans the link that s had, if it is one of the shortest ways there are
// now, and returns it.
func (p *planner) usual(s int32) int32 {
	for _, tables := range [2][][]uint8{p.home, p.old} {
		e := p.g.Link(s, entry(tables[s], p.plan.dest.LID))
		if e != topo.None && p.found[p.g.To[e]] && slices.Contains(p.d.links(s), e) && p.fits(e) {
			return e
		}
	}
	return topo.None
}

// cheapest plans the link with the cheapest way behind it that fits, and returns it.
func (p *planner) cheapest(links []int32) int32 {
	best := topo.None
	cost := func(e int32) int64 { return p.b.cost[p.g.To[e]] + p.b.toll(e) }
	for i := range links {
		e := links[(int(p.plan.dest.LID)+i)%len(links)]
		if p.found[p.g.To[e]] && (best == topo.None || cost(e) < cost(best)) {
			best = e
		}
	}
	if best == topo.None || p.fits(best) {
		return best
	}
	for _, e := range links {
		if p.found[p.g.To[e]] && p.fits(e) {
			return e
		}
	}
	return topo.None
}

// byCost lists the shortest ways from s, the one that it had first and then the
// cheapest first.
func (p *planner) byCost(s int32) []int32 {
	links := slices.Clone(p.d.links(s))
	had := p.g.Link(s, entry(p.home[s], p.plan.dest.LID))
	slices.SortFunc(links, func(a, b int32) int {
		switch had {
		case a:
			return -1
		case b:
			return 1
		}
		return cmp.Compare(p.b.cost[p.g.To[a]]+p.b.toll(a), p.b.cost[p.g.To[b]]+p.b.toll(b))
	})
	return links
}

// anyWay routes the switches left over any link whose turns close no cycle:
// where an orientation leaves something out, or lanes allow no shortest way.
func (p *planner) anyWay() {
	for more := true; more; {
		more = false
		for s := range int32(p.g.Switches()) {
			if p.found[s] {
				continue
			}
			if e := p.anyLink(s); e != topo.None {
				p.join(s, e)
				more = true
			}
		}
	}
}

// anyLink plans a link of s to a switch with a way, in its lane or in another.
func (p *planner) anyLink(s int32) int32 {
	var links []int32
	for e := p.g.First[s]; e < p.g.First[s+1]; e++ {
		if p.found[p.g.To[e]] {
			links = append(links, e)
		}
	}
	for _, e := range links {
		if p.grant(e) {
			return e
		}
	}
	return p.relane(s, links)
}
