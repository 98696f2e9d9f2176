package rocev2

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// A positive acknowledgement costs a packet and a kick of its own, unless it
// shares the kick of an answer that a polling program is about to post, or
// acknowledges several messages at once. So it waits as long as that goes on:
// something came or was sent in one of the last Steps. Else, and after ackTime
// in any case, it is sent.

const (
	// ackTime is how long an acknowledgement waits at most while Steps go on;
	// after that it goes with the next packet, or alone after twice that time.
	ackTime = 25 * time.Microsecond
	// ackSteps is for how many Steps in which nothing comes and nothing is sent
	// it waits. A poller makes some three a microsecond.
	ackSteps = 4
)

// ackWaits is whether to wait is a good idea just now.
type ackWaits struct {
	skip int // so many acknowledgements that could wait don't
}

// skipWaits is how many acknowledgements don't wait after one whose next Step
// was long in coming: the program seems to do other things than poll.
const skipWaits = 64

// ackMayWait reports whether acknowledgements of q may wait at all: only while a
// poller's lease lives. If the poller runs no other Step, the worker's goroutine
// does: on standby it looks when the lease is over, and it doesn't go to sleep
// on what waits (see deadline and tryStep).
func (w *Worker) ackMayWait(q *QP, now clock.Time, limit time.Duration) bool {
	return w.waits.skip == 0 && w.leased.Load() > int64(now) && (q.waiting == 0 || now.Sub(q.waiting) < limit)
}

// mustWait reports whether all that q would send now is an acknowledgement that
// should wait for the next Step. It sent so many packets in this one.
func (w *Worker) mustWait(q *QP, now clock.Time, sent int) bool {
	if !q.core.OnlyAcks(now) {
		return false
	}
	limit := ackTime
	switch {
	case sent > 0:
		q.quiet = 0
	case q.fresh: // an answer may come, to go with
		q.quiet, limit = 0, 2*ackTime
	default:
		q.quiet++
	}
	if q.quiet <= ackSteps && w.ackMayWait(q, now, limit) {
		return true
	}
	q.waiting = 0 // it goes now
	w.waits.skip = max(0, w.waits.skip-1)
	return false
}

// wait lets q's acknowledgement wait for the next Step.
func (w *Worker) wait(s *side, q *QP, now clock.Time) {
	w.deactivate(q)
	q.where, q.fresh = isWaiting, false
	s.waiting.push(q)
	if q.waiting == 0 {
		q.waiting = now
	}
}

// endWaits puts those who waited in the line again.
func (w *Worker) endWaits(s *side, now clock.Time) {
	for q := s.waiting.head; q != nil; q = s.waiting.head {
		if now.Sub(q.waiting) > ackTime+lease {
			w.waits.skip = skipWaits
		}
		s.waiting.remove(q)
		q.where = isReady
		s.ready.push(q)
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
	w.waits.skip = max(w.waits.skip, 1)
	w.turn(s, q, clock.Now(), quantum)
	w.dispatch()
	w.cancelSpare()
	if err := s.link.Flush(); err != nil {
		w.linkFailed(s, err)
	}
	w.publish()
}
