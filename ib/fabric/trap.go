package fabric

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// trap is a notice that its SM has not repressed.
type trap struct {
	from *port
	tid  uint64
	data [mad.SMPDataSize]byte
}

// maxTraps bounds what a node remembers to send again.
const maxTraps = 64

// RaiseTrap sends trap 129, 130 or 131 about a port: link integrity, buffer
// overrun, flow control.
func (n *Node) RaiseTrap(num int, number mad.TrapNumber) error {
	if number < mad.TrapLinkIntegrity || number > mad.TrapFlowControl {
		return fmt.Errorf("fabric: trap %d about a port: want 129, 130 or 131", number)
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	p, err := n.checkPort(num)
	if err != nil {
		return err
	}
	from := n.endport(p.num)
	notice := newNotice(n, from, mad.NoticeUrgent, number)
	d := mad.DetailsPort(notice.Details())
	d.SetLID(from.pi().LID())
	d.SetPortNumber(p.num)
	from.sendTrap(notice)
	return nil
}

// SetDescription changes the node's description, and sends trap 144 about it.
func (n *Node) SetDescription(s string) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	mad.NodeDescription(n.desc[:]).SetDescription(s)
	for i := range n.ports {
		if p := &n.ports[i]; n.isEndport(p) && (i > 0 || n.isSwitch()) {
			p.trapCapability(changeDescription)
		}
	}
}

// SetSystemGUID changes the node's system image GUID, and sends trap 145 about it.
func (n *Node) SetSystemGUID(g ib.GUID) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	mad.NodeInfo(n.info[:]).SetSystemImageGUID(g)
	for i := range n.ports {
		p := &n.ports[i]
		if !n.isEndport(p) {
			continue
		}
		notice := newNotice(n, p, mad.NoticeInformational, mad.TrapSystemImageGUID)
		d := mad.DetailsSystemImageGUID(notice.Details())
		d.SetLID(p.pi().LID())
		d.SetSystemImageGUID(g)
		p.sendTrap(notice)
	}
}

// Enable changes what a port of a CA or router may negotiate, as somebody at the
// node does; the next training follows it. Trap 144 tells of it.
func (n *Node) Enable(num int, l LinkSpec) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	p, err := n.checkPort(num)
	switch {
	case err != nil:
		return err
	case !n.isEndport(p):
		return fmt.Errorf("fabric: port %v has no LID of its own, and tells nobody", p)
	}
	pi := p.pi()
	width, speed, ext := pi.LinkWidthEnabled(), pi.LinkSpeedEnabled(), pi.LinkSpeedExtEnabled()
	v := make(mad.PortInfo, mad.PortInfoSize)
	v.SetLinkWidthEnabled(l.Width)
	v.SetLinkSpeedEnabled(l.Speed)
	v.SetLinkSpeedExtEnabled(l.SpeedExt)
	p.setLink(v)
	var local change
	if pi.LinkWidthEnabled() != width {
		local |= changeWidth
	}
	if pi.LinkSpeedEnabled() != speed || pi.LinkSpeedExtEnabled() != ext {
		local |= changeSpeed
	}
	if local != 0 {
		p.trapCapability(local)
	}
	return nil
}

// ResendTraps sends again what was not repressed, as hardware does until an SM
// answers.
func (f *Fabric) ResendTraps() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		for i := 0; i < len(n.traps); i++ {
			t := n.traps[i]
			f.launchTrap(&t)
		}
	}
}

func newNotice(n *Node, from *port, typ mad.NoticeType, number mad.TrapNumber) mad.Notice {
	v := make(mad.Notice, mad.NoticeSize)
	v.SetIsGeneric(true)
	v.SetType(typ)
	v.SetProducer(uint32(n.spec.Type))
	v.SetTrapNumber(number)
	v.SetIssuerLID(from.pi().LID())
	return v
}

func (n *Node) trapLinkState() {
	from := &n.ports[0]
	notice := newNotice(n, from, mad.NoticeUrgent, mad.TrapLinkState)
	mad.DetailsLink(notice.Details()).SetLID(from.pi().LID())
	from.sendTrap(notice)
}

// change is a set of the local changes that trap 144 tells of.
type change uint8

const (
	changeDescription change = 1 << iota
	changeWidth
	changeSpeed
)

// trapCapability sends trap 144: the capability mask changed, or something local.
func (p *port) trapCapability(local change) {
	notice := newNotice(p.node, p, mad.NoticeInformational, mad.TrapCapabilityMask)
	d := mad.DetailsCapability(notice.Details())
	d.SetLID(p.pi().LID())
	d.SetCapabilityMask(uint32(p.pi().CapabilityMask()))
	d.SetCapabilityMask2(p.pi().CapabilityMask2())
	d.SetOtherLocalChanges(local != 0)
	d.SetNodeDescriptionChange(local&changeDescription != 0)
	d.SetLinkWidthEnabledChange(local&changeWidth != 0)
	d.SetLinkSpeedEnabledChange(local&changeSpeed != 0)
	p.sendTrap(notice)
}

// badMKey counts a wrong M_Key and sends trap 256.
func (p *port) badMKey(m mad.MAD) {
	if v := p.pi().MKeyViolations(); v < 0xffff {
		p.pi().SetMKeyViolations(v + 1)
	}
	p.node.f.stats.Dropped++
	notice := newNotice(p.node, p, mad.NoticeSecurity, mad.TrapBadMKey)
	d := mad.DetailsMKey(notice.Details())
	d.SetLID(p.pi().LID())
	d.SetMethod(uint8(m.Method()))
	d.SetAttributeID(uint16(m.Attribute()))
	d.SetAttributeModifier(m.Modifier())
	d.SetMKey(m.MKey())
	if m.Class() == mad.ClassSubnDirect {
		d.SetDRSLID(m.DrSLID())
		d.SetDRNotice(true)
		d.SetDRPathTruncated(m.HopCount() > len(d.ReturnPath()))
		d.SetDRHopCount(uint8(min(m.HopCount(), len(d.ReturnPath()))))
		copy(d.ReturnPath(), m.ReturnPath())
	}
	p.sendTrap(notice)
}

// badPKey counts a packet of a partition that p is not in, and sends trap 257.
func (p *port) badPKey(from *port, key ib.PKey, sl uint8) {
	if v := p.pi().PKeyViolations(); v < 0xffff {
		p.pi().SetPKeyViolations(v + 1)
	}
	notice := newNotice(p.node, p, mad.NoticeSecurity, mad.TrapBadPKey)
	d := mad.DetailsKey(notice.Details())
	d.SetLID1(from.pi().LID())
	d.SetLID2(p.pi().LID())
	d.SetKey(uint32(key))
	d.SetSL(sl)
	d.SetQP1(ib.QPNGeneralServices)
	d.SetQP2(ib.QPNGeneralServices)
	p.sendTrap(notice)
}

// badPKeySwitch sends trap 259: a packet of a foreign partition came to a
// switch's port, or was about to leave by it.
func (p *port) badPKeySwitch(k kind) {
	own := &p.node.ports[0]
	notice := newNotice(p.node, own, mad.NoticeSecurity, mad.TrapBadPKeySwitch)
	d := mad.DetailsSwitchPKey(notice.Details())
	d.SetDataValid(validFields)
	d.SetLID1(k.source.pi().LID())
	d.SetPKey(k.key)
	d.SetSL(k.sl)
	d.SetQP1(ib.QPNGeneralServices)
	d.SetQP2(ib.QPNGeneralServices)
	d.SetSwitchLID(own.pi().LID())
	d.SetPortNumber(p.num)
	own.sendTrap(notice)
}

// validFields has a bit for each field of trap 259 that is filled, in their
// order: LID1, PKey, SL, QP1, QP2, SwitchLID and PortNumber.
const validFields = 1<<0 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9

// sendTrap sends a notice to the SM that owns the port, if one does (IBA
// 13.4.9), and remembers it until that answers.
func (p *port) sendTrap(v mad.Notice) {
	n := p.node
	if p.pi().LID() == 0 || p.pi().MasterSMLID() == 0 || n.down {
		return
	}
	n.trapTID++
	t := trap{from: p, tid: n.trapTID}
	copy(t.data[:], v)
	if len(n.traps) < maxTraps {
		n.traps = append(n.traps, t)
	}
	n.f.launchTrap(&t)
}

func (f *Fabric) launchTrap(t *trap) {
	pi := t.from.pi()
	dest, in := f.routeLID(t.from, pi.MasterSMLID(), management)
	if dest == nil {
		f.stats.Dropped++
		return
	}
	var p mad.Packet
	p.Addr = mad.Addr{LID: pi.LID(), SL: pi.MasterSMSL()}
	m := p.MAD()
	m.Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
	m.SetTID(t.tid)
	copy(m.Data(), t.data[:])
	if f.loses(t.from.node, t.from.num, m, true) {
		return
	}
	f.giveTo(dest, in, &p)
}

// repressed forgets the trap that m answers, if m has the key: TrapRepress is
// checked like a Set (IBA 14.2.4.1).
func (n *Node) repressed(in uint8, m mad.MAD) {
	if _, ok := n.checkMKey(in, m, true); !ok {
		return
	}
	for i := range n.traps {
		if n.traps[i].tid == m.TID() {
			n.traps = append(n.traps[:i], n.traps[i+1:]...)
			return
		}
	}
}
