package check

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

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

// Report is what was found.
type Report struct {
	Paths   int64 // host to host, LIDs of LMC counted
	Hops    int64 // switches crossed by all those paths
	MaxLoad int64 // paths on the busiest link between switches
	MinLoad int64 // on the idlest that has any
	Lanes   int

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

// State is a routing that was checked, and everything counted on the way, so
// that a routing that differs in a few LIDs costs only those: see Insert.
//
// What is counted hangs on switches and their port numbers, which stay when
// links come and go.
type State struct {
	t     Tables
	g     *topo.Graph
	lanes int
	base  []int32  // by switch: where its ports begin
	load  []int64  // by port: host paths that leave by it
	mat   []int32  // by switch: where its matrix begins
	dep   []uint16 // by switch, input port, output port and lane: how many LIDs' trees turn so
	paths int64
	hops  int64
	lost  map[ib.LID][]int32 // by LID: switches that should reach it and don't

	next  []int32 // by switch: link towards the LID in hand
	order []int32 // switches that reach it, next hops first
	state []uint8
	flow  []int64
	mask  []uint16 // by switch: lanes of the paths that come through
	far   []int64
	stack []int32
	bad   []int32
}

// Run checks all paths. It takes time in proportion to switches times LIDs.
func Run(t Tables) *Report {
	_, r := New(t)
	return r
}

// New checks all paths, and returns what Insert needs as well. Large subnets
// are checked on several processors at once; the result is the same.
func New(t Tables) (*State, *Report) {
	s := newState(t)
	parts := 1
	if t.Graph.Switches()*len(t.Graph.Dests) >= manyEntries {
		parts = min(runtime.GOMAXPROCS(0), mostParts)
	}
	s.columns(parts)
	return s, s.report()
}

const (
	manyEntries = 1 << 20
	mostParts   = 4
)

func newState(t Tables) *State {
	n := t.Graph.Switches()
	s := &State{
		t: t, g: t.Graph, lanes: max(1, t.Lanes), lost: map[ib.LID][]int32{},
		next: make([]int32, n), state: make([]uint8, n), flow: make([]int64, n), mask: make([]uint16, n), far: make([]int64, n),
	}
	ports, cells := int32(0), int32(0)
	for sw := range n {
		p := int32(s.g.Ports[sw]) + 1
		s.base, s.mat = append(s.base, ports), append(s.mat, cells)
		ports += p
		cells += p * p
	}
	s.load = make([]int64, ports)
	s.dep = make([]uint16, int(cells)*s.lanes)
	return s
}

// columns counts all LIDs, each part of them by a state of its own.
func (s *State) columns(parts int) {
	others := make([]*State, parts)
	var wg sync.WaitGroup
	dests := s.g.Dests
	for i := range parts {
		o := s
		if i > 0 {
			o = newState(s.t)
		}
		others[i] = o
		part := dests[i*len(dests)/parts : (i+1)*len(dests)/parts]
		wg.Go(func() {
			for _, d := range part {
				o.column(d, 1)
			}
		})
	}
	wg.Wait()
	for _, o := range others[1:] {
		s.merge(o)
	}
}

// merge adds what another state counted of other LIDs.
func (s *State) merge(o *State) {
	s.paths += o.paths
	s.hops += o.hops
	for i, l := range o.load {
		s.load[i] += l
	}
	for i, d := range o.dep {
		s.dep[i] += d
	}
	for lid, switches := range o.lost {
		s.lost[lid] = switches
	}
}

// Remove takes the paths to some LIDs, a flag for each from 0 up, out of s.
func (s *State) Remove(lids []bool) { s.each(lids, -1) }

// Insert checks tables that differ from those of s in the routes to some LIDs
// only, which must have been removed: all LIDs for which a switch has another
// entry, or has the same one over a link that came or went. The switches there
// are, their hosts and the lanes must be the same.
func (s *State) Insert(t Tables, lids []bool) *Report {
	s.t, s.g = t, t.Graph
	s.each(lids, 1)
	return s.report()
}

func (s *State) each(lids []bool, sign int64) {
	for _, d := range s.g.Dests {
		if lids[d.LID] {
			s.column(d, sign)
		}
	}
}

// report sums up.
func (s *State) report() *Report {
	r := &Report{Paths: s.paths, Hops: s.hops, Lanes: s.t.Lanes}
	for e := range s.g.To {
		l := s.load[s.base[s.g.From[e]]+int32(s.g.Port[e])]
		r.MaxLoad = max(r.MaxLoad, l)
		if l > 0 && (r.MinLoad == 0 || l < r.MinLoad) {
			r.MinLoad = l
		}
	}
	for _, d := range s.g.Dests {
		for _, sw := range s.lost[d.LID] {
			if r.NumBroken++; len(r.Broken) < maxBroken {
				r.Broken = append(r.Broken, fmt.Sprintf("%q to LID %d (%s)", s.g.Desc(sw), d.LID, s.holder(d)))
			}
		}
	}
	for lane := 0; lane < s.lanes && r.Cycle == nil; lane++ {
		r.Cycle = s.cycle(lane)
	}
	return r
}

// holder names the end port that has a LID.
func (s *State) holder(d topo.Dest) string {
	if d.End == topo.None {
		return "away"
	}
	return s.g.Fabric.Name(d.End)
}

// Load returns the host paths that leave a switch by a port.
func (s *State) Load(sw int32, port uint8) int64 { return s.load[s.base[sw]+int32(port)] }

// Turns returns the lanes, a bit each, in which paths turn from one port of a
// switch to another.
func (s *State) Turns(sw int32, in, out uint8) (lanes uint16) {
	at := s.cell(sw, in, out)
	for lane, n := range s.dep[at : at+s.lanes] {
		if n > 0 {
			lanes |= 1 << lane
		}
	}
	return lanes
}
