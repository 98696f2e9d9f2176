package sm

import (
	"fmt"
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// trapKey tells traps apart.
type trapKey struct {
	lid    ib.LID
	number mad.TrapNumber
	port   uint8
}

// trapSeen is how often a trap came without a long pause.
type trapSeen struct {
	at    clock.Time
	count int
}

// The numbers are OpenSM's.
const (
	// babbling is how many equal traps in a row are more than they can say.
	babbling = 10
	// silencing is how many make a port that is to be disabled, if the operator
	// wants that.
	silencing = 250
	// pause ends a row of equal traps.
	pause = 5 * time.Second

	// holdOff is how long the first report of a change waits for others: both
	// ends of a link report, and all neighbours of a switch that fails.
	holdOff = 2 * time.Millisecond
	// babbleOff is how long the report of one that babbles waits.
	babbleOff = time.Second
	// trapsKept bounds how many different traps are remembered.
	trapsKept = 4096
)

// trap answers a trap, so that it is not repeated, and acts on it.
func (m *Manager) trap(p *mad.Packet, now clock.Time) {
	notice := mad.Notice(p.MAD().Data())
	if key, ok := m.repressKey(p.Addr.LID, notice); ok {
		reply := *p
		reply.Timeout, reply.Retries = 0, 0
		reply.MAD().Respond(mad.StatusOK)
		reply.MAD().SetMKey(key)
		m.respond(&reply)
	}
	if m.state != mad.SMMaster {
		return
	}
	if !notice.IsGeneric() {
		m.verbosef("trap", "vendor's trap from LID %d", notice.IssuerLID())
		return
	}
	m.act(p.Addr.LID, notice, now)
	m.settle(now)
}

// repressKey returns the M_Key to answer a trap with: TrapRepress is checked like
// a Set (IBA 14.2.4.1). The trap about a wrong key in a TrapRepress is answered
// with the other one that the port may have, or not at all: that would go on
// for ever.
func (m *Manager) repressKey(from ib.LID, notice mad.Notice) (key uint64, ok bool) {
	key = m.cfg.MKey
	if n := m.byLID(from); n != nil {
		for i := range n.ports {
			if p := &n.ports[i]; p.end() && p.info != nil && p.info.LID() == from && p.key != 0 {
				key = p.key
			}
		}
	}
	t, bad := notice.Trap().(mad.DetailsMKey)
	switch {
	case !bad || mad.Method(t.Method()) != mad.MethodTrapRepress:
		return key, true
	case t.MKey() == key && key != m.cfg.MKey:
		return m.cfg.MKey, true
	}
	return 0, false
}

func (m *Manager) act(from ib.LID, notice mad.Notice, now clock.Time) {
	number := notice.TrapNumber()
	switch t := notice.Trap().(type) {
	case mad.DetailsLink:
		m.linkChanged(t.LID(), now)
	case mad.DetailsPort:
		if from != 0 && m.byLID(from) != m.byLID(t.LID()) {
			m.infof("trap", "trap %d about LID %d from %s, whose port that is not", number, t.LID(), m.nameLID(from))
			return
		}
		m.portErrors(number, t, m.count(trapKey{t.LID(), number, t.PortNumber()}, now), now)
	case mad.DetailsCapability:
		m.capabilityChanged(t, m.count(trapKey{t.LID(), number, 0}, now), now)
	case mad.DetailsSystemImageGUID:
		if m.count(trapKey{t.LID(), number, 0}, now) <= babbling {
			m.systemChanged(t, now)
		}
	default:
		m.violation(notice, m.count(trapKey{notice.IssuerLID(), number, 0}, now))
	}
}

// count returns how often the same trap has come in a row, this time included.
func (m *Manager) count(k trapKey, now clock.Time) int {
	seen := m.lastTraps[k]
	if now.Sub(seen.at) > pause {
		seen.count = 0
	}
	if seen.count == 0 && len(m.lastTraps) >= trapsKept {
		clear(m.lastTraps)
	}
	seen.count++
	seen.at = now
	m.lastTraps[k] = seen
	if n := seen.count; n > babbling && telling(n) {
		m.errorf("6040", "trap", "trap %d of LID %d port %d came %d times in a row", k.number, k.lid, k.port, n)
	}
	return seen.count
}

// telling picks 20, 50, 100, 200, 500 and so on.
func telling(n int) bool {
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return n == 1 || n == 2 || n == 5
}

// holdFor is how long a change is left alone that has been reported so many times
// in a row.
func holdFor(count int) time.Duration {
	if count > babbling {
		return babbleOff
	}
	return holdOff
}

// stranger sweeps when a trap names a LID that nobody has. One who forges them
// gets a sweep a second, whatever LIDs they name.
func (m *Manager) stranger(number mad.TrapNumber, l ib.LID, now clock.Time) {
	if m.count(trapKey{0, number, 0}, now) > babbling {
		m.askSoon = true
		m.deadline = min(m.deadline, now.Add(babbleOff))
		return
	}
	m.infof("trap", "trap %d from LID %d, which nobody has", number, l)
	m.wantHeavy = true
}

// linkChanged reads again the switch that sent trap 128. The trap of a LID that
// nobody has means that what we know is out of date.
func (m *Manager) linkChanged(l ib.LID, now clock.Time) {
	n := m.byLID(l)
	if n == nil {
		m.stranger(mad.TrapLinkState, l, now)
		return
	}
	m.reporters[n] = true
	if slices.Contains(m.dirty, n) {
		return // one reading finds all its changes
	}
	count := m.count(trapKey{l, mad.TrapLinkState, 0}, now)
	if count <= babbling {
		m.infof("trap", "link state change reported by %s", n.name())
	}
	m.soilIn(n, now, holdFor(count))
}

// soil notes that a node must be read again.
func (m *Manager) soil(n *node, now clock.Time) { m.soilIn(n, now, holdOff) }

// soilIn does so after a time; others that come before share the reading.
func (m *Manager) soilIn(n *node, now clock.Time, after time.Duration) {
	due := now.Add(after)
	if len(m.dirty) == 0 || due < m.hold {
		m.hold = due
		m.deadline = min(m.deadline, due)
	}
	if !slices.Contains(m.dirty, n) {
		m.dirty = append(m.dirty, n)
	}
}

// capabilityChanged reads the node again: it may be a subnet manager's now, or
// have another description.
func (m *Manager) capabilityChanged(t mad.DetailsCapability, count int, now clock.Time) {
	n := m.byLID(t.LID())
	if n == nil {
		m.stranger(mad.TrapCapabilityMask, t.LID(), now)
		return
	}
	if m.self != nil && n == m.self.n {
		return // we set IsSM ourselves
	}
	if count <= babbling {
		m.infof("trap", "capability or local change of %s", n.name())
	}
	m.soilIn(n, now, holdFor(count))
	if count > babbling || m.phase != idle || t.CapabilityMask()&uint32(mad.CapIsSM) == 0 {
		return
	}
	for i := range n.ports {
		if p := &n.ports[i]; p.end() && p.info != nil && p.info.LID() == t.LID() {
			m.askNow(p)
		}
	}
}

// systemChanged reads the system image GUID that trap 145 tells of.
func (m *Manager) systemChanged(t mad.DetailsSystemImageGUID, now clock.Time) {
	n := m.byLID(t.LID())
	if n == nil {
		m.stranger(mad.TrapSystemImageGUID, t.LID(), now)
		return
	}
	m.get(n, mad.AttrNodeInfo, 0, nil, func(m *Manager, r *request, a mad.MAD) {
		if a == nil || mad.NodeInfo(a.Data()).SystemImageGUID() == r.n.info.SystemImageGUID() {
			return
		}
		r.n.info.SetSystemImageGUID(mad.NodeInfo(a.Data()).SystemImageGUID())
		m.infof("trap", "%s has system image GUID 0x%016x", r.n.name(), uint64(r.n.info.SystemImageGUID()))
		m.changed = true
		m.soil(r.n, m.now)
	})
}

// violation tells of wrong keys; there is nothing to be done about them here.
func (m *Manager) violation(notice mad.Notice, count int) {
	if count > babbling {
		return
	}
	at := m.nameLID(notice.IssuerLID())
	switch t := notice.Trap().(type) {
	case mad.DetailsMKey:
		from := m.nameLID(t.LID())
		if t.DRNotice() {
			from = "a directed route"
		}
		m.errorf("6043", "trap", "%s refused method 0x%02x of attribute 0x%04x from %s: wrong M_Key", at, t.Method(), t.AttributeID(), from)
	case mad.DetailsKey:
		what := "Q_Key"
		if notice.TrapNumber() == mad.TrapBadPKey {
			what = "P_Key"
		}
		m.errorf("6044", "trap", "%s refused a packet from %s to %s: wrong %s 0x%x", at, m.nameLID(t.LID1()), m.nameLID(t.LID2()), what, t.Key())
	case mad.DetailsSwitchPKey:
		m.errorf("6045", "trap", "%s port %d dropped a packet from %s: P_Key 0x%04x does not pass", at, t.PortNumber(), m.nameLID(t.LID1()), uint16(t.PKey()))
	default:
		m.infof("trap", "trap %d from %s", notice.TrapNumber(), at)
	}
}

// nameLID gives who has a LID, for messages.
func (m *Manager) nameLID(l ib.LID) string {
	if n := m.byLID(l); n != nil {
		return n.name()
	}
	return fmt.Sprintf("LID %d", l)
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
