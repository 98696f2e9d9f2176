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

// request is a send work request under way.
type request struct {
	wqe     *SendWQE
	op      *operation
	first   uint64 // sequence number of its first packet
	packets uint64
	length  uint64 // bytes of the message
	resumed bool   // a READ of which a part was asked for again
	done    bool   // an operation of this side alone, which has been done
	// orig is what an atomic found, in host byte order; of a READ, the last bytes,
	// held back until all others are there.
	orig     [8]byte
	held     uint8 // bytes of a READ in orig
	silences uint8 // probes in the middle of a READ
	// Of a datagram.
	stage stage
	since clock.Time // when it was parked
}

func (r *request) end() uint64 { return r.first + r.packets }

func (r *request) isRead() bool { return r.wqe.Opcode == WRRead }

func (r *request) isAtomic() bool { return r.op.atomic }

// responds reports whether the request is answered by a response of its own,
// with data or without, not by an ACK.
func (r *request) responds() bool { return r.op.responds }

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

// take gets the next work request into the ring, if there is one, and reports
// whether cur now stands at a request.
func (q *QP) take() bool {
	r := &q.req
	if r.cur != r.tail {
		return true
	}
	if int(r.tail-r.oldest) == len(r.ring) {
		return false
	}
	if r.dry {
		return false
	}
	w := q.cfg.SQ.Next()
	if w == nil {
		r.dry = q.cfg.Rings
		return false
	}
	t := r.at(r.tail)
	*t = request{}
	t.wqe, t.op, t.first, t.length = w, w.Opcode.operation(), r.high, w.length()
	switch {
	case t.op.local != nil:
		t.packets = 0
	case t.isAtomic():
		t.packets = 1
	default:
		t.packets = q.packets(t.length)
	}
	r.tail++
	return true
}

// Posted says that there may be something in the send queue: see Config.Rings.
func (q *QP) Posted() { q.req.dry = false }

// length returns the bytes of the message: what the list adds up to.
func (w *SendWQE) length() (n uint64) {
	if w.Flags&Inline != 0 {
		return uint64(len(w.Inline))
	}
	for i := range w.SGEs {
		n += uint64(w.SGEs[i].Length)
	}
	return n
}

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

// emit makes the headers of a packet.
func (q *QP) emit(p *TxPacket, h *wire.Header, n int, path *wire.Template) {
	p.Path, p.payload = path, [2][]byte{}
	path.EmitTo(p.Frame, h, n, &p.payload)
}

// sending adds an op of this QP for a packet that is planned. It is filled in
// where it stands, as are all ops: to copy what was just written costs more
// than to write it.
func (q *QP) sending(code uint8, psn ib.PSN, x uint32, p *TxPacket, b *mem.Batch) *mem.Op {
	op := q.op(b)
	n := &op.Note
	n.Code, n.PSN, n.X, n.Ref = code, psn, x, p
	return op
}

// op adds an op of this QP.
func (q *QP) op(b *mem.Batch) *mem.Op {
	op := b.Add()
	op.Owner = q
	return op
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

// checkRequest says why a request can't be sent at all.
func (q *QP) checkRequest(t *request) WCStatus {
	w := t.wqe
	switch {
	case !q.svc.offers.has(w.Opcode), t.responds() && q.attr.MaxRdAtomic == 0, t.op.fetches && w.Flags&Inline != 0:
		return LocQPOpErr
	case q.svc.datagram && (w.AH == nil || !w.RemoteQPN.Valid()), q.cfg.Type == GSI && int(w.PKeyIndex) >= len(q.cfg.PKeys),
		q.svc.datagram && w.AH.Multicast != (w.RemoteQPN == ib.QPNMulticast): // IBA 9.6.1
		return LocQPOpErr
	case t.length > MaxMessage, w.Flags&Inline != 0 && len(w.Inline) > q.cfg.Caps.MaxInline,
		t.op.word && t.length != 8, t.op.bare && t.length != 0:
		return LocLenErr
	case len(w.SGEs) > MaxSGE:
		return LocQPOpErr
	}
	if !t.op.fetches {
		return Success
	}
	for i := range w.SGEs { // what is asked for must have a place to go to
		s := &w.SGEs[i]
		if s.Length > 0 && q.cfg.Keys.Find(s.LKey, q.cfg.PD, s.Addr, uint64(s.Length), mem.LocalWrite) == nil {
			return LocProtErr
		}
	}
	return Success
}

// requestHeader fills in the opcode and the extended headers of packet index of
// t, and returns the bytes of its payload.
func (q *QP) requestHeader(t *request, index uint64, h *wire.Header) int {
	w, off := t.wqe, index*uint64(q.mtu)
	h.RKey, h.VA, h.Imm = w.RKey, w.RemoteAddr+off, w.Imm
	h.InvKey = w.InvKey
	switch w.Opcode {
	case WRFlush:
		h.Opcode, h.Flush, h.Length = wire.RCFlush, uint32(w.Flush), w.Length
		return 0
	case WRRead:
		h.Opcode, h.Length = wire.RCReadRequest, uint32(t.length-off)
		return 0
	case WRCompareSwap:
		h.Opcode, h.Compare, h.Swap = wire.RCCompareSwap, w.CompareAdd, w.Swap
		return 0
	case WRFetchAdd:
		h.Opcode, h.Swap = wire.RCFetchAdd, w.CompareAdd
		return 0
	}
	place := placeOf(index, t.packets)
	h.Opcode, h.Length = t.op.packets[place]|wire.Opcode(q.svc.transport), uint32(t.length)
	// Only packets that can raise an event carry the solicited bit (C9-7).
	h.SE = place.Ends() && w.Flags&Solicited != 0 && t.op.receives
	return int(min(t.length-off, uint64(q.mtu)))
}

// placeOf returns where packet index of n stands.
func placeOf(index, n uint64) (p wire.Place) {
	if index == 0 {
		p |= wire.First
	}
	if index == n-1 {
		p |= wire.Last
	}
	return p
}

// gather has op, and others that it adds, fetch n bytes of the message at off
// into p. It returns false when a key doesn't allow it.
func (q *QP) gather(t *request, off uint64, n int, p *TxPacket, op *mem.Op, b *mem.Batch) bool {
	if n == 0 || t.wqe.Flags&Inline != 0 {
		if n > 0 {
			copyTo(&p.payload, t.wqe.Inline[off:])
		}
		op.Note.Flags |= flagEnd // it keeps its place among the QP's packets
		return true
	}
	op.Kind = mem.Gather
	return q.eachSGE(t.wqe.SGEs, off, n, &p.payload, op, b)
}

// gatherNow is gather without an op, where Batch.Gather has the bytes and they are
// of a list of one element. It reports whether it did it.
func (q *QP) gatherNow(w *SendWQE, off uint64, p *TxPacket, b *mem.Batch) bool {
	if len(w.SGEs) != 1 || w.Flags&Inline != 0 {
		return false
	}
	s, n := &w.SGEs[0], uint64(len(p.payload[0])+len(p.payload[1]))
	m := q.cfg.Keys.Find(s.LKey, q.cfg.PD, s.Addr+off, n, 0)
	return m != nil && off+n <= uint64(s.Length) && b.Gather(m, s.Addr+off, &p.payload)
}

// copyTo fills the pieces with the beginning of from.
func copyTo(pieces *[2][]byte, from []byte) {
	n := copy(pieces[0], from)
	copy(pieces[1], from[n:])
}

// eachSGE has op, a Gather or Scatter, access what bytes [off, off+n) of the
// list are of its first element that they touch, and adds one like it for each
// other; the last ends the packet. frag are the bytes on the packet's side. It
// returns false when a key or a range doesn't allow it.
func (q *QP) eachSGE(list []SGE, off uint64, n int, frag *[2][]byte, op *mem.Op, b *mem.Batch) bool {
	var need mem.Access
	if op.Kind == mem.Scatter {
		need = mem.LocalWrite
	}
	first, done, pd := op, 0, q.listPD(op.Note.Code)
	for i := range list {
		s := &list[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		k := int(min(uint64(s.Length)-off, uint64(n-done)))
		va := s.Addr + off
		mr := q.cfg.Keys.Find(s.LKey, pd, va, uint64(k), need)
		if mr == nil {
			return false
		}
		if done > 0 {
			op = q.op(b)
			op.Kind, op.Note = first.Kind, first.Note
		}
		op.MR, op.VA = mr, va
		wire.CutTo(&op.Frag, frag, done, k)
		if done, off = done+k, 0; done == n {
			op.Note.Flags |= flagEnd
			return true
		}
	}
	return false
}

// listPD returns the PD whose keys a list of elements names.
func (q *QP) listPD(note uint8) *mem.PD {
	switch note {
	case noteSend, noteHeader, noteDatagram:
		return q.cfg.RecvPD
	}
	return q.cfg.PD
}
