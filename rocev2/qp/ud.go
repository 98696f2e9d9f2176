package qp

import (
	"encoding/binary"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// A datagram QP sends each work request to a destination of its own. One whose
// next hop isn't known is parked, and those behind it go on; their completions
// wait for it, since a queue completes in order.

// stage is how far a datagram is.
type stage uint8

const (
	fresh   stage = iota
	parked        // its next hop isn't known
	planned       // its packet is made
	sent          // it is in its frame
)

// planUD makes a packet of the next datagram that can be sent.
func (q *QP) planUD(now clock.Time, p *TxPacket, b *mem.Batch) bool {
	i, path := q.nextDatagram(now)
	switch {
	case path == nil:
		return false
	case path.Loop != p.Loop:
		p.Elsewhere = true
		return false
	}
	r := &q.req
	t := r.at(i)
	n := int(t.length)
	h := q.datagramHeader(t)
	q.emit(p, &h, n, &path.Template)
	p.Multicast = t.wqe.AH.Multicast
	ok := q.gather(t, 0, n, p, q.sending(noteDatagramOut, h.PSN, i, p, b), b)
	q.leave(i)
	r.high++
	r.nxt = r.high
	t.stage = planned
	if !ok {
		p.Void = true
		q.failLocal(i, LocProtErr)
	}
	return true
}

// nextDatagram finds what can be sent now, and parks what can't: first those
// parked whose next hop has become known.
func (q *QP) nextDatagram(now clock.Time) (index uint32, path *Path) {
	r := &q.req
	if !q.state.sends() || q.dying {
		return 0, nil
	}
	for ; r.scan != r.cur; r.scan++ {
		if q.behindFailure(r.scan) {
			return 0, nil
		}
		if t := r.at(r.scan); t.stage == parked {
			if path = t.wqe.AH.Path(); path != nil {
				return r.scan, path
			}
		}
	}
	for q.state == RTS && !q.behindFailure(r.cur) && q.take() {
		t := r.at(r.cur)
		if status := q.checkRequest(t); status != Success {
			q.failLocal(r.cur, status)
			return 0, nil
		}
		if t.length > uint64(q.mtu) {
			q.dropTooLong(t)
			continue
		}
		if path = t.wqe.AH.Path(); path != nil {
			return r.cur, path
		}
		q.park(t, now)
	}
	return 0, nil
}

// behindFailure reports whether a datagram waits for one that will fail.
func (q *QP) behindFailure(i uint32) bool {
	r := &q.req
	return r.failStatus != Success && int32(i-r.failIndex) >= 0
}

// dropTooLong completes t, the datagram at cur: what is longer than a packet may
// be is not sent, and is no error (C10-93.1.1).
func (q *QP) dropTooLong(t *request) {
	r := &q.req
	t.stage = sent
	r.cur++
	r.scan = r.cur
	q.cfg.Counters.Unsent++
	q.retireSent()
}

// park has t, the datagram at cur, wait for its next hop.
func (q *QP) park(t *request, now clock.Time) {
	r := &q.req
	q.awaitPath(now)
	t.stage, t.since = parked, now
	r.parked++
	r.cur++
	r.scan = r.cur
}

// leave takes a datagram that is being sent out of those that wait.
func (q *QP) leave(i uint32) {
	r := &q.req
	if i == r.cur {
		r.cur++
	} else {
		r.parked--
	}
	r.scan = i + 1
}

// PathsChanged says that next hops have become known: Plan looks at what is
// parked anew.
func (q *QP) PathsChanged() {
	if r := &q.req; r.parked > 0 {
		r.scan = r.oldest
	}
}

func (q *QP) datagramHeader(t *request) wire.Header {
	w := t.wqe
	return wire.Header{
		Opcode: t.op.packets[wire.Only] | wire.Opcode(q.svc.transport), MigReq: true, PKey: q.sentPKey(w),
		SE: w.Flags&Solicited != 0, DestQP: w.RemoteQPN, PSN: q.psnOf(q.req.high),
		SrcQP: q.cfg.QPN, QKey: q.sentQKey(w), Imm: w.Imm,
	}
}

// sentPKey returns the P_Key that w is sent with. QP1 is in all partitions of its
// port, so that its work requests say in which one (IBA 10.9.3, 11.4.1.1).
func (q *QP) sentPKey(w *SendWQE) ib.PKey {
	if q.cfg.Type == GSI {
		return q.cfg.PKeys[w.PKeyIndex]
	}
	return q.pkey()
}

// sentQKey returns the Q_Key that w is sent with. With the top bit set, it is
// the QP's: only who may modify the QP can send a controlled one (IBA 10.2.5).
func (q *QP) sentQKey(w *SendWQE) ib.QKey {
	if w.RemoteQKey.Controlled() {
		return q.attr.QKey
	}
	return w.RemoteQKey
}

// commitSent takes note that the datagram of that index is in its frame.
func (q *QP) commitSent(index uint32) {
	r := &q.req
	r.at(index).stage = sent
	r.committed++
	q.retireSent()
}

// retireSent completes what has been sent, in order.
func (q *QP) retireSent() {
	r := &q.req
	for r.oldest != r.cur && r.at(r.oldest).stage == sent {
		q.completeRequest(Success)
	}
	q.checkFailed()
	q.checkDrained()
}

// timeoutUD loses the datagrams that have waited for their next hops too long.
func (q *QP) timeoutUD(now clock.Time) {
	r := &q.req
	r.ackDeadline = clock.Never
	for i := r.oldest; i != r.cur; i++ {
		t := r.at(i)
		if t.stage != parked {
			continue
		}
		if end := t.since.Add(pathTimeout); end > now { // later ones have waited less
			r.ackDeadline = end
			break
		}
		t.stage = sent
		r.parked--
		q.cfg.Counters.Unsent++
		q.trace("next hop unknown", q.psnOf(r.high))
	}
	q.retireSent()
}

// handleUD takes a datagram.
func (q *QP) handleUD(p *wire.Packet, _ clock.Time, b *mem.Batch) wire.Verdict {
	r := &q.resp
	switch {
	case p.QKey != q.attr.QKey: // IBA 9.8.3.1
		return wire.DropQKey
	case p.Len > q.mtu:
		return wire.DropLength
	}
	w := q.takeReceive()
	switch {
	case w == nil:
		return wire.DropRNR
	case len(w.SGEs) > MaxSGE: // more ops than Handle may add
		q.refuseReceive(p, b)
		return wire.DropRejected
	case GRHLen+uint64(p.Len) > w.length(): // IBA 9.8.3.2
		q.leaveReceive(LocLenErr, b)
		return wire.DropTooLong
	}
	q.noteSender(r.at(r.next-1), p)
	if !q.receiveDatagram(w, p, b) {
		q.refuseReceive(p, b)
		return wire.DropRejected
	}
	return wire.Accepted
}

// noteSender keeps what the completion of a datagram's receive has to say.
func (q *QP) noteSender(r *receive, p *wire.Packet) {
	r.from, r.vlan = p.SrcQP, p.VLANID()
	if q.cfg.Type == GSI {
		i, _ := q.cfg.PKeys.Find(p.PKey) // the port has seen that it is there
		r.pkey = uint16(i)
	}
}

// receiveDatagram adds the ops that put a datagram into its receive: the GRH,
// then the payload. It returns false when a key doesn't allow it.
func (q *QP) receiveDatagram(w *RecvWQE, p *wire.Packet, b *mem.Batch) bool {
	header, grh := q.op(b), q.grhOf(p)
	header.Kind, header.Note.Code = mem.Scatter, noteHeader
	if !q.eachSGE(w.SGEs, 0, GRHLen, &grh, header, b) {
		return false
	}
	op := q.op(b)
	q.note(&op.Note, noteDatagram, p, GRHLen)
	return q.scatter(w.SGEs, GRHLen, p.Len, &p.Payload, op, b)
}

// noGRH stands before an IPv4 header in the 40 bytes.
var noGRH [GRHLen - wire.IPv4Len]byte

// grhOf returns the 40 bytes before a datagram's payload: the header of IPv6, or
// that of IPv4 in bytes 20 to 39 (Annex A17.4.5.2). By its checksum programs
// tell which of the two it is, so a wrong one is put right.
func (q *QP) grhOf(p *wire.Packet) [2][]byte {
	h := p.IPHeader()
	if p.IPv6 {
		return [2][]byte{h}
	}
	if sum := wire.IPv4Checksum(h); sum != binary.BigEndian.Uint16(h[10:]) {
		r := &q.resp
		right := &r.headers[int(r.next-1)&(len(r.headers)-1)]
		copy(right[:], h)
		binary.BigEndian.PutUint16(right[10:], sum)
		h = right[:]
	}
	return [2][]byte{noGRH[:], h}
}

// commitDatagram completes the receive that a datagram has filled.
func (q *QP) commitDatagram(n *mem.Note) {
	from := *q.resp.at(q.resp.head)
	c := q.completeReceive(Success)
	c.ByteLen, c.SrcQP, c.PKeyIndex, c.VLAN, c.Flags, c.Solicited = n.N, from.from, from.pkey, from.vlan, WCGRH, n.Flags&flagSolicited != 0
	if n.Flags&flagImm != 0 {
		c.Flags |= WCWithImm
		c.Imm = n.X
	}
	q.cfg.Counters.RDMARecvs++
}

// faultUD takes an op of a received datagram that could not be run: the memory
// of its receive is gone.
func (q *QP) faultUD(*mem.Op) { q.failReceive(LocProtErr) }
