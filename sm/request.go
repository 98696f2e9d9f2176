package sm

import (
	"time"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// request is a directed SMP that waits to be sent, or for its answer.
type request struct {
	n    *node  // whom it asks; nil when it looks for a node behind from
	from *port  // where a search starts; nil at our own port
	path []byte // of a search
	attr mad.AttributeID
	mod  uint32
	data []byte // of a Set; nil is a Get
	port *port  // what the answer is about, for done

	// done takes the answer, or nil when there is none.
	done func(m *Manager, r *request, answer mad.MAD)

	tries int
	quick bool // asked again at short intervals
	sent  clock.Time
}

func (r *request) route() []byte {
	if r.n != nil {
		return r.n.path
	}
	return r.path
}

// line is the queue of requests, and the window of those under way. The window
// grows by one with each full window of answers and halves when one is lost:
// agents have no flow control, and drop what comes too fast.
type line struct {
	queue  []*request
	again  []*request // to be sent before the queue
	under  map[uint32]*request
	tid    uint32
	window float64
	max    int
	srtt   time.Duration // smoothed round trip; 0 until known
	cut    clock.Time    // when the window was last halved

	sentSets, sentGets, lost uint64
}

const (
	firstWindow = 16
	leastWindow = 8
	leastRTO    = 30 * time.Millisecond
	quickRTO    = 3 * time.Millisecond
	quickTries  = 6
)

func newLine(limit int) line {
	return line{under: map[uint32]*request{}, max: limit, window: float64(min(firstWindow, limit))}
}

func (l *line) idle() bool { return len(l.queue) == 0 && len(l.again) == 0 && len(l.under) == 0 }

func (l *line) push(r *request) { l.queue = append(l.queue, r) }

// pop returns the next request that may be sent, or nil.
func (l *line) pop() (r *request) {
	if len(l.under) >= int(l.window) {
		return nil
	}
	if n := len(l.again); n > 0 {
		r, l.again = l.again[n-1], l.again[:n-1]
		return r
	}
	if len(l.queue) > 0 {
		r, l.queue = l.queue[0], l.queue[1:]
		if len(l.queue) == 0 {
			l.queue = nil
		}
	}
	return r
}

// begin numbers r and counts it as under way.
func (l *line) begin(r *request, now clock.Time) uint32 {
	for {
		l.tid++
		if _, used := l.under[l.tid]; !used && l.tid != 0 {
			break
		}
	}
	l.under[l.tid] = r
	r.sent = now
	r.tries++
	if r.data != nil {
		l.sentSets++
	} else {
		l.sentGets++
	}
	return l.tid
}

// end takes r off and adapts the window and the round trip to how it went.
func (l *line) end(tid uint32, answered bool, now clock.Time) *request {
	r := l.under[tid]
	delete(l.under, tid)
	switch {
	case r == nil:
	case !answered:
		l.lost++
		if now.Sub(l.cut) > l.rto(0, time.Second) {
			l.cut = now
			l.window = max(min(leastWindow, float64(l.max)), l.window/2)
		}
	default:
		l.window = min(float64(l.max), l.window+1/l.window)
		if r.tries == 1 { // the answer to a repeated request may be that to an earlier one
			l.learn(now.Sub(r.sent))
		}
	}
	return r
}

func (l *line) learn(rtt time.Duration) {
	if l.srtt == 0 {
		l.srtt = rtt
	}
	l.srtt += (rtt - l.srtt) / 8
}

// rto is how long the answer to a request that was sent tries times before is
// waited for: a multiple of the round trip that doubles with each try.
func (l *line) rto(tries int, most time.Duration) time.Duration {
	if l.srtt == 0 {
		return most
	}
	return min(most, max(leastRTO, 8*l.srtt)<<min(tries, 8))
}

// get asks a node for an attribute.
func (m *Manager) get(n *node, attr mad.AttributeID, mod uint32, p *port, done func(*Manager, *request, mad.MAD)) {
	m.line.push(&request{n: n, attr: attr, mod: mod, port: p, done: done})
}

// set gives a node an attribute. The data is the request's from then on.
func (m *Manager) set(n *node, attr mad.AttributeID, mod uint32, data []byte, p *port, done func(*Manager, *request, mad.MAD)) {
	m.line.push(&request{n: n, attr: attr, mod: mod, data: data, port: p, done: done})
}

// Next fills p with a packet that is to be sent now. It reports false when none
// is, until the next Handle or Expire.
func (m *Manager) Next(p *mad.Packet, now clock.Time) bool {
	if len(m.replies) > 0 {
		*p = m.replies[0]
		m.replies = m.replies[1:]
		return true
	}
	for {
		r := m.line.pop()
		if r == nil {
			return false
		}
		if r.n != nil && (r.n.silent != "" || r.n.gone) {
			r.done(m, r, nil)
			m.settle(now)
			continue
		}
		if m.fill(p, r, now) {
			return true
		}
		m.settle(now) // it may have been the last one of the phase
	}
}

func (m *Manager) fill(p *mad.Packet, r *request, now clock.Time) bool {
	method := mad.MethodGet
	if r.data != nil {
		method = mad.MethodSet
	}
	*p = mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(method, r.attr, r.mod, r.route()); err != nil {
		m.fail(r, err.Error(), now)
		return false
	}
	p.Timeout = m.line.rto(r.tries, m.cfg.Timeout)
	if r.quick && r.tries < quickTries {
		p.Timeout = quickRTO
	}
	p.MAD().SetMKey(m.keyFor(r))
	copy(p.MAD().Data(), r.data)
	p.MAD().SetTID(uint64(m.line.begin(r, now)))
	return true
}

// keyFor returns the M_Key that whom r asks is to see: the one it has, as far as
// that is known, or ours. When the answer to a Set of the key gets lost it has
// ours already, and who was away when ours changed has the former one; so each
// other try is with that.
func (m *Manager) keyFor(r *request) uint64 {
	first, second := m.cfg.MKey, m.formerKey
	if p := r.keeper(); p != nil && p.key != 0 {
		first, second = p.key, m.cfg.MKey
	}
	if r.tries%2 == 1 {
		return second
	}
	return first
}

// learnKey takes the M_Key that p shows. At protection 1 and above it shows 0
// to those who have another (IBA 14.2.4.1).
func (p *port) learnKey() {
	if k := p.info.MKey(); k != 0 || p.info.MKeyProtectBits() == 0 {
		p.key = k
	}
}

// keeper returns the port whose M_Key counts for r: a switch's own, or the one
// that a CA is reached by. It is nil while that is not known.
func (r *request) keeper() *port {
	switch {
	case r.n == nil:
		return nil
	case r.n.isSwitch():
		return &r.n.ports[0]
	case r.port != nil && r.port.n == r.n:
		return r.port
	}
	for i := range r.n.ports {
		if r.n.ports[i].peer != nil {
			return &r.n.ports[i]
		}
	}
	return nil
}

// answered handles what came back for a request of ours.
func (m *Manager) answered(p *mad.Packet, now clock.Time) {
	a := p.MAD()
	r := m.line.end(p.Key(), p.Err == nil, now)
	switch {
	case r == nil: // of a sweep that was broken off
	case p.Err != nil:
		m.lostOne(r, now)
	case a.Attribute() != r.attr || a.Class() != mad.ClassSubnDirect:
		m.fail(r, "answered something else: "+a.String(), now)
	case a.Status() == mad.StatusBusy && r.tries <= m.tries(r):
		m.line.again = append(m.line.again, r)
	case a.Status() != mad.StatusOK:
		m.refused(r, a)
	default:
		m.trust(r.route())
		r.done(m, r, a)
	}
	m.settle(now)
}

// lostOne asks again when there was no answer, by another way if need be, or
// gives up.
func (m *Manager) lostOne(r *request, now clock.Time) {
	m.goAround(r, now)
	switch {
	case r.tries <= m.tries(r):
		m.line.again = append(m.line.again, r)
	case r.data != nil && r.attr == mad.AttrPortInfo && m.phase != discovering:
		m.fail(r, "does not answer a Set: it is gone, or has another M_Key", now)
	default:
		m.fail(r, "does not answer", now)
	}
}

// goAround looks for another way after the second loss in a row: one is bad
// luck, two may be a node on the way that died.
func (m *Manager) goAround(r *request, now clock.Time) {
	if r.tries < 2 {
		return
	}
	m.doubt(r.route())
	m.reroute(now)
	if r.n == nil && r.from != nil {
		r.path = append(r.from.n.path[:len(r.from.n.path):len(r.from.n.path)], r.from.num)
	}
}

// tries is how often a request is sent again. Who never answered gets fewer:
// most often nobody is there. So does a node whose neighbour has just reported a
// change, which may be why there is no answer, and one that no link leads to any more.
func (m *Manager) tries(r *request) int {
	switch {
	case r.n == nil:
		return max(1, m.cfg.Retries*3/4)
	case r.tries > 1 && m.cutOff(r.n):
		return 1
	case len(m.reporters) > 0 && m.phase != discovering && m.besideReporter(r.n):
		return 1
	}
	return m.cfg.Retries
}

func (m *Manager) besideReporter(n *node) bool {
	for i := range n.ports {
		if p := n.ports[i].peer; p != nil && m.reporters[p.n] {
			return true
		}
	}
	return false
}

// refused ends a request that was answered with an error: the node lives.
func (m *Manager) refused(r *request, a mad.MAD) {
	if r.n != nil && r.data != nil && r.attr == mad.AttrPortInfo {
		m.readBack(r, a.Status())
		return
	}
	verb := "Get"
	if r.data != nil {
		verb = "Set"
	}
	who := "a node"
	if r.n != nil {
		who = r.n.name()
	}
	m.errorf("6003", "request", "%s refuses %s of attribute %#04x, modifier %#x: %v", who, verb, uint16(r.attr), r.mod, a.Status())
	if r.n != nil && (r.data == nil || r.attr != mad.AttrVLArbitration && r.attr != mad.AttrSLtoVL && r.attr != mad.AttrPKeyTable) {
		r.n.silent = "refuses " + verb
	}
	r.done(m, r, nil)
}

// readBack looks at a port that refused a Set. When the answer to the first one
// got lost, the second is refused because the state it asks for is there.
func (m *Manager) readBack(r *request, why mad.Status) {
	set := *r
	m.get(r.n, r.attr, r.mod, r.port, func(m *Manager, _ *request, a mad.MAD) {
		if a != nil && mad.PortInfo(a.Data()).PortState() < mad.PortInfo(set.data).PortState() {
			m.errorf("6003", "request", "%s refuses Set of PortInfo: %v", set.port.name(), why)
		}
		set.done(m, &set, a)
	})
}

// fail ends a request without an answer. The neighbours of the node are read
// again: they know whether it is there at all.
func (m *Manager) fail(r *request, why string, now clock.Time) {
	if n := r.n; n != nil && n.silent == "" {
		n.silent = why
		m.errorf("6001", "request", "%s %s after %d tries of attribute %#04x along %v", n.name(), why, r.tries, uint16(r.attr), n.path)
		if m.state == mad.SMMaster && (m.phase != discovering || !m.heavy) {
			m.askNeighbours(n, now)
		}
	}
	r.done(m, r, nil)
}

func (m *Manager) askNeighbours(n *node, now clock.Time) {
	for i := range n.ports {
		if p := n.ports[i].peer; p != nil && p.n.isSwitch() && p.n.silent == "" {
			m.soil(p.n, now)
		}
	}
}

// respond queues an answer, or another packet that none is awaited to.
func (m *Manager) respond(p *mad.Packet) { m.replies = append(m.replies, *p) }
