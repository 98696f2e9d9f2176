package sm

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/topo"
)

// quarantine is how long after its last trap a port that babbles about errors
// of its link is routed around, as OpenSM has it.
const quarantine = time.Minute

// portID names a port for as long as it is not there, too.
type portID struct {
	node ib.GUID
	num  uint8
}

var portTraps = map[mad.TrapNumber]string{
	mad.TrapLinkIntegrity: "link integrity errors beyond the threshold",
	mad.TrapBufferOverrun: "buffer overruns beyond the threshold",
	mad.TrapFlowControl:   "the flow control watchdog expired",
}

// portErrors acts on traps 129 to 131: one is told, many in a row are a link to
// route around.
func (m *Manager) portErrors(number mad.TrapNumber, t mad.DetailsPort, count int, now clock.Time) {
	n := m.byLID(t.LID())
	if n == nil || n.port(t.PortNumber()) == nil {
		if count == 1 {
			m.infof("trap", "trap %d from LID %d port %d, which nobody has", number, t.LID(), t.PortNumber())
		}
		return
	}
	p := n.port(t.PortNumber())
	switch {
	case count == 1:
		m.infof("trap", "trap %d from %s: %s", number, p.name(), portTraps[number])
	case m.cfg.DisableBabbling && count == silencing:
		m.disable(p)
	case count > babbling:
		m.isolate(p, now)
	}
}

// isolate takes the link of p out of the routing for a time.
func (m *Manager) isolate(p *port, now clock.Time) {
	id := portID{p.n.guid(), p.num}
	_, sick := m.sick[id]
	if m.sick == nil {
		m.sick = map[portID]clock.Time{}
	}
	m.sick[id] = now.Add(quarantine)
	if sick {
		return
	}
	if p.peer == nil || !p.n.isSwitch() || !p.peer.n.isSwitch() {
		m.errorf("6041", "trap", "%s babbles about errors; there is no way around the link of a host", p.name())
		return
	}
	m.errorf("6041", "trap", "%s babbles about errors; nothing is routed over its link until it is quiet for %v", p.name(), quarantine)
	m.changed = true
	m.soil(p.n, now)
}

// disable shuts a port that babbles, as babbling_port_policy wants: that end of
// the link which is nearer to us, so that it can be enabled again.
func (m *Manager) disable(p *port) {
	if p.peer != nil && len(p.peer.n.path) < len(p.n.path) {
		p = p.peer
	}
	if p == m.self || p.info == nil || p.num == 0 {
		m.errorf("6042", "trap", "%s babbles, and is not disabled: it is our own way out", p.name())
		return
	}
	m.errorf("6042", "trap", "%s is disabled, since its link babbles about errors (babbling_port_policy)", p.name())
	want := append(mad.PortInfo(nil), p.info...)
	want.SetPortState(ib.PortDown)
	want.SetPortPhysicalState(mad.PhysDisabled)
	want.SetMKey(m.cfg.MKey)
	m.set(p.n, mad.AttrPortInfo, p.modifier(), want, p, (*Manager).disabled)
}

func (m *Manager) disabled(r *request, a mad.MAD) {
	if a != nil {
		m.soil(r.port.n, m.now)
	}
}

// heal ends the quarantine of ports that were quiet.
func (m *Manager) heal(now clock.Time) {
	for id, until := range m.sick {
		if now < until {
			continue
		}
		delete(m.sick, id)
		if n := m.nodes[id.node]; n != nil && !n.gone {
			m.infof("trap", "%s is quiet again, and used", n.port(id.num).name())
			m.changed = true
		}
	}
}

// nextHealing returns when heal has work.
func (m *Manager) nextHealing() clock.Time {
	next := clock.Never
	for _, until := range m.sick {
		next = min(next, until)
	}
	return next
}

// avoid takes the links of sick ports out of a fabric that is to be routed, as
// far as every switch is reached without them.
func (m *Manager) avoid(f *topo.Fabric) {
	ids := slices.SortedFunc(maps.Keys(m.sick), func(a, b portID) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.num, b.num))
	})
	for _, id := range ids {
		i := f.Node(id.node)
		if i == topo.None {
			continue
		}
		p := f.Port(i, id.num)
		q := f.Ports[p].Peer
		if q == topo.None || f.Nodes[i].Type != topo.Switch || f.Nodes[f.Ports[q].Node].Type != topo.Switch {
			continue
		}
		f.Ports[p].Peer, f.Ports[q].Peer = topo.None, topo.None
		if !joined(f, i, f.Ports[q].Node) {
			f.Ports[p].Peer, f.Ports[q].Peer = q, p
			m.infof("route", "%s is sick, and the only way: it stays in use", f.Name(p))
		}
	}
}

// joined reports whether switches lead from one node to another.
func joined(f *topo.Fabric, from, to int32) bool {
	seen := map[int32]bool{from: true}
	for queue := []int32{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			return true
		}
		for _, p := range f.NodePorts(queue[0]) {
			if p.Peer == topo.None {
				continue
			}
			if n := f.Ports[p.Peer].Node; !seen[n] && f.Nodes[n].Type == topo.Switch {
				seen[n] = true
				queue = append(queue, n)
			}
		}
	}
	return false
}
