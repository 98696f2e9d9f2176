package sm

import (
	"fmt"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

type phase uint8

const (
	idle phase = iota
	discovering
	configuring
	activating
	standby
)

// Manager is a subnet manager at one port. It is not safe for concurrent use.
type Manager struct {
	cfg   Config
	next  *Config // to take at the next heavy sweep; nil is none
	local mad.Local
	line  line
	phase phase
	state mad.SMState

	nodes map[ib.GUID]*node
	self  *port // ours
	found int   // nodes found by this sweep

	heavy     bool // the sweep under way reads everything
	changed   bool // it met another topology than the last one
	wantHeavy bool // another heavy sweep must follow
	begun     clock.Time

	dirty      []*node // switches that reported a change
	probes     []*port // ports behind which nobody answered
	problems   []string
	suspects   map[*node]int  // requests lost on ways through a node
	reporters  map[*node]bool // switches whose trap has not been looked into
	retried    bool           // this sweep has asked again who was silent
	rerouted   clock.Time     // when ways were last looked for
	others     []other        // other subnet managers
	asking     bool           // they have been asked who they are
	handedTo   *other         // who took over from us in this sweep
	skip       ib.GUID        // who did not take over
	rival      ib.GUID        // another master that was told of
	masterless bool           // the master is gone: those who stand by do not count until we have looked
	askSoon    bool           // look again soon at who else is a subnet manager

	fabric   *topo.Fabric
	routing  *route.Result
	snapshot *subnet.Snapshot
	master   bool // the subnet was configured by us before

	replies   []mad.Packet
	deadline  clock.Time // of the next light sweep, or of another try
	hold      clock.Time // when switches that reported a change are read
	backoff   time.Duration
	polls     int // of the master, without an answer
	activity  uint32
	now       clock.Time // of the packet in hand
	lastTraps map[trapKey]trapSeen
	formerKey uint64                // our M_Key before it was changed
	sick      map[portID]clock.Time // ports to route around, and until when
	sweeps    int
	routedIn  time.Duration
	lftBlocks int // sent by this sweep
	lftTotal  int
}

// New returns a manager for the port that local describes. Nothing happens
// before Start.
func New(cfg Config, local mad.Local) *Manager {
	cfg.fill()
	return &Manager{
		cfg: cfg, local: local, line: newLine(cfg.MaxSMPs), nodes: map[ib.GUID]*node{},
		suspects: map[*node]int{}, reporters: map[*node]bool{}, state: mad.SMDiscovering, deadline: clock.Never, lastTraps: map[trapKey]trapSeen{}, formerKey: cfg.MKey,
	}
}

// Start begins the first sweep.
func (m *Manager) Start(now clock.Time) {
	m.report(LevelSys, "state", "Entering DISCOVERING state")
	m.state = mad.SMDiscovering
	m.discoverAll(now)
	m.settle(now)
}

// Sweep asks for a sweep of the whole subnet as soon as the one under way ends.
func (m *Manager) Sweep(now clock.Time) {
	m.wantHeavy = true
	m.settle(now)
}

// Deadline returns when Expire has work; clock.Never while nothing waits for time.
func (m *Manager) Deadline() clock.Time {
	if m.phase != idle && m.phase != standby {
		return clock.Never
	}
	return m.deadline
}

// Expire does what is due.
func (m *Manager) Expire(now clock.Time) {
	if m.deadline > now || m.phase != idle && m.phase != standby {
		return
	}
	m.deadline = clock.Never
	m.heal(now)
	switch {
	case m.phase == standby:
		m.poll(now)
	case m.askSoon:
		m.askSoon, m.wantHeavy = false, true
	case !m.wantHeavy && len(m.dirty) == 0:
		m.light(now)
	}
	m.settle(now)
}

// Handle takes a packet that came in: an answer to one of ours, a trap, or a
// question to the subnet manager.
func (m *Manager) Handle(p *mad.Packet, now clock.Time) {
	m.now = now
	if p.Err == nil {
		if _, err := mad.Parse(p.Data[:]); err != nil || !p.MAD().Class().Subnet() {
			return
		}
	}
	switch a := p.MAD(); {
	case p.Err != nil, a.Method() == mad.MethodGetResp:
		m.answered(p, now)
	case a.Method() == mad.MethodTrap && a.Attribute() == mad.AttrNotice:
		m.trap(p, now)
	case a.Attribute() == mad.AttrSMInfo && (a.Method() == mad.MethodGet || a.Method() == mad.MethodSet):
		m.smInfo(p, now)
	}
}

// Idle reports whether no sweep is under way.
func (m *Manager) Idle() bool { return m.phase == idle || m.phase == standby }

// State returns what other subnet managers see.
func (m *Manager) State() mad.SMState { return m.state }

// Progress is how far a sweep is.
type Progress struct {
	Phase        string
	Idle         bool
	Nodes        int
	Sent, Lost   uint64
	Queued       int
	UnderWay     int
	Window       int
	LFTBlocks    int // sent in the sweep under way, or in the last one
	Routed       time.Duration
	SweepsEnded  int
	MissingNodes int
}

var phaseNames = [...]string{idle: "idle", discovering: "discovering", configuring: "configuring", activating: "activating", standby: "standby"}

// Progress tells how far the manager is, for those who watch it.
func (m *Manager) Progress() Progress {
	return Progress{
		Phase: phaseNames[m.phase], Idle: m.Idle(), Nodes: m.found, Sent: m.line.sentGets + m.line.sentSets, Lost: m.line.lost,
		Queued: len(m.line.queue) + len(m.line.again), UnderWay: len(m.line.under), Window: int(m.line.window),
		LFTBlocks: m.lftBlocks, Routed: m.routedIn, SweepsEnded: m.sweeps, MissingNodes: len(m.problems),
	}
}

// settle goes to the next phase when nothing of this one is left to do.
func (m *Manager) settle(now clock.Time) {
	for m.line.idle() {
		switch m.phase {
		case discovering:
			m.discovered(now)
		case configuring:
			m.activate()
		case activating:
			m.finish(now)
		case idle:
			if !m.startAgain(now) {
				return
			}
		default:
			return
		}
	}
}

// startAgain begins a sweep that was asked for meanwhile.
func (m *Manager) startAgain(now clock.Time) bool {
	switch {
	case m.wantHeavy:
		m.wantHeavy = false
		m.discoverAll(now)
	case len(m.dirty) > 0 && now >= m.hold:
		m.refresh(now)
	default:
		return false
	}
	return true
}

func (m *Manager) report(l Level, where, format string, args ...any) {
	m.cfg.Report(Event{Level: l, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (m *Manager) errorf(code, where, format string, args ...any) {
	m.cfg.Report(Event{Level: LevelError, Code: code, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (m *Manager) infof(where, format string, args ...any) {
	m.report(LevelInfo, where, format, args...)
}

func (m *Manager) verbosef(where, format string, args ...any) {
	m.report(LevelVerbose, where, format, args...)
}

// problem notes something that keeps the subnet from being up.
func (m *Manager) problem(text string) { m.problems = append(m.problems, text) }

// Reconfigure changes the configuration and sweeps. LIDs already given stay. A
// sweep under way ends with the configuration that it began with.
func (m *Manager) Reconfigure(cfg Config, now clock.Time) {
	m.next = &cfg
	if m.Idle() {
		m.adopt()
	}
	m.Sweep(now)
}

// adopt takes the configuration that Reconfigure left.
func (m *Manager) adopt() {
	if m.next == nil {
		return
	}
	cfg := *m.next
	m.next = nil
	if cfg.LIDs == nil {
		cfg.LIDs = m.cfg.LIDs
	}
	cfg.fill()
	if cfg.MKey != m.cfg.MKey {
		m.formerKey = m.cfg.MKey
	}
	m.cfg = cfg
	m.line.max = cfg.MaxSMPs
	m.routing = nil // engines or roots may be others
}
