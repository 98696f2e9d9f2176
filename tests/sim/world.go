package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// world is one run: hosts, connections and the network between them.
type world struct {
	seed  uint64
	r     *rand.Rand
	net   *network
	hosts []*host
	pairs []*pair
	// talkers are the QPs that aren't of a pair: UC and UD.
	talkers  []*talker
	messages map[uint64]*message // of talkers
	now      clock.Time
	trace    *Coverage
	posts    int // work requests posted
}

// host is one port, with the counters that peers add to.
type host struct {
	name     string
	port     *rocev2.Port
	links    []*link
	process  *mem.Process // its memory is reached as another process's is; nil: as its own
	counters []byte
	counterMR,
	tableMR *mem.MR // of counters, and of what peers READ
	pd       *mem.PD
	table    []byte
	tableSum [sha256.Size]byte
	foreign  foreign
	pool     *pool                         // nil: it has no SRQ
	founds   [counterWords]map[uint64]bool // what FETCH_ADDs of 1 found at each counter
	adds     [counterWords]uint64          // how many were posted
}

const (
	counterWords = 2
	tableSize    = sourceSize
)

// What the addresses of hosts are in; gidOf gives them.
var (
	hostsV4 = netip.MustParsePrefix("10.0.0.0/29")
	hostsV6 = netip.MustParsePrefix("fd77::/125")
)

func gidOf(i int, v6 bool) ib.GID {
	if v6 {
		return ib.GID{0: 0xfd, 1: 0x77, 15: byte(i + 1)}
	}
	return ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(i + 1)}
}

// newWorld makes hosts and connections out of the seed.
func newWorld(seed uint64, trace *Coverage) (*world, error) {
	r := rand.New(rand.NewPCG(seed, 0x757278e))
	w := &world{seed: seed, r: r, now: clock.Time(1 + r.Int64N(1e9)), trace: trace}
	w.net = &network{r: r, now: w.now, began: w.now, trace: trace, f: randomFaults(r), met: map[identity]int{}, garble: map[ib.QPN]bool{},
		links: map[string][]*link{}, verbose: trace.Verbose}
	for i := range 2 + r.IntN(2) {
		h, err := w.newHost(i)
		if err != nil {
			return nil, err
		}
		w.hosts = append(w.hosts, h)
	}
	for i := range 2 + r.IntN(3) {
		p, err := w.newPair(i)
		if err != nil {
			return nil, err
		}
		w.pairs = append(w.pairs, p)
	}
	w.net.onWire = w.onWire
	return w, w.newTalkers()
}

// randomFaults are none in one run of eight; else each kind in half of the runs.
func randomFaults(r *rand.Rand) faults {
	f := faults{latency: time.Duration(1+r.IntN(20)) * time.Microsecond}
	if r.IntN(8) == 0 {
		return f
	}
	for _, p := range []*float64{&f.lose, &f.duplicate, &f.corrupt, &f.reorder, &f.forge, &f.noRoom, &f.mark} {
		if r.IntN(2) == 0 {
			*p = r.Float64() * 0.1
		}
	}
	for range r.IntN(3) {
		f.flaps = append(f.flaps, flap{time.Duration(r.Int64N(int64(2 * time.Millisecond))), time.Duration(r.Int64N(int64(150 * time.Microsecond)))})
	}
	f.jitter = time.Duration(r.Int64N(int64(f.latency) + 1))
	return f
}

func (w *world) newHost(i int) (*host, error) {
	h := &host{name: fmt.Sprintf("host%d", i), pd: new(mem.PD)}
	var links []rocev2.Link
	cut := []int{3840, 3840, 128 + w.r.IntN(1000)}[w.r.IntN(3)]
	for range 1 + w.r.IntN(2) {
		l := &link{n: w.net, host: i, lent: map[uint64][]byte{}, cut: cut}
		h.links = append(h.links, l)
		links = append(links, l)
	}
	w.net.hosts = append(w.net.hosts, h.links)
	gids := []ib.GID{gidOf(i, false), gidOf(i, true)}
	for _, g := range gids {
		a := g.Addr().AsSlice()
		w.net.links[string(a)] = h.links
	}
	var err error
	h.port, err = rocev2.NewPort(rocev2.Config{
		Name: h.name, Links: links, Manual: true, Net: &rocev2.FixedNet{Addresses: gids},
		LoopFrames: []int{4, 32}[w.r.IntN(2)], NoCongestionControl: w.r.IntN(8) == 0,
		// ACK timeouts are as short as 262 µs here: all retries would be over
		// before a packet has left at the least rate of real networks, 1 Mb/s, or
		// an answer that is given again, behind the READ responses before it.
		Congestion: cc.Params{MinRate: 250 * cc.Mbps},
	})
	if err != nil {
		return nil, err
	}
	if i == 1 { // all but those who forge
		if err := h.port.SetAllowPeers([]netip.Prefix{hostsV4, hostsV6}); err != nil {
			return nil, err
		}
	}
	if w.r.IntN(8) == 0 {
		if h.process, err = mem.NewProcess(os.Getpid()); err != nil {
			return nil, err
		}
	}
	if err := h.registerShared(w.r); err != nil || w.r.IntN(2) == 0 {
		return h, err
	}
	return h, w.newPool(h)
}

// registerShared registers what all connections to the host share.
func (h *host) registerShared(r *rand.Rand) (err error) {
	h.counters, h.table = make([]byte, 8*counterWords), make([]byte, tableSize)
	fill(h.table, r)
	h.tableSum = sha256.Sum256(h.table)
	for i := range h.founds {
		h.founds[i] = map[uint64]bool{}
	}
	if h.counterMR, err = h.register(r, nil, h.counters, mem.LocalWrite|mem.RemoteAtomic|mem.RemoteRead); err != nil {
		return err
	}
	if h.tableMR, err = h.register(r, nil, h.table, mem.RemoteRead); err != nil {
		return err
	}
	return h.openForeign()
}

// register registers a buffer at an IOVA of its own, now and then the last of
// all addresses. process is whose memory it is, nil the host's.
func (h *host) register(r *rand.Rand, process *mem.Process, b []byte, acc mem.Access) (*mem.MR, error) {
	return h.registerIn(h.pd, r, process, b, acc)
}

func (h *host) registerIn(pd *mem.PD, r *rand.Rand, process *mem.Process, b []byte, acc mem.Access) (*mem.MR, error) {
	iova := r.Uint64() &^ 7
	if n := uint64(len(b)); iova > -n-8 || r.IntN(20) == 0 {
		iova = (-n - 8) &^ 7
	}
	addr := mem.Address(b)
	var space mem.Space = mem.NewBytes(b, addr)
	if process != nil {
		space = process
	} else if h.process != nil {
		space = h.process
	}
	return h.port.Keys().Register(pd, space, addr, iova, uint64(len(b)), acc)
}

func fill(b []byte, r *rand.Rand) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func (w *world) close() {
	for _, h := range w.hosts {
		if err := h.port.Close(); err != nil {
			w.net.violation("%s: close: %v", h.name, err)
		}
		if h.process != nil {
			h.process.Close()
		}
	}
	for _, p := range w.pairs {
		for _, e := range p.ends {
			if e.process != nil {
				e.process.Close()
			}
		}
	}
}

// run drives everything until nothing happens any more.
func (w *world) run() {
	const rounds = 2_000_000
	for range rounds {
		if len(w.net.errs) > 0 {
			return
		}
		if w.round() {
			w.tick(w.now.Add(200 * time.Nanosecond))
			continue
		}
		next := w.next()
		if next == clock.Never {
			if w.finish() {
				return
			}
			continue
		}
		w.tick(max(next, w.now+1))
	}
	w.net.violation("no end after %d rounds: %s", rounds, w.state())
}

// state tells where everything stands, for a run that doesn't end.
func (w *world) state() (s string) {
	for _, p := range w.pairs {
		for _, e := range p.ends {
			a := e.qp.Query()
			s += fmt.Sprintf("\n  %s: fate %d, %v (drain %d), %d to post, %d under way, %d receives, wakes in %v",
				e.name, p.fate, a.State, e.drain, e.todo, len(e.posted), e.rq.Pending(), e.wake.Sub(w.now))
		}
	}
	for _, t := range w.talkers {
		s += fmt.Sprintf("\n  %s: %v, posted %d of %d, %d under way, stopped %v, wakes in %v",
			t.name, t.qp.Query().State, t.next, t.total, t.sq.Pending(), t.stopped, t.wake.Sub(w.now))
	}
	for _, h := range w.hosts {
		for _, x := range h.port.Workers() {
			s += fmt.Sprintf("\n  %s worker %d: deadline in %v", h.name, x.Index(), x.Deadline().Sub(w.now))
		}
	}
	return s
}

// round lets every worker and every application act once.
func (w *world) round() (worked bool) {
	for _, h := range w.hosts {
		for i, x := range h.port.Workers() {
			l := h.links[i]
			if len(l.arrived) > 0 || l.busy || x.Deadline() <= w.now {
				l.busy = x.Step(w.now)
				worked = worked || l.busy
			}
		}
		worked = h.pool.act() || worked
	}
	for _, p := range w.pairs {
		worked = p.act() || worked
	}
	for _, t := range w.talkers {
		worked = t.act() || worked
	}
	return worked
}

func (w *world) tick(to clock.Time) {
	w.now = to
	w.net.advance(to)
}

// next returns when something happens by itself.
func (w *world) next() clock.Time {
	next := w.net.next()
	for _, h := range w.hosts {
		for _, x := range h.port.Workers() {
			next = min(next, x.Deadline())
		}
		for _, l := range h.links {
			if l.stalled {
				l.stalled, l.busy = false, true
				next = min(next, w.now.Add(time.Microsecond))
			}
		}
	}
	for _, t := range w.talkers {
		next = min(next, t.wake)
	}
	for _, h := range w.hosts {
		if h.pool != nil {
			next = min(next, h.pool.wake)
		}
	}
	for _, p := range w.pairs {
		if p.phase != working {
			continue
		}
		for _, e := range p.ends {
			if !e.gone {
				next = min(next, e.wake)
			}
		}
	}
	return next
}

// finish goes on to the next phase when nothing happens any more: the end of
// the faults, then the end of the connections. It reports true when all is over.
func (w *world) finish() bool {
	if !w.net.quiet {
		w.net.quiet = true
		for _, p := range w.pairs {
			p.hurry()
		}
		return false
	}
	over := true
	for _, p := range w.pairs {
		over = p.finish() && over
	}
	for _, t := range w.talkers {
		over = t.finish() && over
	}
	return over
}

// phase of a connection.
type phase uint8

const (
	working  phase = iota
	flushing       // brought to ERR, to see what is left flushed
	over
)

// pair is a connection between two ends.
type pair struct {
	w     *world
	name  string
	ends  [2]*end
	mtu   ib.MTU
	fate  fate
	phase phase
}

func (w *world) newPair(i int) (*pair, error) {
	p := &pair{w: w, name: fmt.Sprintf("pair%d", i), mtu: ib.MTU256 + ib.MTU(w.r.IntN(3))}
	if w.r.IntN(6) == 0 {
		p.mtu = ib.MTU256 + ib.MTU(w.r.IntN(5))
	}
	if i > 0 && w.r.IntN(3) == 0 { // the first pair always lives
		p.fate = fates[w.r.IntN(len(fates))]
	}
	hosts := [2]*host{w.hosts[w.r.IntN(len(w.hosts))], w.hosts[w.r.IntN(len(w.hosts))]}
	for k := range p.ends {
		e, err := p.newEnd(k, hosts[k])
		if err != nil {
			return nil, err
		}
		p.ends[k] = e
	}
	p.ends[0].peer, p.ends[1].peer = p.ends[1], p.ends[0]
	v6 := w.r.IntN(2)
	for _, e := range p.ends {
		if err := e.connect(v6); err != nil {
			return nil, err
		}
	}
	return p, p.fate.prepare(p)
}

// connect takes an end to RTS.
func (e *end) connect(gid int) error {
	if err := e.modify(qp.Attr{State: qp.Init, Port: 1, Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic},
		qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess); err != nil {
		return err
	}
	if err := e.modify(qp.Attr{
		State: qp.RTR, AV: qp.AV{DGID: gidOf(e.peer.host.index(), gid == 1), SGIDIndex: uint8(gid)}, PathMTU: e.pair.mtu,
		DestQPN: e.peer.qp.Number(), RQPSN: e.peer.psn, MaxDestRdAtomic: e.peer.rdAtomics, MinRNRTimer: e.rnrTimer,
	}, qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer); err != nil {
		return err
	}
	return e.modify(qp.Attr{
		State: qp.RTS, Timeout: e.timeout, RetryCnt: 7, RNRRetry: 7, SQPSN: e.psn, MaxRdAtomic: e.rdAtomics,
	}, qp.AttrState|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrSQPSN|qp.AttrMaxRdAtomic)
}

func (e *end) modify(a qp.Attr, m qp.AttrMask) error { return e.qp.Modify(&a, m) }

func (h *host) index() int { return int(h.name[len(h.name)-1] - '0') }
