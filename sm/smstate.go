package sm

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// other is another subnet manager in the subnet.
type other struct {
	n        *node
	p        *port
	guid     ib.GUID
	priority uint8
	state    mad.SMState
}

// above reports whether that subnet manager is higher than we are: the higher
// priority, or of equal ones the lower port GUID (IBA 14.4.1.2).
func (m *Manager) above(o other) bool {
	if o.priority != m.cfg.Priority {
		return o.priority > m.cfg.Priority
	}
	return o.guid < m.local.GUID
}

// smPorts returns the other ports that say a subnet manager is there.
func (m *Manager) smPorts() (ports []*port) {
	for _, n := range m.nodes {
		if n.gone || n.silent != "" {
			continue
		}
		for i := range n.ports {
			p := &n.ports[i]
			if p.end() && p != m.self && p.info != nil && (p.peer != nil || p.num == 0) && p.info.CapabilityMask()&mad.CapIsSM != 0 {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// outranked asks the other subnet managers who they are before anything is
// changed, and stands by when one of them is master, or above us. It reports
// true while the sweep must not go on.
func (m *Manager) outranked(now clock.Time) bool {
	if o := m.handedTo; o != nil {
		m.handedTo, m.asking = nil, false
		m.standBy(*o, now)
		return true
	}
	if m.skip != 0 { // it was asked to take over, and said nothing
		m.skip, m.asking = 0, false
		return false
	}
	if !m.asking {
		m.others = nil
		for _, p := range m.smPorts() {
			m.asking = true
			m.line.push(&request{n: p.n, attr: mad.AttrSMInfo, mod: 0, port: p, done: (*Manager).gotSMInfo})
		}
		if m.asking {
			return true // discovered is called again when they have answered
		}
	}
	m.asking = false
	for _, o := range m.others {
		switch {
		case o.state == mad.SMNotActive || o.state != mad.SMMaster && !m.above(o):
		case m.state != mad.SMMaster:
			if o.state == mad.SMMaster || !m.masterless {
				m.standBy(o, now)
				return true
			}
			m.askSoon = true
		case !m.above(o): // another master that is below us, and will see us
			m.askSoon = true
			m.tellRival(o)
		default:
			m.handOver(o)
			return true
		}
	}
	m.masterless = false
	return false
}

// tellRival names another master, once. It yields as soon as it has found us,
// unless it has another SM_Key, or another M_Key and so cannot see ours.
func (m *Manager) tellRival(o other) {
	if m.rival == o.guid {
		return
	}
	m.rival = o.guid
	m.errorf("6050", "state", "%s is master too, with priority %d; it should yield: are sm_key and m_key the same there?", o.p.name(), o.priority)
}

// handOver makes a subnet manager master that is above us (IBA 14.4.1.2). One
// that does not take it is gone by the next sweep.
func (m *Manager) handOver(o other) {
	m.report(LevelSys, "state", "handing over to %s, priority %d", o.p.name(), o.priority)
	m.set(o.n, mad.AttrSMInfo, mad.SMInfoHandover, m.ownInfo(true), o.p, func(m *Manager, r *request, a mad.MAD) {
		if a == nil {
			r.n.silent = ""
			m.skip = o.guid
			return
		}
		if m.handedTo = &o; m.phase == idle {
			m.handedTo, m.wantHeavy = nil, false
			m.standBy(o, m.now)
		}
	})
}

// askNow asks a port that has just become a subnet manager's who that is, before
// any sweep: a higher one is handed over to while it is still discovering, and
// then finds no master.
func (m *Manager) askNow(p *port) {
	m.line.push(&request{n: p.n, attr: mad.AttrSMInfo, port: p, quick: true, done: func(m *Manager, r *request, a mad.MAD) {
		if a == nil {
			r.n.silent = ""
			return
		}
		i := mad.SMInfo(a.Data())
		if o := (other{r.n, r.port, i.GUID(), i.Priority(), i.SMState()}); m.phase == idle && m.above(o) && o.state != mad.SMNotActive {
			m.handOver(o)
		}
	}})
}

// ownInfo is our SMInfo, with the key when who asks may know it.
func (m *Manager) ownInfo(key bool) mad.SMInfo {
	m.activity++
	i := make(mad.SMInfo, mad.SMPDataSize)
	i.SetGUID(m.local.GUID)
	if key {
		i.SetSMKey(m.cfg.SMKey)
	}
	i.SetActCount(m.activity)
	i.SetPriority(m.cfg.Priority)
	i.SetSMState(m.state)
	return i
}

// gotSMInfo takes a subnet manager's word. Ports keep IsSM set after their
// subnet manager died; no answer is no subnet manager.
func (m *Manager) gotSMInfo(r *request, a mad.MAD) {
	if a == nil {
		r.n.silent = ""
		return
	}
	i := mad.SMInfo(a.Data())
	m.others = append(m.others, other{r.n, r.port, i.GUID(), i.Priority(), i.SMState()})
}

// pollInterval is the time between questions to the master.
const (
	pollInterval = 2 * time.Second
	pollTries    = 2
)

func (m *Manager) standBy(o other, now clock.Time) {
	if m.state != mad.SMStandby {
		m.report(LevelSys, "state", "Entering STANDBY state: %s is %v with priority %d", o.p.name(), o.state, o.priority)
	}
	m.state, m.phase, m.master = mad.SMStandby, standby, false
	m.others = []other{o}
	m.polls = 0
	m.deadline = now.Add(pollInterval)
	m.cfg.StoodBy()
}

// poll asks the master whether it lives.
func (m *Manager) poll(now clock.Time) {
	m.deadline = now.Add(pollInterval)
	o := m.others[0]
	if m.polls++; m.polls > pollTries {
		m.report(LevelSys, "state", "%s is master no more", o.p.name())
		m.masterless = true
		m.Start(now)
		return
	}
	m.line.push(&request{n: o.n, attr: mad.AttrSMInfo, port: o.p, done: (*Manager).polled})
}

func (m *Manager) polled(r *request, a mad.MAD) {
	if a == nil {
		r.n.silent = ""
		return
	}
	if mad.SMInfo(a.Data()).SMState() == mad.SMMaster {
		m.polls = 0
	}
}

// smInfo answers questions about us, and orders to us (IBA 14.4.1).
func (m *Manager) smInfo(p *mad.Packet, now clock.Time) {
	a := p.MAD()
	in := mad.SMInfo(append([]byte(nil), a.Data()[:21]...))
	order := a.Modifier()
	reply := *p
	reply.Timeout, reply.Retries = 0, 0
	r := reply.MAD()
	status := mad.StatusOK
	if a.Method() == mad.MethodSet {
		status = m.order(in, order, now)
	}
	r.Respond(status)
	// The key is for those who know the M_Key (IBA 14.4.1.2).
	copy(r.Data(), m.ownInfo(a.MKey() == m.cfg.MKey))
	m.respond(&reply)
	m.settle(now)
}

// statusBadOrder refuses an order that our state, or the sender's, forbids.
const statusBadOrder mad.Status = 7 << 2

// order carries out Set(SMInfo): only a master hands over, and only to one that
// stands by.
func (m *Manager) order(from mad.SMInfo, what uint32, now clock.Time) mad.Status {
	switch {
	case what == mad.SMInfoHandover && from.SMState() == mad.SMMaster && m.state != mad.SMMaster:
		m.report(LevelSys, "state", "handed over by 0x%016x", uint64(from.GUID()))
		m.phase = idle
		m.state = mad.SMMaster
		m.report(LevelSys, "state", "Entering MASTER state")
		m.wantHeavy = true
	case what == mad.SMInfoDiscover && from.SMState() == mad.SMMaster && m.state == mad.SMStandby:
		m.phase, m.state, m.wantHeavy = idle, mad.SMDiscovering, true
	case what == mad.SMInfoAcknowledge:
	default:
		return statusBadOrder
	}
	return mad.StatusOK
}
