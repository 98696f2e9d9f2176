package cc

import (
	"math/bits"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// Phase is where a Limiter stands; the diagram is in the package's description.
type Phase uint8

// The phases.
const (
	Unlimited Phase = iota
	FastRecovery
	AdditiveIncrease
	HyperIncrease
)

func (p Phase) String() string {
	return [...]string{"unlimited", "fast recovery", "additive increase", "hyper increase"}[p]
}

// Limiter is the reaction point of a QP. The zero value is ready, and limits
// nothing.
//
// Its timers run out when it is next called: CNP, Sent and Ready first make up
// for the time since the call before.
type Limiter struct {
	limited      bool
	rate, target Rate
	alpha        Fraction

	timerEvents, byteEvents int // since the last cut: the paper's T and BC
	bytes                   uint64
	increased               bool // since the last cut

	alphaAt clock.Time // α goes down
	timerAt clock.Time // an event of increase
	cutAt   clock.Time // another cut may be made

	next clock.Time // the next packet may be sent
}

// maxBehind bounds the events that are made up for at once. A QP that was idle
// for longer begins anew, without a limit.
const maxBehind = 4096

// slack is how many bytes of the past a QP may make up for in a burst: a worker
// comes to it every so often, not at the very time of each frame.
const slack = 16 << 10

// Phase returns where the Limiter stands at the time of its last call.
func (l *Limiter) Phase(p *Params) Phase {
	switch most, least := max(l.timerEvents, l.byteEvents), min(l.timerEvents, l.byteEvents); {
	case !l.limited:
		return Unlimited
	case most < p.Threshold:
		return FastRecovery
	case least > p.Threshold:
		return HyperIncrease
	}
	return AdditiveIncrease
}

// Limited reports whether the QP is limited, or was when the Limiter was last called.
func (l *Limiter) Limited() bool { return l.limited }

// Rate returns the rate that the QP is limited to: the line's when it is not.
func (l *Limiter) Rate(p *Params) Rate {
	if !l.limited {
		return p.LineRate
	}
	return l.rate
}

// CNP takes a congestion notification: the rate is cut, and the way back begins
// anew (the paper's equation 1).
func (l *Limiter) CNP(now clock.Time, p *Params) {
	l.catchUp(now, p)
	if !l.limited {
		*l = Limiter{limited: true, rate: p.LineRate, target: p.LineRate, alpha: p.InitialAlpha, increased: true, next: l.next}
	}
	if now >= l.cutAt {
		l.cut(now, p)
	}
	l.alpha = towardsOne(l.alpha, p.G)
	l.alphaAt = now.Add(p.AlphaPeriod)
}

func (l *Limiter) cut(now clock.Time, p *Params) {
	if l.increased || !p.KeepTarget {
		l.target = l.rate
	}
	l.rate = max(l.rate-scale(l.rate, l.alpha)/2, p.MinRate)
	l.cutAt = now.Add(p.CutPeriod)
	l.timerAt = now.Add(p.Timer)
	l.timerEvents, l.byteEvents, l.bytes, l.increased = 0, 0, 0, false
}

// scale returns r times f.
func scale(r Rate, f Fraction) Rate {
	hi, lo := bits.Mul64(uint64(r), uint64(f))
	q, _ := bits.Div64(hi, lo, uint64(One))
	return Rate(q)
}

func towardsOne(a, g Fraction) Fraction { return towardsZero(a, g) + g }

func towardsZero(a, g Fraction) Fraction { return a - Fraction(uint64(a)*uint64(g)/uint64(One)) }

// Sent takes a frame of n bytes that was sent at the time now.
func (l *Limiter) Sent(n int, now clock.Time, p *Params) {
	l.catchUp(now, p)
	if !l.limited {
		return
	}
	l.bytes += uint64(n)
	for l.limited && l.bytes >= p.Bytes {
		l.bytes -= p.Bytes
		l.increase(&l.byteEvents, p)
	}
	l.next = max(l.next, now.Add(-l.timeOf(slack, p))).Add(l.timeOf(n, p))
}

// timeOf returns how long a frame takes at the present rate.
func (l *Limiter) timeOf(n int, p *Params) time.Duration {
	return time.Duration(uint64(n) * 8 * uint64(time.Second) / uint64(l.Rate(p)))
}

// Ready returns when the next frame may be sent: now or before, or a time to come.
func (l *Limiter) Ready(now clock.Time, p *Params) clock.Time {
	l.catchUp(now, p)
	if !l.limited {
		return now
	}
	return l.next
}

// catchUp lets the timers run out that were due by now, in their order.
func (l *Limiter) catchUp(now clock.Time, p *Params) {
	for range maxBehind {
		switch {
		case !l.limited || now < min(l.alphaAt, l.timerAt):
			return
		case l.alphaAt <= l.timerAt:
			l.relax(now, p)
		default:
			l.timerAt = l.timerAt.Add(p.Timer)
			l.increase(&l.timerEvents, p)
		}
	}
	*l = Limiter{} // idle for long
}

// relax moves α towards zero, for as many periods as have passed up to now and
// up to the next event of the timer (equation 2). Where it can't get lower, the
// rest of them are skipped.
func (l *Limiter) relax(now clock.Time, p *Params) {
	for until := min(now, l.timerAt); l.alphaAt <= until; l.alphaAt = l.alphaAt.Add(p.AlphaPeriod) {
		a := towardsZero(l.alpha, p.G)
		if a == l.alpha {
			left := until.Sub(l.alphaAt) / p.AlphaPeriod
			l.alphaAt = l.alphaAt.Add(left * p.AlphaPeriod)
		}
		l.alpha = a
	}
}

// increase takes an event of the timer or of the bytes: the rate goes half way to
// the target, which the phases after fast recovery raise (equations 3 and 4).
func (l *Limiter) increase(events *int, p *Params) {
	switch l.Phase(p) {
	case AdditiveIncrease:
		l.target += p.AI
	case HyperIncrease:
		l.target += p.HAI
	}
	*events++
	l.increased = true
	l.target = min(l.target, p.LineRate)
	l.rate += (l.target - l.rate) / 2
	if l.target == p.LineRate && p.LineRate-l.rate < p.AI {
		*l = Limiter{} // as good as the line's: the next CNP is a first one
	}
}
