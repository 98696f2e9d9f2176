package fabric

import (
	"fmt"

	"github.com/urxe/urxe/ib/mad"
)

// Endpoint is software at a port of the fabric: it sends MADs, and gets the
// answers and, as an SM, what is meant for one.
type Endpoint struct {
	f       *Fabric
	id      uint16 // In the high bits of the TIDs of its requests.
	at      *port
	sm      bool
	gone    bool
	deliver func(*mad.Packet)
}

// Attach puts an endpoint at a port: of a CA or router by number, at a switch's
// own, 0. deliver gets what arrives; it is called while the fabric is locked,
// must not call it, and must not keep the packet.
func (f *Fabric) Attach(n *Node, num int, deliver func(*mad.Packet)) (*Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := n.port(num)
	if p == nil || !n.isEndport(p) {
		return nil, fmt.Errorf("fabric: node %q: port %d has no LID of its own; attach to port 0 of a switch, or to 1 to %d of others",
			n.spec.ID, num, n.spec.Ports)
	}
	if len(f.endpoints) >= 1<<15 {
		return nil, fmt.Errorf("fabric: %d endpoints are attached already", len(f.endpoints))
	}
	e := &Endpoint{f: f, at: p, deliver: deliver}
	for e.id == 0 || f.endpoints[e.id] != nil {
		f.lastID++
		e.id = f.lastID
	}
	f.endpoints[e.id] = e
	n.attached = append(n.attached, e)
	return e, nil
}

// Detach takes the endpoint away; it gets nothing more.
func (e *Endpoint) Detach() {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.gone {
		return
	}
	e.setSM(false)
	e.gone = true
	delete(e.f.endpoints, e.id)
	n := e.at.node
	for i, x := range n.attached {
		if x == e {
			n.attached = append(n.attached[:i], n.attached[i+1:]...)
			break
		}
	}
	e.f.sendChanges()
}

// SetSM makes the endpoint the subnet manager of its port, or no longer.
func (e *Endpoint) SetSM(on bool) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if x := e.at.smHere(); on && x != nil && x != e {
		return fmt.Errorf("fabric: port %v has a subnet manager already", e.at)
	}
	e.setSM(on)
	return nil
}

func (e *Endpoint) setSM(on bool) {
	if e.sm == on {
		return
	}
	e.sm = on
	e.at.markSM()
	e.at.trapCapability(0)
}

// markSM sets the IsSM bit of a port to what is there.
func (p *port) markSM() {
	mask := p.pi().CapabilityMask() &^ mad.CapIsSM
	if p.smHere() != nil {
		mask |= mad.CapIsSM
	}
	p.pi().SetCapabilityMask(mask)
}

func (n *Node) markSM() {
	for _, e := range n.attached {
		e.at.markSM()
	}
}

// smHere returns the endpoint at p that is a subnet manager.
func (p *port) smHere() *Endpoint {
	for _, e := range p.node.attached {
		if e.sm && e.at == p {
			return e
		}
	}
	return nil
}

// Local describes the endpoint's port.
func (e *Endpoint) Local() mad.Local {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	n := e.at.node
	l := mad.LocalOf(n.info[:], e.at.info[:])
	l.Device, l.Port, l.GUID = n.spec.ID, int(e.at.num), n.PortGUID(int(e.at.num))
	for _, k := range e.at.pkeys() {
		if k != 0 {
			l.PKeys = append(l.PKeys, k)
		}
	}
	return l
}

// Inject sends a packet. Whatever follows from it has happened when it
// returns: its answer was delivered, or it is lost for good.
func (e *Endpoint) Inject(p *mad.Packet) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.gone {
		return mad.ErrClosed
	}
	e.f.stats.Injected++
	if e.at.node.down {
		e.f.stats.Dropped++
		return nil
	}
	pkt := &e.f.scratch
	*pkt = *p
	pkt.Err, pkt.Timeout = nil, 0
	m := pkt.MAD()
	if !m.IsResponse() {
		m.SetTID(uint64(e.id)<<48 | m.TID()&(1<<48-1))
	}
	if m.Class() == mad.ClassSubnDirect {
		e.f.carryDirect(e, pkt)
	} else {
		e.f.carryLID(e.at, pkt)
	}
	e.f.sendChanges()
	return nil
}

// hand gives an endpoint a packet from the port with LID from.
func (f *Fabric) hand(e *Endpoint, p *mad.Packet) {
	f.stats.Delivered++
	e.deliver(p)
}

// receiver finds who at port p gets a packet that the node doesn't answer
// itself: an answer goes to who asked, the rest to the SM.
func (f *Fabric) receiver(p *port, m mad.MAD) *Endpoint {
	if m.IsResponse() && m.Method() != mad.MethodTrapRepress {
		if e := f.endpoints[uint16(m.TID()>>48)]; e != nil && e.at == p {
			return e
		}
	}
	return p.smHere()
}
