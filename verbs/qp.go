package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/qp"
)

// QPInitAttr is what a QP is created with.
type QPInitAttr struct {
	Type           QPType   // 0: RC
	SendCQ, RecvCQ *CQ      // may be the same
	SRQ            *SRQ     // where its receives are posted; its PD may be another; nil: to the QP
	Caps           Caps     // the zero value stands for DefaultCaps; with an SRQ, of its send queue only
	SigAll         bool     // every send work request makes a completion
	Trace          qp.Trace // told what the QP does and why, within the transport: it must not block, nor call the QP; nil: nobody

	// BlockSelfMcastLB keeps copies of what the QP itself sends to a multicast group from it
	// (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
	BlockSelfMcastLB bool
}

// QP is a queue pair. All methods may be called by any goroutine.
type QP struct {
	dev    *Device
	pd     *PD
	init   QPInitAttr
	num    ib.QPN
	psn    atomic.Uint32 // the first that it sends, unless Modify says another
	engine engineQP
	poller poller
	state  atomic.Uint32 // the QPState that Modify left it in; an error may have moved it to ERR since
	gone   atomic.Bool
	events qpEvents

	modMu sync.Mutex // one Modify at a time
	sqMu  sync.Mutex // posters; then rqMu
	sq    *sendQueue
	rqMu  sync.Mutex
	rq    *recvQueue // nil: there is an SRQ

	errSQFull, errRQFull error // made once: who fills a queue on purpose meets them often
}

// CreateQP makes a QP in RESET. Its errors wrap ErrInvalid (a CQ is missing or of another device, Caps beyond DeviceAttr,
// no such type), ErrLimit, ErrClosed, or ErrBusy for a second QP of type GSI: a port has one.
func (p *PD) CreateQP(i QPInitAttr) (*QP, error) {
	d := p.dev
	i.defaults()
	if err := checkInit(d, &i); err != nil {
		return nil, err
	}
	q := &QP{dev: d, pd: p, init: i, sq: newSendQueue(i.Caps)}
	if i.SRQ == nil {
		q.rq = newRecvQueue(i.Caps)
	}
	q.newPSN()
	q.events.ch = make(chan Event, qpEventRoom)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := q.checkParents(); err != nil {
		return nil, err
	}
	if err := add(d, d.qps, q, limits.MaxQP, "QP"); err != nil {
		return nil, err
	}
	if err := q.create(); err != nil {
		delete(d.qps, q)
		if errors.Is(err, rocev2.ErrGSIOwned) {
			err = errors.Join(ErrBusy, err)
		}
		return nil, d.errorf("create QP: %w", err)
	}
	p.qps++
	if i.SRQ != nil {
		i.SRQ.qps++
	}
	i.SendCQ.attach(q)
	i.RecvCQ.attach(q)
	return q, nil
}

// defaults fills in what zero values stand for.
func (i *QPInitAttr) defaults() {
	if i.Type == 0 {
		i.Type = RC
	}
	if i.Caps == (Caps{}) {
		i.Caps = DefaultCaps
	}
	if i.SRQ != nil {
		i.Caps.MaxRecvWR, i.Caps.MaxRecvSGE = 0, 0
	}
}

// checkParents says whether what the QP is made of is still there. Under dev.mu.
func (q *QP) checkParents() error {
	d := q.dev
	err := errors.Join(stillIn(d, d.pds, q.pd, "create QP: PD"),
		stillIn(d, d.cqs, q.init.SendCQ, "create QP: SendCQ"), stillIn(d, d.cqs, q.init.RecvCQ, "create QP: RecvCQ"))
	if q.init.SRQ != nil {
		err = errors.Join(err, stillIn(d, d.srqs, q.init.SRQ, "create QP: SRQ"))
	}
	return err
}

// create makes the QP in the engine.
func (q *QP) create() error {
	i := rocev2.QPInit{
		Type: q.init.Type, PD: q.pd.pd, SQ: q.sq, RQ: q.rq, SendCQ: (*sink)(q.init.SendCQ), RecvCQ: (*sink)(q.init.RecvCQ),
		Caps: q.init.Caps, SigAll: q.init.SigAll, OnEvent: q.event, Trace: q.init.Trace,
		BlockSelfMcastLB: q.init.BlockSelfMcastLB,
	}
	if s := q.init.SRQ; s != nil {
		i.RQ, i.SharedRQ, i.RecvPD = s.queue, true, s.pd.pd
	}
	e, err := q.dev.engine.createQP(i)
	if err != nil {
		return err
	}
	q.engine, q.num, q.poller = e, e.Number(), e.poller()
	q.errSQFull = q.errorf("post send: send %w: MaxSendWR is %d", ErrQueueFull, q.init.Caps.MaxSendWR)
	q.errRQFull = q.errorf("post recv: receive %w: MaxRecvWR is %d", ErrQueueFull, q.init.Caps.MaxRecvWR)
	return nil
}

// event passes an event of the transport on.
func (q *QP) event(e qp.Event) {
	q.dev.events.push(Event{Type: EventType(e), QP: q})
	q.events.push(Event{Type: EventType(e), QP: q})
}

func checkInit(d *Device, i *QPInitAttr) error {
	if !i.Type.Valid() {
		return d.errorf("create QP: %w: %v (allowed: RC, UC, UD, GSI)", ErrInvalid, i.Type)
	}
	for _, c := range []*CQ{i.SendCQ, i.RecvCQ} {
		if c == nil {
			return d.errorf("create QP: %w: SendCQ and RecvCQ must both be set", ErrInvalid)
		}
		if c.dev != d {
			return d.errorf("create QP: %w: a CQ of device %s", ErrInvalid, c.dev.name)
		}
	}
	if i.SRQ != nil && i.SRQ.dev != d {
		return d.errorf("create QP: %w: the SRQ is of device %s", ErrInvalid, i.SRQ.dev.name)
	}
	for _, l := range []struct {
		name  string
		n     int
		limit string
		most  int
	}{
		{"MaxSendWR", i.Caps.MaxSendWR, "MaxQPWR", limits.MaxQPWR}, {"MaxRecvWR", i.Caps.MaxRecvWR, "MaxQPWR", limits.MaxQPWR},
		{"MaxSendSGE", i.Caps.MaxSendSGE, "MaxSGE", limits.MaxSGE}, {"MaxRecvSGE", i.Caps.MaxRecvSGE, "MaxSGE", limits.MaxSGE},
		{"MaxInline", i.Caps.MaxInline, "MaxInline", limits.MaxInline},
	} {
		if l.n < 0 || l.n > l.most {
			return d.errorf("create QP: %w: %s %d (allowed: 0 to %d, %s of the device)", ErrInvalid, l.name, l.n, l.most, l.limit)
		}
	}
	return nil
}

// Type returns the type of the QP.
func (q *QP) Type() QPType { return q.init.Type }

// Number returns the QP's number.
func (q *QP) Number() ib.QPN { return q.num }

// Device returns the device of the QP.
func (q *QP) Device() *Device { return q.dev }

// InitAttr returns what the QP was created with.
func (q *QP) InitAttr() QPInitAttr { return q.init }

// Modify changes the attributes that mask names, as ibv_modify_qp does. To RESET, all work requests are forgotten
// without completions, and those that wait in CQs are dropped; to ERR, they are flushed. On an error, which wraps
// ErrInvalid or ErrClosed and says what would be right, nothing has changed.
func (q *QP) Modify(a QPAttr, mask AttrMask) error {
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if q.gone.Load() {
		return q.errorf("modify: %w", ErrClosed)
	}
	if err := q.engine.Modify(&a, mask); err != nil {
		return fmt.Errorf("verbs: %w: %w", ErrInvalid, err) // it says which QP of which device
	}
	if mask&AttrState != 0 {
		q.entered(a.State)
	}
	return nil
}

// entered keeps what posting has to know of the state.
func (q *QP) entered(s QPState) {
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	q.state.Store(uint32(s))
	if s == StateReset {
		q.newPSN()
		q.purge()
		q.sq.clear()
		if q.rq != nil {
			q.rq.clear()
		}
	}
}

// freeRecvs frees n slots whose completions were polled.
func (q *QP) freeRecvs(n int) {
	if q.rq != nil {
		q.rq.free(n)
	} else {
		q.init.SRQ.queue.Free(n)
	}
}

// Query returns the attributes as they are now.
func (q *QP) Query() (QPAttr, error) {
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if q.gone.Load() {
		return QPAttr{}, q.errorf("query: %w", ErrClosed)
	}
	a := q.engine.Query()
	a.Caps = q.init.Caps
	return a, nil
}

// Destroy frees the QP. Work requests that haven't completed never will, but for receives of an SRQ, which wait there
// again; completions of the QP that wait in CQs are dropped.
func (q *QP) Destroy() error {
	if !q.retire() {
		return q.errorf("destroy: %w", ErrClosed)
	}
	q.engine.Destroy()
	q.events.close()
	d := q.dev
	d.events.withdraw(Event{QP: q})
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.qps, q)
	q.pd.qps--
	q.purge()
	q.init.SendCQ.detach(q)
	q.init.RecvCQ.detach(q)
	if q.init.SRQ != nil {
		q.init.SRQ.qps--
	}
	return nil
}

// purge drops the QP's completions that weren't polled.
func (q *QP) purge() {
	q.init.SendCQ.purge(q.num)
	if q.init.RecvCQ != q.init.SendCQ {
		q.init.RecvCQ.purge(q.num)
	}
}

// retire stops posts and Modify; false when someone did already.
func (q *QP) retire() bool {
	q.modMu.Lock()
	defer q.modMu.Unlock()
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	return !q.gone.Swap(true)
}

// maySend says whether work may be posted to the send queue. Under sqMu.
func (q *QP) maySend() error {
	switch s := QPState(q.state.Load()); {
	case q.gone.Load():
		return q.errorf("post send: %w", ErrClosed)
	case (s == StateReset || s == StateInit || s == StateRTR) && !q.failed():
		return q.errorf("post send: %w %v (allowed: RTS, SQD, ERR)", ErrState, s)
	}
	return nil
}

// failed reports whether an error moved the QP to ERR, and keeps it in mind.
func (q *QP) failed() bool {
	was := q.state.Load()
	if q.engine.Query().State != StateErr {
		return false
	}
	q.state.CompareAndSwap(was, uint32(StateErr))
	return true
}

// mayRecv says whether work may be posted to the receive queue. Under rqMu.
func (q *QP) mayRecv() error {
	switch {
	case q.gone.Load():
		return q.errorf("post recv: %w", ErrClosed)
	case q.rq == nil:
		return q.errorf("post recv: %w: the QP takes its receives from an SRQ: post there", ErrInvalid)
	case QPState(q.state.Load()) == StateReset:
		return q.errorf("post recv: %w RESET (allowed: every other)", ErrState)
	}
	return nil
}

func (q *QP) String() string { return fmt.Sprintf("%s QP %v", q.dev.name, q.num) }
