package rocev2

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/idmap"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// Config is what a Port is made of. The Port owns Links and Net, and closes them.
type Config struct {
	Name   string
	Links  []Link // one per queue; each gets a worker
	Net    Net
	Manual bool // no goroutines, no clock: the caller drives Step and Deadline (simulation, tests)

	// Spin is how long an idle worker looks for more before it sleeps; 0 means
	// 20 µs, negative never. Workers never spin when that could keep every
	// thread that runs Go (GOMAXPROCS) busy.
	Spin time.Duration
	// LoopFrames is how many frames of same-host traffic may be under way per
	// worker, a power of two; 0 means 256.
	LoopFrames int

	// PKeys is the P_Key table, at most MaxPKeys entries; nil means ib.PKeyDefault
	// alone. It never changes.
	PKeys ib.PKeyTable

	// NoCongestionControl turns DCQCN off: no packet is capable of ECN, marks and
	// congestion notifications are counted only. Otherwise Congestion has its
	// parameters.
	NoCongestionControl bool
	Congestion          cc.Params

	// AllowPeers, unless it is empty, lists whose packets are taken: see SetAllowPeers.
	AllowPeers []netip.Prefix
	// Takes, unless it is nil, reports whether packets to an address are for the port:
	// for Links that bring others, too. Any worker calls it.
	Takes func(ib.GID) bool
}

// Port is one RoCEv2 port.
type Port struct {
	cfg     Config
	net     Net
	keys    *mem.Table
	qps     idmap.Map[QP]
	groups  groups
	workers []*Worker
	sinks   sinks
	allow   atomic.Pointer[allowList] // nil: all peers

	congestion *cc.Params // nil: rates aren't controlled

	ahMu     sync.Mutex
	ahs      map[*AH]struct{}
	ahSerial uint32

	changed  chan struct{} // the network did
	parked   atomic.Bool   // some QP's next hop isn't known
	onChange atomic.Pointer[func()]
	stop     chan struct{}
	stopped  chan struct{} // the goroutine that follows changes has ended
	closing  sync.Once
	closeErr error
	netdev   *netdev // nil if it is none

	newCore func(qp.Config) core // qp.New; tests replace it
}

const (
	// The first QPN that is given out, and the last: 0 and 1 are the management
	// QPs, 0xffffff is multicast (IBA 3.5.3, 4.1.1).
	firstQPN, lastQPN = 2, 0xfffffe
	// quarantine is how many destroyed QPs' numbers rest before they may come
	// back: packets of theirs may still be on their way.
	quarantine = 4096
	// retryResolve is how often unknown next hops are asked for again.
	retryResolve = 100 * time.Millisecond
	// changePause is the least time between two looks at what changed.
	changePause = 2 * time.Millisecond
)

// MaxPKeys is the most entries of a P_Key table.
const MaxPKeys = 128

// ErrGSIOwned is why there can't be a second QP of type GSI.
var ErrGSIOwned = errors.New("QP1 has an owner already, and a port has one QP1")

// NewPort makes a Port, and starts its workers unless it is Manual. When it
// fails, Links and Net are still the caller's.
func NewPort(c Config) (*Port, error) {
	if len(c.Links) == 0 || c.Net == nil {
		return nil, errors.New("rocev2: a port needs at least one Link, and a Net")
	}
	if err := c.checkPKeys(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	p := &Port{
		cfg: c, net: c.Net, keys: new(mem.Table), ahs: make(map[*AH]struct{}), changed: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
		newCore: func(c qp.Config) core { return qp.New(c) },
	}
	if !c.NoCongestionControl {
		params := c.Congestion.WithDefaults()
		p.congestion = &params
	}
	p.qps.Quarantine(quarantine)
	p.groups.seed = maphash.MakeSeed()
	if err := p.SetAllowPeers(c.AllowPeers); err != nil {
		return nil, err
	}
	if err := p.makeWorkers(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	p.net.Notify(p.noteChange)
	if !c.Manual {
		p.start()
	}
	return p, nil
}

// start starts the goroutines.
func (p *Port) start() {
	for _, w := range p.workers {
		go w.run()
	}
	go p.follow()
}

// checkPKeys makes sure of a P_Key table.
func (c *Config) checkPKeys() error {
	if c.PKeys == nil {
		c.PKeys = ib.PKeyTable{ib.PKeyDefault}
	}
	if len(c.PKeys) > MaxPKeys {
		return fmt.Errorf("a P_Key table of %d entries: the most is %d (MaxPKeys)", len(c.PKeys), MaxPKeys)
	}
	return c.PKeys.Check()
}

func (p *Port) makeWorkers() error {
	for i, l := range p.cfg.Links {
		loop, err := newLoop(p.cfg.LoopFrames)
		if err != nil {
			return err
		}
		p.workers = append(p.workers, newWorker(p, i, l, loop))
	}
	n := len(p.workers)
	for _, w := range p.workers {
		w.in, w.out = make([]*handover, n), make([]*handover, n)
	}
	for i, from := range p.workers {
		for k, to := range p.workers {
			if i != k {
				h := newHandover(from, to)
				from.out[k], to.in[i] = h, h
			}
		}
	}
	return nil
}

// Name returns the device name.
func (p *Port) Name() string { return p.cfg.Name }

// Close stops the workers and closes Links and Net, whose errors it returns. QPs
// that are left deliver nothing any more.
func (p *Port) Close() error {
	p.closing.Do(func() {
		close(p.stop)
		if !p.cfg.Manual {
			<-p.stopped
		}
		for _, w := range p.workers {
			w.stop()
		}
		p.closeErr = p.release()
	})
	return p.closeErr
}

func (p *Port) release() (err error) {
	for _, w := range p.workers {
		for _, h := range w.out {
			if h != nil {
				h.dissolve()
			}
		}
	}
	for _, w := range p.workers {
		for i := range w.sides {
			err = errors.Join(err, w.sides[i].link.Close())
		}
	}
	return errors.Join(err, p.net.Close())
}

// Keys returns the table of the memory regions that peers and work requests name.
func (p *Port) Keys() *mem.Table { return p.keys }

// GIDs returns the GID table; see Net.
func (p *Port) GIDs() []ib.GID { return p.net.GIDs() }

// VLANOf returns the id of the VLAN that the GID at an index is of; 0: of none.
func (p *Port) VLANOf(index int) uint16 { return vlanOf(p.net.VLANs(), index) }

// PKeys returns the P_Key table. The caller doesn't change it.
func (p *Port) PKeys() ib.PKeyTable { return p.cfg.PKeys }

// ActiveMTU returns the greatest path MTU that the interface's MTU has room
// for, or 0 when there is none.
func (p *Port) ActiveMTU() ib.MTU { return ib.MTUForLink(p.net.MTU()) }

// State returns PORT_ACTIVE when the interface is up, and PORT_DOWN.
func (p *Port) State() ib.PortState {
	if p.net.Up() && p.Err() == nil {
		return ib.PortActive
	}
	return ib.PortDown
}

// LinkDowned returns how often the interface went down, also for so short a time that
// State has never told it.
func (p *Port) LinkDowned() uint64 {
	if d, ok := p.net.(interface{ Downs() uint64 }); ok {
		return d.Downs()
	}
	return 0
}

// Err returns why the Port can send and receive no more, or nil: the interface
// was removed, or its XDP program was.
func (p *Port) Err() error {
	for _, w := range p.workers {
		if e := w.failure.Load(); e != nil {
			return *e
		}
	}
	// A queue that sends nothing doesn't find out by itself.
	if d, ok := p.net.(interface{ failure() error }); ok && d.failure() != nil {
		return fmt.Errorf("%s: %w", p.Name(), d.failure())
	}
	return nil
}

// Workers returns the Port's workers, one per queue.
func (p *Port) Workers() []*Worker { return p.workers }

// CreateQP makes a QP in RESET on the worker with the fewest. The error says what i
// lacks, or that the port is closed or can only be closed; it wraps ErrGSIOwned when
// there is a QP of type GSI already.
func (p *Port) CreateQP(i QPInit) (*QP, error) {
	if i.PD == nil || i.SQ == nil || i.RQ == nil || i.SendCQ == nil || i.RecvCQ == nil {
		return nil, fmt.Errorf("%s: create QP: PD, both queues and both CQs must be given", p.Name())
	}
	if !i.Type.Valid() {
		return nil, fmt.Errorf("%s: create QP: %v: want RC, UC, UD or GSI", p.Name(), i.Type)
	}
	q := &QP{worker: p.leastLoaded(), transport: i.Type.Transport(), datagram: i.Type.Datagram(), onEvent: i.OnEvent, timer: noTimer,
		multicast: i.Type == qp.UD, blockSelf: i.BlockSelfMcastLB}
	w := q.worker
	w.token.Lock()
	defer w.token.Unlock()
	if w.closed.Load() {
		return nil, fmt.Errorf("%s: create QP: the port is closed", p.Name())
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("%s: create QP: the port can only be closed: %w", p.Name(), err)
	}
	q.sendCQ, q.recvCQ = w.attach(i.SendCQ), w.attach(i.RecvCQ)
	if err := p.number(q, &i); err != nil {
		w.detach(q.sendCQ)
		w.detach(q.recvCQ)
		return nil, fmt.Errorf("%s: create QP: %w", p.Name(), err)
	}
	q.core.SetMTU(p.ActiveMTU())
	w.qps[q] = struct{}{}
	w.load.Add(1)
	w.timers.grow(len(w.qps))
	return q, nil
}

// number gives q its number and core, and makes it known.
func (p *Port) number(q *QP, i *QPInit) error {
	numbered := func(n uint32) *QP {
		q.number = ib.QPN(n)
		q.core = p.newCore(qp.Config{
			Type: i.Type, QPN: q.number, PD: i.PD, Keys: p.keys, PKeys: p.cfg.PKeys, SQ: i.SQ, RQ: i.RQ, SharedRQ: i.SharedRQ,
			RecvPD: i.RecvPD, SendCQ: q.sendCQ, RecvCQ: q.recvCQ, Caps: i.Caps, SigAll: i.SigAll, Rings: true, Host: q,
			Counters: &q.worker.counters, Trace: i.Trace, Window: i.Window,
		})
		return q
	}
	if i.Type == qp.GSI {
		if n := uint32(ib.QPNGeneralServices); !p.qps.Insert(n, numbered(n)) {
			return ErrGSIOwned
		}
		return nil
	}
	if i.Number == 0 {
		_, err := p.qps.InsertRandom(firstQPN, lastQPN, numbered)
		return err
	}
	if n := uint32(i.Number); n < firstQPN || n > lastQPN || !p.qps.Insert(n, numbered(n)) {
		return fmt.Errorf("number %v is in use or reserved", i.Number)
	}
	return nil
}

func (p *Port) leastLoaded() *Worker {
	least := p.workers[0]
	for _, w := range p.workers {
		if w.sends && (!least.sends || w.load.Load() < least.load.Load()) {
			least = w
		}
	}
	return least
}

// Barrier returns when every worker has passed a Step boundary: nothing in
// flight names what was marked dead before.
func (p *Port) Barrier() {
	for _, w := range p.workers {
		w.token.Lock()
		//lint:ignore SA2001 a Step runs under the token from its beginning to its end
		w.token.Unlock()
	}
}
