package sm

import (
	"bytes"

	"github.com/urxe/urxe/ib/mad"
)

// allPorts, in the modifier of SLtoVL, addresses every input and every output
// port of a switch that can take it (IBA 14.2.5.8).
const allPorts = 3 << 16

// setLanes tells a switch which SL goes over which VL: the identity as far as
// the link has VLs.
func (m *Manager) setLanes(n *node) {
	lanes := uint8(m.routing.Lanes)
	uniform := n.sw.OptimizedSLtoVLMappingProgramming() != 0
	if uniform && n.ports[0].lanes != lanes {
		m.set(n, mad.AttrSLtoVL, allPorts, sl2vl(lanes), &n.ports[0], (*Manager).didLanes)
	}
	for i := 1; i < len(n.ports); i++ {
		out := &n.ports[i]
		if out.peer == nil || out.info == nil || out.lanes == lanes {
			continue
		}
		m.setArbitration(out)
		if vls := vlCount(m.linkVLs(out)); !uniform || vls < lanes {
			m.setOutput(out, min(vls, lanes))
		}
	}
}

// setOutput sets the mapping for packets that leave by a port, by each port
// that they may come in by; 0 is the switch's own.
func (m *Manager) setOutput(out *port, vls uint8) {
	for i := range out.n.ports {
		if in := &out.n.ports[i]; i != int(out.num) && (i == 0 || in.peer != nil) {
			m.set(out.n, mad.AttrSLtoVL, uint32(i)<<8|uint32(out.num), sl2vl(vls), out, (*Manager).didLanes)
		}
	}
}

// setPortLanes does the same for a CA's port, which has one table.
func (m *Manager) setPortLanes(p *port) {
	lanes := uint8(m.routing.Lanes)
	if p.lanes == lanes || p.caps()&mad.CapSLMapping == 0 {
		return
	}
	m.set(p.n, mad.AttrSLtoVL, 0, sl2vl(min(lanes, vlCount(m.linkVLs(p)))), p, (*Manager).didLanes)
	m.setArbitration(p)
}

func (m *Manager) didLanes(r *request, a mad.MAD) {
	switch {
	case a == nil:
		m.problem("the lanes of " + r.port.name() + " are not set")
	case !bytes.Equal(a.Data()[:8], r.data):
		m.errorf("6022", "configure", "%s does not take its lanes", r.port.name())
		m.problem("the lanes of " + r.port.name() + " are not set")
	default:
		r.port.lanes = uint8(m.routing.Lanes)
	}
}

// sl2vl maps SL n to VL n, over again when there are fewer VLs. SL 15 does not
// exist on data VLs, and goes where the last of them goes.
func sl2vl(vls uint8) []byte {
	t := make(mad.SLtoVLMappingTable, 8)
	for sl := range 16 {
		t.SetVL(sl, uint8(sl)%max(1, vls))
	}
	return t
}

// vlWeight is what a VL may send before the next one's turn, in units of 64
// bytes (IBA 7.6.9): a packet of the largest size.
const vlWeight = 64

// setArbitration gives all VLs of a port in use the same share.
func (m *Manager) setArbitration(p *port) {
	lanes := min(uint8(m.routing.Lanes), vlCount(m.linkVLs(p)))
	if lanes < 2 {
		return
	}
	low := make(mad.VLArbitrationTable, mad.SMPDataSize)
	for i := range min(int(lanes), int(p.info.VLArbitrationLowCap()), 32) {
		low.SetEntry(i, uint16(i)<<8|vlWeight)
	}
	if p.info.VLArbitrationLowCap() >= lanes {
		m.set(p.n, mad.AttrVLArbitration, 1<<16|uint32(p.num), low, p, (*Manager).ignore)
	}
	if p.info.VLArbitrationHighCap() > 0 {
		high := make(mad.VLArbitrationTable, mad.SMPDataSize) // weights of 0: nothing is high priority
		m.set(p.n, mad.AttrVLArbitration, 3<<16|uint32(p.num), high, p, (*Manager).ignore)
	}
}

func (m *Manager) ignore(*request, mad.MAD) {}
