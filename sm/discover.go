package sm

import (
	"bytes"
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// discoverAll starts a heavy sweep: every node is found anew. What is known of
// their tables is kept for nodes that are found again.
func (m *Manager) discoverAll(now clock.Time) {
	m.adopt()
	m.phase, m.heavy = discovering, true
	m.begun = now
	m.found = 0
	m.dirty, m.probes, m.problems = nil, nil, nil
	for _, n := range m.nodes {
		n.gone, n.asked, n.silent = true, false, ""
		for i := range n.ports {
			n.ports[i].peer, n.ports[i].probing, n.ports[i].dead = nil, false, false
		}
	}
	m.verbosef("sweep", "heavy sweep")
	m.line.push(&request{attr: mad.AttrNodeInfo, done: (*Manager).gotNode})
}

// refresh reads again the switches that reported a change, and looks again
// behind ports where nobody answered.
func (m *Manager) refresh(now clock.Time) {
	m.phase, m.heavy, m.retried = discovering, false, false
	m.begun = now
	m.problems = nil
	m.refreshDirty()
	for _, p := range m.probes {
		if p.peer == nil && p.up() {
			m.probe(p)
		}
	}
	m.probes = nil
	m.verbosef("sweep", "refresh")
}

func (m *Manager) refreshDirty() {
	for _, n := range m.dirty {
		if !n.gone {
			m.ask(n)
			m.askPorts(n)
		}
	}
	m.dirty = nil
	clear(m.reporters)
}

// askSilent gives nodes that did not answer in an earlier sweep another chance,
// now that the ways to them are the best there are. It reports whether there
// are such.
func (m *Manager) askSilent(reached []*node) (any bool) {
	if m.heavy || m.retried {
		return false
	}
	m.retried = true
	for _, n := range reached {
		if n.silent == "" {
			continue
		}
		any = true
		n.silent = ""
		m.ask(n)
		m.askPorts(n)
	}
	return any
}

// askPorts reads the ports of a CA or router that are known. Those of a switch
// are read as it answers.
func (m *Manager) askPorts(n *node) {
	for i := range n.ports {
		if p := &n.ports[i]; !n.isSwitch() && p.peer != nil {
			m.get(n, mad.AttrPortInfo, uint32(p.num), p, (*Manager).gotPort)
		}
	}
}

// ask reads all of a node but its NodeInfo.
func (m *Manager) ask(n *node) {
	n.asked = true
	m.get(n, mad.AttrNodeDescription, 0, nil, (*Manager).gotDescription)
	if !n.isSwitch() {
		return // its ports are read as they are reached
	}
	m.get(n, mad.AttrSwitchInfo, 0, nil, (*Manager).gotSwitch)
	m.get(n, mad.AttrPortInfo, 0, &n.ports[0], (*Manager).gotPort)
}

// gotNode takes NodeInfo: the end of a link, and maybe a node not met before.
func (m *Manager) gotNode(r *request, a mad.MAD) {
	if r.from != nil {
		r.from.probing = false
	}
	if a == nil {
		m.nobody(r)
		return
	}
	info := mad.NodeInfo(a.Data())
	n := m.nodes[info.NodeGUID()]
	switch {
	case info.NodeGUID() == 0 || info.NodeType() < mad.NodeCA || info.NodeType() > mad.NodeRouter || info.LocalPortNum() > info.NumPorts():
		m.errorf("6004", "discover", "what answers along %v is no node: type %v, GUID %v, port %d of %d",
			r.path, info.NodeType(), info.NodeGUID(), info.LocalPortNum(), info.NumPorts())
		m.nobody(r)
		return
	case n != nil && (n.info.NumPorts() != info.NumPorts() || n.info.NodeType() != info.NodeType()):
		if !n.gone {
			m.clash(n, r.path)
			return
		}
		n = nil
	}
	if n == nil {
		n = newNode(info, r.path)
		n.alias = m.cfg.Names[n.guid()]
		m.nodes[info.NodeGUID()] = n
		n.gone = true
	}
	m.arrive(n, info, r)
}

// arrive records that a link leads to n.
func (m *Manager) arrive(n *node, info mad.NodeInfo, r *request) {
	p := n.port(info.LocalPortNum())
	if !n.isSwitch() {
		p.guid = info.PortGUID()
	} else {
		n.ports[0].guid = info.PortGUID()
	}
	if r.from != nil && !m.connect(r.from, p, r.path) {
		return
	}
	if n.gone {
		n.gone, n.path = false, bytes.Clone(r.path)
		n.order = m.found
		m.found++
		if r.from == nil {
			m.self = p
		}
	}
	if !n.asked {
		m.ask(n)
	}
	if !n.isSwitch() || r.from != nil && !m.heavy {
		m.get(n, mad.AttrPortInfo, uint32(p.num), p, (*Manager).gotPort)
	}
}

// connect makes a link, and reports false when a port has another already. When
// everything is read anew that means two nodes of one GUID; else the cable may
// have moved, and a heavy sweep will tell.
func (m *Manager) connect(a, b *port, path []byte) bool {
	if b.peer == a {
		return true
	}
	if b.peer != nil && b.peer.up() {
		if m.heavy {
			m.clash(b.n, path)
			return false
		}
		m.wantHeavy = true
	}
	a.disconnect()
	b.disconnect()
	a.peer, b.peer = b, a
	a.n.seen, b.n.seen = m.now, m.now
	a.dead, b.dead = false, false
	m.changed = true
	return true
}

func (m *Manager) clash(n *node, path []byte) {
	text := fmt.Sprintf("node GUID 0x%016x is in the subnet twice: %s at %v, and another node at %v", uint64(n.guid()), n.name(), n.path, path)
	m.errorf("6005", "discover", "%s", text)
	m.problem(text)
}

// nobody ends a search that met nothing.
func (m *Manager) nobody(r *request) {
	if r.from == nil {
		m.errorf("6006", "discover", "our own port does not answer")
		return
	}
	r.from.dead = true
	m.errorf("6002", "discover", "nobody answers behind %s, though the link is up", r.from.name())
}

func (m *Manager) gotDescription(r *request, a mad.MAD) {
	if a == nil {
		return
	}
	d := mad.NodeDescription(a.Data()).Description()
	m.changed = m.changed || d != r.n.desc
	r.n.desc = d
}

func (m *Manager) gotSwitch(r *request, a mad.MAD) {
	if a != nil {
		r.n.sw = append(mad.SwitchInfo(nil), a.Data()[:20]...)
	}
}

// gotPort takes PortInfo and follows the link when it is up.
func (m *Manager) gotPort(r *request, a mad.MAD) {
	if a == nil {
		return
	}
	p, n := r.port, r.n
	before := p.info
	p.info = append(mad.PortInfo(nil), a.Data()...)
	p.learnKey()
	m.changed = m.changed || !bytes.Equal(before, p.info)
	if n.isSwitch() && p.num == 0 {
		m.gotPortZero(n, before)
		return
	}
	// Ports at extended speeds tell all only to those who say they know them.
	if !n.isSwitch() && r.mod&mad.PortInfoExtendedSpeeds == 0 && p.caps()&mad.CapExtendedSpeeds != 0 {
		m.get(n, mad.AttrPortInfo, r.mod|mad.PortInfoExtendedSpeeds, p, (*Manager).gotPort)
		return
	}
	m.follow(p, before)
}

// gotPortZero goes on with the other ports of a switch. A switch that has lost
// its LID has been reset: nothing that it was told holds any more.
func (m *Manager) gotPortZero(n *node, before mad.PortInfo) {
	if now := n.ports[0].info; before != nil && before.LID() != 0 && now.LID() != before.LID() {
		n.reset()
	}
	var mod uint32
	if n.ports[0].caps()&mad.CapExtendedSpeeds != 0 {
		mod = mad.PortInfoExtendedSpeeds
	}
	for i := 1; i < len(n.ports); i++ {
		m.get(n, mad.AttrPortInfo, uint32(i)|mod, &n.ports[i], (*Manager).gotPort)
	}
}

func (n *node) reset() {
	n.lft = lftCopy{}
	for i := range n.ports {
		n.ports[i].lanes, n.ports[i].pkeys = 0, nil
	}
}

// follow looks behind a port, unless that is known and nothing happened to the
// link since.
func (m *Manager) follow(p *port, before mad.PortInfo) {
	if !p.up() {
		if p.peer != nil {
			m.changed = true
		}
		p.dead = false
		p.disconnect()
		return
	}
	bounced := before != nil && before.PortState() > ib.PortInit && p.info.PortState() == ib.PortInit
	if p.peer != nil && !bounced || p.probing {
		return
	}
	if !p.n.isSwitch() && p != m.self {
		return // CAs forward nothing
	}
	if bounced {
		p.disconnect()
		m.changed = true
	}
	m.probe(p)
}

func (m *Manager) probe(p *port) {
	p.probing = true
	path := append(bytes.Clone(p.n.path), p.num)
	m.line.push(&request{from: p, path: path, attr: mad.AttrNodeInfo, done: (*Manager).gotNode})
}
