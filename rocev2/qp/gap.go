package qp

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// What comes behind a lost response isn't thrown away (IBA 9.7.6.1 only asks for the
// missing to be asked for again): READ responses go to their places as they
// come, and only what lies between is asked for, by a READ of that part of the
// range. Until it is there, una stands at the first gap, so that completions
// keep their order.
//
//	committed ≤ una = list[0].from < … < beyond ≤ nxt ≤ high
//
// Where there is no gap, una is what beyond would be.

// maxGaps is how many gaps a QP keeps. What would open another is dropped, as if
// it were lost. The last one is only used by rewind.
const maxGaps = 6

// gap is a part of one READ's response, or the response of an atomic, that has
// not come though the peer has executed the request.
type gap struct {
	from  uint64     // sequence number of its first packet
	n     uint32     // packets
	index uint32     // of the request
	asked clock.Time // when it was asked for again; 0: it is to be
}

func (g *gap) end() uint64 { return g.from + uint64(g.n) }

// splits reports whether there are two gaps when the response with the sequence
// number seq is there.
func (g *gap) splits(seq uint64) bool { return seq > g.from && seq+1 < g.end() }

// gaps are all gaps of a QP, in order.
type gaps struct {
	n      uint8
	beyond uint64 // all below is there, but for the gaps; without one, only when it has just been set
	list   [maxGaps]gap
}

// top returns the sequence number below which all is there, but for the gaps.
func (r *requester) top() uint64 {
	if r.gaps.n == 0 {
		return r.una
	}
	return r.gaps.beyond
}

// low returns the sequence number below which there is no gap.
func (g *gaps) low() uint64 {
	if g.n == 0 {
		return g.beyond
	}
	return g.list[0].from
}

// gapAt returns the position of the gap that the sequence number seq is in, or -1.
func (g *gaps) gapAt(seq uint64) int {
	for i := range g.list[:g.n] {
		if x := &g.list[i]; seq >= x.from && seq < x.end() {
			return i
		}
	}
	return -1
}

func (g *gaps) insert(i int, x gap) {
	copy(g.list[i+1:], g.list[i:g.n])
	g.list[i] = x
	g.n++
}

func (g *gaps) remove(i int) {
	copy(g.list[i:], g.list[i+1:g.n])
	g.n--
}

// of reports whether there is a gap of the request with that index.
func (g *gaps) of(index uint32) bool {
	for i := range g.list[:g.n] {
		if g.list[i].index == index {
			return true
		}
	}
	return false
}

// open makes gaps of the responses between top and the sequence number upTo,
// which the peer is past, and moves top there; to the first for which there is no
// gap left, if so. What only waits for an acknowledgement has got it. If an ACK says
// so, no more comes of a READ that upTo is in. It returns how many gaps it has made.
func (r *requester) open(upTo uint64, ack bool) (opened uint8) {
	g, top := &r.gaps, r.top()
	g.beyond = upTo
	for i := r.acking; i != r.tail; i++ {
		t := r.at(i)
		if t.first >= upTo {
			break
		}
		if ack && t.isRead() && upTo < t.end() {
			upTo = t.end()
			g.beyond = upTo
		}
		from, to := max(t.first, top), min(t.end(), upTo)
		if from >= to || !t.responds() {
			continue
		}
		if g.n >= maxGaps-1 {
			g.beyond = from
			break
		}
		g.insert(int(g.n), gap{from: from, n: uint32(to - from), index: i})
		opened++
	}
	return opened
}

// openRest makes a gap of what the READ at top still owes, at most n packets,
// when a part of its response has come: so the peer has executed it, and a part
// can be asked for.
func (r *requester) openRest(n uint64) {
	top := r.top()
	if top == r.high || r.gaps.n == maxGaps {
		return
	}
	i := r.find(top)
	t := r.at(i)
	if !t.isRead() || top == t.first {
		return
	}
	n = min(n, t.end()-top)
	r.gaps.insert(int(r.gaps.n), gap{from: top, n: uint32(n), index: i})
	r.gaps.beyond = top + n
}

// fill notes that the response with the sequence number seq, at top or in a gap,
// is there. There must be room for another gap, if it cuts one in two.
func (g *gaps) fill(seq uint64) (filled gap) {
	i := g.gapAt(seq)
	if i < 0 {
		g.beyond = seq + 1
		return gap{}
	}
	x := &g.list[i]
	switch before := uint32(seq - x.from); {
	case x.n == 1:
		filled = *x
		g.remove(i)
	case before == 0:
		x.from, x.n = x.from+1, x.n-1
	case before == x.n-1:
		x.n--
	default:
		rest := gap{from: seq + 1, n: x.n - before - 1, index: x.index, asked: x.asked}
		x.n = before
		g.insert(i+1, rest)
	}
	return filled
}

// toAsk returns the gap that is asked for next, or nil. One of a request is asked
// for at a time, the first: rxe forgets what lies before a part of a READ that
// it has answered again.
func (r *requester) toAsk() *gap {
	g := &r.gaps
	for i := range g.list[:g.n] {
		if x := &g.list[i]; x.asked == 0 && (i == 0 || g.list[i-1].index != x.index) {
			return x
		}
	}
	return nil
}

// askAnew has all gaps be asked for again.
func (g *gaps) askAnew() {
	for i := range g.list[:g.n] {
		g.list[i].asked = 0
	}
}

// planGap makes the request for a gap.
func (q *QP) planGap(g *gap, now clock.Time, p *TxPacket, b *mem.Batch) {
	t := q.req.at(g.index)
	h := q.headerOf(g.from)
	n := q.requestHeader(t, g.from-t.first, &h)
	if t.isRead() {
		t.resumed = true
		h.Length = uint32(min(uint64(h.Length), uint64(g.n)*uint64(q.mtu)))
	}
	h.AckReq = true
	q.armTimer(now)
	g.asked = now
	q.awaitGap()
	q.emitRequest(g.index, 0, n, &h, p, b)
}

// acknowledge takes everything below the sequence number upTo as received by
// the peer, and opens gaps where responses are missing. It returns how many. ack says
// that this is by an ACK.
func (q *QP) acknowledge(upTo uint64, ack bool, now clock.Time, b *mem.Batch) (opened uint8) {
	r := &q.req
	if upTo <= r.top() {
		return 0
	}
	opened = r.open(upTo, ack)
	if to := r.gaps.low(); to > r.una {
		q.progress(to, now, b, noteProgress, Success)
		return opened
	}
	r.rnrRetries = q.attr.RNRRetry
	if r.nxt < r.top() {
		r.seek(r.top())
	}
	return opened
}

// reach takes note of a response with the sequence number seq to the request t.
// It is accepted if it can be put in its place now. What can't, as a missing one
// goes there first, is as good as lost with all behind it, and sent again at once:
// so it comes right behind the missing.
func (q *QP) reach(t *request, seq uint64, now clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.req
	at := r.gaps.gapAt(seq)
	if at < 0 && seq < r.top() {
		return wire.DropDuplicate
	}
	opened := q.acknowledge(min(seq, t.first), false, now, b)
	overlaps := q.overlapsGap(t)
	if !overlaps {
		opened += q.acknowledge(seq, false, now, b)
	}
	switch {
	case opened > 0 && !q.retryGaps(opened, now, b):
		return wire.DropOutOfOrder
	case overlaps:
		if at < 0 && r.nakAt != r.top() {
			q.rewind("overlap")
		}
		return wire.DropOutOfOrder
	case seq > r.top(), at >= 0 && r.gaps.n >= maxGaps-1 && r.gaps.list[at].splits(seq):
		return wire.DropOutOfOrder
	}
	return wire.Accepted
}

// retryGaps begins the retry that new gaps ask for. It counts, but for gaps that
// open while another retry is under way (IBA 9.7.6.1). It returns false when there is
// none left.
func (q *QP) retryGaps(opened uint8, now clock.Time, b *mem.Batch) bool {
	r := &q.req
	q.cfg.Counters.ImpliedNAK++
	r.timing.forget()
	if r.gaps.n > opened || r.nakAt == r.una {
		return true
	}
	if !q.countRetry(b) {
		return false
	}
	q.trace("implied NAK", q.psnOf(r.una))
	q.restartTimer(now)
	return true
}

// overlapsGap reports whether what t brings goes where a response that is missing
// of a request before it goes, too: it must not land first.
func (q *QP) overlapsGap(t *request) bool {
	g := &q.req.gaps
	for i := range g.list[:g.n] {
		u := q.req.at(g.list[i].index)
		if u.first < t.first && u.op.fetches && t.op.fetches && q.overlap(u.wqe.SGEs, t.wqe.SGEs) {
			return true
		}
	}
	return false
}

// overlap reports whether two lists name a byte both.
func (q *QP) overlap(x, y []SGE) bool {
	for i := range x {
		for k := range y {
			if q.elementsOverlap(&x[i], &y[k]) {
				return true
			}
		}
	}
	return false
}

func (q *QP) elementsOverlap(x, y *SGE) bool {
	if x.Length == 0 || y.Length == 0 {
		return false
	}
	keys, pd := q.cfg.Keys, q.cfg.PD
	a := keys.Find(x.LKey, pd, x.Addr, uint64(x.Length), mem.LocalWrite)
	c := keys.Find(y.LKey, pd, y.Addr, uint64(y.Length), mem.LocalWrite)
	return a != nil && c != nil && a.Overlaps(x.Addr, uint64(x.Length), c, y.Addr, uint64(y.Length))
}
