package sm

import (
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/subnet"
)

// finish ends a sweep: the result is published and reported.
func (m *Manager) finish(now clock.Time) {
	m.phase = idle
	m.sweeps++
	m.stillDown()
	m.publish()
	m.master = true
	if len(m.problems) == 0 {
		m.backoff = 0
		m.changed = false
		m.report(LevelInfo, "sweep", "SUBNET UP")
	} else {
		m.tellMissing()
	}
	m.verbosef("sweep", "sweep took %v, %d LFT blocks sent", now.Sub(m.begun).Round(time.Microsecond), m.lftBlocks)
	m.retryAt(now)
}

// stillDown notes links that are up and did not become ACTIVE.
func (m *Manager) stillDown() {
	for _, n := range m.ordered() {
		for i := range n.ports {
			p := &n.ports[i]
			if p.num != 0 && p.info != nil && p.peer != nil && managed(p.peer.n) && p.up() && p.info.PortState() != ib.PortActive {
				m.problem(p.name() + " is not ACTIVE")
			}
		}
	}
	for _, g := range m.unmanaged() {
		m.problem(g)
	}
	slices.Sort(m.problems)
	m.problems = slices.Compact(m.problems)
}

// unmanaged names the nodes that fell silent after they had been found.
func (m *Manager) unmanaged() (names []string) {
	for _, n := range m.nodes {
		if !n.gone && n.silent != "" {
			names = append(names, n.name()+" "+n.silent)
		}
	}
	return names
}

const namedProblems = 20

func (m *Manager) tellMissing() {
	m.errorf("6030", "sweep", "SUBNET INCOMPLETE: %d problems", len(m.problems))
	for _, p := range m.problems[:min(namedProblems, len(m.problems))] {
		m.errorf("6031", "sweep", "missing: %s", p)
	}
}

const (
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
)

// retryAt sets the time of the next look: soon when something is missing.
func (m *Manager) retryAt(now clock.Time) {
	m.deadline = clock.Never
	if m.cfg.SweepInterval > 0 {
		m.deadline = now.Add(m.cfg.SweepInterval)
	}
	m.deadline = min(m.deadline, m.nextHealing())
	if m.askSoon {
		m.deadline = min(m.deadline, now.Add(firstBackoff))
	}
	if len(m.problems) > 0 || m.self == nil {
		m.backoff = min(lastBackoff, max(firstBackoff, 2*m.backoff))
		m.deadline = min(m.deadline, now.Add(m.backoff))
	}
}

// publish makes the snapshot that others read.
func (m *Manager) publish() {
	f := m.fabric
	s := &subnet.Snapshot{
		Fabric: f, Routing: m.routing, Prefix: m.cfg.Prefix, SMPriority: m.cfg.Priority, SMState: m.state,
		PacketLifeTime: m.cfg.PacketLifeTime,
		Desc:           make([]string, len(f.Nodes)), NodeInfo: make([]mad.NodeInfo, len(f.Nodes)), SwitchInfo: make([]mad.SwitchInfo, len(f.Nodes)),
		PortInfo: make([]mad.PortInfo, len(f.Ports)), PKeys: make([][]ib.PKey, len(f.Ports)), Missing: slices.Clone(m.problems),
	}
	for i := range f.Nodes {
		n := m.nodes[f.Nodes[i].GUID]
		s.NodeInfo[i], s.SwitchInfo[i], s.Desc[i] = n.info, n.sw, n.desc
		for j := range n.ports {
			k := f.Port(int32(i), uint8(j))
			if n.ports[j].info != nil {
				s.PortInfo[k] = slices.Clone(n.ports[j].info)
				f.Ports[k].State = n.ports[j].info.PortState()
			}
			s.PKeys[k] = n.ports[j].pkeys
			if &n.ports[j] == m.self {
				s.SMPort, s.SMLID = k, f.Ports[k].LID
			}
		}
	}
	s.Index()
	m.snapshot = s
	m.cfg.Changed(s)
}

// light asks every switch whether a port of it changed, and looks again for
// what is missing.
func (m *Manager) light(now clock.Time) {
	if m.self == nil || m.self.n.silent != "" || len(m.nodes) == 0 {
		m.discoverAll(now)
		return
	}
	if len(m.problems) > 0 {
		m.refresh(now)
	} else {
		m.phase = discovering
		m.heavy = false
		m.begun = now
	}
	for _, n := range m.ordered() {
		if n.isSwitch() {
			m.get(n, mad.AttrSwitchInfo, 0, nil, (*Manager).gotLight)
		}
	}
	if m.line.idle() { // two CAs without a switch: our port tells
		m.get(m.self.n, mad.AttrPortInfo, uint32(m.self.num), m.self, (*Manager).gotPort)
	}
}

func (m *Manager) gotLight(r *request, a mad.MAD) {
	if a == nil {
		m.wantHeavy = true
		return
	}
	m.gotSwitch(r, a)
	if r.n.sw.PortStateChange() {
		m.changed = true
		m.ask(r.n)
	}
}
