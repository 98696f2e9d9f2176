package topo

import (
	"slices"

	"github.com/urxe/urxe/ib"
)

// Follow returns the graph that f has, in the numbers of g, so that what is
// known by number need not be known anew. A switch of g that f has no more keeps
// its number and has no links; those that only f has follow, by ascending GUID.
// A LID that f has no more keeps its place, and its host counts.
func (g *Graph) Follow(f *Fabric) *Graph {
	n := &Graph{Fabric: f, GUID: slices.Concat(g.GUID, g.unknown(f)), bySwitch: make(map[ib.GUID]int32)}
	for s, guid := range n.GUID {
		n.bySwitch[guid] = int32(s)
		node := f.Node(guid)
		if node != None && f.Nodes[node].Type == Switch {
			n.Ports = append(n.Ports, f.Nodes[node].NumPorts)
		} else {
			node = None
			n.Ports = append(n.Ports, g.Ports[s])
		}
		n.Node = append(n.Node, node)
		n.stride = max(n.stride, int32(n.Ports[s])+1)
	}
	n.addLinks()
	n.addDests()
	n.keepDests(g)
	n.groupDests()
	return n
}

// unknown lists the switches of f that g does not number.
func (g *Graph) unknown(f *Fabric) (guids []ib.GUID) {
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Type == Switch && g.Switch(n.GUID) == None {
			guids = append(guids, n.GUID)
		}
	}
	slices.Sort(guids)
	return guids
}

// keepDests adds the LIDs of old that g has nowhere, and counts their hosts
// where nothing else is at their switch port.
func (g *Graph) keepDests(old *Graph) {
	here := make(map[ib.LID]bool, len(g.Dests))
	for _, d := range g.Dests {
		here[d.LID] = true
	}
	type place struct {
		sw   int32
		port uint8
	}
	counted := map[place]bool{}
	for _, d := range old.Dests {
		if here[d.LID] {
			continue
		}
		d.End = None
		g.Dests = append(g.Dests, d)
		if at := (place{d.Switch, d.Port}); d.IsHost() && !counted[at] && g.vacant(d.Switch, d.Port) {
			counted[at] = true
			g.Hosts[d.Switch]++
		}
	}
}

// vacant reports whether nothing is linked to a switch port.
func (g *Graph) vacant(sw int32, port uint8) bool {
	if g.Away(sw) {
		return true
	}
	p := g.Fabric.Port(g.Node[sw], port)
	return p != None && g.Fabric.Ports[p].Peer == None
}
