package fabric

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// portInfo gets or sets PortInfo. Bit 31 of the modifier only says that the
// requester knows extended speeds.
func (n *Node) portInfo(in uint8, mod uint32, set bool, d []byte) mad.Status {
	p := n.addressed(in, mod&0xff)
	if p == nil || mod&^uint32(mad.PortInfoExtendedSpeeds) > 0xff {
		return mad.StatusInvalidField
	}
	v := mad.PortInfo(d)
	if set {
		return p.setInfo(v)
	}
	copy(d, p.info[:])
	v.SetLocalPortNum(in)
	return mad.StatusOK
}

// setInfo takes what is writable of v (IBA 14.2.5.6). What is wrong changes nothing.
func (p *port) setInfo(v mad.PortInfo) mad.Status {
	if status := p.checkInfo(v); status != mad.StatusOK {
		return status
	}
	if p.node.isEndport(p) {
		p.setEndport(v)
	}
	p.setLink(v)
	p.setLimits(v)
	p.setStates(v)
	return mad.StatusOK
}

// checkInfo refuses what a port must not take.
func (p *port) checkInfo(v mad.PortInfo) mad.Status {
	pi := p.pi()
	bad := v.NeighborMTU() > pi.MTUCap() || v.OperationalVLs() > pi.VLCap()
	if p.node.isEndport(p) {
		bad = bad || v.LID() >= ib.LIDMulticastFirst || v.MasterSMLID() >= ib.LIDMulticastFirst ||
			p.node.isSwitch() && v.LMC() != 0 // A base switch port 0 has one LID.
	}
	bad = bad || !legalWidth(v.LinkWidthEnabled(), pi.LinkWidthSupported())
	bad = bad || !p.legalState(v.PortState())
	if ps := v.PortPhysicalState(); ps > mad.PhysDisabled {
		bad = true
	}
	if bad {
		return mad.StatusInvalidField
	}
	return mad.StatusOK
}

// legalWidth accepts nothing to change, all that is supported, or a part of it.
func legalWidth(v, supported uint8) bool { return v == 0 || v == 255 || v&^supported == 0 }

// legalState says which states an SM may set: one step towards active, or down.
func (p *port) legalState(v ib.PortState) bool {
	is := p.pi().PortState()
	switch v {
	case ib.PortNop, ib.PortDown:
		return true
	case ib.PortArmed:
		return is == ib.PortInit || is == ib.PortArmed
	case ib.PortActive:
		return is == ib.PortArmed || is == ib.PortActive
	}
	return false
}

// setEndport sets what belongs to the LID.
func (p *port) setEndport(v mad.PortInfo) {
	pi := p.pi()
	pi.SetMKey(v.MKey())
	pi.SetGIDPrefix(v.GIDPrefix())
	pi.SetLID(v.LID())
	pi.SetMasterSMLID(v.MasterSMLID())
	pi.SetMKeyLeasePeriod(v.MKeyLeasePeriod())
	pi.SetMKeyProtectBits(v.MKeyProtectBits())
	pi.SetLMC(v.LMC())
	pi.SetMasterSMSL(v.MasterSMSL())
	pi.SetClientReregister(v.ClientReregister())
	pi.SetMulticastPKeyTrapSuppressionEnabled(v.MulticastPKeyTrapSuppressionEnabled())
	pi.SetSubnetTimeOut(v.SubnetTimeOut())
	pi.SetInitType(v.InitType())
	if v.MKeyViolations() == 0 {
		pi.SetMKeyViolations(0)
	}
	if v.PKeyViolations() == 0 {
		pi.SetPKeyViolations(0)
	}
	if v.QKeyViolations() == 0 {
		pi.SetQKeyViolations(0)
	}
}

// extendedDisabled as LinkSpeedExtEnabled turns all extended speeds off (IBA 14.2.5.6).
const extendedDisabled = 30

// setLink sets what the next training negotiates.
func (p *port) setLink(v mad.PortInfo) {
	pi := p.pi()
	if w := v.LinkWidthEnabled(); w != 0 {
		pi.SetLinkWidthEnabled(w & pi.LinkWidthSupported())
	}
	if s := v.LinkSpeedEnabled(); s != 0 {
		pi.SetLinkSpeedEnabled(s & pi.LinkSpeedSupported())
	}
	switch s := v.LinkSpeedExtEnabled(); s {
	case 0:
	case extendedDisabled:
		pi.SetLinkSpeedExtEnabled(0)
	default:
		pi.SetLinkSpeedExtEnabled(s & pi.LinkSpeedExtSupported())
	}
}

// setLimits sets what bounds the packets that pass.
func (p *port) setLimits(v mad.PortInfo) {
	pi := p.pi()
	if v.NeighborMTU() != 0 {
		pi.SetNeighborMTU(v.NeighborMTU())
	}
	if v.OperationalVLs() != 0 {
		pi.SetOperationalVLs(v.OperationalVLs())
	}
	if v.LinkDownDefaultState() != 0 {
		pi.SetLinkDownDefaultState(v.LinkDownDefaultState())
	}
	pi.SetVLHighLimit(v.VLHighLimit())
	pi.SetVLStallCount(v.VLStallCount())
	pi.SetHOQLife(v.HOQLife())
	pi.SetPartitionEnforcementInbound(v.PartitionEnforcementInbound())
	pi.SetPartitionEnforcementOutbound(v.PartitionEnforcementOutbound())
	pi.SetFilterRawInbound(v.FilterRawInbound())
	pi.SetFilterRawOutbound(v.FilterRawOutbound())
	pi.SetLocalPhyErrors(v.LocalPhyErrors())
	pi.SetOverrunErrors(v.OverrunErrors())
}

// setStates moves the logical and the physical state.
func (p *port) setStates(v mad.PortInfo) {
	pi := p.pi()
	external := p.num != 0 || !p.node.isSwitch()
	if !external {
		return
	}
	switch v.PortPhysicalState() {
	case mad.PhysDisabled:
		pi.SetPortPhysicalState(mad.PhysDisabled)
		p.train()
	case mad.PhysPolling:
		if pi.PortPhysicalState() == mad.PhysDisabled {
			pi.SetPortPhysicalState(mad.PhysPolling)
			p.train()
		}
	}
	switch v.PortState() {
	case ib.PortDown:
		p.bounce()
	case ib.PortArmed, ib.PortActive:
		if pi.PortState() >= ib.PortInit {
			pi.SetPortState(v.PortState())
		}
	}
}

// checkMKey compares the key of an SMP with that of the port (IBA 14.2.4.1).
// ok says that the request may pass, key that the answer may show the key.
func (n *Node) checkMKey(in uint8, m mad.MAD, set bool) (key, ok bool) {
	p := n.endport(in)
	p.endLease()
	pi := p.pi()
	switch {
	case pi.MKey() == 0 || pi.MKey() == m.MKey():
		p.lease = 0 // IBA 14.2.4.2: whoever has the key lives.
		return true, true
	case !set && pi.MKeyProtectBits() <= 1:
		return pi.MKeyProtectBits() == 0, true
	}
	if period := pi.MKeyLeasePeriod(); p.lease == 0 && period != 0 {
		p.lease = n.f.now().Add(time.Duration(period) * time.Second)
	}
	p.badMKey(m)
	return false, false
}

// endLease ends the protection of a key whose owner let the lease run out: then
// anybody may read it (IBA 14.2.4.2).
func (p *port) endLease() {
	if p.lease != 0 && p.node.f.now() >= p.lease {
		p.lease = 0
		p.pi().SetMKeyProtectBits(0)
	}
}
