package route

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/topo"
)

// Result is a routing that may be put into the switches.
type Result struct {
	*Tables
	Report *check.Report

	// Refused says, in order, why the engines before the one taken were not:
	// they could not route the subnet, left something out, or could deadlock.
	Refused []error

	// Rerouted is the number of LIDs whose routes were looked for, and Blocks that
	// of LFT blocks that came out otherwise than they were before.
	Rerouted, Blocks int

	state  *check.State
	home   *home
	astray []bool // by LID: a switch routes it otherwise than at home
}

// Compute runs the named engines in order until one gives tables that pass the
// check: everything arrives, nothing can deadlock. With none named it takes
// ftree on fat trees and nue elsewhere. When all those named fail it goes on
// with nue and updn, which need no particular shape, and so always ends with
// tables; only with a subnet whose switches are not all connected some paths
// are missing from them, which the report names.
func Compute(g *topo.Graph, names []string, o Options) (*Result, error) {
	r := &Result{Rerouted: len(g.Dests), Blocks: g.Switches() * tableSize(g.MaxLID) / BlockSize}
	var rest *Result // free of loops, but not complete
	for _, name := range candidates(names) {
		t, err := One(name, g, o)
		if err != nil {
			r.refuse(name, err)
			continue
		}
		state, rep := check.New(checkTables(t))
		if rep.OK() {
			r.Tables, r.Report, r.state = t, rep, state
			r.home = &home{graph: g, lft: slices.Clone(t.LFT), own: make([]bool, g.Switches()), lane: t.lane, busiest: rep.MaxLoad}
			return r, nil
		}
		r.refuse(name, rep.Err())
		if rep.Cycle == nil && (rest == nil || rep.NumBroken < rest.Report.NumBroken) {
			rest = &Result{Tables: t, Report: rep}
		}
	}
	if rest == nil {
		return nil, fmt.Errorf("no engine could route the subnet: %w", errors.Join(r.Refused...))
	}
	rest.Refused, rest.Rerouted, rest.Blocks = r.Refused, r.Rerouted, r.Blocks
	return rest, nil
}

func (r *Result) refuse(engine string, why error) {
	r.Refused = append(r.Refused, fmt.Errorf("routing engine %s: %w", engine, why))
}

// candidates completes the operator's list with the engines that always end well.
func candidates(names []string) []string {
	if len(names) == 0 {
		names = []string{"ftree"}
	}
	names = slices.Clone(names)
	for _, last := range []string{"nue", "updn"} {
		if !slices.Contains(names, last) {
			names = append(names, last)
		}
	}
	return names
}

// Check walks the paths of t; see package check.
func Check(t *Tables) *check.Report { return check.Run(checkTables(t)) }

func checkTables(t *Tables) check.Tables {
	return check.Tables{Graph: t.Graph, LFT: t.LFT, Lane: t.Lane, Lanes: t.Lanes}
}
