package cm

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Config is what a Manager has to know of its port. The zero value works for tests.
type Config struct {
	GUID     ib.GUID           // of the CA
	Owns     func(ib.GID) bool // whether a GID is the port's, for REJ 12; nil: all are
	MTU      func() ib.MTU     // the greatest path MTU, an IBA code, for REJ 26; nil: 4096
	PKeys    ib.PKeyTable      // of the port; nil: ib.PKeyDefault alone
	AckDelay uint8             // in which the CA answers a packet: 4.096 µs × 2^n, n up to 31
	Random   func() uint32     // of communication and transaction ids; nil: a random source
	MaxConns int               // that there are at once, those that end included; 0: 65536
	MaxKept  int               // besides, refusals and answers of SIDR that can be repeated; the oldest gives way to one more; 0: 4096
	MaxOpen  int               // of those, accepted ones whose peers have said nothing since; the oldest gives way to one more; a listener's Backlog, if that is more; 0: 4096
	MaxOut   int               // datagrams that wait to be sent; what comes on top is lost, as it may be on its way; 0: 4096
}

func (c *Config) defaults() {
	if c.Owns == nil {
		c.Owns = func(ib.GID) bool { return true }
	}
	if c.MTU == nil {
		c.MTU = func() ib.MTU { return ib.MTU4096 }
	}
	if c.PKeys == nil {
		c.PKeys = ib.PKeyTable{ib.PKeyDefault}
	}
	if c.Random == nil {
		c.Random = rand.Uint32
	}
	if c.MaxConns == 0 {
		c.MaxConns = 1 << 16
	}
	if c.MaxKept == 0 {
		c.MaxKept = 4096
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = 4096
	}
	if c.MaxOut == 0 {
		c.MaxOut = 4096
	}
}

// Counters of a Manager: all since it was made.
type Counters struct {
	Received   uint64 // messages
	Malformed  uint64 // of those, not of communication management as it is spoken
	Unknown    uint64 // of those, about connections that don't exist
	Unexpected uint64 // of those, with no meaning in the connection's state
	Refused    uint64 // requests refused without asking the consumer
	Repeated   uint64 // messages sent again
	Unsent     uint64 // messages lost as MaxOut of them waited
	GivenUp    uint64 // accepted requests that gave way, as too many of them waited for their peers
}

// Manager is the communication manager of a port. It is not safe for use by several goroutines.
type Manager struct {
	Counters Counters

	cfg       Config
	listeners map[ServiceID]*Listener
	conns     map[uint32]*Conn // by their local communication id
	peers     map[peerID]*Conn // … and by the peer's
	peerQPs   map[peerQP]*Conn // … and by the peer's QP: one of its QPs has one connection
	kept      list.List        // of *Conn that have given their last answer, oldest first
	halfOpen  list.List        // of *Conn that have been accepted and wait for their peers, oldest first
	timers    clock.Timers[*Conn]
	events    []Event
	out       []Datagram
	sent      int // how many of out are taken
}

// peerID is a peer's communication id. It is the peer CA's (IBA 12.9.4); that of another address is another's here, so
// that none can speak of others' connections.
type peerID struct {
	from ib.GID
	guid ib.GUID // 0 of SIDR, which doesn't say it
	id   uint32
	sidr bool
}

type peerQP struct {
	from ib.GID
	guid ib.GUID
	qpn  ib.QPN
}

// Datagram is a message that came to QP1 or is to be sent from it.
type Datagram struct {
	Path
	MAD [mad.Size]byte
}

// Path is the way of datagrams between this port and another.
type Path struct {
	Local, Remote ib.GID // of this port, and of the other
	SGIDIndex     uint8  // of Local in the port's GID table, where one GID may be in several VLANs
	TrafficClass  uint8
	FlowLabel     uint32 // 20 bits
	PKeyIndex     uint16 // in Config.PKeys: of the entry that what comes matches, and what goes has
}

// New makes a Manager, which knows no services and has no connections.
func New(c Config) *Manager {
	c.defaults()
	return &Manager{cfg: c, listeners: map[ServiceID]*Listener{}, conns: map[uint32]*Conn{}, peers: map[peerID]*Conn{}, peerQPs: map[peerQP]*Conn{}}
}

// Listener takes the requests for a service.
type Listener struct {
	User any // the consumer's own

	m       *Manager
	service ServiceID
	o       ListenOptions
	waiting int // requests that the consumer hasn't answered
	index   int // of o.PKey in Config.PKeys, -1 for all
}

// DefaultBacklog is what a ListenOptions without a Backlog has, MaxBacklog the most that it may have.
const (
	DefaultBacklog = 128
	MaxBacklog     = 1 << 16
)

// ListenOptions are how a service is offered. The zero value works.
type ListenOptions struct {
	Backlog     int     // requests that may wait for the consumer; more are refused with REJ 3, those of SIDR are lost; as many may be accepted and not heard of since, see Config.MaxOpen; 0: DefaultBacklog
	MinRNRRetry uint8   // the least RNR retry count that a peer may ask for, 0 to 7; less is refused with REJ 29
	PKey        ib.PKey // the partition in which the service is offered, an entry of Config.PKeys; 0: in all of them
}

// Listen offers a service. Requests are events, Request or SIDRRequest. Errors wrap ErrInUse or ErrInvalid.
func (m *Manager) Listen(s ServiceID, o ListenOptions) (*Listener, error) {
	if m.listeners[s] != nil {
		return nil, fmt.Errorf("cm: listen: service %v: %w", s, ErrInUse)
	}
	if o.Backlog == 0 {
		o.Backlog = DefaultBacklog
	}
	if o.Backlog < 0 || o.Backlog > MaxBacklog || o.MinRNRRetry > 7 {
		return nil, fmt.Errorf("cm: listen: service %v: %w: backlog %d (allowed: 1 to %d), least RNR retry count %d (allowed: 0 to 7)",
			s, ErrInvalid, o.Backlog, MaxBacklog, o.MinRNRRetry)
	}
	l := &Listener{m: m, service: s, o: o, index: -1}
	if o.PKey != 0 {
		var err error
		if l.index, err = m.pkeyIndex(o.PKey); err != nil {
			return nil, fmt.Errorf("cm: listen: service %v: %w: %w", s, ErrInvalid, err)
		}
	}
	m.listeners[s] = l
	return l, nil
}

// pkeyIndex returns the index of a P_Key that the port has.
func (m *Manager) pkeyIndex(k ib.PKey) (int, error) {
	i := slices.Index(m.cfg.PKeys, k)
	if i < 0 {
		return i, fmt.Errorf("P_Key %v isn't in the port's table: %v", k, m.cfg.PKeys)
	}
	return i, nil
}

// listener returns who takes requests for a service in the partition of a peer's P_Key, nil if nobody does.
func (m *Manager) listener(s ServiceID, k ib.PKey) *Listener {
	if l := m.listeners[s]; l != nil && (l.index < 0 || k.Matches(l.o.PKey)) {
		return l
	}
	return nil
}

// member reports whether the port is in the partition of a peer's P_Key.
func (l *Listener) member(k ib.PKey) bool {
	_, ok := l.m.cfg.PKeys.Find(k)
	return ok
}

// path returns the path that d came by, in the partition of a peer's P_Key that the port is in.
func (l *Listener) path(d *Datagram, k ib.PKey) Path {
	p, i := d.Path, l.index
	if i < 0 {
		i, _ = l.m.cfg.PKeys.Find(k)
	}
	p.PKeyIndex = uint16(i)
	return p
}

// Close ends the offer. What was asked for before waits for its answer still.
func (l *Listener) Close() {
	if l.m.listeners[l.service] == l {
		delete(l.m.listeners, l.service)
	}
}

// Conns returns how many connections there are, those that begin or end included.
func (m *Manager) Conns() int { return len(m.conns) }

// Deadline returns when Expire has to be called, clock.Never when it needn't.
func (m *Manager) Deadline() clock.Time { return m.timers.Next() }

// Expire does what is due by now: messages that are sent again, and ends of waiting.
func (m *Manager) Expire(now clock.Time) {
	for c, due := m.timers.Due(now); due; c, due = m.timers.Due(now) {
		c.setDeadline(clock.Never)
		c.feed(&input{what: timeout, now: now})
	}
}

// Next takes the next datagram to send; false when there is none.
func (m *Manager) Next(d *Datagram) bool {
	if m.sent == len(m.out) {
		m.out, m.sent = m.out[:0], 0
		return false
	}
	*d = m.out[m.sent]
	m.sent++
	return true
}

func (m *Manager) send(to Path, msg []byte) {
	if len(m.out)-m.sent >= m.cfg.MaxOut {
		m.Counters.Unsent++
		return
	}
	if m.sent > len(m.out)/2 { // what was taken makes room, though it is never all
		m.out, m.sent = m.out[:copy(m.out, m.out[m.sent:])], 0
	}
	m.out = append(m.out, Datagram{Path: to, MAD: [mad.Size]byte(msg)})
}

// newConn makes a Conn with an id that can't be guessed.
func (m *Manager) newConn(p Path) (*Conn, error) {
	if n := len(m.conns) - m.kept.Len(); n >= m.cfg.MaxConns {
		return nil, fmt.Errorf("cm: %w: %d of %d exist", ErrLimit, n, m.cfg.MaxConns)
	}
	c := &Conn{m: m, path: p}
	c.timer.Of = c
	for c.id == 0 || m.conns[c.id] != nil {
		c.id = m.cfg.Random()
	}
	m.conns[c.id] = c
	return c, nil
}

func (m *Manager) newTID(id uint32) uint64 { return uint64(m.cfg.Random())<<32 | uint64(id) }

// know enters c under the ids of its peer.
func (m *Manager) know(c *Conn) {
	c.byPeer = peerID{from: c.path.Remote, guid: c.guid, id: c.remoteID}
	c.byQP = peerQP{c.path.Remote, c.guid, c.peer.QPN}
	m.peers[c.byPeer] = c
	m.peerQPs[c.byQP] = c
}

// keep keeps c for who asks again, and gives up the oldest of too many such: that peer may ask the consumer anew.
func (m *Manager) keep(c *Conn, now clock.Time) {
	m.forgetQP(c)
	c.kept = m.kept.PushBack(c)
	c.setDeadline(now.Add(4 * c.wait)) // for three repetitions
	if m.kept.Len() > m.cfg.MaxKept {
		m.kept.Front().Value.(*Conn).enter(Idle, now)
	}
}

// holdOpen has c, which was accepted, wait for its peer, and gives up the oldest of too many such: requests that were forged
// are never answered, and each has a QP of the consumer's. A listener has as many as it lets wait at once: they may all be real.
func (m *Manager) holdOpen(c *Conn, now clock.Time) {
	c.open = m.halfOpen.PushBack(c)
	if m.halfOpen.Len() > max(m.cfg.MaxOpen, c.listener.o.Backlog) {
		old := m.halfOpen.Front().Value.(*Conn)
		m.Counters.GivenUp++
		old.event(Event{Type: EventUnreachable, Reason: RejTimeout})
		old.Abandon(now)
	}
}

func (m *Manager) forget(c *Conn) {
	c.setDeadline(clock.Never)
	if c.kept != nil {
		m.kept.Remove(c.kept)
	}
	delete(m.conns, c.id)
	if m.peers[c.byPeer] == c {
		delete(m.peers, c.byPeer)
	}
	m.forgetQP(c)
}

func (m *Manager) forgetQP(c *Conn) {
	if m.peerQPs[c.byQP] == c {
		delete(m.peerQPs, c.byQP)
	}
}
