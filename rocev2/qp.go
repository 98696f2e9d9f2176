package rocev2

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// core is the protocol core of a QP, a qp.QP, as its worker drives it.
type core interface {
	State() qp.State
	Modify(a *qp.Attr, mask qp.AttrMask, now clock.Time) error
	Query() qp.Attr
	SetPath(t *wire.Template)
	SetMTU(m ib.MTU)
	PathsChanged()
	Handle(p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict
	Plan(now clock.Time, p *qp.TxPacket, b *mem.Batch) bool
	Pace(clock.Time)
	Congested()
	FrameRoom() int
	OnlyAcks(now clock.Time) bool
	HoldAcks(bool)
	Deadline() clock.Time
	Prolong(now, until clock.Time) bool
	Expire(now clock.Time)
	Unreachable(now clock.Time)
	Release()
	Posted()
	Touch() uint64
	TouchRequests(posted bool) uint64
}

// QPInit is what a QP is created with.
type QPInit struct {
	Type           qp.Type // 0: RC
	PD             *mem.PD
	SQ             qp.SendQueue
	RQ             qp.RecvQueue
	SharedRQ       bool    // RQ is an SRQ: other QPs take from it, too
	RecvPD         *mem.PD // of the SRQ; nil: PD
	SendCQ, RecvCQ CQ
	Caps           qp.Caps
	SigAll         bool
	OnEvent        func(qp.Event) // called by the worker; must not block
	Trace          qp.Trace
	// BlockSelfMcastLB keeps copies of what the QP itself sends to a group that it
	// is attached to from it (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
	BlockSelfMcastLB bool

	Window int    // most request packets in flight; 0: qp.DefaultWindow
	Number ib.QPN // 0: a random one, or, for GSI, 1; for simulations and tests
}

// QP is a QP of a Port. All methods may be called by any goroutine but from
// within CQ.Push, OnEvent and Trace, which run under the worker's token: there,
// only Number, Worker, Doorbell and Kick may.
type QP struct {
	number    ib.QPN
	transport wire.Transport
	datagram  bool
	side      uint8       // by which packets leave; of a datagram QP, the next one
	where     uint8       // idle, isReady or isWaiting
	dead      atomic.Bool // destroyed
	rxePeer   atomic.Bool // see rxeFlush
	rung      atomic.Bool // it is among the doorbells
	timer     int32       // number in the worker's timers, or noTimer
	pkey      ib.PKey     // that packets to q must match
	multicast bool        // it may be attached to groups, and send to them
	blockSelf bool        // see QPInit.BlockSelfMcastLB
	posted    bool        // something was, and the core doesn't know
	limited   bool        // its rate is: congestion.limiter.Limited, where each packet looks
	nextRung  *QP
	worker    *Worker

	// The worker's, as are side, where and timer, under its token. What each packet
	// needs comes first, and fills whole cache lines: see touch.
	next, prev *QP // in the list of where
	core       core
	sendCQ     *cqBurst
	template   wire.Template // of packets to the peer of a connection; also says what the peer's look like
	ack        ackWait
	recvCQ     *cqBurst
	congestion congestion
	path       path

	onEvent func(qp.Event)
	groups  map[groupKey]struct{} // that it is attached to; under the Port's groups.mu
}

// errDestroyed is what calls on a destroyed QP return.
var errDestroyed = errors.New("it was destroyed")

// Number returns the QP's number.
func (q *QP) Number() ib.QPN { return q.number }

// Worker returns the QP's home worker: the one whose Poll makes it progress.
func (q *QP) Worker() *Worker { return q.worker }

// Modify changes attributes, as ibv_modify_qp. With AttrAV, the source GID index
// must name an address, and both GIDs be of one kind; the path MTU must be at
// most the Port's active one. A peer whose MAC address isn't known yet is no
// error: it is asked for, and packets wait. On an error nothing has changed.
func (q *QP) Modify(a *qp.Attr, mask qp.AttrMask) (err error) {
	p := q.worker.port
	attr := *a
	if attr.AV, err = p.checkAttr(a, mask); err == nil {
		var k ends
		var h hop
		if mask&(qp.AttrAV|qp.AttrDestQPN) != 0 {
			k = q.endsOf(&attr, mask)
			h = p.resolve(k)
		}
		q.worker.control(func() { err = q.modify(&attr, mask, k, h) })
	}
	if err != nil {
		return fmt.Errorf("%s: QP %v: %w", p.Name(), q.number, err)
	}
	return nil
}

// endsOf returns the ends of q's path with the attributes of mask.
func (q *QP) endsOf(a *qp.Attr, mask qp.AttrMask) ends {
	if mask&qp.AttrAV != 0 {
		return q.worker.port.endsOf(&a.AV)
	}
	q.worker.token.Lock()
	defer q.worker.token.Unlock()
	return q.path.ends
}

func (q *QP) modify(a *qp.Attr, mask qp.AttrMask, k ends, h hop) error {
	if q.dead.Load() {
		return errDestroyed
	}
	if mask&qp.AttrState != 0 && (a.State == qp.Reset || a.State == qp.Err) && !q.worker.closed.Load() {
		q.worker.sayAcks(q)
	}
	if err := q.core.Modify(a, mask, clock.Now()); err != nil {
		return err
	}
	if mask&qp.AttrPKeyIndex != 0 {
		q.pkey = q.worker.port.cfg.PKeys[a.PKeyIndex]
	}
	switch {
	case q.core.State() == qp.Reset:
		q.forgetPath()
		q.congestion, q.limited = congestion{}, false
	case mask&(qp.AttrAV|qp.AttrDestQPN) != 0:
		q.usePath(k, h)
	}
	q.worker.activate(q)
	return nil
}

// Query returns the QP's attributes.
func (q *QP) Query() qp.Attr {
	q.worker.token.Lock()
	defer q.worker.token.Unlock()
	return q.core.Query()
}

// Doorbell says that work was posted. Any goroutine.
func (q *QP) Doorbell() {
	q.worker.bells.ring(q)
	q.worker.nudge()
}

// Kick says that work was posted to the send queue, as Doorbell does. Within a
// poller's lease it may send it at once, on this goroutine: so it must not be
// called with a lock held that a CQ's Push, OnEvent or Trace takes.
func (q *QP) Kick() {
	q.worker.bells.ring(q)
	q.worker.kick()
}

// Destroy returns when nothing refers to the QP any more, multicast groups
// included. No completion is delivered afterwards. The windows of type 2 that it
// has bound are free again.
func (q *QP) Destroy() {
	q.worker.control(q.destroy)
	q.detachAll()
}

// destroy runs under the token: so no memory operation, planned packet or
// completion of the QP is under way.
func (q *QP) destroy() {
	if q.dead.Load() {
		return
	}
	w := q.worker
	if !w.closed.Load() {
		w.sayAcks(q)
	}
	q.dead.Store(true)
	q.core.Release()
	w.port.qps.Delete(uint32(q.number))
	w.deactivate(q)
	w.timers.remove(q)
	if w.recent == q {
		w.recent = nil
	}
	delete(w.qps, q)
	w.load.Add(-1)
	w.detach(q.sendCQ)
	w.detach(q.recvCQ)
}

// Complete implements qp.Host.
func (q *QP) Complete(cq qp.CompletionQueue) *qp.Completion {
	return q.worker.complete(cq.(*cqBurst))
}

// Notify implements qp.Host.
func (q *QP) Notify(_ *qp.QP, e qp.Event) {
	if e == qp.EventLastWQEReached {
		q.recvCQ.push() // before the event, so that who reads it finds the last one
	}
	if q.onEvent != nil {
		q.onEvent(e)
	}
}
