package fabric

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Node is a switch, a channel adapter or a router.
type Node struct {
	f        *Fabric
	spec     NodeSpec
	info     [mad.NodeInfoSize]byte
	desc     [mad.NodeDescriptionSize]byte
	ports    []port // By number; 0 is a switch's own, and unused in others.
	sw       *switchTables
	down     bool
	trapTID  uint64
	traps    []trap // Not yet repressed.
	attached []*Endpoint
}

// port is one port of a node.
type port struct {
	node     *Node
	num      uint8
	cut      bool       // Its link was taken away.
	lease    clock.Time // When its M_Key is no longer protected; 0 while nobody tries.
	spec     LinkSpec
	peer     *port
	info     [mad.PortInfoSize]byte
	tables   *portTables
	counters *counters
}

func newNode(f *Fabric, s NodeSpec) *Node {
	if s.Description == "" {
		s.Description = s.ID
	}
	setDefault(&s.SystemGUID, s.GUID)
	setDefault(&s.VendorID, f.defaults.VendorID)
	setDefault(&s.DeviceID, f.defaults.DeviceID)
	n := &Node{f: f, spec: s, ports: make([]port, s.Ports+1)}
	mad.NodeDescription(n.desc[:]).SetDescription(s.Description)
	n.initInfo()
	for i := range n.ports {
		n.ports[i].node, n.ports[i].num = n, uint8(i)
	}
	n.reset()
	return n
}

func (n *Node) initInfo() {
	d, ni := &n.f.defaults, mad.NodeInfo(n.info[:])
	ni.SetBaseVersion(1)
	ni.SetClassVersion(1)
	ni.SetNodeType(n.spec.Type)
	ni.SetNumPorts(uint8(n.spec.Ports))
	ni.SetSystemImageGUID(n.spec.SystemGUID)
	ni.SetNodeGUID(n.spec.GUID)
	ni.SetPartitionCap(uint16(d.PKeys))
	if n.isSwitch() {
		ni.SetPartitionCap(8)
	}
	ni.SetDeviceID(n.spec.DeviceID)
	ni.SetVendorID(n.spec.VendorID)
	ni.SetRevision(0xa1)
}

// reset puts a node into the state that it has after power came on. Its links stay.
func (n *Node) reset() {
	n.traps = nil
	if n.isSwitch() {
		n.sw = newSwitchTables(&n.f.defaults)
	}
	for i := range n.ports {
		p := &n.ports[i]
		p.tables, p.counters, p.lease = nil, nil, 0
		clear(p.info[:])
		if i > 0 || n.isSwitch() {
			n.initPort(p)
		}
	}
}

const (
	capsEndport = mad.CapTrap | mad.CapAutomaticMigration | mad.CapSLMapping | mad.CapSystemImageGUID |
		mad.CapCapabilityMask2 | mad.CapCommunicationManagement | mad.CapCapabilityMaskNotice |
		mad.CapClientReregistration | mad.CapOtherLocalChangesNotice

	downPolling = 2 // LinkDownDefaultState.
)

func (n *Node) initPort(p *port) {
	d, pi := &n.f.defaults, mad.PortInfo(p.info[:])
	pi.SetLinkWidthEnabled(d.Width)
	pi.SetLinkWidthSupported(d.Width)
	pi.SetLinkSpeedEnabled(d.Speed)
	pi.SetLinkSpeedSupported(d.Speed)
	pi.SetLinkSpeedExtEnabled(d.SpeedExt & 0x1f)
	pi.SetLinkSpeedExtSupported(d.SpeedExt & 0x0f)
	pi.SetPortState(ib.PortDown)
	pi.SetPortPhysicalState(mad.PhysPolling)
	pi.SetLinkDownDefaultState(downPolling)
	pi.SetNeighborMTU(d.MTUCap)
	pi.SetMTUCap(d.MTUCap)
	pi.SetVLCap(d.VLCap)
	pi.SetOperationalVLs(d.VLCap)
	pi.SetVLArbitrationHighCap(d.VLArbCap)
	pi.SetVLArbitrationLowCap(d.VLArbCap)
	if n.isEndport(p) {
		pi.SetCapabilityMask(capsEndport | n.f.extendedSpeeds())
		pi.SetGUIDCap(32)
		pi.SetSubnetTimeOut(18)
		pi.SetRespTimeValue(8)
		pi.SetGIDPrefix(defaultPrefix)
	}
	if n.isSwitch() && p.num == 0 {
		pi.SetPortState(ib.PortActive) // A switch's own port has no link that could be down.
		pi.SetPortPhysicalState(mad.PhysLinkUp)
		pi.SetGUIDCap(1)
		pi.SetLinkWidthActive(d.Width)
		pi.SetLinkSpeedActive(d.Speed)
	}
	p.applySpec()
}

// defaultPrefix is the subnet prefix until a subnet manager sets one (IBA 4.1.1).
const defaultPrefix = 0xfe80 << 48

func (f *Fabric) extendedSpeeds() mad.CapabilityMask {
	if f.defaults.SpeedExt != 0 {
		return mad.CapExtendedSpeeds
	}
	return 0
}

func (n *Node) isSwitch() bool { return n.spec.Type == mad.NodeSwitch }

// isEndport reports whether p has a LID: every port of a CA or router, and
// port 0 of a switch.
func (n *Node) isEndport(p *port) bool { return n.isSwitch() == (p.num == 0) }

func (n *Node) description() string { return mad.NodeDescription(n.desc[:]).Description() }

func (n *Node) String() string { return n.spec.ID }

// ID returns the name that the node was added with.
func (n *Node) ID() string { return n.spec.ID }

// Type returns what the node is.
func (n *Node) Type() mad.NodeType { return n.spec.Type }

// GUID returns the node's GUID.
func (n *Node) GUID() ib.GUID { return n.spec.GUID }

// NumPorts returns how many external ports the node has.
func (n *Node) NumPorts() int { return n.spec.Ports }

// PortGUID returns the GUID of a port. All of a switch's have that of the node.
func (n *Node) PortGUID(num int) ib.GUID {
	if n.isSwitch() {
		return n.spec.GUID
	}
	if g := n.spec.PortGUIDs[num]; g != 0 {
		return g
	}
	return n.spec.GUID + ib.GUID(num)
}

// port returns port num, or nil when there is none. A switch's own is 0.
func (n *Node) port(num int) *port {
	if num < 0 || num >= len(n.ports) || num == 0 && !n.isSwitch() {
		return nil
	}
	return &n.ports[num]
}

// endport returns the port whose LID packets to the node at port num go by.
func (n *Node) endport(num uint8) *port {
	if n.isSwitch() {
		return &n.ports[0]
	}
	return &n.ports[num]
}

func (n *Node) checkPort(num int) (*port, error) {
	if num < 1 || num > n.spec.Ports {
		return nil, fmt.Errorf("fabric: node %q has no port %d: want 1 to %d", n.spec.ID, num, n.spec.Ports)
	}
	return &n.ports[num], nil
}

// Peer returns what a port is linked to; nil when nothing is. A link that is
// down still links.
func (n *Node) Peer(num int) (*Node, int) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if p := n.port(num); p != nil && p.peer != nil {
		return p.peer.node, int(p.peer.num)
	}
	return nil, 0
}

// Info returns a copy of a port's PortInfo; nil when there is no such port.
func (n *Node) Info(num int) mad.PortInfo {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if p := n.port(num); p != nil {
		return append(mad.PortInfo(nil), p.info[:]...)
	}
	return nil
}

// LinkSpec is what a port can do, in the masks of PortInfo. 0 keeps what there is.
type LinkSpec struct{ Width, Speed, SpeedExt uint8 }

// SetLinkSpec sets what a port supports and enables. Set it before Link.
func (n *Node) SetLinkSpec(num int, l LinkSpec) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	p, err := n.checkPort(num)
	if err != nil {
		return err
	}
	p.spec = l
	p.applySpec()
	return nil
}

func (p *port) applySpec() {
	pi := p.pi()
	if w := p.spec.Width; w != 0 {
		pi.SetLinkWidthEnabled(w)
		pi.SetLinkWidthSupported(w)
	}
	if s := p.spec.Speed; s != 0 {
		pi.SetLinkSpeedEnabled(s)
		pi.SetLinkSpeedSupported(s)
	}
	if e := p.spec.SpeedExt; e != 0 {
		pi.SetLinkSpeedExtEnabled(e)
		pi.SetLinkSpeedExtSupported(e)
		own := p.node.endport(p.num).pi()
		own.SetCapabilityMask(own.CapabilityMask() | mad.CapExtendedSpeeds)
	}
}

func (p *port) pi() mad.PortInfo { return p.info[:] }

// owns reports whether lid is one of the LIDs of an endport.
func (p *port) owns(lid ib.LID) bool {
	base := p.pi().LID()
	return base != 0 && lid >= base && lid-base < 1<<p.pi().LMC()
}

func (p *port) String() string { return fmt.Sprintf("%q[%d]", p.node.spec.ID, p.num) }
