package rocev2

import (
	"fmt"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// ends are the addresses at the two ends of a path.
type ends struct {
	sgid, dgid ib.GID
	vlan       uint16 // id of the VLAN that sgid is of, and the path is in; 0: none
}

// hop is what is known of the way between two ends.
type hop struct {
	flow  wire.Flow
	vlan  uint16 // that packets are in: that of the ends, but for an address of the Port that is in another one
	known bool   // the next hop is
	err   error  // why there is no way
}

// path is how a QP's packets reach its peer.
type path struct {
	set  bool // the QP has an address vector
	ends ends
	hop  hop
}

// checkAttr says what of a the Port can't do, and returns the address vector
// with its defaults filled in.
func (p *Port) checkAttr(a *qp.Attr, mask qp.AttrMask) (qp.AV, error) {
	if active := p.ActiveMTU(); mask&qp.AttrPathMTU != 0 && a.PathMTU.Valid() && a.PathMTU > active {
		return a.AV, fmt.Errorf("path MTU %v is above the active MTU %v: the interface's MTU is %d bytes, and a path MTU of %v needs %d",
			a.PathMTU, active, p.net.MTU(), a.PathMTU, a.PathMTU.Bytes()+ib.RoCEOverhead)
	}
	av := a.AV
	if mask&qp.AttrAV == 0 {
		return av, nil
	}
	if av.HopLimit == 0 {
		av.HopLimit = ib.DefaultHopLimit
	}
	if av.DGID.IsMulticast() {
		return av, fmt.Errorf("DGID %v is a multicast group: a connection is with one peer", av.DGID)
	}
	return av, p.checkAV(&av)
}

func (p *Port) checkAV(av *qp.AV) error {
	gids := p.net.GIDs()
	switch {
	case int(av.SGIDIndex) >= len(gids) || gids[av.SGIDIndex].IsZero():
		return fmt.Errorf("SGID index %d has no GID (the port's: %v)", av.SGIDIndex, ib.GIDTable(gids))
	case av.DGID.IsZero():
		return fmt.Errorf("the address vector has no DGID: RoCE needs one (is_global)")
	case av.DGID.Is4() != gids[av.SGIDIndex].Is4():
		return fmt.Errorf("DGID %v and source GID %v (index %d) are not of one IP version: choose another SGID index (the port's: %v)",
			av.DGID, gids[av.SGIDIndex], av.SGIDIndex, ib.GIDTable(gids))
	case av.FlowLabel > 0xfffff:
		return fmt.Errorf("flow label 0x%x: it has 20 bits", av.FlowLabel)
	case av.SL > 15:
		return fmt.Errorf("service level %d: 0 to 15", av.SL)
	case av.Port > 1:
		return fmt.Errorf("port %d in the address vector: the device has port 1 only", av.Port)
	}
	return nil
}

// endsOf returns the ends that an address vector names, after checkAV.
func (p *Port) endsOf(av *qp.AV) ends {
	k := ends{dgid: av.DGID}
	if gids := p.net.GIDs(); int(av.SGIDIndex) < len(gids) {
		k.sgid, k.vlan = gids[av.SGIDIndex], vlanOf(p.net.VLANs(), int(av.SGIDIndex))
	}
	return k
}

// resolve finds the way between two ends. It may ask the kernel, and so is not to
// be called under a worker's token. Between the Port's own addresses there is
// no next hop to be known.
func (p *Port) resolve(k ends) (h hop) {
	if vlan, local := p.loops(k); local {
		return hop{vlan: vlan, known: true}
	}
	h.vlan = k.vlan
	h.flow, h.known, h.err = p.net.Resolve(k.sgid, k.vlan, k.dgid)
	h.known = h.known && h.err == nil
	return h
}

// usePath makes the headers of q's packets to the other end of k. Without a
// known next hop they serve only to recognise packets of the peer.
func (q *QP) usePath(k ends, h hop) {
	q.path = path{set: true, ends: k, hop: h}
	a := q.core.Query()
	flow := flowOf(&a.AV, k, &h)
	flow.TClass = q.worker.port.ecn(flow.TClass)
	flow.SrcPort = wire.SourcePort(flow.FlowLabel, q.number, a.DestQPN)
	flow.RxeFlush = a.AV.RxeFlush
	q.rxePeer.Store(a.AV.RxeFlush)
	q.template.Set(&flow)
	q.takeSide()
	if h.known {
		q.core.SetPath(&q.template)
	} else {
		q.core.SetPath(nil)
		q.worker.port.parked.Store(true)
	}
	q.worker.activate(q)
}

// flowOf is the flow of an address vector by a way between its ends. Datagrams
// are not capable of ECN: nothing controls their rate.
func flowOf(av *qp.AV, k ends, h *hop) wire.Flow {
	flow := h.flow
	flow.Src, flow.Dst = k.sgid, k.dgid
	flow.TClass, flow.FlowLabel, flow.HopLimit = av.TClass&^ecnMask, av.FlowLabel, av.HopLimit
	flow.VLAN = tagOf(h.vlan, av.SL)
	return flow
}

// tagOf returns the tag control information of frames in a VLAN, whose priority
// is the service level (Annex A16.4, and as hardware does); 0 for no VLAN.
func tagOf(vlan uint16, sl uint8) uint16 {
	if vlan == 0 {
		return 0
	}
	return uint16(sl&7)<<13 | vlan
}

// takeSide sends q's packets to the loop if its peer is on this Port.
func (q *QP) takeSide() {
	side := sideWire
	if _, local := q.worker.port.loops(q.path.ends); local {
		side = sideLoop
		q.template.AnsweredInAnyVLAN() // by the loop come packets in that of the address that they are to
	}
	if side != q.side {
		q.worker.deactivate(q)
		q.side = side
	}
}

func (q *QP) forgetPath() {
	q.path = path{}
	q.template = wire.Template{}
	q.core.SetPath(nil)
}

// followPath takes in what is known of q's path now. A next hop that is no
// longer confirmed stays in use: it may well be there.
func (q *QP) followPath(h hop) {
	switch {
	case h.differs(&q.path.hop):
		q.usePath(q.path.ends, h)
	case !q.path.hop.known:
		q.worker.port.parked.Store(true)
	}
}

// differs reports whether h is to take the place of old.
func (h *hop) differs(old *hop) bool {
	if h.err != nil { // the address is gone, or there is no route
		return old.known
	}
	return h.known && (!old.known || h.flow.SrcMAC != old.flow.SrcMAC || h.flow.DstMAC != old.flow.DstMAC || h.vlan != old.vlan)
}

// owns reports whether g is one of the Port's addresses, and whether it is one
// in a VLAN, or, with 0, outside of all.
func (p *Port) owns(g ib.GID, vlan uint16) (owned, there bool) {
	if g.IsZero() {
		return false, false
	}
	gids := p.net.GIDs()
	vlans := p.net.VLANs()
	for i := range gids {
		if gids[i] == g {
			owned = true
			if vlanOf(vlans, i) == vlan {
				return true, true
			}
		}
	}
	return owned, false
}

// loops reports whether both ends of k are the Port's own, so that packets go by the
// loop, and what VLAN they are in then: that of the other end, which may be another
// one, as a host's own addresses are within its reach whatever they are of.
func (p *Port) loops(k ends) (vlan uint16, local bool) {
	_, here := p.owns(k.sgid, k.vlan)
	owned, there := p.owns(k.dgid, k.vlan)
	if !here || !owned || there {
		return k.vlan, here && there
	}
	gids := p.net.GIDs()
	i := slices.Index(gids, k.dgid)
	if i < 0 { // it has just gone
		return k.vlan, false
	}
	return vlanOf(p.net.VLANs(), i), true
}

// vlanOf returns the VLAN id at an index of Net.VLANs.
func vlanOf(vlans []uint16, i int) uint16 {
	if i < len(vlans) {
		return vlans[i]
	}
	return 0
}

// refresh lets all paths follow changes of the network. The way between two ends is
// looked up once, outside the workers' tokens.
func (p *Port) refresh() {
	p.parked.Store(false)
	hops := make(map[ends]hop)
	for _, w := range p.workers {
		w.token.Lock()
		for q := range w.qps {
			if q.path.set {
				hops[q.path.ends] = hop{}
			}
		}
		w.token.Unlock()
	}
	p.endsOfAHs(hops)
	for k := range hops {
		hops[k] = p.resolve(k)
	}
	p.followAHs(hops)
	for _, w := range p.workers {
		w.control(func() {
			for q := range w.qps {
				q.followNetwork(hops)
			}
			w.longest = w.port.longestFrame()
		})
	}
	p.endIfGone()
}

// longestFrame returns the bytes of the longest frame that the interface's MTU
// has room for, with a tag.
func (p *Port) longestFrame() int { return p.net.MTU() + wire.EthernetLen + wire.VLANLen }

// followNetwork takes in what refresh has found.
func (q *QP) followNetwork(hops map[ends]hop) {
	if q.datagram {
		q.core.SetMTU(q.worker.port.ActiveMTU())
		q.core.PathsChanged()
		q.worker.activate(q)
		return
	}
	if h, ok := hops[q.path.ends]; ok && q.path.set {
		q.followPath(h)
	}
}
