package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// requester is the sending half of a QP.
//
// Every request packet has a sequence number: 64 bits that never wrap, whose
// low 24 added to base are its PSN. A READ takes one number for each packet of
// its response. Four of them say how far things are:
//
//	committed ≤ una ≤ nxt ≤ high
//
// Below committed all is done and completed; below una the peer has
// acknowledged; nxt is sent next; high has never been sent. Going back to send
// again is setting nxt to una, or behind what has come already: see gaps.
type requester struct {
	committed, una, nxt, high uint64
	base                      ib.PSN

	// ring holds the requests taken from the send queue, by index. Those below
	// oldest are complete; acking holds una, cur holds nxt, and tail is the
	// index of the one taken next.
	oldest, acking, cur, tail uint32
	ring                      []request

	failIndex  uint32   // the request that failed before it was sent …
	failStatus WCStatus // … and why; Success means that none did
	drained    bool     // EventSQDrained was raised, or isn't wanted
	dry        bool     // the send queue was empty, and Posted wasn't called since
	retries    uint8    // left
	rnrRetries uint8    // left
	timeouts   uint8    // since una moved, at most mostDelay

	ackDeadline clock.Time // local ACK timeout; of UC and UD, when an unknown next hop is given up
	rnrUntil    clock.Time // no request is sent before
	timing      timing

	flight    int // request packets sent since una, at least
	sinceAck  int // packets sent since the last that asked for an acknowledgement
	rdAtomics int // READs and atomics outstanding

	// scan is the index from which a datagram QP looks at its parked datagrams
	// anew; cur when there is nothing to look at.
	scan   uint32
	parked int // datagrams

	// nakAt is the sequence number from which the present retry sends again:
	// another NAK for the same packet begins no other.
	nakAt uint64

	credits credits
	gaps    gaps
}

// noNAK is a nakAt that equals no sequence number.
const noNAK = ^uint64(0)

func (r *requester) at(i uint32) *request { return &r.ring[int(i)&(len(r.ring)-1)] }

// clear forgets all requests.
func (r *requester) clear() {
	*r = requester{ring: r.ring, ackDeadline: clock.Never, rnrUntil: clock.Never, nakAt: noNAK, timing: timing{at: clock.Never}}
	clear(r.ring)
}

// start readies the requester at the first PSN.
func (r *requester) start(psn ib.PSN, a *Attr) {
	r.base, r.retries, r.rnrRetries = psn, a.RetryCnt, a.RNRRetry
}

// Posted says that there may be something in the send queue: see Config.Rings.
func (q *QP) Posted() { q.req.dry = false }

// wantsRequest reports whether a request packet may be sent now.
func (q *QP) wantsRequest(now clock.Time) bool {
	r := &q.req
	switch {
	case !q.state.sends(), q.dying:
		return false
	case q.pace > now:
		return false
	case r.gaps.n > 0 && r.toAsk() != nil: // not what an RNR NAK is about
		return true
	case r.rnrUntil != clock.Never && r.rnrUntil > now:
		return false
	case r.flight >= q.cfg.Window, r.timing.single && r.nxt > r.una:
		return false
	case r.failStatus != Success && int32(r.cur-r.failIndex) >= 0:
		return false // what came before it still has to be acknowledged
	case r.nxt < r.high:
		return true
	}
	if !q.take() {
		return false
	}
	t := r.at(r.cur)
	if t.packets == 0 {
		if !q.passLocal() {
			return false
		}
		t = r.at(r.cur)
	}
	if r.overdrawn(t) {
		return false
	}
	return r.nxt > t.first || q.state == RTS && q.mayStart(t)
}

// mayStart reports whether a request may be begun: its fence, the number of
// READs and atomics outstanding and the PSNs allow it.
func (q *QP) mayStart(t *request) bool {
	r := &q.req
	switch {
	case t.wqe.Flags&Fence != 0 && r.rdAtomics > 0: // IBA 10.8.3.3
		return false
	case t.responds() && r.rdAtomics >= int(q.attr.MaxRdAtomic) && q.attr.MaxRdAtomic > 0:
		return false
	}
	// A READ counts with all of its response (C9-64): it flies alone if it must.
	// A longer message than the transport has is refused when it is planned.
	return t.packets > ib.PSNWindow || r.high-r.una+t.packets <= ib.PSNWindow
}

// planRequest makes the packet at nxt, or asks for a response that is missing.
func (q *QP) planRequest(now clock.Time, p *TxPacket, b *mem.Batch) bool {
	r := &q.req
	if r.gaps.n > 0 {
		if g := r.toAsk(); g != nil {
			q.planGap(g, now, p, b)
			return true
		}
	}
	t := r.at(r.cur)
	for t.done { // before a retry went back
		r.cur++
		t = r.at(r.cur)
	}
	again := r.nxt < r.high
	if r.nxt == t.first && !again && !q.begin(t) {
		return false
	}
	q.armTimer(now)
	i, index := r.cur, r.nxt-t.first
	h := q.headerOf(r.nxt)
	n := q.requestHeader(t, index, &h)
	h.AckReq = q.depart(t, again, now)
	q.emitRequest(i, index*uint64(q.mtu), n, &h, p, b)
	return true
}

// begin takes up t, the request at cur, unless it can't be sent at all.
func (q *QP) begin(t *request) bool {
	if status := q.checkRequest(t); status != Success {
		q.failLocal(q.req.cur, status)
		return false
	}
	if t.responds() {
		q.req.rdAtomics++
	}
	return true
}

// depart moves nxt behind the packet of t there, which is sent now, and reports
// whether that asks for an acknowledgement.
func (q *QP) depart(t *request, again bool, now clock.Time) (ackReq bool) {
	r := &q.req
	sent := uint64(1)
	if t.isRead() {
		sent = t.packets // from its beginning: a part is asked for as a gap
	}
	r.flight++
	r.sinceAck++
	if !q.wantsAck(t, r.nxt-t.first+sent, again) {
		q.moveOn(t, sent)
		return false
	}
	r.sinceAck = 0
	if !again || r.nxt == r.nakAt && r.timing.count == 0 { // what a NAK says didn't come has one answer
		r.time(t, now)
	}
	q.moveOn(t, sent)
	q.expect(now)
	return true
}

// wantsAck reports whether the packet at nxt, behind which t has come to its
// packet end, asks for an acknowledgement. again says that it was sent before.
func (q *QP) wantsAck(t *request, end uint64, again bool) bool {
	r := &q.req
	switch {
	case r.overdraws(t), end == t.packets:
		return true
	case again && r.nxt == r.top(): // the retry should soon be known to work
		return true
	}
	// A full window must draw an acknowledgement, or nothing moves until the timer.
	return r.flight >= q.cfg.Window || r.sinceAck >= q.cfg.Window/2
}

// headerOf returns the beginning of the header of the packet with the sequence
// number seq.
func (q *QP) headerOf(seq uint64) wire.Header {
	return wire.Header{MigReq: true, PKey: q.pkey(), DestQP: q.attr.DestQPN, PSN: q.psnOf(seq)}
}

// emitRequest makes a packet of the request with index i, which has n bytes of its
// message from off on.
func (q *QP) emitRequest(i uint32, off uint64, n int, h *wire.Header, p *TxPacket, b *mem.Batch) {
	q.emit(p, h, n, q.path)
	if n > 0 && q.gatherNow(q.req.at(i).wqe, off, p, b) {
		return
	}
	if !q.gather(q.req.at(i), off, n, p, q.sending(noteRequestOut, h.PSN, i, p, b), b) {
		p.Void = true
		q.failLocal(i, LocProtErr)
	}
}

// seek moves nxt to the sequence number to, which isn't below una. Of a READ whose
// response comes, the middle isn't sent again: what lies behind is on its way.
func (r *requester) seek(to uint64) {
	r.cur, r.flight = r.acking, 0
	for ; r.cur != r.tail; r.cur++ {
		t := r.at(r.cur)
		if t.first >= to {
			break
		}
		if t.isRead() {
			to = max(to, t.end())
		}
		switch n := min(t.end(), to) - max(t.first, r.una); {
		case !t.isRead():
			r.flight += int(n)
		case n > 0:
			r.flight++
		}
		if t.end() > to {
			break
		}
	}
	r.nxt = to
}

// moveOn moves nxt on by the sequence numbers of a packet of t, the request at cur.
func (q *QP) moveOn(t *request, n uint64) {
	r := &q.req
	r.nxt += n
	r.high = max(r.high, r.nxt)
	if r.nxt == t.end() {
		r.cur++
	}
}
