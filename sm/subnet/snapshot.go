// Package subnet is what a sweep leaves for others to read: the fabric, its
// routing, and the attributes that nodes and ports answered with. A Snapshot is
// never changed once published, so that queries and dumps need no lock and a
// sweep stalls neither.
package subnet

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/topo"
)

// Snapshot is the subnet as it was configured.
type Snapshot struct {
	Fabric  *topo.Fabric
	Routing *route.Result // nil in a subnet without switches

	Desc       []string         // by node of Fabric: its own description
	NodeInfo   []mad.NodeInfo   // by node
	SwitchInfo []mad.SwitchInfo // by node; nil for those that are no switch
	PortInfo   []mad.PortInfo   // by port of Fabric; nil for those not read
	PKeys      [][]ib.PKey      // by port of Fabric; nil when nothing was set

	Prefix     uint64 // the subnet prefix
	SMLID      ib.LID
	SMPort     int32 // the port of Fabric that the subnet manager is at
	SMPriority uint8
	SMState    mad.SMState

	ByLID  map[ib.LID]int32  // the end port with a LID, those that LMC adds included
	ByGUID map[ib.GUID]int32 // by port GUID

	PacketLifeTime uint8 // of a path through switches, 4.096 µs * 2^n

	// Missing names what is there and could not be configured.
	Missing []string
}

// Index fills ByLID and ByGUID.
func (s *Snapshot) Index() {
	s.ByLID, s.ByGUID = map[ib.LID]int32{}, map[ib.GUID]int32{}
	for i := range s.Fabric.Ports {
		p := &s.Fabric.Ports[i]
		if !s.Fabric.EndPort(int32(i)) || !p.LID.Unicast() {
			continue
		}
		s.ByGUID[p.GUID] = int32(i)
		for l := range ib.LID(1) << p.LMC {
			s.ByLID[p.LID+l] = int32(i)
		}
	}
}

// Switch returns the switch of the routing graph that an end port is at: its
// own when it is a switch's port 0, else the one its cable leads to.
func (s *Snapshot) Switch(port int32) int32 {
	if s.Routing == nil {
		return topo.None
	}
	node := s.Fabric.Ports[port].Node
	if s.Fabric.Nodes[node].Type != topo.Switch {
		at := s.Fabric.Attached(port)
		if at == topo.None {
			return topo.None
		}
		node = s.Fabric.Ports[at].Node
	}
	return s.Routing.Graph.Switch(s.Fabric.Nodes[node].GUID)
}

// SL returns the service level of the paths between two end ports.
func (s *Snapshot) SL(a, b int32) uint8 {
	x, y := s.Switch(a), s.Switch(b)
	if x == topo.None || y == topo.None {
		return 0
	}
	return s.Routing.Lane(x, y)
}
