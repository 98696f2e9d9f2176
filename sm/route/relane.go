package route

import (
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// noLane is the lane of a pair of switches that has none yet.
const noLane = 0xff

// relane plans one of some links for switch s, and moves all traffic between
// the switch and the destination's, both ways, to another lane in use, where
// that closes no cycle. It returns the link, or topo.None. What was granted in
// the old lane stays so until the end: that is strict, and saves the search.
func (p *planner) relane(s int32, links []int32) int32 {
	if p.t.lane == nil {
		return topo.None
	}
	dst := p.plan.dest.Switch
	now := p.t.Lane(s, dst)
	for lane := range uint8(p.lanes) {
		if lane == now {
			continue
		}
		for _, e := range links {
			if p.found[p.g.To[e]] && p.moves(s, e, lane) {
				p.lend()
				p.changes = append(p.changes, change{s, dst, now})
				p.t.setLane(s, dst, lane)
				p.note(s)
				p.note(dst)
				return e
			}
		}
	}
	return topo.None
}

// change is a pair of switches and the lane that it had.
type change struct {
	a, b int32
	lane uint8
}

// takeBack undoes changes of lanes but the first n.
func (p *planner) takeBack(n int) {
	for i := len(p.changes) - 1; i >= n; i-- {
		c := p.changes[i]
		p.t.putLane(c.a, c.b, c.lane)
	}
	p.changes = p.changes[:n]
}

// moves plans link e for s if all traffic of the pair fits a lane then.
func (p *planner) moves(s, e int32, lane uint8) bool {
	dst := p.plan.dest.Switch
	p.plan.port[s] = p.g.Port[e]
	mark := len(p.turns.added)
	if p.carries(lane, s, dst) && p.carries(lane, dst, s) {
		return true
	}
	p.undo(mark)
	p.plan.port[s] = NoPort
	return false
}

// carries reports whether a lane takes the paths from one switch to the LIDs at
// another, as far as they are known.
func (p *planner) carries(lane uint8, from, to int32) bool {
	for _, i := range p.g.At(to) {
		d := p.g.Dests[i]
		if !used(p.g, from, d) {
			continue
		}
		at := p.next(from, d.LID)
		for at != topo.None {
			next := p.next(p.g.To[at], d.LID)
			if next != topo.None && !p.take(lane, at, next) {
				return false
			}
			at = next
		}
	}
	return true
}

// next returns the link to a LID as it is planned, or as it was.
func (p *planner) next(s int32, lid ib.LID) int32 {
	if p.ports[lid] != nil {
		return p.g.Link(s, p.ports[lid][s])
	}
	return p.g.Link(s, p.t.LFT[s][lid])
}

// lend makes the lanes ours to write.
func (p *planner) lend() {
	if !p.lent {
		p.lent = true
		p.t.lane = slices.Clone(p.t.lane)
	}
}

// note marks the LIDs at a switch.
func (p *planner) note(s int32) {
	for _, i := range p.g.At(s) {
		p.moved[p.g.Dests[i].LID] = true
	}
}
