package fabric

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// handles reports whether the node answers m itself; SMInfo and all other
// classes are for software.
func (n *Node) handles(m mad.MAD) bool {
	switch {
	case m.IsResponse() || m.Method() == mad.MethodTrap:
		return false
	case m.Class().Subnet():
		return m.Attribute() != mad.AttrSMInfo
	}
	return m.Class() == mad.ClassPerf
}

// answer turns a request into its answer. It reports false when there is none.
func (n *Node) answer(in uint8, m mad.MAD) bool {
	set := m.Method() == mad.MethodSet
	if m.ClassVersion() != 1 {
		m.Respond(mad.StatusBadVersion)
		return true
	}
	if !set && m.Method() != mad.MethodGet {
		m.Respond(mad.StatusUnsupportedMethod)
		return true
	}
	if m.Class() == mad.ClassPerf {
		m.Respond(n.perf(m, set))
		return true
	}
	key, ok := n.checkMKey(in, m, set)
	if !ok {
		return false
	}
	if set {
		n.f.stats.Sets[m.Attribute()]++
	}
	status := n.subnet(in, m, set)
	if set && status == mad.StatusOK {
		status = n.subnet(in, m, false) // An answer to Set tells what is there now.
	}
	if m.Attribute() == mad.AttrPortInfo && !key {
		mad.PortInfo(m.Data()).SetMKey(0)
	}
	m.Respond(status)
	return true
}

// subnet gets or sets an attribute. A Get leaves nothing of the request's data.
func (n *Node) subnet(in uint8, m mad.MAD, set bool) mad.Status {
	d, mod := m.Data(), m.Modifier()
	if !set {
		clear(d)
	}
	switch m.Attribute() {
	case mad.AttrNodeDescription:
		return readOnly(set, d, n.desc[:])
	case mad.AttrNodeInfo:
		return n.nodeInfo(in, set, d)
	case mad.AttrPortInfo:
		return n.portInfo(in, mod, set, d)
	case mad.AttrGUIDInfo:
		return n.guidInfo(in, mod, set, d)
	case mad.AttrPKeyTable:
		return n.pkeyTable(in, mod, set, d)
	case mad.AttrSLtoVL:
		return n.slToVL(in, mod, set, d)
	case mad.AttrVLArbitration:
		return n.vlArbitration(in, mod, set, d)
	case mad.AttrMlnxExtPortInfo:
		return n.mlnxInfo(in, mod, set, d)
	case mad.AttrLedInfo:
		return n.led(in, mod, set, d)
	}
	if n.isSwitch() {
		return n.switchAttribute(m.Attribute(), mod, set, d)
	}
	return mad.StatusUnsupportedAttribute
}

func (n *Node) switchAttribute(a mad.AttributeID, mod uint32, set bool, d []byte) mad.Status {
	switch a {
	case mad.AttrSwitchInfo:
		return n.switchInfo(set, d)
	case mad.AttrLinearFT:
		return n.linear(mod, set, d)
	case mad.AttrMulticastFT:
		return n.multicast(mod, set, d)
	}
	return mad.StatusUnsupportedAttribute
}

func readOnly(set bool, d, b []byte) mad.Status {
	if set {
		return mad.StatusUnsupportedAttribute
	}
	copy(d, b)
	return mad.StatusOK
}

func (n *Node) nodeInfo(in uint8, set bool, d []byte) mad.Status {
	status := readOnly(set, d, n.info[:])
	if !set {
		ni := mad.NodeInfo(d)
		ni.SetLocalPortNum(in)
		ni.SetPortGUID(n.PortGUID(int(in)))
	}
	return status
}

func (n *Node) switchInfo(set bool, d []byte) mad.Status {
	si, v := n.sw.si(), mad.SwitchInfo(d)
	if !set {
		copy(d, si)
		return mad.StatusOK
	}
	if v.LinearFDBTop() >= si.LinearFDBCap() {
		return mad.StatusInvalidField
	}
	si.SetLinearFDBTop(v.LinearFDBTop())
	si.SetDefaultPort(v.DefaultPort())
	si.SetDefaultMulticastPrimaryPort(v.DefaultMulticastPrimaryPort())
	si.SetDefaultMulticastNotPrimaryPort(v.DefaultMulticastNotPrimaryPort())
	si.SetLifeTimeValue(v.LifeTimeValue())
	si.SetMulticastFDBTop(v.MulticastFDBTop())
	if si.OptimizedSLtoVLMappingProgramming() != 0 {
		si.SetOptimizedSLtoVLMappingProgramming(v.OptimizedSLtoVLMappingProgramming())
	}
	if v.PortStateChange() { // Writing 1 clears it (IBA 14.2.5.4).
		si.SetPortStateChange(false)
	}
	return mad.StatusOK
}

func (n *Node) linear(mod uint32, set bool, d []byte) mad.Status {
	if mod >= (uint32(n.sw.si().LinearFDBCap())+63)/64 {
		return mad.StatusInvalidField
	}
	if set {
		n.sw.setBlock(int(mod), d)
	} else {
		copy(d, n.sw.block(int(mod)))
	}
	return mad.StatusOK
}

// multicast is by block of 32 groups, and by position of 16 ports in the high
// four bits of the modifier.
func (n *Node) multicast(mod uint32, set bool, d []byte) mad.Status {
	block, pos := int(mod&0x1ff), mod>>28
	size := int(n.sw.si().MulticastFDBCap())
	if block*32 >= size || int(pos)*16 > n.spec.Ports {
		return mad.StatusInvalidField
	}
	t := &n.sw.mft[pos]
	if set && *t == nil {
		*t = make([]uint16, (size+31)/32*32)
	}
	for i := range 32 {
		switch {
		case set:
			(*t)[block*32+i] = mad.MulticastForwardingTable(d).PortMask(i)
		case *t != nil:
			mad.MulticastForwardingTable(d).SetPortMask(i, (*t)[block*32+i])
		}
	}
	return mad.StatusOK
}

// addressed returns the port that a modifier names; 0 is the one that the SMP
// came in by, at a CA or router.
func (n *Node) addressed(in uint8, num uint32) *port {
	if num == 0 && !n.isSwitch() {
		num = uint32(in)
	}
	return n.port(int(num))
}

func (n *Node) guidInfo(in uint8, mod uint32, set bool, d []byte) mad.Status {
	p := n.endport(in)
	v := mad.GUIDInfo(d)
	if mod >= uint32(p.pi().GUIDCap()+7)/8 {
		return mad.StatusInvalidField
	}
	t := p.own()
	if t.guids == nil {
		t.guids = make([]ib.GUID, p.pi().GUIDCap())
		t.guids[0] = n.PortGUID(int(p.num))
	}
	for i := range 8 {
		k := int(mod)*8 + i
		switch {
		case k >= len(t.guids):
		case !set:
			v.SetGUID(i, t.guids[k])
		case k > 0: // The first is the port's own, and stays.
			t.guids[k] = v.GUID(i)
		}
	}
	return mad.StatusOK
}

// pkeyTable is by block of 32 keys, and by port in the high half of the
// modifier at a switch.
func (n *Node) pkeyTable(in uint8, mod uint32, set bool, d []byte) mad.Status {
	block := int(mod & 0xffff)
	p := n.addressed(in, mod>>16)
	if !n.isSwitch() {
		p = n.addressed(in, 0)
	}
	if p == nil || block*32 >= p.maxPKeys() {
		return mad.StatusInvalidField
	}
	v := mad.PKeyTable(d)
	if set {
		p.setPKeys(block, v)
		return mad.StatusOK
	}
	keys := p.pkeys()
	for i := range 32 {
		if k := block*32 + i; k < len(keys) {
			v.SetPKey(i, keys[k])
		}
	}
	return mad.StatusOK
}

func (p *port) setPKeys(block int, v mad.PKeyTable) {
	t := p.own()
	keys := make([]ib.PKey, max(len(p.pkeys()), (block+1)*32))
	copy(keys, p.pkeys())
	for i := range 32 {
		keys[block*32+i] = v.PKey(i)
	}
	keys = keys[:min(len(keys), p.maxPKeys())]
	for len(keys) > 0 && keys[len(keys)-1] == 0 {
		keys = keys[:len(keys)-1]
	}
	t.pkeys = keys
}

// slToVL is by the ports in and out at a switch. With the programming that
// SwitchInfo enables, bits 16 and 17 say all ports instead (IBA 14.2.5.8).
func (n *Node) slToVL(in uint8, mod uint32, set bool, d []byte) mad.Status {
	if !n.isSwitch() {
		p := n.addressed(in, 0)
		return p.slRow(0, set, d)
	}
	outs := n.portRange(int(mod&0xff), mod&(1<<16) != 0)
	ins := n.portRange(int(mod>>8&0xff), mod&(1<<17) != 0)
	all := mod&(3<<16) != 0
	if outs == nil || ins == nil || all && n.sw.si().OptimizedSLtoVLMappingProgramming() == 0 {
		return mad.StatusInvalidField
	}
	for i := range outs {
		for j := range ins {
			outs[i].slRow(int(ins[j].num), set, d)
		}
	}
	return mad.StatusOK
}

// portRange returns one port of a switch, or all; nil when there is none.
func (n *Node) portRange(num int, all bool) []port {
	switch {
	case all:
		return n.ports
	case num >= len(n.ports):
		return nil
	}
	return n.ports[num : num+1]
}

func (p *port) slRow(in int, set bool, d []byte) mad.Status {
	if set {
		p.setMapping(in, d[:mad.SLtoVLMappingTableSize])
	} else {
		copy(d, p.mapping(uint8(in))[:])
	}
	return mad.StatusOK
}

// vlArbitration is by port in the low half of the modifier, and in the high
// half by table: 1 and 2 the halves of the low one, 3 and 4 of the high one.
func (n *Node) vlArbitration(in uint8, mod uint32, set bool, d []byte) mad.Status {
	p := n.addressed(in, mod&0xff)
	if !n.isSwitch() {
		p = n.addressed(in, 0)
	}
	block := mod >> 16
	if p == nil || block < 1 || block > 4 {
		return mad.StatusInvalidField
	}
	size := int(p.pi().VLArbitrationLowCap())
	if block > 2 {
		size = int(p.pi().VLArbitrationHighCap())
	}
	size = 2 * min(max(size-int(block-1)%2*32, 0), 32)
	t := &p.own().vlarb[block-1]
	if set {
		copy(t[:size], d)
	} else {
		copy(d, t[:size])
	}
	return mad.StatusOK
}

func (n *Node) mlnxInfo(in uint8, mod uint32, set bool, d []byte) mad.Status {
	p := n.addressed(in, mod&0xff)
	if p == nil {
		return mad.StatusInvalidField
	}
	v, own := mad.MlnxExtPortInfo(d), mad.MlnxExtPortInfo(p.own().mlnx[:])
	if set {
		own.SetStateChangeEnable(v.StateChangeEnable())
		own.SetLinkSpeedEnabled(v.LinkSpeedEnabled())
	} else {
		copy(d, own)
	}
	return mad.StatusOK
}

func (n *Node) led(in uint8, mod uint32, set bool, d []byte) mad.Status {
	p := n.addressed(in, mod&0xff)
	if p == nil {
		return mad.StatusInvalidField
	}
	if set {
		p.own().led = mad.LedInfo(d).LedMask()
	} else {
		mad.LedInfo(d).SetLedMask(p.tables != nil && p.tables.led)
	}
	return mad.StatusOK
}
