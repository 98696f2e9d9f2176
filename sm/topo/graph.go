package topo

import (
	"cmp"
	"slices"

	"github.com/urxe/urxe/ib"
)

// Graph is the switch network in compressed rows. Switches are numbered by
// ascending GUID, so that the same subnet gives the same graph whatever way it was
// discovered; those that Follow adds come after. A link is one direction of a
// cable: link e leaves switch From[e] by port Port[e] for switch To[e], and Rev[e]
// is the way back.
type Graph struct {
	Fabric *Fabric
	GUID   []ib.GUID // by switch
	Node   []int32   // by switch: its node in Fabric, None while it is away; see Follow
	Ports  []uint8   // by switch: the number of its physical ports
	Hosts  []int32   // by switch: CA and router ports linked to it

	First []int32 // by switch, one more: links First[s] to First[s+1]-1 leave s
	From  []int32 // by link
	To    []int32
	Rev   []int32
	Port  []uint8

	Dests   []Dest  // by ascending LID
	DestsAt []int32 // by switch, one more: Order[DestsAt[s]:DestsAt[s+1]] are at s
	Order   []int32 // indices into Dests, grouped by switch

	MaxLID ib.LID

	linkAt   []int32 // by switch and port
	stride   int32
	bySwitch map[ib.GUID]int32
}

// Dest is a LID that tables need an entry for.
type Dest struct {
	Switch int32 // the switch it is at
	End    int32 // the end port in Fabric that holds it, None while it is away
	LID    ib.LID
	Port   uint8 // the switch port it leaves by; 0 is the switch itself
	Path   uint8 // 0 for the base LID, n for the n-th one that LMC adds
}

// IsHost reports whether d is a CA's or router's LID rather than a switch's.
func (d Dest) IsHost() bool { return d.Port != 0 }

// NewGraph returns the routing graph of f: every switch, every link between
// two switches, and every LID that a switch or a CA at a switch holds.
func NewGraph(f *Fabric) *Graph { return (&Graph{}).Follow(f) }

func (g *Graph) addLinks() {
	f := g.Fabric
	g.linkAt = make([]int32, len(g.Node)*int(g.stride))
	g.Hosts = make([]int32, len(g.Node))
	for i := range g.linkAt {
		g.linkAt[i] = None
	}
	for s, n := range g.Node {
		g.First = append(g.First, int32(len(g.To)))
		if n == None {
			continue
		}
		for _, p := range f.NodePorts(n)[1:] {
			if p.Peer == None {
				continue
			}
			t, ok := g.bySwitch[f.Nodes[f.Ports[p.Peer].Node].GUID]
			switch {
			case !ok:
				g.Hosts[s]++
			case t != int32(s): // a cable from a switch to itself carries nothing
				g.linkAt[int32(s)*g.stride+int32(p.Num)] = int32(len(g.To))
				g.From = append(g.From, int32(s))
				g.To = append(g.To, t)
				g.Port = append(g.Port, p.Num)
			}
		}
	}
	g.First = append(g.First, int32(len(g.To)))
	g.Rev = make([]int32, len(g.To))
	for e := range g.To {
		mine := f.Port(g.Node[g.From[e]], g.Port[e])
		g.Rev[e] = g.Link(g.To[e], f.Ports[f.Ports[mine].Peer].Num)
	}
}

func (g *Graph) addDests() {
	f := g.Fabric
	for i := range f.Ports {
		p := &f.Ports[i]
		if !f.EndPort(int32(i)) || !p.LID.Unicast() {
			continue
		}
		d := Dest{End: int32(i)}
		if at := f.Attached(int32(i)); at != None {
			d.Switch, d.Port = g.bySwitch[f.Nodes[f.Ports[at].Node].GUID], f.Ports[at].Num
		} else if f.Nodes[p.Node].Type == Switch {
			d.Switch = g.bySwitch[f.Nodes[p.Node].GUID]
		} else {
			continue
		}
		for path := range 1 << p.LMC {
			d.LID, d.Path = p.LID+ib.LID(path), uint8(path)
			g.Dests = append(g.Dests, d)
		}
	}
}

// groupDests orders the destinations by LID, and by switch with LID order within one.
func (g *Graph) groupDests() {
	slices.SortFunc(g.Dests, func(a, b Dest) int { return cmp.Compare(a.LID, b.LID) })
	g.DestsAt = make([]int32, len(g.Node)+1)
	for _, d := range g.Dests {
		g.MaxLID = max(g.MaxLID, d.LID)
		g.DestsAt[d.Switch+1]++
	}
	for s := range g.Node {
		g.DestsAt[s+1] += g.DestsAt[s]
	}
	g.Order = make([]int32, len(g.Dests))
	at := slices.Clone(g.DestsAt)
	for i, d := range g.Dests {
		g.Order[at[d.Switch]] = int32(i)
		at[d.Switch]++
	}
}

// Switches returns the number of switches.
func (g *Graph) Switches() int { return len(g.Node) }

// Links returns the number of links, each direction counted.
func (g *Graph) Links() int { return len(g.To) }

// Link returns the link that leaves a switch by a port, or None when that port
// leads to no other switch.
func (g *Graph) Link(sw int32, port uint8) int32 {
	if int32(port) >= g.stride {
		return None
	}
	return g.linkAt[sw*g.stride+int32(port)]
}

// Switch returns the switch with this node GUID, or None.
func (g *Graph) Switch(guid ib.GUID) int32 {
	if s, ok := g.bySwitch[guid]; ok {
		return s
	}
	return None
}

// At returns the indices into Dests of the LIDs at a switch, its own included.
func (g *Graph) At(sw int32) []int32 { return g.Order[g.DestsAt[sw]:g.DestsAt[sw+1]] }

// Away reports whether a switch has left the subnet since the numbers were given.
func (g *Graph) Away(sw int32) bool { return g.Node[sw] == None }

// Desc returns the description of a switch, or its GUID while it is away.
func (g *Graph) Desc(sw int32) string {
	if g.Away(sw) {
		return g.GUID[sw].String()
	}
	return g.Fabric.Nodes[g.Node[sw]].Desc
}

// MaxDegree returns the largest number of links that leave one switch.
func (g *Graph) MaxDegree() int {
	deg := int32(0)
	for s := range g.Node {
		deg = max(deg, g.First[s+1]-g.First[s])
	}
	return int(deg)
}

// Distances sets dist[s] to the hops to s from the nearest switch of some, -1
// when there is no way, and returns those that there is one to, nearest first:
// from, with the others appended. Links work both ways, so these are the
// distances from s as well.
func (g *Graph) Distances(dist, from []int32) []int32 {
	for i := range dist {
		dist[i] = -1
	}
	for _, s := range from {
		dist[s] = 0
	}
	for i := 0; i < len(from); i++ {
		s := from[i]
		for e := g.First[s]; e < g.First[s+1]; e++ {
			if t := g.To[e]; dist[t] < 0 {
				dist[t] = dist[s] + 1
				from = append(from, t)
			}
		}
	}
	return from
}
