package qp

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// ackTimeout returns the local ACK timeout of a code: 4.096 µs × 2^code
// (IBA 9.7.6.1.3). Code 0 means never.
func ackTimeout(code uint8) time.Duration { return 4096 * time.Nanosecond << code }

// mostDelay is the binary logarithm of how many local ACK timeouts a timer may take
// to run out (IBA 9.7.6.1.3).
const mostDelay = 2

// armTimer starts the local ACK timer if it doesn't run. It takes twice as long after
// each timeout that brought nothing, as far as it may: a peer that has more to do than
// it can would have to do all of it again, and never end.
func (q *QP) armTimer(now clock.Time) {
	if r := &q.req; r.ackDeadline == clock.Never && q.attr.Timeout != 0 {
		r.ackDeadline = now.Add(ackTimeout(q.attr.Timeout) << r.timeouts)
	}
}

// restartTimer starts the local ACK timer anew.
func (q *QP) restartTimer(now clock.Time) {
	q.req.ackDeadline = clock.Never
	q.armTimer(now)
}

// rewind goes back to the oldest packet that isn't acknowledged, or behind what
// has come already. Of a READ there, the rest is asked for.
func (q *QP) rewind(why string) {
	r := &q.req
	q.trace(why, q.psnOf(r.top()))
	r.openRest(ib.PSNWindow)
	if r.nxt > r.top() {
		r.seek(r.top())
	}
	r.sinceAck, r.nakAt = 0, r.top()
	r.timing.forget()
	r.timing.at = clock.Never
	q.awaitGap()
}

// countRetry takes one of the retries that are left. Without, it fails the oldest
// request and returns false.
func (q *QP) countRetry(b *mem.Batch) bool {
	r := &q.req
	if r.retries == 0 {
		q.cfg.Counters.RetryExceeded++
		q.trace("retries exceeded", q.psnOf(r.una))
		q.fail(RetryExcErr, b)
		return false
	}
	r.retries--
	return true
}

// Unreachable ends the QP because no packet will ever pass again. The oldest
// request that an RC peer hasn't answered, or would be asked now, fails as when
// retries are exceeded; all else is flushed.
func (q *QP) Unreachable(now clock.Time) {
	switch {
	case q.state == Reset || q.state == Err:
	case q.svc.answers && q.state.sends() && (q.busy() || q.wantsRequest(now)):
		q.cfg.Counters.RetryExceeded++
		q.trace("unreachable", q.psnOf(q.req.una))
		q.failOldest(RetryExcErr)
	default:
		q.enter(Err, now)
	}
}

// rnrWait has the RNR NAK timer codes of IBA 9.7.5.2.8, table 45, in
// hundredths of a millisecond.
var rnrWait = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimeout returns how long a requester waits after an RNR NAK of that code.
func RNRTimeout(code uint8) time.Duration { return rnrWait[code&31] * 10 * time.Microsecond }

// handleRNR takes an RNR NAK for the packet at top. No other timer and no NAK
// ends the wait early.
func (q *QP) handleRNR(code uint8, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	if r.rnrUntil != clock.Never {
		return wire.DropDuplicate
	}
	q.cfg.Counters.RcvdRNRErr++
	if q.attr.RNRRetry != 7 { // 7 retries for ever (IBA 9.7.5.2.8)
		if r.rnrRetries == 0 {
			q.cfg.Counters.RNRRetryExceeded++
			q.fail(RNRRetryExcErr, b)
			return wire.Accepted
		}
		r.rnrRetries--
	}
	// The peer is there: what was lost before no longer counts, or a receiver
	// that takes its time would end a connection that RNR retry 7 keeps for ever.
	r.retries, r.timeouts = q.attr.RetryCnt, 0
	q.rewind("RNR NAK")
	r.nakAt = noNAK
	r.rnrUntil = now.Add(RNRTimeout(code))
	r.ackDeadline = clock.Never
	return wire.Accepted
}
