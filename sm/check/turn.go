package check

import "github.com/urxe/urxe/sm/topo"

// Turns asks whether further turns could be taken without closing a cycle, for
// those who look for other routes. Turns that were granted count from then on,
// until Release.
type Turns struct {
	s       *State
	g       *topo.Graph
	granted []int
	refused map[int]bool
	seen    []int32
	now     int32
	stack   []int32
}

// Turns returns the means to ask about turns in a graph that has the links of
// the one that was checked, or fewer.
func (s *State) Turns(g *topo.Graph) *Turns {
	return &Turns{s: s, g: g, refused: map[int]bool{}, seen: make([]int32, g.Links())}
}

// Grant reports whether a path of a lane may go on from link e to link f.
func (t *Turns) Grant(lane uint8, e, f int32) bool {
	if int(lane) >= t.s.lanes {
		return false
	}
	sw := t.g.To[e]
	at := t.s.cell(sw, t.g.Port[t.g.Rev[e]], t.g.Port[f]) + int(lane)
	switch {
	case t.s.dep[at] > 0:
		return true
	case t.refused[at]:
		return false
	case t.leads(int(lane), f, e):
		t.refused[at] = true
		return false
	}
	t.s.dep[at]++
	t.granted = append(t.granted, at)
	return true
}

// leads reports whether link from leads to link to by the dependencies of a lane.
func (t *Turns) leads(lane int, from, to int32) bool {
	t.now++
	t.seen[from] = t.now
	t.stack = append(t.stack[:0], from)
	for len(t.stack) > 0 {
		e := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		if e == to {
			return true
		}
		sw, in := t.g.To[e], t.g.Port[t.g.Rev[e]]
		for f := t.g.First[sw]; f < t.g.First[sw+1]; f++ {
			if t.seen[f] != t.now && t.s.dep[t.s.cell(sw, in, t.g.Port[f])+lane] > 0 {
				t.seen[f] = t.now
				t.stack = append(t.stack, f)
			}
		}
	}
	return false
}

// Release forgets what was granted.
func (t *Turns) Release() {
	for _, at := range t.granted {
		t.s.dep[at]--
	}
	t.granted = nil
}
