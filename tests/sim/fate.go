package sim

import (
	"slices"
	"time"

	"github.com/urxe/urxe/rocev2/qp"
)

// fate is how a connection ends.
type fate uint8

const (
	lives       fate = iota
	badRKey          // an operation names memory that the peer doesn't grant
	badLKey          // an operation names memory that isn't there
	tooLong          // a SEND is longer than the receive
	badReceive       // a receive names memory that isn't there
	noReceive        // the peer never posts a receive again
	peerGone         // the peer's QP is destroyed
	toErr            // an application moves its QP to ERR
	memoryGone       // memory is deregistered while the peer READs and WRITEs it
	badResponse      // the peer answers with what does not fit the request
	windowGone       // a memory window is invalidated while the peer uses it
	badWindow        // an operation uses a window beyond what it opens
	peerReset        // the peer's QP is reset
	appGone          // the process of the peer's memory ends
)

var fates = []fate{badRKey, badLKey, tooLong, badReceive, noReceive, peerGone, toErr, memoryGone, badResponse, windowGone,
	badWindow, peerReset, appGone}

// prepare sets up what the fate needs from the start.
func (f fate) prepare(p *pair) error {
	if f != noReceive {
		return nil
	}
	a := qp.Attr{State: qp.SQD}
	for _, e := range p.ends {
		// The retry count may only be changed in SQD.
		if err := e.modify(a, qp.AttrState); err != nil {
			return err
		}
		if err := e.modify(qp.Attr{RNRRetry: uint8(e.r.IntN(3))}, qp.AttrRNRRetry); err != nil {
			return err
		}
		if err := e.modify(qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
			return err
		}
	}
	return nil
}

// starve reports whether an end posts no receives.
func (f fate) starve(e *end) bool { return f == noReceive && e.todo < 30 }

// spoil makes a work request the one that ends the connection, at its time.
func (f fate) spoil(e *end, w *work) *work {
	if w == nil || f == lives || e.todo > 20 {
		return w
	}
	switch f {
	case badRKey:
		if w.wqe.RKey != 0 && w.length > 0 {
			w.wqe.RKey ^= 1 + e.r.Uint32N(255)
			w.bad = true
		}
	case badLKey:
		if w.length > 0 && w.wqe.Flags&qp.Inline == 0 {
			w.wqe.SGEs = []qp.SGE{{Addr: w.wqe.SGEs[0].Addr, Length: uint32(w.length), LKey: e.mr.Key ^ 1}}
			w.bad = true
		}
	case tooLong:
		if w.wqe.Opcode == qp.WRSend {
			w.length = e.peer.recvRoom() + 1
			w.wqe.Flags &^= qp.Inline
			w.wqe.SGEs = e.pieces(0, w.length)
			w.bad = true
		}
	case badReceive:
		e.spoilReceive()
	case badWindow:
		e.abuseWindow(w)
	case peerGone, peerReset, toErr, memoryGone, appGone:
		if e == e.pair.ends[0] && e.todo == 20 {
			f.strike(e)
		}
	case badResponse:
		e.pair.w.net.garble[e.qp.Number()] = true
	case windowGone:
		if e == e.pair.ends[0] {
			return e.localInvalidate(w)
		}
	}
	return w
}

// strike is what happens in the middle of a flood.
func (f fate) strike(e *end) {
	hit := "QP to ERR in a flood"
	switch f {
	case peerGone:
		hit = "QP destroyed in a flood"
		e.peer.qp.Destroy()
		e.peer.broken, e.peer.gone = true, true
		e.peer.pool.left(&e.peer.recvs)
		e.peer.checkReleased()
	case peerReset:
		hit = "QP reset in a flood"
		e.peer.mustModify(qp.Attr{State: qp.Reset}, qp.AttrState)
		e.peer.broken, e.peer.gone = true, true
		e.peer.pool.left(&e.peer.recvs)
	case toErr:
		e.mustModify(qp.Attr{State: qp.Err}, qp.AttrState)
	case memoryGone:
		hit = "memory deregistered in a flood"
		e.host.port.Keys().Deregister(e.mr)
		e.lost = true
	case appGone:
		hit = "process gone in a flood"
		e.process.Abandon()
		e.lost = true
	}
	e.pair.w.trace.met[hit]++
}

// sharesReceives reports whether ends may take their receives from an SRQ, which
// others do, too.
func (f fate) sharesReceives() bool { return f != badReceive && f != noReceive }

// spoilReceive posts receives whose memory isn't there.
func (e *end) spoilReceive() {
	for e.rq.Pending() < e.depth && !e.broken {
		e.serial++
		e.rq.Post(&qp.RecvWQE{ID: e.serial, SGEs: []qp.SGE{{Addr: 1, Length: uint32(e.slot), LKey: 1}}})
		e.places = append(e.places, e.recvAt)
		e.qp.Doorbell()
	}
}

// failures has what the first error completion may be, per fate. A connection
// that ends also loses the answers to what was under way, and its NAK may be
// lost: the other end then only sees silence.
var failures = map[fate][]qp.WCStatus{
	badRKey:     {qp.RemAccessErr, qp.RetryExcErr, qp.WRFlushErr},
	badLKey:     {qp.LocProtErr, qp.RetryExcErr, qp.WRFlushErr},
	tooLong:     {qp.RemInvReqErr, qp.RetryExcErr, qp.WRFlushErr},
	badReceive:  {qp.RemOpErr, qp.RetryExcErr, qp.WRFlushErr},
	noReceive:   {qp.RNRRetryExcErr, qp.RetryExcErr, qp.WRFlushErr},
	peerGone:    {qp.RetryExcErr},
	toErr:       {qp.WRFlushErr, qp.RetryExcErr},
	badResponse: {qp.BadRespErr, qp.RetryExcErr, qp.WRFlushErr},
	windowGone:  {qp.RemAccessErr, qp.RetryExcErr, qp.WRFlushErr},
	badWindow:   {qp.RemAccessErr, qp.RetryExcErr, qp.WRFlushErr},
	peerReset:   {qp.RetryExcErr},
	appGone:     {qp.RemAccessErr, qp.RemOpErr, qp.LocProtErr, qp.RetryExcErr, qp.WRFlushErr},
	memoryGone:  {qp.RemAccessErr, qp.RemOpErr, qp.LocProtErr, qp.RetryExcErr, qp.WRFlushErr},
}

// allows reports whether the first error of the send queue may be s.
func (f fate) allows(_ *end, s qp.WCStatus) bool { return slices.Contains(failures[f], s) }

// allowsRecv reports whether a receive may end with s.
func (f fate) allowsRecv(_ *end, s qp.WCStatus) bool {
	switch {
	case f == lives:
		return false
	case s == qp.WRFlushErr:
		return true
	case f == tooLong:
		return s == qp.LocLenErr
	case f == memoryGone || f == appGone: // a SEND found no place, or a WRITE with immediate no memory
		return s == qp.LocProtErr || s == qp.LocAccessErr
	case f == badReceive:
		return s == qp.LocProtErr
	}
	return s == qp.LocAccessErr && (f == badRKey || f == windowGone || f == badWindow)
}

// drainState is where an end stands with draining its send queue.
type drainState uint8

const (
	notDraining drainState = iota
	draining
)

// startDrain moves the QP to SQD, unless it has ended.
func (e *end) startDrain() {
	if e.drain != notDraining || e.qp.Query().State != qp.RTS {
		return
	}
	e.drain = draining
	e.events[qp.EventSQDrained] = 0
	e.mustModify(qp.Attr{State: qp.SQD, SQDAsyncNotify: true}, qp.AttrState|qp.AttrSQDAsyncNotify)
}

// checkDrain moves it back to RTS when the event has come. It may end before.
func (e *end) checkDrain() {
	if e.drain != draining {
		return
	}
	if e.qp.Query().State == qp.Err {
		e.drain = notDraining
		e.pair.w.trace.met["drain that ended in ERR"]++
		return
	}
	e.wake = min(e.wake, e.pair.w.now.Add(20*time.Microsecond))
	if e.events[qp.EventSQDrained] == 0 {
		return
	}
	if e.qp.Query().SQDraining {
		e.violation("SQ_DRAINED was raised with requests under way")
	}
	e.drain = notDraining
	e.mustModify(qp.Attr{State: qp.RTS}, qp.AttrState)
}

func (e *end) mustModify(a qp.Attr, m qp.AttrMask) {
	if err := e.modify(a, m); err != nil {
		e.violation("%v", err)
	}
}

// act lets the applications of both ends act.
func (p *pair) act() (worked bool) {
	for _, e := range p.ends {
		worked = e.act() || worked
	}
	return worked
}

// hurry ends all thinking: receives are posted from now on.
func (p *pair) hurry() {
	for _, e := range p.ends {
		e.holdRecv, e.wake = 0, p.w.now
	}
}

// end takes the connection a phase further; it reports true when it is over.
func (p *pair) finish() bool {
	switch p.phase {
	case working:
		for _, e := range p.ends {
			e.checkDone()
		}
		p.phase = flushing
		for _, e := range p.ends {
			if !e.gone {
				e.mustModify(qp.Attr{State: qp.Err}, qp.AttrState)
			}
		}
		return false
	case flushing:
		for _, e := range p.ends {
			if !e.gone {
				e.checkQueues()
				e.pool.checkLast(&e.recvs, e.name)
			}
		}
		p.phase = over
	}
	return true
}

// checkDone checks what must hold when nothing happens any more.
func (e *end) checkDone() {
	if e.pair.fate == lives && e.todo > 0 {
		e.violation("stuck with %d work requests still to be posted, %d under way", e.todo, len(e.posted))
		return
	}
	e.checkMemory()
}
