package qp

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// The local ACK timeout is made for the worst that a network can do: it is
// thousands of round trips long. So the requester measures how long answers take,
// and when one is overdue it asks, early: it sends the oldest packet that isn't
// acknowledged again, or asks for a response again. A probe is no retry: the local
// ACK timer runs on, and each probe in vain doubles the time until the next.
//
// What a probe makes up for is what no NAK tells of: the end of what was sent is
// lost, or all acknowledgements, or the NAK itself, or what a NAK has had sent again
// (the peer says it once: IBA 9.7.5.1.3).

const (
	// leastMargin is what an answer may take longer than it is expected to.
	leastMargin = 5 * time.Microsecond
	// heldBack is how long a peer with little to acknowledge may wait for company,
	// as the responder of this package's worker does.
	heldBack = time.Millisecond
	// mostDoublings bounds the time between probes.
	mostDoublings = 10
	// probeRead is how many packets of a READ's response the first probe asks for.
	// Each that follows without more having come asks for twice as many.
	probeRead = 16
)

// timing is what the requester knows of the time that answers take.
type timing struct {
	at        clock.Time    // when to probe
	mean, dev time.Duration // of an answer (RFC 6298); 0: none was seen yet
	// timed is the sequence number behind the packet whose answer is timed, sent
	// at timedAt; 0: there is none.
	timed   uint64
	timedAt clock.Time
	// expected is the sequence number behind the last packet that draws an answer.
	expected uint64
	count    uint8 // since the last progress
	// single has the packet of a probe stay the only one until it is answered.
	single bool
}

// sample takes the time that an answer took.
func (p *timing) sample(d time.Duration) {
	d = max(d, 1)
	if p.mean == 0 {
		p.mean, p.dev = d, d/2
		return
	}
	p.dev += (max(d-p.mean, p.mean-d) - p.dev) / 4
	p.mean += (d - p.mean) / 8
}

// forget gives up timing: what is sent again has no certain answer.
func (p *timing) forget() { p.timed, p.single = 0, false }

// patience returns how long an answer may take from now on.
func (q *QP) patience() time.Duration {
	r := &q.req
	p := &r.timing
	d := p.mean + max(4*p.dev, p.mean/4, leastMargin)
	t := r.at(r.acking)
	switch {
	case r.gaps.n > 0 || r.nakAt == r.una: // something is lost for certain
	case r.flight < q.cfg.Window/2:
		d = max(d, heldBack)
	}
	if r.gaps.n == 0 && r.una == t.first && t.isRead() { // it would be answered twice as a whole
		d += d * time.Duration(t.packets/32)
	}
	return d << min(p.count, mostDoublings)
}

// expect notes that the packet before nxt, sent now, draws an answer. The timer is
// that of the oldest such packet.
func (q *QP) expect(now clock.Time) {
	p := &q.req.timing
	p.expected = q.req.nxt
	if p.mean > 0 && q.req.gaps.n == 0 {
		p.at = min(p.at, now.Add(q.patience()))
	}
}

// time begins to time the packet of t at nxt, which is sent now, unless another is
// timed. A READ's response is timed if it has no other to wait for.
func (r *requester) time(t *request, now clock.Time) {
	if p := &r.timing; p.timed == 0 && (!t.responds() || r.rdAtomics == 1) {
		p.timed, p.timedAt = r.nxt+1, now
	}
}

// answeredTo notes that una has moved on.
func (q *QP) answeredTo(una uint64, now clock.Time) {
	r := &q.req
	p := &r.timing
	if p.timed != 0 && una >= p.timed {
		p.sample(now.Sub(p.timedAt))
		p.timed = 0
	}
	p.count, p.single, p.at = 0, false, clock.Never
	switch {
	case r.gaps.n > 0:
		q.awaitGap()
	case r.rnrUntil != clock.Never:
	case p.expected > una && p.mean > 0:
		p.at = now.Add(q.patience())
	}
}

// awaitGap sets the time by which the first gap, if it was asked for, should be
// filled.
func (q *QP) awaitGap() {
	p := &q.req.timing
	if g := &q.req.gaps; g.n > 0 && g.list[0].asked != 0 && p.mean > 0 {
		p.at = g.list[0].asked.Add(q.patience())
	}
}

// probe asks whether an answer is missing, or the peer takes its time.
func (q *QP) probe(now clock.Time) {
	r := &q.req
	p := &r.timing
	p.at = clock.Never
	if q.paced(now) {
		p.at = q.pace.Add(q.patience())
		return
	}
	q.cfg.Counters.Probes++
	q.trace("probe", q.psnOf(r.una))
	p.count++
	p.timed = 0
	switch t := r.at(r.find(r.una)); {
	case r.gaps.n > 0:
		r.gaps.list[0].asked = 0
	case t.isRead() && r.una > t.first:
		r.openRest(probeRead << min(t.silences, 16))
		t.silences++
	default:
		r.seek(r.una)
		// Right after a NAK the peer is there, and what it asked for is lost again.
		p.single = r.nakAt != r.una || p.count > 1
	}
}
