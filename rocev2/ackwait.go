package rocev2

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// A positive acknowledgement costs a packet and a kick of its own, unless it
// shares the kick of an answer that a polling program is about to post, or
// acknowledges several messages at once. So it waits while requests come or
// packets are sent every few Steps. A peer that goes on without it, as one that
// plays ping-pong and looks at what it receives only, lets it wait through the
// lulls between as well.

const (
	// ackTime is how long an acknowledgement waits at most while Steps go on;
	// after that it goes with the next packet, or alone after twice that time.
	ackTime = 100 * time.Microsecond
	// ackMessages is for how many messages one is enough: the peer's work
	// requests keep their places in its queue until then.
	ackMessages = 16
	// ackSteps is how many Steps in which no request comes and nothing is sent
	// begin a lull. A poller makes some three a microsecond.
	ackSteps = 4
	// ackLull is how long a lull may be.
	ackLull = 25 * time.Microsecond
	// fewestLulls and mostLulls bound how many acknowledgements go as a lull
	// begins before one waits through it again: a wait in vain delays the peer by
	// ackLull, so each makes the next one rarer.
	fewestLulls, mostLulls = 64, 4096
	// skipWaits is how many acknowledgements don't wait at all after one whose
	// next Step was long in coming: the program seems to do other things than poll.
	skipWaits = 64
)

// ackWait is how a QP's acknowledgement waits.
type ackWait struct {
	since   clock.Time // when it began; 0: none waits
	stirred clock.Time // when a request came or something was sent last
	steps   uint8      // Steps since then, up to ackSteps + 1: the lull
	asked   bool       // requests came since the last Step that it waited for
	again   bool       // … among them one that came before: the peer has waited long enough
	ended   uint8      // messages that have ended since the last acknowledgement, up to ackMessages
	lulls   lulls
}

// came notes a packet of the peer, and what became of it.
func (a *ackWait) came(o wire.Opcode, v wire.Verdict) {
	i := o.Info()
	if !i.Request {
		return
	}
	a.asked = true
	a.again = a.again || v == wire.DropDuplicate
	if i.Place.Ends() {
		a.ended = min(a.ended+1, ackMessages)
	}
}

// due reports whether the acknowledgement is wanted now, whatever goes on.
func (a *ackWait) due() bool { return a.again || a.ended == ackMessages }

// stir notes that something goes on.
func (a *ackWait) stir(now clock.Time) { a.stirred, a.steps = now, 0 }

// lull notes a Step in which nothing went on.
func (a *ackWait) lull() { a.steps = min(a.steps+1, ackSteps+1) }

// inLull reports whether nothing goes on.
func (a *ackWait) inLull() bool { return a.steps > ackSteps }

// sitsOut reports whether the acknowledgement may wait although nothing goes on.
func (a *ackWait) sitsOut(now clock.Time) bool {
	return a.lulls.skip == 0 && now.Sub(a.stirred) < ackLull
}

// observe notes what a Step has brought, in which q sent something or not, and
// returns how long the acknowledgement may wait.
func (a *ackWait) observe(now clock.Time, sent bool) (limit time.Duration) {
	limit = ackTime
	switch {
	case sent:
		a.stir(now)
	case a.again:
		a.lulls.failed()
	case a.asked:
		if a.since != 0 && a.inLull() {
			a.lulls.paid()
		}
		a.stir(now)
		limit = 2 * ackTime // an answer may come, to go with
	case a.since == 0:
		a.stir(now)
	default:
		a.lull()
	}
	a.asked = false
	return limit
}

// goes notes that the acknowledgement is sent.
func (a *ackWait) goes() {
	a.since, a.ended, a.again = 0, 0, false
	a.lulls.sent()
}

// lulls is what is known of a peer that is not acknowledged at once: whether it
// sends its next request all the same.
type lulls struct {
	skip uint16 // acknowledgements that go as a lull begins, before the next trial
	next uint16 // as many there will be after a trial that fails
}

// paid says that the peer went on.
func (l *lulls) paid() { l.next = fewestLulls }

// failed says that it seems to wait for the acknowledgement. That is no news while
// none waits through a lull.
func (l *lulls) failed() {
	if l.skip > 0 {
		return
	}
	l.skip = max(l.next, fewestLulls)
	l.next = min(2*l.skip, mostLulls)
}

// sent counts an acknowledgement.
func (l *lulls) sent() { l.skip -= min(l.skip, 1) }

// ackMayWait reports whether acknowledgements of q may wait at all: only while a
// poller's lease lives. If the poller runs no other Step, the worker's goroutine
// does: on standby it looks when the lease is over, and it doesn't go to sleep
// on what waits (see deadline and tryStep).
func (w *Worker) ackMayWait(q *QP, now clock.Time, limit time.Duration) bool {
	return w.skipWaits == 0 && w.leased.Load() > int64(now) && (q.ack.since == 0 || now.Sub(q.ack.since) < limit)
}

// mustWait reports whether all that q would send now is an acknowledgement that
// should wait for the next Step. It sent so many packets in this one.
func (w *Worker) mustWait(q *QP, now clock.Time, sent int) bool {
	a := &q.ack
	if !a.asked && a.since == 0 || !q.core.OnlyAcks(now) {
		return false
	}
	limit := a.observe(now, sent > 0)
	if !a.due() && w.goesOnWaiting(q, now, limit) {
		return true
	}
	a.goes()
	w.skipWaits -= min(w.skipWaits, 1)
	return false
}

// goesOnWaiting reports whether the acknowledgement of q may wait for another Step.
func (w *Worker) goesOnWaiting(q *QP, now clock.Time, limit time.Duration) bool {
	a := &q.ack
	if !w.ackMayWait(q, now, limit) {
		return false
	}
	if !a.inLull() || a.sitsOut(now) {
		return true
	}
	a.lulls.failed()
	return false
}

// wait lets q's acknowledgement wait for the next Step.
func (w *Worker) wait(s *side, q *QP, now clock.Time) {
	w.deactivate(q)
	q.where = isWaiting
	s.waiting.push(q)
	if q.ack.since == 0 {
		q.ack.since = now
	}
}

// endWaits puts those in the line again who waited long enough. Who got a packet
// or work since is there already.
func (w *Worker) endWaits(s *side, now clock.Time) {
	for q := s.waiting.head; q != nil; {
		next := q.next
		a := &q.ack
		if now.Sub(a.since) > ackTime+lease {
			w.skipWaits = skipWaits
		}
		a.lull()
		if !w.goesOnWaiting(q, now, ackTime) {
			w.activate(q)
		}
		q = next
	}
}

// sayAcks sends what q owes before it ends: whoever has polled a receive may
// destroy its QP, and the sender's message was received all the same. The
// caller holds the token.
func (w *Worker) sayAcks(q *QP) {
	if q.where == idle {
		return
	}
	s := &w.sides[q.side]
	w.deactivate(q)
	w.activate(q)
	w.skipWaits = max(w.skipWaits, 1)
	w.turn(s, q, clock.Now(), quantum)
	w.dispatch()
	w.cancelSpare()
	w.cancelCopy()
	if err := s.link.Flush(); err != nil {
		w.linkFailed(s, err)
	}
	w.publish()
}
