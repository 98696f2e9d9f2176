package sm

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/topo"
)

// configure queues what makes the nodes different from what was decided.
func (m *Manager) configure(nodes []*node) {
	for _, n := range nodes {
		if !managed(n) {
			continue
		}
		if n.isSwitch() {
			m.configureSwitch(n)
		}
		for i := range n.ports {
			m.configurePort(&n.ports[i])
		}
	}
}

// configureSwitch sets what concerns the switch as a whole.
func (m *Manager) configureSwitch(n *node) {
	if m.routing == nil {
		return
	}
	sw := m.routing.Graph.Switch(n.guid())
	if sw == topo.None {
		return
	}
	want := slices.Clone(n.sw)
	want.SetLinearFDBTop(uint16(m.routing.Graph.MaxLID))
	want.SetLifeTimeValue(m.cfg.PacketLifeTime)
	// The bit is cleared by writing 1 to it (IBA 14.2.5.4).
	if !bytes.Equal(want, n.sw) || n.sw.PortStateChange() {
		want.SetPortStateChange(true)
		m.set(n, mad.AttrSwitchInfo, 0, want, nil, (*Manager).didSwitch)
	}
	m.sendTable(n, m.routing.LFT[sw])
	if m.routing.Lanes > 1 {
		m.setLanes(n)
	}
}

func (m *Manager) didSwitch(r *request, a mad.MAD) {
	if a == nil {
		return
	}
	r.n.sw = append(mad.SwitchInfo(nil), a.Data()[:20]...)
	if want := mad.SwitchInfo(r.data); r.n.sw.LinearFDBTop() != want.LinearFDBTop() {
		m.problem(r.n.name() + " does not take its forwarding table")
		m.errorf("6020", "configure", "%s has a forwarding table up to LID %d after it was told %d; it can hold %d",
			r.n.name(), r.n.sw.LinearFDBTop(), want.LinearFDBTop(), r.n.sw.LinearFDBCap())
	}
}

// sendTable sends the blocks of a forwarding table that the switch has not.
func (m *Manager) sendTable(n *node, table []uint8) {
	for b := range len(table) / route.BlockSize {
		m.lftTotal++
		if !n.lft.differs(b, table) {
			continue
		}
		m.lftBlocks++
		m.set(n, mad.AttrLinearFT, uint32(b), table[b*route.BlockSize:(b+1)*route.BlockSize], nil, (*Manager).didBlock)
	}
}

func (m *Manager) didBlock(r *request, a mad.MAD) {
	if a == nil {
		return
	}
	r.n.lft.learn(int(r.mod), a.Data())
	if !bytes.Equal(a.Data(), r.data) {
		m.problem(r.n.name() + " does not take its forwarding table")
	}
}

// configurePort sets a port's parameters, and brings it from INIT to ARMED.
func (m *Manager) configurePort(p *port) {
	if p.info == nil || p.num == 0 && !p.n.isSwitch() {
		return
	}
	link := p.up() && (p.peer != nil || p == m.self)
	if !p.end() && !link {
		return
	}
	if want := m.wanted(p, link); !m.samePort(p, want) {
		m.set(p.n, mad.AttrPortInfo, p.modifier(), want, p, (*Manager).didPort)
	}
	m.setPKeys(p)
	if m.routing != nil && m.routing.Lanes > 1 && !p.n.isSwitch() {
		m.setPortLanes(p)
	}
}

func (p *port) modifier() uint32 {
	mod := uint32(p.num)
	if p.caps()&mad.CapExtendedSpeeds != 0 {
		mod |= mad.PortInfoExtendedSpeeds
	}
	return mod
}

// wanted returns the PortInfo that p is to be set to.
func (m *Manager) wanted(p *port, link bool) mad.PortInfo {
	want := slices.Clone(p.info)
	want.SetPortState(ib.PortNop)
	want.SetPortPhysicalState(mad.PhysNop)
	want.SetLinkDownDefaultState(2) // polling
	want.SetClientReregister(false)
	if p.end() {
		m.wantEnd(p, want)
	}
	if link || p.num == 0 {
		want.SetOperationalVLs(m.linkVLs(p))
		want.SetNeighborMTU(m.linkMTU(p))
	}
	if link && p.n.isSwitch() {
		want.SetVLStallCount(m.cfg.VLStallCount)
		want.SetHOQLife(m.cfg.HOQLife)
		if p.peer != nil && !p.peer.n.isSwitch() {
			want.SetHOQLife(m.cfg.LeafHOQLife)
		}
		m.wantEnforced(p, want)
	}
	if link && p.num != 0 && p.info.PortState() == ib.PortInit {
		want.SetPortState(ib.PortArmed)
	}
	return want
}

// wantEnd sets what goes with a LID.
func (m *Manager) wantEnd(p *port, want mad.PortInfo) {
	if r, ok := m.cfg.LIDs.Get(p.guid); ok && p.guid != 0 {
		want.SetLID(r.Min)
		want.SetLMC(uint8(log2(r.Size())))
	}
	if r, ok := m.cfg.LIDs.Get(m.self.guid); ok {
		want.SetMasterSMLID(r.Min)
	}
	want.SetMasterSMSL(m.slToSM(p))
	want.SetMKey(m.cfg.MKey)
	want.SetMKeyLeasePeriod(m.cfg.MKeyLease)
	want.SetMKeyProtectBits(m.cfg.MKeyProtect)
	want.SetGIDPrefix(m.cfg.Prefix)
	want.SetSubnetTimeOut(m.cfg.SubnetTimeout)
	if m.tellClients(p) {
		want.SetClientReregister(true)
	}
}

// tellClients says whether the clients at p must register again: they did so
// with another subnet manager, or not at all.
func (m *Manager) tellClients(p *port) bool {
	if m.cfg.NoReregister || p.caps()&mad.CapClientReregistration == 0 {
		return false
	}
	return !m.master || p.info.PortState() == ib.PortInit
}

// slToSM returns the SL by which p reaches the subnet administrator.
func (m *Manager) slToSM(p *port) uint8 {
	if m.routing == nil {
		return 0
	}
	a, b := m.switchOf(p), m.switchOf(m.self)
	if a == topo.None || b == topo.None {
		return 0
	}
	return m.routing.Lane(a, b)
}

func (m *Manager) switchOf(p *port) int32 {
	switch {
	case p.n.isSwitch():
		return m.routing.Graph.Switch(p.n.guid())
	case p.peer != nil && p.peer.n.isSwitch():
		return m.routing.Graph.Switch(p.peer.n.guid())
	}
	return topo.None
}

// samePort reports whether a Set would change nothing: the port is so, or was
// told already and has stayed as it answered. Not every port takes everything:
// those of ibsim keep no M_Key, no lease and no SubnetTimeOut.
func (m *Manager) samePort(p *port, want mad.PortInfo) bool {
	if want.PortState() != ib.PortNop || want.ClientReregister() {
		return false
	}
	asked, is := digest(want), digest(p.info)
	return asked == is || p.took == setting{asked, is}
}

// setting is a Set of PortInfo and its answer, by their digests.
type setting struct{ asked, answered uint64 }

var digestSeed = maphash.MakeSeed()

// digest stands for a PortInfo without what changes by itself, or is an order.
func digest(info mad.PortInfo) uint64 {
	i := mad.PortInfo(append(make([]byte, 0, mad.SMPDataSize), info...))
	i.SetPortState(0)
	i.SetPortPhysicalState(0)
	i.SetLinkDownDefaultState(0)
	i.SetClientReregister(false)
	return maphash.Bytes(digestSeed, i)
}

// didPort takes what a port says it has now.
func (m *Manager) didPort(r *request, a mad.MAD) {
	if a == nil {
		return
	}
	p, want := r.port, mad.PortInfo(r.data)
	p.info = append(p.info[:0], a.Data()...)
	p.learnKey()
	p.took = setting{digest(want), digest(p.info)}
	if s := want.PortState(); s != ib.PortNop && p.info.PortState() < s {
		if p.info.PortState() == ib.PortDown {
			m.changed = true
			return // the link went while it was configured; a trap tells more
		}
		m.problem(p.name() + " does not become " + s.String())
	}
	if p.end() && p.info.LID() != want.LID() {
		m.problem(p.name() + " does not take its LID")
		m.errorf("6021", "configure", "%s has LID %d after it was told %d", p.name(), p.info.LID(), want.LID())
	}
}

// activate queues the step from ARMED to ACTIVE, for links whose both ends are
// there, and the enforcement of the partitions that are set by then.
func (m *Manager) activate() {
	m.phase = activating
	for _, n := range m.ordered() {
		for i := range n.ports {
			if p := &n.ports[i]; p.info != nil && p.num != 0 && p.peer != nil && managed(p.peer.n) {
				m.activatePort(p)
			}
		}
	}
}

func (m *Manager) activatePort(p *port) {
	armed := p.info.PortState() == ib.PortArmed
	want := slices.Clone(p.info)
	if p.n.isSwitch() && p.up() {
		m.wantEnforced(p, want)
	}
	if !armed && bytes.Equal(want, p.info) {
		return
	}
	want.SetPortState(ib.PortNop)
	if armed {
		want.SetPortState(ib.PortActive)
	}
	want.SetPortPhysicalState(mad.PhysNop)
	want.SetLinkDownDefaultState(2)
	want.SetMKey(m.cfg.MKey)
	want.SetClientReregister(false)
	asked := p.took.asked // what it was told stands
	m.set(p.n, mad.AttrPortInfo, p.modifier(), want, p, func(m *Manager, r *request, a mad.MAD) {
		m.didPort(r, a)
		r.port.took.asked = asked
	})
}

// ordered returns the managed nodes in the order of their routes' lengths.
func (m *Manager) ordered() (nodes []*node) {
	if m.fabric == nil {
		return nil
	}
	for i := range m.fabric.Nodes {
		if n := m.nodes[m.fabric.Nodes[i].GUID]; n != nil && managed(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
