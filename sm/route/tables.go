package route

import (
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// NoPort is the LFT entry of a LID without a route (IBA 14.2.5.10: packets to
// it are discarded).
const NoPort = 0xff

// BlockSize is the number of LIDs in one block of the linear forwarding table.
const BlockSize = 64

// Tables is a routing of the whole subnet. It must not be changed once computed.
type Tables struct {
	Engine string
	Graph  *topo.Graph

	// LFT holds, by switch, the output port of each LID from 0 up, in whole blocks.
	LFT [][]uint8

	// Lanes is the number of lanes in use: SLs 0 to Lanes-1.
	Lanes int

	// Rank is the orientation the engine kept to, by switch, nil if none: links
	// to a lower rank go up. Ties go by switch number.
	Rank []int32

	// Notes says what the operator should know of this routing.
	Notes []string

	lane []uint8 // by pair of switches, nil when there is one lane
}

func newTables(engine string, g *topo.Graph) *Tables {
	t := &Tables{Engine: engine, Graph: g, Lanes: 1}
	size := tableSize(g.MaxLID)
	all := slices.Repeat([]uint8{NoPort}, size*g.Switches())
	t.LFT = make([][]uint8, g.Switches())
	for s := range t.LFT {
		t.LFT[s] = all[s*size : (s+1)*size : (s+1)*size]
	}
	for _, d := range g.Dests {
		t.LFT[d.Switch][d.LID] = d.Port
	}
	return t
}

// clone returns tables that may be changed, without lanes.
func (t *Tables) clone() *Tables {
	c := *t
	c.LFT, c.lane, c.Lanes, c.Notes = make([][]uint8, len(t.LFT)), nil, 1, slices.Clone(t.Notes)
	for s := range c.LFT {
		c.LFT[s] = slices.Clone(t.LFT[s])
	}
	return &c
}

// tableSize is the number of entries in whole blocks up to a LID.
func tableSize(max ib.LID) int { return (int(max)/BlockSize + 1) * BlockSize }

// Lane returns the lane of traffic between the ends at two switches.
func (t *Tables) Lane(a, b int32) uint8 {
	if t.lane == nil {
		return 0
	}
	return t.lane[int(a)*t.Graph.Switches()+int(b)]
}

func (t *Tables) setLane(a, b int32, lane uint8) {
	n := t.Graph.Switches()
	if t.lane == nil {
		if lane == 0 {
			return
		}
		t.lane = make([]uint8, n*n)
	}
	t.putLane(a, b, lane)
	t.Lanes = max(t.Lanes, int(lane)+1)
}

func (t *Tables) putLane(a, b int32, lane uint8) {
	n := t.Graph.Switches()
	t.lane[int(a)*n+int(b)], t.lane[int(b)*n+int(a)] = lane, lane
}

// Next returns the link by which a LID leaves a switch, or topo.None when it
// leaves for a host or the switch itself, or has no route.
func (t *Tables) Next(sw int32, lid ib.LID) int32 {
	return t.Graph.Link(sw, t.LFT[sw][lid])
}

// hostless reports whether no traffic passes between two switches: neither has
// a host, so only their management ports could.
func hostless(g *topo.Graph, a, b int32) bool { return g.Hosts[a] == 0 && g.Hosts[b] == 0 }
