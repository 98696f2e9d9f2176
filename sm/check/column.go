package check

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

const (
	unseen = iota
	onPath
	arrives
	ends   // where there is no way on
	circle // comes round to itself
)

// column follows one LID from every switch, then counts its paths and the
// dependencies they make, or takes them off again when sign is -1.
func (s *State) column(d topo.Dest, sign int64) {
	clear(s.state)
	s.order, s.bad = s.order[:0], s.bad[:0]
	s.arrive(d)
	for sw := range int32(len(s.next)) {
		if s.state[sw] == unseen {
			s.walk(sw, d.LID)
		}
		if s.state[sw] != arrives && s.owes(sw, d) {
			s.bad = append(s.bad, sw)
		}
	}
	delete(s.lost, d.LID)
	if len(s.bad) > 0 && sign > 0 {
		s.lost[d.LID] = append([]int32(nil), s.bad...)
	}
	s.count(d, sign)
}

// owes reports whether a switch must have a way to d. What is away owes nothing
// and nobody owes it anything, but tables still lead there: what is on its way
// counts as long as that is so, except that only a circle is wrong.
func (s *State) owes(sw int32, d topo.Dest) bool {
	if s.g.Away(d.Switch) || s.g.Away(sw) {
		return s.state[sw] == circle
	}
	return s.g.Hosts[sw] > 0 || d.IsHost()
}

func (s *State) arrive(d topo.Dest) {
	s.next[d.Switch] = topo.None
	s.far[d.Switch] = 1
	s.state[d.Switch] = ends
	s.order = append(s.order, d.Switch)
	if s.t.LFT[d.Switch][d.LID] == d.Port {
		s.state[d.Switch] = arrives
	}
}

// walk goes from sw until it meets a switch whose fate is known, then gives all
// on the way the same fate.
func (s *State) walk(sw int32, lid ib.LID) {
	s.stack = s.stack[:0]
	for s.state[sw] == unseen {
		s.state[sw] = onPath
		s.stack = append(s.stack, sw)
		e := s.g.Link(sw, s.t.LFT[sw][lid])
		s.next[sw] = e
		if e == topo.None {
			s.state[sw], s.far[sw] = ends, 1
			s.order = append(s.order, sw)
			s.stack = s.stack[:len(s.stack)-1]
			break
		}
		sw = s.g.To[e]
	}
	fate := s.state[sw]
	if fate == onPath {
		fate = circle
	}
	for i := len(s.stack) - 1; i >= 0; i-- {
		v := s.stack[i]
		s.state[v] = fate
		if fate != circle {
			s.far[v] = s.far[s.g.To[s.next[v]]] + 1
			s.order = append(s.order, v)
		}
	}
}

// count adds the paths from hosts to the loads, and the turns of all traffic to
// d to the dependencies: from hosts to any LID, and from switches to those of
// hosts. The order has next hops before those that go through them, so
// backwards each flow is complete when it is passed on. A packet that comes to
// an end on its way holds buffers like any other.
func (s *State) count(d topo.Dest, sign int64) {
	host := d.IsHost()
	for _, sw := range s.order {
		n := int64(s.g.Hosts[sw])
		s.flow[sw], s.mask[sw] = 0, 0
		if host && s.state[sw] == arrives {
			s.flow[sw] = n
			if sw == d.Switch {
				n-- // not to itself
			}
			s.paths += sign * n
			s.hops += sign * n * s.far[sw]
		}
		if n > 0 || host {
			s.mask[sw] = 1 << s.t.Lane(sw, d.Switch)
		}
	}
	for i := len(s.order) - 1; i >= 0; i-- {
		sw := s.order[i]
		e := s.next[sw]
		if e == topo.None {
			continue
		}
		t := s.g.To[e]
		s.load[s.base[sw]+int32(s.g.Port[e])] += sign * s.flow[sw]
		s.flow[t] += s.flow[sw]
		s.mask[t] |= s.mask[sw]
		if out := s.next[t]; out != topo.None && s.mask[sw] != 0 {
			s.turn(t, s.g.Port[s.g.Rev[e]], s.g.Port[out], s.mask[sw], sign)
		}
	}
}

// turn counts a dependency in all lanes of a mask.
func (s *State) turn(sw int32, in, out uint8, mask uint16, sign int64) {
	at := s.cell(sw, in, out)
	for lane := 0; mask != 0; lane++ {
		if mask&1 != 0 {
			s.dep[at+lane] += uint16(sign)
		}
		mask >>= 1
	}
}

// cell is where the turn from one port of a switch to another is counted.
func (s *State) cell(sw int32, in, out uint8) int {
	ports := int32(s.g.Ports[sw]) + 1
	return int(s.mat[sw]+int32(in)*ports+int32(out)) * s.lanes
}
