package check

import (
	"fmt"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// Tables is what a routing is judged by.
type Tables struct {
	Graph *topo.Graph
	LFT   [][]uint8              // by switch, then LID; 0xff is no route
	Lane  func(a, b int32) uint8 // the VL of paths from ends at switch a to ends at switch b
	Lanes int                    // one more than the highest VL
}

// Report is what Run found.
type Report struct {
	Paths   int64 // host to host, LIDs of LMC counted
	Hops    int64 // switches crossed by all those paths
	MaxLoad int64 // paths on the busiest link between switches
	MinLoad int64 // on the idlest
	Lanes   int
	Load    []int64 // by link

	// Broken lists host-to-LID paths that do not arrive, up to a few; NumBroken
	// counts them all, by source switch and LID.
	Broken    []string
	NumBroken int

	// Cycle is a credit loop, nil when there is none: channels as text.
	Cycle []string
}

// OK reports whether everything arrives and nothing can deadlock.
func (r *Report) OK() bool { return r.NumBroken == 0 && r.Cycle == nil }

// Err returns what is wrong as an error, or nil.
func (r *Report) Err() error {
	switch {
	case r.Cycle != nil:
		return fmt.Errorf("credit loop of %d channels: %s", len(r.Cycle), strings.Join(r.Cycle[:min(4, len(r.Cycle))], " → "))
	case r.NumBroken > 0:
		return fmt.Errorf("%d paths do not arrive, such as %s", r.NumBroken, strings.Join(r.Broken, ", "))
	}
	return nil
}

func (r *Report) String() string {
	loop := "none"
	if r.Cycle != nil {
		loop = fmt.Sprintf("YES, %d channels", len(r.Cycle))
	}
	return fmt.Sprintf("%d paths, %d broken, %.3f hops on average, busiest link %d, idlest %d, lanes %d, credit loop: %s",
		r.Paths, r.NumBroken, float64(r.Hops)/float64(max(1, r.Paths)), r.MaxLoad, r.MinLoad, r.Lanes, loop)
}

// maxBroken is how many broken paths are named.
const maxBroken = 5

type walker struct {
	t      Tables
	g      *topo.Graph
	r      *Report
	degree int
	dep    []uint16 // by link and the next link's place at its switch: lanes that depend

	next  []int32 // by switch: link towards the LID in hand
	order []int32 // switches that reach it, farthest last
	state []uint8
	flow  []int64
	mask  []uint16 // by switch: lanes of the paths that come through
	hops  []int64
	stack []int32
}

// Run checks all paths. It takes time in proportion to switches times LIDs.
func Run(t Tables) *Report {
	g := t.Graph
	n := g.Switches()
	w := &walker{
		t: t, g: g, degree: g.MaxDegree(),
		r:    &Report{Lanes: t.Lanes, Load: make([]int64, g.Links())},
		next: make([]int32, n), state: make([]uint8, n), flow: make([]int64, n),
		mask: make([]uint16, n), hops: make([]int64, n),
	}
	w.dep = make([]uint16, g.Links()*w.degree)
	for _, d := range g.Dests {
		w.dest(d)
	}
	w.loads()
	for lane := 0; lane < t.Lanes && w.r.Cycle == nil; lane++ {
		w.r.Cycle = w.cycle(1 << lane)
	}
	return w.r
}

// loads finds the extremes over the links between switches that could carry a path.
func (w *walker) loads() {
	for e, l := range w.r.Load {
		w.r.MaxLoad = max(w.r.MaxLoad, l)
		if l > 0 && (w.r.MinLoad == 0 || l < w.r.MinLoad) || e == 0 {
			w.r.MinLoad = l
		}
	}
}

const (
	unseen = iota
	onPath
	arrives
	lost
)

// dest follows one LID from every switch, then counts its paths and the
// dependencies they make.
func (w *walker) dest(d topo.Dest) {
	for i := range w.state {
		w.state[i] = unseen
	}
	w.order = w.order[:0]
	w.arrive(d)
	for s := range int32(len(w.next)) {
		w.walk(s, d.LID)
		if w.state[s] == lost && (w.g.Hosts[s] > 0 || d.IsHost()) {
			w.broken(s, d)
		}
	}
	w.count(d)
	w.depend(d)
}

func (w *walker) arrive(d topo.Dest) {
	w.next[d.Switch] = topo.None
	w.hops[d.Switch] = 1
	w.state[d.Switch] = lost
	if w.t.LFT[d.Switch][d.LID] == d.Port {
		w.state[d.Switch] = arrives
		w.order = append(w.order, d.Switch)
	}
}

// walk goes from s until it meets a switch whose fate is known, then gives all
// on the way the same fate.
func (w *walker) walk(s int32, lid ib.LID) {
	w.stack = w.stack[:0]
	for w.state[s] == unseen {
		w.state[s] = onPath
		w.stack = append(w.stack, s)
		w.next[s] = w.g.Link(s, w.t.LFT[s][lid])
		if w.next[s] == topo.None {
			w.state[s] = lost
			break
		}
		s = w.g.To[w.next[s]]
	}
	fate := w.state[s]
	if fate == onPath {
		fate = lost // it came round to itself
	}
	for i := len(w.stack) - 1; i >= 0; i-- {
		v := w.stack[i]
		w.state[v] = fate
		if fate == arrives {
			w.hops[v] = w.hops[w.g.To[w.next[v]]] + 1
			w.order = append(w.order, v)
		}
	}
}

func (w *walker) broken(s int32, d topo.Dest) {
	if w.r.NumBroken++; len(w.r.Broken) < maxBroken {
		w.r.Broken = append(w.r.Broken, fmt.Sprintf("%q to LID %d (%s)", w.g.Desc(s), d.LID, w.g.Fabric.Name(d.End)))
	}
}

// count adds the paths from hosts to loads. The order has next hops before
// those that go through them, so backwards each flow is complete when passed on.
func (w *walker) count(d topo.Dest) {
	if !d.IsHost() {
		return
	}
	for _, s := range w.order {
		w.flow[s] = int64(w.g.Hosts[s])
		paths := w.flow[s]
		if s == d.Switch {
			paths-- // not to itself
		}
		w.r.Paths += paths
		w.r.Hops += paths * w.hops[s]
	}
	for i := len(w.order) - 1; i >= 0; i-- {
		s := w.order[i]
		if e := w.next[s]; e != topo.None {
			w.r.Load[e] += w.flow[s]
			w.flow[w.g.To[e]] += w.flow[s]
		}
	}
}

// depend marks link → next link for the lanes of all the traffic to d: from
// hosts to any LID, and from switches to the LIDs of hosts.
func (w *walker) depend(d topo.Dest) {
	for _, s := range w.order {
		w.mask[s] = 0
		if w.g.Hosts[s] > 0 || d.IsHost() {
			w.mask[s] = 1 << w.t.Lane(s, d.Switch)
		}
	}
	for i := len(w.order) - 1; i >= 0; i-- {
		e := w.next[w.order[i]]
		if e == topo.None {
			continue
		}
		t := w.g.To[e]
		w.mask[t] |= w.mask[w.order[i]]
		if out := w.next[t]; out != topo.None {
			w.dep[int(e)*w.degree+int(out-w.g.First[t])] |= w.mask[w.order[i]]
		}
	}
}
