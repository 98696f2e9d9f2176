package topo

import (
	"fmt"

	"github.com/urxe/urxe/ib"
)

// NodeType is what a node is, in the encoding of NodeInfo (IBA 14.2.5.3).
type NodeType uint8

// The node types of IBA 14.2.5.3.
const (
	CA     NodeType = 1
	Switch NodeType = 2
	Router NodeType = 3
)

var nodeTypes = [...]string{CA: "Channel Adapter", Switch: "Switch", Router: "Router"}

func (t NodeType) String() string {
	if int(t) < len(nodeTypes) && nodeTypes[t] != "" {
		return nodeTypes[t]
	}
	return fmt.Sprintf("unknown node type %d", uint8(t))
}

// None is the index of no node, no port and no link.
const None int32 = -1

// Node is a switch, a channel adapter or a router.
type Node struct {
	GUID       ib.GUID
	SystemGUID ib.GUID
	Type       NodeType
	NumPorts   uint8 // physical ports; a switch also has its port 0
	Desc       string
	VendorID   uint32
	DeviceID   uint16
	Revision   uint32

	first int32 // index of port 0 in Fabric.Ports
}

// Port is one port of a node. Port 0 of a switch is its management port; port 0
// of other nodes is a place that stays empty.
type Port struct {
	GUID     ib.GUID
	Peer     int32 // index of the port at the other end of the link, or None
	Node     int32
	LID      ib.LID
	MTU      ib.MTU // the MTU that both ends of the link agree on
	Num      uint8
	LMC      uint8
	State    ib.PortState
	VLs      uint8 // data VLs in operation, 1 to 15; 0 when unknown
	Width    uint8 // LinkWidthActive
	Speed    uint8 // LinkSpeedActive
	SpeedExt uint8 // LinkSpeedExtActive
	CapMask  uint32
}

// Fabric is a snapshot of the subnet. It must not be changed once built.
type Fabric struct {
	Nodes []Node
	Ports []Port

	byGUID map[ib.GUID]int32
}

// AddNode appends n and its ports, all unconnected, and returns its index. It
// fails when the GUID is there already or the type unknown.
func (f *Fabric) AddNode(n Node) (int32, error) {
	if n.Type < CA || n.Type > Router {
		return None, fmt.Errorf("node %v %q: %v", n.GUID, n.Desc, n.Type)
	}
	if f.byGUID == nil {
		f.byGUID = make(map[ib.GUID]int32)
	}
	if i, dup := f.byGUID[n.GUID]; dup {
		return None, fmt.Errorf("node GUID %v is that of %q and of %q", n.GUID, f.Nodes[i].Desc, n.Desc)
	}
	i := int32(len(f.Nodes))
	n.first = int32(len(f.Ports))
	f.byGUID[n.GUID] = i
	f.Nodes = append(f.Nodes, n)
	for p := 0; p <= int(n.NumPorts); p++ {
		f.Ports = append(f.Ports, Port{Node: i, Num: uint8(p), Peer: None})
	}
	return i, nil
}

// Connect makes a link of ports a and b. A port that has a link already, or
// that would be linked to itself, is an error.
func (f *Fabric) Connect(a, b int32) error {
	for _, p := range [2]int32{a, b} {
		if f.Ports[p].Peer != None {
			return fmt.Errorf("port %v has two links: to %v, and between %v and %v",
				f.Name(p), f.Name(f.Ports[p].Peer), f.Name(a), f.Name(b))
		}
	}
	if a == b {
		return fmt.Errorf("port %v is linked to itself", f.Name(a))
	}
	f.Ports[a].Peer, f.Ports[b].Peer = b, a
	return nil
}

// Node returns the index of the node with this GUID, or None.
func (f *Fabric) Node(g ib.GUID) int32 {
	if i, ok := f.byGUID[g]; ok {
		return i
	}
	return None
}

// Port returns the index of port num of a node, or None when it has no such port.
func (f *Fabric) Port(node int32, num uint8) int32 {
	if num > f.Nodes[node].NumPorts {
		return None
	}
	return f.Nodes[node].first + int32(num)
}

// NodePorts returns the ports of a node, indexed by port number from 0.
func (f *Fabric) NodePorts(node int32) []Port {
	n := &f.Nodes[node]
	return f.Ports[n.first : n.first+int32(n.NumPorts)+1]
}

// Name gives a port as "description"[number], for messages.
func (f *Fabric) Name(port int32) string {
	p := &f.Ports[port]
	return fmt.Sprintf("%q[%d]", f.Nodes[p.Node].Desc, p.Num)
}

// EndPort reports whether a port holds LIDs: any port of a CA or router, and
// port 0 of a switch (IBA 3.5.1).
func (f *Fabric) EndPort(port int32) bool {
	p := &f.Ports[port]
	return (f.Nodes[p.Node].Type == Switch) == (p.Num == 0)
}

// Attached returns the switch port that a CA or router port is linked to, or
// None when it is linked to nothing or to another CA.
func (f *Fabric) Attached(port int32) int32 {
	peer := f.Ports[port].Peer
	if peer == None || f.Nodes[f.Ports[peer].Node].Type != Switch {
		return None
	}
	return peer
}
