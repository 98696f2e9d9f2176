package route

import (
	"fmt"
	"slices"

	"github.com/urxe/urxe/sm/topo"
)

// minhop takes shortest paths, balanced. They can deadlock wherever the graph
// has a ring; Compute finds out.
func minhop(g *topo.Graph, _ Options) (*Tables, error) {
	t := newTables("minhop", g)
	spread(t, func(d *dag, sw int32) { d.minimal(g, sw) })
	return t, nil
}

// updn keeps to an orientation: that of the roots named, or of the roots of the
// tree that the subnet is, or else that of one central switch. Only the last
// reaches everything on every subnet, so it is what remains when others don't.
func updn(g *topo.Graph, o Options) (t *Tables, err error) {
	var notes []string
	for _, try := range orientations(g, o) {
		t = oriented("updn", g, try.rank)
		t.Notes = append(notes, try.note)
		lost := t.cutOff()
		if lost == "" {
			return t, nil
		}
		notes = append(notes, fmt.Sprintf("%s: cuts off %s, not used", try.note, lost))
	}
	if t == nil {
		return nil, fmt.Errorf("no switches to route")
	}
	return t, nil
}

type ranking struct {
	rank []int32
	note string
}

// orientations lists what updn tries, best first.
func orientations(g *topo.Graph, o Options) (tries []ranking) {
	add := func(rank []int32, how string) {
		if rank != nil {
			tries = append(tries, ranking{rank, "root switches " + how + ": " + rootNames(g, rank)})
		}
	}
	if len(o.Roots) > 0 {
		add(rootRank(g, o.roots(g)), "as given")
	} else {
		add(treeRank(g), "of the tree")
	}
	add(rootRank(g, centre(g)), "chosen as the centre")
	return tries
}

func oriented(engine string, g *topo.Graph, rank []int32) *Tables {
	t := newTables(engine, g)
	t.Rank = rank
	or := newOrientation(g, rank)
	spread(t, func(d *dag, sw int32) { d.oriented(g, or, sw) })
	detour(t, or)
	return t
}

// cutOff names a switch that should have a way to a LID and has none, or
// returns "".
func (t *Tables) cutOff() string {
	g := t.Graph
	for _, d := range g.Dests {
		for s := range int32(g.Switches()) {
			if used(g, s, d) && t.LFT[s][d.LID] == NoPort {
				return fmt.Sprintf("%q from %q", g.Desc(d.Switch), g.Desc(s))
			}
		}
	}
	return ""
}

// rootNames lists the switches of the highest rank, at most five of them.
func rootNames(g *topo.Graph, rank []int32) string {
	top := slices.Min(rank)
	names, count := "", 0
	for s, r := range rank {
		if r != top {
			continue
		}
		if count++; count <= 5 {
			names += fmt.Sprintf(" %q", g.Desc(int32(s)))
		}
	}
	if count > 5 {
		names += fmt.Sprintf(" and %d more", count-5)
	}
	return names[1:]
}
