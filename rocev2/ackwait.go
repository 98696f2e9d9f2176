package rocev2

import "github.com/urxe/urxe/internal/clock"

// A positive acknowledgement may wait one Step, so that it shares the kick of
// the answer that a polling program is about to post.

// ackWaits is whether that is a good idea just now.
type ackWaits struct {
	since clock.Time // when an acknowledgement began to wait last
	skip  int        // so many that could wait don't
}

// skipWaits is how many acknowledgements don't wait after one whose next Step
// was long in coming: the program seems to do other things than poll.
const skipWaits = 64

// mayWait reports whether q's acknowledgement should wait for the next Step:
// once, and only while a poller's lease lives. If the poller doesn't run that
// Step, the worker's goroutine does: on standby it looks when the lease is over,
// and it doesn't go to sleep on what waits (see deadline and Poll).
func (w *Worker) mayWait(q *QP, now clock.Time) bool {
	if !q.patient || w.leased.Load() <= int64(now) || !q.core.OnlyAcks(now) {
		return false
	}
	if w.waits.skip > 0 {
		w.waits.skip--
		q.patient = false
		return false
	}
	return true
}

// wait lets q's acknowledgement wait for the next Step.
func (w *Worker) wait(s *side, q *QP, now clock.Time) {
	w.deactivate(q)
	q.where, q.patient = isWaiting, false
	s.waiting.push(q)
	w.waits.since = now
}

// endWaits puts those who waited in the line again.
func (w *Worker) endWaits(s *side, now clock.Time) {
	if s.waiting.n > 0 && now.Sub(w.waits.since) > lease {
		w.waits.skip = skipWaits
	}
	for q := s.waiting.head; q != nil; q = s.waiting.head {
		s.waiting.remove(q)
		q.where = isReady
		s.ready.push(q)
	}
}
