package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/topo"
)

// home is a routing that was computed whole, which repairs keep to and go back
// to. Whatever came and went since, only LIDs that what is missing now forces
// away from it are routed otherwise; so a subnet that is whole again has its old
// tables, and balance is lost no further than the damage there is.
type home struct {
	graph   *topo.Graph
	lft     [][]uint8 // by switch; LIDs that came later are added
	own     []bool    // by switch: lft's row is no one else's
	lane    []uint8   // as in Tables
	busiest int64     // paths on the busiest link
	added   int       // LIDs that came later
}

// Repair adapts a routing to a subnet in which links, switches or hosts were
// lost or came back, or hosts have other LIDs. Only LIDs whose ways are cut, or
// can go home again, get other routes, and only from where the old ones do not
// go on. The result is checked like any other.
//
// The error says why Compute must route anew: there is a switch or a link that
// the routing never counted on, a switch has its first host, a large part of the
// LIDs are new, the busiest link carries more than mostLoad times what it did, or the
// result does not hold. Whether there is one or not, old can be read as before,
// and not be repaired again.
func Repair(old *Result, f *topo.Fabric) (*Result, error) {
	if old.state == nil {
		return nil, errors.New("some paths are missing from the tables, or were when it was last tried")
	}
	g := old.Graph.Follow(f)
	if err := old.home.knows(g); err != nil {
		return nil, err
	}
	r := newRepairer(old, g)
	old.state = nil
	r.arrivals()
	if n := r.home.added; n > max(16, len(old.home.graph.Dests)/8) {
		return nil, fmt.Errorf("%d LIDs are new", n)
	}
	r.departures()
	if slices.Contains(r.hit, true) {
		r.treat()
	}
	res := r.result()
	if slices.Contains(r.astray, true) && r.home.whole(g) {
		res = r.restored(res)
	}
	if err := res.Report.Err(); err != nil {
		return nil, err
	}
	if limit := mostLoad * max(1, r.home.busiest); res.Report.MaxLoad > limit {
		return nil, fmt.Errorf("the busiest link would carry %d paths, and %d are %d times what it was", res.Report.MaxLoad, limit, mostLoad)
	}
	return res, nil
}

// knows reports what of g is not where the home routing has it.
func (h *home) knows(g *topo.Graph) error {
	if n := h.graph.Switches(); g.Switches() > n {
		return fmt.Errorf("switch %q is new", g.Desc(int32(n)))
	}
	for s := range g.Ports {
		switch {
		case g.Ports[s] != h.graph.Ports[s]:
			return fmt.Errorf("switch %q has %d ports instead of %d", g.Desc(int32(s)), g.Ports[s], h.graph.Ports[s])
		case g.Hosts[s] > 0 && h.graph.Hosts[s] == 0: // what it sent before did not count
			return fmt.Errorf("switch %q has its first host", g.Desc(int32(s)))
		}
	}
	for e := range g.To {
		was := h.graph.Link(g.From[e], g.Port[e])
		if was == topo.None || h.graph.To[was] != g.To[e] || h.graph.Port[h.graph.Rev[was]] != g.Port[g.Rev[e]] {
			return fmt.Errorf("the link between %q and %q is new", g.Desc(g.From[e]), g.Desc(g.To[e]))
		}
	}
	return nil
}

// whole reports whether g, whose links it knows, lacks none.
func (h *home) whole(g *topo.Graph) bool { return g.Links() == h.graph.Links() }

// mostLoad bounds what repairs may make of the busiest link. Where a link carries
// the paths to one host, the loss of another doubles that, however it is routed.
const mostLoad = 3

type repairer struct {
	t       *Tables
	old     *Tables
	g       *topo.Graph
	home    *home
	state   *check.State
	own     []bool // by switch: its table is a copy, and may be written
	hit     []bool // by LID: its routes are looked at
	astray  []bool // by LID: it was away from home, or could not be looked at
	recount bool   // what the checks have counted does not fit any more
	planner
}

func newRepairer(old *Result, g *topo.Graph) *repairer {
	t := *old.Tables
	t.Graph, t.LFT, t.Notes = g, slices.Clone(t.LFT), nil
	r := &repairer{
		t: &t, old: old.Tables, g: g, home: old.home, state: old.state, own: make([]bool, g.Switches()),
		hit: make([]bool, max(int(g.MaxLID), int(old.Graph.MaxLID))+1), astray: old.astray,
	}
	r.extend()
	return r
}

// extend makes room for LIDs beyond the tables' end.
func (r *repairer) extend() {
	size := tableSize(r.g.MaxLID)
	for s, row := range r.t.LFT {
		if len(row) < size {
			r.t.LFT[s], r.own[s] = widen(row, size), true
			r.home.lft[s], r.home.own[s] = widen(r.home.lft[s], size), true
		}
	}
}

func widen(row []uint8, size int) []uint8 {
	row = append(make([]uint8, 0, size), row...)
	for len(row) < size {
		row = append(row, NoPort)
	}
	return row
}

// arrivals marks LIDs that are new, at another place, were away from home, or
// which a switch that came back has no way for. Such a switch comes with the
// tables of the home routing.
func (r *repairer) arrivals() {
	copy(r.hit, r.astray)
	was := r.old.Graph
	place := make([]topo.Dest, len(r.hit))
	for _, d := range was.Dests {
		place[d.LID] = d
	}
	for _, d := range r.g.Dests {
		if p := place[d.LID]; p.LID == 0 || p.Switch != d.Switch || p.Port != d.Port {
			r.hit[d.LID] = true
			r.forget(d.LID)
			r.home.added++
		}
	}
	r.recount = !slices.Equal(was.Hosts, r.g.Hosts)
	for s := range int32(r.g.Switches()) {
		if was.Away(s) == r.g.Away(s) {
			continue
		}
		r.recount = true
		if !r.g.Away(s) {
			r.welcome(s)
		}
	}
}

func (r *repairer) welcome(s int32) {
	r.t.LFT[s], r.own[s] = r.home.lft[s], false
	r.home.own[s] = false
	for _, d := range r.g.Dests {
		if port := r.home.lft[s][d.LID]; d.Switch != s && r.g.Link(s, port) == topo.None {
			r.hit[d.LID] = true
		}
	}
}

// forget takes a LID out of the home routing.
func (r *repairer) forget(lid ib.LID) {
	for s := range r.home.lft {
		r.goHome(int32(s), lid, NoPort)
	}
}

// goHome enters a port into the home routing.
func (r *repairer) goHome(s int32, lid ib.LID, port uint8) {
	if r.home.lft[s][lid] == port {
		return
	}
	if !r.home.own[s] {
		r.home.lft[s], r.home.own[s] = slices.Clone(r.home.lft[s]), true
	}
	r.home.lft[s][lid] = port
}

// departures marks the LIDs that were reached over links that there are no more.
func (r *repairer) departures() {
	var lost [256]bool // by port of one switch
	for s := range int32(r.g.Switches()) {
		if r.g.Away(s) {
			continue // whom it reached matters to nobody
		}
		any := false
		was := r.old.Graph
		for e := was.First[s]; e < was.First[s+1]; e++ {
			gone := r.g.Link(s, was.Port[e]) == topo.None
			lost[was.Port[e]] = gone
			any = any || gone
		}
		if !any {
			continue
		}
		for lid, port := range r.old.LFT[s] {
			if lost[port] {
				r.hit[lid] = true
			}
		}
		clear(lost[:])
	}
}

// treat routes the LIDs marked.
func (r *repairer) treat() {
	frozen := r.frozen()
	r.state.Remove(r.hit)
	r.planner = newPlanner(r.t, r.old.LFT, r.home.lft)
	r.planner.astray = r.astray
	r.reroute()
	late := make([]bool, len(r.hit)) // not routed again, but in other lanes, or in the way
	for lid := range r.hit {
		late[lid] = !r.hit[lid] && (frozen[lid] || r.moved[lid])
		r.hit[lid] = r.hit[lid] || late[lid]
	}
	r.state.Remove(late)
	r.settleHome()
}

// frozen unmarks LIDs at switches that are away, and returns which: tables still
// lead there, so they count all the while.
func (r *repairer) frozen() []bool {
	frozen := make([]bool, len(r.hit))
	for _, d := range r.g.Dests {
		if r.hit[d.LID] && r.g.Away(d.Switch) {
			frozen[d.LID], r.hit[d.LID] = true, false
		}
	}
	return frozen
}

// reroute plans the LIDs marked, and enters the plans into the tables.
func (r *repairer) reroute() {
	for e := range r.g.To {
		r.b.load[e] = r.state.Load(r.g.From[e], r.g.Port[e]) * hostFlow
	}
	r.turns = cdgOf(r.state, r.g, r.t.Lanes, r.o)
	var plans []*plan
	for sw := range int32(r.g.Switches()) {
		if !r.g.Away(sw) {
			plans = append(plans, r.plans(sw, func(l ib.LID) bool { return r.hit[l] })...)
		}
	}
	for _, p := range plans {
		if r.stay(p); r.o != nil { // no LID's ways are in another's way home
			r.find(p)
			r.tally(p, 1)
		}
	}
	for _, p := range plans {
		if r.o == nil {
			r.find(p)
			r.tally(p, 1)
		}
	}
	for _, p := range plans {
		for s, port := range p.port {
			if !r.g.Away(int32(s)) {
				r.set(int32(s), p.dest.LID, port)
			}
		}
	}
}

func (r *repairer) set(s int32, lid ib.LID, port uint8) {
	if r.t.LFT[s][lid] == port {
		return
	}
	if !r.own[s] {
		r.own[s] = true
		r.t.LFT[s] = slices.Clone(r.t.LFT[s])
	}
	r.t.LFT[s][lid] = port
}

// settleHome makes ways to new LIDs their home, and notes which LIDs are away
// from theirs. LIDs at a switch that is away are looked at when it is back.
func (r *repairer) settleHome() {
	r.astray = make([]bool, len(r.hit))
	for _, d := range r.g.Dests {
		if !r.hit[d.LID] {
			continue
		}
		away := r.g.Away(d.Switch)
		for s := range int32(r.g.Switches()) {
			port := r.t.LFT[s][d.LID]
			switch at := r.home.lft[s][d.LID]; {
			case r.g.Away(s):
				away = away || at == NoPort
			case at == NoPort:
				r.goHome(s, d.LID, port)
			default:
				away = away || at != port
			}
			if !r.g.Away(s) && port == NoPort {
				away = true
			}
		}
		r.astray[d.LID] = away
	}
}

func (r *repairer) result() *Result {
	res := &Result{Tables: r.t, state: r.state, home: r.home, astray: r.astray}
	if r.recount {
		res.state, res.Report = check.New(checkTables(r.t))
	} else {
		res.Report = r.state.Insert(checkTables(r.t), r.hit)
	}
	for _, d := range r.g.Dests {
		if r.hit[d.LID] {
			res.Rerouted++
		}
	}
	res.Blocks = r.blocks()
	return res
}

// blocks counts the blocks of all tables that differ from before.
func (r *repairer) blocks() (n int) {
	for s, row := range r.t.LFT {
		if &r.old.LFT[s][0] != &row[0] {
			n += blocksUnlike(r.old.LFT[s], row)
		}
	}
	return n
}

// restored returns the home routing with its lanes, or, if it does not hold with
// LIDs that came later, what was repaired. Ways home that were looked at one by one
// may have been in each other's way.
func (r *repairer) restored(repaired *Result) *Result {
	t := *r.t
	t.LFT, t.lane = slices.Clone(r.home.lft), r.home.lane
	state, rep := check.New(checkTables(&t))
	if !rep.OK() {
		return repaired
	}
	clear(r.home.own) // t has the rows, too
	clear(r.astray)
	r.t = &t
	res := *repaired
	res.Tables, res.state, res.Report, res.Blocks = &t, state, rep, r.blocks()
	return &res
}

// blocksUnlike counts the blocks of a table that differ from an older one.
func blocksUnlike(old, table []uint8) (n int) {
	for at := 0; at < len(table); at += BlockSize {
		if at >= len(old) || !slices.Equal(old[at:at+BlockSize], table[at:at+BlockSize]) {
			n++
		}
	}
	return n
}
