package rocev2

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// THIS FILE IS THE CONTRACT while the package is being written; it goes away.

// Config is what a Port is made of.
type Config struct {
	Name    string
	Links   []Link // one per queue; each gets a worker
	Net     Net
	LinkMTU int  // of the interface, bytes; the active MTU follows from it
	Manual  bool // no goroutines: the caller drives Step and Deadline (simulation, tests)
}

// Net is the control plane of the interface under a Port: addresses, routes and neighbours. One kind watches netlink,
// one is a fixed table (in-memory links, simulation).
type Net interface {
	// GIDs returns the table: index → GID. An index never moves while the Port lives; a removed address leaves a zero GID
	// in its place until the same address returns.
	GIDs() []ib.GID
	// Resolve gives the flow (MACs, VLAN, addresses) from sgid to dgid, or false while the next hop isn't known; it has
	// then been asked for, and Changed is called when something became known.
	Resolve(sgid ib.GID, dgid ib.GID) (wire.Flow, bool, error)
	// Notify sets the function that is called, on any goroutine, when addresses, routes, neighbours or the link changed.
	Notify(func())
	MTU() int
	Up() bool
	Close() error
}

// Port is one RoCEv2 port.
type Port struct{}

func NewPort(c Config) (*Port, error)          { panic("contract") }
func (p *Port) Close() error                   { panic("contract") }
func (p *Port) Keys() *mem.Table               { panic("contract") }
func (p *Port) GIDs() []ib.GID                 { panic("contract") }
func (p *Port) ActiveMTU() ib.MTU              { panic("contract") }
func (p *Port) Workers() []*Worker             { panic("contract") }
func (p *Port) CreateQP(i QPInit) (*QP, error) { panic("contract") }

// Barrier returns when every worker has passed a Step boundary: nothing in flight names what was marked dead before.
func (p *Port) Barrier()                        { panic("contract") }
func (p *Port) Counters() Counters              { panic("contract") }
func (p *Port) Drops() [wire.NumVerdicts]uint64 { panic("contract") }

type Counters struct {
	SentPkts, RcvdPkts, SentBytes, RcvdBytes uint64
	qp.Counters
}

// CQ takes completions. Push is called by a worker once a burst, with all completions of the burst for this CQ; it must
// not block. It returns false when the CQ is overrun: the worker then moves the QPs to ERR.
type CQ interface {
	Push(cs []qp.Completion) bool
}

// QPInit is what a QP is created with.
type QPInit struct {
	PD             *mem.PD
	SQ             qp.SendQueue
	RQ             qp.RecvQueue
	SendCQ, RecvCQ CQ
	Caps           qp.Caps
	SigAll         bool
	OnEvent        func(qp.Event) // called by the worker; must not block
	Trace          qp.Trace
}

// QP is a QP of a Port.
type QP struct{}

func (q *QP) Number() ib.QPN                            { panic("contract") }
func (q *QP) Worker() *Worker                           { panic("contract") }
func (q *QP) Modify(a *qp.Attr, mask qp.AttrMask) error { panic("contract") }
func (q *QP) Query() qp.Attr                            { panic("contract") }

// Doorbell says that work was posted. Any goroutine.
func (q *QP) Doorbell() { panic("contract") }

// Destroy returns when nothing refers to the QP any more. No completion is delivered afterwards.
func (q *QP) Destroy() { panic("contract") }

// Worker runs the QPs of one queue.
type Worker struct{}

// Poll runs Step on the calling goroutine if no one else does, and renews the poller's lease (DESIGN decision 8).
func (w *Worker) Poll() { panic("contract") }

// Step is one round, for Manual ports: receive, handle, plan, send. It reports whether it did anything.
func (w *Worker) Step(now clock.Time) bool { panic("contract") }

// Deadline is when Step has something to do even if nothing arrives.
func (w *Worker) Deadline() clock.Time { panic("contract") }

var _ = time.Second
