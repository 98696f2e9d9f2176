package sm

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// trapKey tells traps apart; a node repeats one until it is repressed.
type trapKey struct {
	lid    ib.LID
	number mad.TrapNumber
	port   uint8
}

type trapSeen struct {
	at    clock.Time
	count int
}

const (
	// quietTime is how long a trap that has been acted on says nothing new.
	quietTime = 100 * time.Millisecond
	// holdOff is how long the first report of a change waits for others: both
	// ends of a link report, and all neighbours of a switch that fails.
	holdOff = 2 * time.Millisecond
	// trapsKept bounds how many different traps are remembered.
	trapsKept = 4096
)

// trap answers a trap, so that it is not repeated, and acts on it.
func (m *Manager) trap(p *mad.Packet, now clock.Time) {
	a := p.MAD()
	reply := *p
	reply.Timeout, reply.Retries = 0, 0
	reply.MAD().Respond(mad.StatusOK)
	m.respond(&reply)
	if m.state != mad.SMMaster {
		return
	}
	notice := mad.Notice(a.Data())
	if !notice.IsGeneric() {
		m.verbosef("trap", "vendor's trap from LID %d", notice.IssuerLID())
		return
	}
	m.act(notice, now)
	m.settle(now)
}

func (m *Manager) act(notice mad.Notice, now clock.Time) {
	switch t := notice.Trap().(type) {
	case mad.DetailsLink:
		m.linkChanged(t.LID(), now)
	case mad.DetailsPort:
		if !m.repeated(trapKey{t.LID(), notice.TrapNumber(), t.PortNumber()}, now) {
			m.infof("trap", "trap %d from LID %d port %d", notice.TrapNumber(), t.LID(), t.PortNumber())
		}
	case mad.DetailsCapability:
		if !m.repeated(trapKey{t.LID(), notice.TrapNumber(), 0}, now) {
			m.capabilityChanged(t)
		}
	default:
		m.infof("trap", "trap %d from LID %d", notice.TrapNumber(), notice.IssuerLID())
	}
}

// linkChanged reads again the switch that sent trap 128. The trap of a LID that
// nobody has means that what we know is out of date.
func (m *Manager) linkChanged(l ib.LID, now clock.Time) {
	n := m.byLID(l)
	if n == nil {
		m.infof("trap", "trap 128 from LID %d, which nobody has", l)
		m.wantHeavy = true
		return
	}
	m.infof("trap", "link state change reported by %s", n.name())
	m.reporters[n] = true
	m.soil(n, now)
}

// soil notes that a switch must be read again.
func (m *Manager) soil(n *node, now clock.Time) {
	for _, d := range m.dirty {
		if d == n {
			return
		}
	}
	if len(m.dirty) == 0 {
		m.hold = now.Add(holdOff)
		m.deadline = min(m.deadline, m.hold)
	}
	m.dirty = append(m.dirty, n)
}

// capabilityChanged reads the port again: it may be a subnet manager now.
func (m *Manager) capabilityChanged(t mad.DetailsCapability) {
	n := m.byLID(t.LID())
	m.infof("trap", "capability or state change of LID %d", t.LID())
	if n != nil && m.self != nil && n == m.self.n {
		return // we set IsSM ourselves
	}
	m.wantHeavy = true
	if n == nil || m.phase != idle || t.CapabilityMask()&uint32(mad.CapIsSM) == 0 {
		return
	}
	for i := range n.ports {
		if p := &n.ports[i]; p.end() && p.info != nil && p.info.LID() == t.LID() {
			m.askNow(p)
		}
	}
}

// repeated reports whether the same trap was acted on a moment ago.
func (m *Manager) repeated(k trapKey, now clock.Time) bool {
	seen, ok := m.lastTraps[k]
	if ok && now.Sub(seen.at) < quietTime {
		seen.count++
		m.lastTraps[k] = seen
		return true
	}
	if len(m.lastTraps) >= trapsKept {
		clear(m.lastTraps)
	}
	m.lastTraps[k] = trapSeen{at: now}
	return false
}

// byLID returns the node with a LID, or nil.
func (m *Manager) byLID(l ib.LID) *node {
	if m.snapshot == nil {
		return nil
	}
	i, ok := m.snapshot.ByLID[l]
	if !ok {
		return nil
	}
	return m.nodes[m.fabricNode(i)]
}

func (m *Manager) fabricNode(port int32) ib.GUID {
	f := m.snapshot.Fabric
	return f.Nodes[f.Ports[port].Node].GUID
}
