package fabric

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// maxHops bounds a route by LID, so that one that loops ends.
const maxHops = 64

// carryDirect takes a directed SMP from an endpoint along its path (IBA
// 14.2.2). It may begin with a part that is routed by LID, and end with one.
func (f *Fabric) carryDirect(e *Endpoint, p *mad.Packet) {
	m := p.MAD()
	at, in := e.at.node, e.at.num
	if m.Returning() {
		f.returnDirect(e, p)
		return
	}
	if m.DrSLID() != ib.LIDPermissive {
		dest, via := f.routeLID(e.at, p.Addr.LID, management)
		if dest == nil {
			f.stats.Dropped++
			return
		}
		at, in = dest.node, via
	}
	at, in, ok := f.walk(at, in, m)
	if ok && m.DrDLID() != ib.LIDPermissive {
		var dest *port
		dest, in = f.routeLID(at.endport(in), m.DrDLID(), management)
		if ok = dest != nil; ok {
			at = dest.node
		}
	}
	if !ok {
		f.stats.Dropped++
		return
	}
	m.SetHopPointer(m.HopCount() + 1)
	f.arrive(at, in, p, func(p *mad.Packet) {
		m.SetHopPointer(0)
		p.Addr = mad.Direct
		f.hand(e, p)
	})
}

// walk follows the initial path of m from a node, writes the return path, and
// returns where it ends and the port by which it came there.
func (f *Fabric) walk(at *Node, in uint8, m mad.MAD) (*Node, uint8, bool) {
	back := m.ReturnPath()
	for i, out := range m.Path() {
		// IBA 14.2.2.2: only switches pass directed SMPs on.
		if i > 0 && !at.isSwitch() {
			return nil, 0, false
		}
		p := at.port(int(out))
		if p == nil || out == 0 || !p.carries() {
			return nil, 0, false
		}
		p.countHop(p.peer)
		at, in = p.peer.node, p.peer.num
		back[i] = in
	}
	return at, in, true
}

// returnDirect takes the answer of an endpoint, a subnet manager, back along
// the return path.
func (f *Fabric) returnDirect(e *Endpoint, p *mad.Packet) {
	m := p.MAD()
	at := e.at.node
	back := m.ReturnPath()
	for i := len(back) - 1; i >= 0; i-- {
		out := at.port(int(back[i]))
		if out == nil || back[i] == 0 || !out.carries() {
			f.stats.Dropped++
			return
		}
		out.countHop(out.peer)
		at = out.peer.node
	}
	asked := f.endpoints[uint16(m.TID()>>48)]
	if asked == nil || asked.at.node != at || f.loses(e.at.node, e.at.num, m, true) {
		f.stats.Dropped++
		return
	}
	m.SetHopPointer(0)
	p.Addr = mad.Direct
	f.hand(asked, p)
}

// carryLID takes a packet from an endport to the port with its LID.
func (f *Fabric) carryLID(from *port, p *mad.Packet) {
	m := p.MAD()
	k := kindOf(from, p)
	dest, in := f.routeLID(from, p.Addr.LID, k)
	if dest == nil {
		f.stats.Dropped++
		return
	}
	if !k.subnet && !f.passesPKey(from, dest, k, p) {
		f.stats.Dropped++
		return
	}
	source := from.pi().LID() + ib.LID(p.Addr.PathBits)
	p.Addr.LID, p.Addr.PathBits = source, 0
	p.Addr.QPN = m.Class().QPN()
	if m.IsResponse() {
		if !f.loses(from.node, from.num, m, true) {
			f.giveTo(dest, in, p)
		}
		return
	}
	f.arrive(dest.node, in, p, func(p *mad.Packet) { f.answerLID(dest, source, k, p) })
}

// answerLID takes a node's own answer back to the LID that asked.
func (f *Fabric) answerLID(dest *port, to ib.LID, k kind, p *mad.Packet) {
	back, in := f.routeLID(dest, to, k)
	if back == nil {
		f.stats.Dropped++
		return
	}
	p.Addr = mad.Addr{LID: dest.pi().LID(), QPN: p.MAD().Class().QPN(), SL: p.Addr.SL}
	f.giveTo(back, in, p)
}

// giveTo hands a packet to the endpoint at its destination.
func (f *Fabric) giveTo(dest *port, in uint8, p *mad.Packet) {
	m := p.MAD()
	if m.Method() == mad.MethodTrapRepress {
		dest.node.repressed(in, m)
		return
	}
	e := f.receiver(dest, m)
	if e == nil || dest.node.down {
		f.stats.Dropped++
		return
	}
	f.hand(e, p)
}

// arrive lets a node answer a request, or gives it to the SM there. back takes
// the answer.
func (f *Fabric) arrive(n *Node, in uint8, p *mad.Packet, back func(*mad.Packet)) {
	m := p.MAD()
	if n.down || f.loses(n, in, m, false) {
		return
	}
	if !n.handles(m) {
		f.giveTo(n.endport(in), in, p)
		return
	}
	if !n.answer(in, m) || f.loses(n, in, m, true) {
		return
	}
	f.stats.Answered++
	back(p)
}

// kind is what switches look at in a packet that is routed by LID.
type kind struct {
	subnet bool // VL15: no lanes, no partitions.
	sl     uint8
	key    ib.PKey
	source *port
}

var management = kind{subnet: true}

// kindOf returns the kind of a packet that an endport sends.
func kindOf(from *port, p *mad.Packet) kind {
	if p.MAD().Class().Subnet() {
		return management
	}
	k := kind{sl: p.Addr.SL, source: from}
	if keys := from.pkeys(); int(p.Addr.PKeyIndex) < len(keys) {
		k.key = keys[p.Addr.PKeyIndex]
	}
	return k
}

// routeLID follows the forwarding tables from an endport to a LID, and returns
// the port that owns it and the one that the packet came in by; nil when it
// does not get there.
func (f *Fabric) routeLID(from *port, lid ib.LID, k kind) (*port, uint8) {
	if !lid.Unicast() {
		return nil, 0
	}
	n, in := from.node, from.num
	if !n.isSwitch() {
		if from.owns(lid) {
			return from, in
		}
		if !from.cross(k.subnet) {
			return nil, 0
		}
		n, in = from.peer.node, from.peer.num
	}
	for range maxHops {
		if !n.isSwitch() {
			if p := &n.ports[in]; p.owns(lid) {
				return p, in
			}
			return nil, 0
		}
		out := n.sw.forward(lid)
		if out == 0 {
			if n.ports[0].owns(lid) {
				return &n.ports[0], in
			}
			return nil, 0
		}
		p := n.port(int(out))
		if p == nil || !p.allows(in, k) || !p.cross(k.subnet) {
			n.port(int(in)).count(portRcvSwitchRelayErrors, 1)
			return nil, 0
		}
		n, in = p.peer.node, p.peer.num
	}
	return nil, 0
}

// cross takes a packet over p's link. Packets of subnet management pass unless
// the link is down; others leave an active port, and activate an armed one
// that they come in by (IBA 7.2.7).
func (p *port) cross(subnet bool) bool {
	if !p.carries() {
		p.count(portXmitDiscards, 1)
		return false
	}
	if !subnet {
		if p.pi().PortState() != ib.PortActive || p.peer.pi().PortState() < ib.PortArmed {
			p.count(portXmitDiscards, 1)
			return false
		}
		p.peer.pi().SetPortState(ib.PortActive)
	}
	p.countHop(p.peer)
	return true
}

// allows reports whether a packet that came to the switch by port in may leave
// by p: its SL maps to a lane that there is (IBA 7.6.6), and both ports are in
// its partition, if they care (IBA 10.9.8).
func (p *port) allows(in uint8, k kind) bool {
	if k.subnet {
		return true
	}
	if p.lane(in, k.sl) >= lanes(p.pi().OperationalVLs()) {
		return false
	}
	q := p.node.port(int(in))
	switch {
	case q.num != 0 && q.pi().PartitionEnforcementInbound() && !q.member(k.key):
		q.count(portRcvConstraintErrors, 1)
		q.badPKeySwitch(k)
		return false
	case p.pi().PartitionEnforcementOutbound() && !p.member(k.key):
		p.count(portXmitConstraintErrors, 1)
		p.badPKeySwitch(k)
		return false
	}
	return true
}

// member reports whether packets with a key pass the P_Key table of p.
func (p *port) member(key ib.PKey) bool {
	for _, k := range p.pkeys() {
		if key.Matches(k) {
			return true
		}
	}
	return false
}

// lanes returns how many data lanes an encoding of VLCap or OperationalVLs is.
func lanes(v uint8) uint8 {
	switch {
	case v >= 1 && v <= 4:
		return 1 << (v - 1)
	case v == 5:
		return 15
	}
	return 1
}

// passesPKey checks the P_Key of a packet at its destination (IBA 10.9.3).
func (f *Fabric) passesPKey(from, dest *port, kd kind, p *mad.Packet) bool {
	for i, k := range dest.pkeys() {
		if kd.key.Matches(k) {
			p.Addr.PKeyIndex = uint16(i)
			return true
		}
	}
	dest.badPKey(from, kd.key, kd.sl)
	return false
}
