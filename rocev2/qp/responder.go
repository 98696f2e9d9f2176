package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// responder is the receiving half of a QP.
//
// Handle checks a request against epsn and the message in progress; Commit,
// when its memory ops have run, moves cpsn and the MSN and owes the answer; Plan
// sends what is owed. Nothing owed is a packet before that.
type responder struct {
	epsn ib.PSN // expected by Handle
	cpsn ib.PSN // below it all is done: what an ACK acknowledges is the one before
	msn  ib.MSN

	ackOwed  bool
	lost     bool          // UC: what comes is of a message that was given up
	nak      wire.Syndrome // owed; 0: none
	nakSent  bool          // for the present epsn: said once (IBA 9.7.5.1.3)
	nakPSN   ib.PSN
	refused  bool // a request, which ended the connection
	closing  bool // in ERR: the NAK that says why, and what comes before it, is still owed
	heard    bool // a packet came: COMM_EST
	toldLast bool // LAST_WQE_REACHED was told
	// reading counts the READs and atomics accepted and not yet answered,
	// replays the answers owed again.
	reading, replays int
	// owed are the READ and atomic responses to be sent, in order.
	owed ring[response]

	msg message // the message in progress

	// taken holds the receives taken, by index. Those from head on are not
	// complete; those from next on are free again, as their messages were given up.
	taken            []receive
	head, next, tail uint32
	recvStatus       WCStatus // with a noteReject that ends a receive
	// headers has room for the IPv4 header of the datagram in each of taken.
	headers [][wire.IPv4Len]byte

	// saved are the READs and atomics that can be answered again, oldest first.
	saved ring[savedRequest]
}

// receive is one that was taken.
type receive struct {
	wqe  *RecvWQE
	from ib.QPN // the sender of the datagram in it
	pkey uint16 // of QP1: the index of the datagram's P_Key
	vlan uint16 // of the datagram
}

func (r *responder) at(i uint32) *receive { return &r.taken[int(i)&(len(r.taken)-1)] }

// message is the part of a SEND or WRITE that has arrived.
type message struct {
	op   wire.Operation // OpSend, OpWrite, or OpNone between messages
	wqe  *RecvWQE       // SEND: the receive it fills
	got  uint64         // bytes so far
	mr   *mem.MR        // WRITE: where it goes; nil for no bytes
	va   uint64         // WRITE: address of its first byte
	size uint64         // WRITE: what the RETH said
}

// savedRequest is a READ or atomic that has been executed.
type savedRequest struct {
	op          wire.Opcode
	first, last ib.PSN
	rkey        uint32
	va          uint64
	length      uint64
	orig        uint64 // atomic: the value found
	msn         ib.MSN
}

// response is one READ or atomic response that is owed, or what is left of it.
type response struct {
	first, last ib.PSN
	psn         ib.PSN // of the packet to be sent next
	va          uint64 // of that packet
	left        uint64 // bytes from va
	rkey        uint32
	msn         ib.MSN
	orig        uint64
	atomic      bool
	empty       bool // … that is answered without data
	begun       bool // a packet of it has been sent
	replay      bool // an answer given again
}

func (r *responder) clear() {
	clear(r.taken)
	*r = responder{taken: r.taken, headers: r.headers}
}

// start readies the responder for the first PSN.
func (r *responder) start(psn ib.PSN) {
	r.epsn, r.cpsn = psn, psn
	if r.saved.cap() == 0 {
		r.resize(0)
	}
}

// resize makes room for n READs and atomics of the peer. What was saved is
// kept as far as it fits.
func (r *responder) resize(n int) {
	r.saved.resize(n)
	// Each may be owed and asked for again meanwhile, beside what is owed now.
	r.owed.resize(r.owed.len() + 2*n)
}

// drop forgets what is owed.
func (r *responder) drop() {
	r.owed.clear()
	r.ackOwed, r.nak, r.closing, r.msg = false, 0, false, message{}
}

// refusal says how a request is refused, if it is.
type refusal struct {
	syndrome wire.Syndrome // 0: accepted
	event    Event
	status   WCStatus     // completion of the receive in use, if there is one
	drop     wire.Verdict // of an unreliable connection
}

var (
	accepted     = refusal{}
	invalid      = refusal{wire.NakInvalidRequest, EventQPReqErr, RemInvReqErr, wire.DropRejected}
	accessDenied = refusal{wire.NakRemoteAccess, EventQPAccessErr, LocAccessErr, wire.DropRejected}
	tooLong      = refusal{wire.NakInvalidRequest, 0, LocLenErr, wire.DropTooLong}
	badReceive   = refusal{wire.NakRemoteOperation, 0, LocProtErr, wire.DropRejected}
	notReady     = refusal{syndrome: wire.SyndromeRNR, drop: wire.DropRNR}
)

// flagAccessErr says that a noteReject is about rights: its event is
// EventQPAccessErr. Such a note has no immediate data.
const flagAccessErr = flagImm

// handleRequest takes a request packet.
func (q *QP) handleRequest(p *wire.Packet, b *mem.Batch) wire.Verdict {
	r := &q.resp
	switch d := p.PSN.Sub(r.epsn); {
	case d > 0:
		return q.outOfOrder()
	case d < 0:
		return q.duplicate(p)
	}
	q.hear()
	why := q.execute(p, b)
	switch {
	case why == accepted:
		r.epsn = r.epsn.Add(q.span(p))
		r.nakSent = false
		return wire.Accepted
	case why.syndrome.IsRNR():
		q.owe(wire.SyndromeRNR|wire.Syndrome(q.attr.MinRNRTimer), r.epsn)
		q.cfg.Counters.SendRNRErr++
		return wire.DropRNR
	}
	op := q.op(b)
	op.Note = mem.Note{Code: noteReject, PSN: p.PSN, X: uint32(why.syndrome), N: uint32(why.status), Flags: flagEnd}
	if why.event == EventQPAccessErr {
		op.Note.Flags |= flagAccessErr
	}
	q.dying = true
	return wire.DropRejected
}

// hear raises COMM_EST with the first packet in RTR.
func (q *QP) hear() {
	if !q.resp.heard && q.state == RTR {
		q.cfg.Host.Notify(q, EventCommEst)
	}
	q.resp.heard = true
}

// span returns how many PSNs a request takes: a READ those of its response.
func (q *QP) span(p *wire.Packet) int {
	if p.Opcode != wire.RCReadRequest {
		return 1
	}
	return q.readPackets(uint64(p.Length))
}

func (q *QP) readPackets(n uint64) int { return int(q.packets(n)) }

// execute checks a request in sequence and adds its ops.
func (q *QP) execute(p *wire.Packet, b *mem.Batch) refusal {
	if why := q.checkSequence(p); why != accepted {
		return why
	}
	i := p.Opcode.Info()
	switch i.Operation {
	case wire.OpSend:
		return q.executeSend(p, b)
	case wire.OpWrite:
		return q.executeWrite(p, b)
	case wire.OpReadRequest:
		return q.executeRead(p, b)
	case wire.OpCompareSwap, wire.OpFetchAdd:
		return q.executeAtomic(p, b)
	case wire.OpAtomicWrite:
		return q.executeAtomicWrite(p, b)
	case wire.OpFlush:
		return q.executeFlush(p, b)
	}
	return invalid // reserved, or an operation this device doesn't offer
}

// checkSequence checks a packet's place in its message and its length (C9-86,
// C9-87, C9-91).
func (q *QP) checkSequence(p *wire.Packet) refusal {
	i := p.Opcode.Info()
	m := &q.resp.msg
	switch {
	case i.Place.Starts() != (m.op == wire.OpNone):
		return invalid
	case !i.Place.Starts() && i.Operation != m.op:
		return invalid
	case !i.Place.Ends() && p.Len != q.mtu, p.Len > q.mtu:
		return invalid
	case !i.Place.Starts() && p.Len == 0:
		return invalid
	}
	return accepted
}

// executeSend takes a packet of a SEND.
func (q *QP) executeSend(p *wire.Packet, b *mem.Batch) refusal {
	m := &q.resp.msg
	place := p.Opcode.Info().Place
	if place.Starts() {
		w := q.takeReceive()
		if w == nil {
			return notReady
		}
		*m = message{op: wire.OpSend, wqe: w}
		if len(w.SGEs) > MaxSGE {
			return badReceive // more ops than Handle may add
		}
	}
	if m.got+uint64(p.Len) > m.wqe.length() {
		return tooLong
	}
	op := q.op(b)
	q.note(&op.Note, noteSend, p, m.got)
	if place.Ends() {
		op.Note.Flags |= flagReceive
	}
	if op.Note.Flags&flagInv != 0 {
		b.Settle() // what comes next is checked against what is left of the key (IBA 9.4.1.1.3)
	}
	if !q.scatter(m.wqe.SGEs, m.got, p.Len, &p.Payload, op, b) {
		return badReceive
	}
	m.advance(p.Len, place)
	return accepted
}

// advance moves on by n bytes; the last packet ends the message.
func (m *message) advance(n int, place wire.Place) {
	m.got += uint64(n)
	if place.Ends() {
		*m = message{}
	}
}

// note says what Commit has to know of a request of which got bytes came before.
func (q *QP) note(n *mem.Note, code uint8, p *wire.Packet, got uint64) {
	var flags uint8
	i := p.Opcode.Info()
	if p.AckReq && q.svc.answers {
		flags |= flagAckReq
	}
	if i.Place.Ends() {
		flags |= flagMessage
	}
	switch i.Ext & (wire.ExtImmDt | wire.ExtIETH) {
	case wire.ExtImmDt:
		flags |= flagImm
		n.X = p.Imm
	case wire.ExtIETH:
		flags |= flagInv
		n.X = p.InvKey
	}
	if p.SE {
		flags |= flagSolicited
	}
	n.Code, n.Flags, n.PSN, n.N = code, flags, p.PSN, uint32(got)+uint32(p.Len)
}

// executeWrite takes a packet of a WRITE.
func (q *QP) executeWrite(p *wire.Packet, b *mem.Batch) refusal {
	m := &q.resp.msg
	i := p.Opcode.Info()
	if i.Place.Starts() {
		if why := q.startWrite(p, m); why != accepted {
			return why
		}
	}
	if got := m.got + uint64(p.Len); got > m.size || i.Place.Ends() != (got == m.size) {
		return invalid // C9-94: the packets add up to the length that the RETH gave
	}
	flags := uint8(flagEnd)
	if i.Ext.Has(wire.ExtImmDt) {
		if q.takeReceive() == nil {
			if i.Place.Starts() {
				*m = message{}
			}
			return notReady // this packet is sent again; what came before it stands
		}
		flags |= flagReceive
	}
	op := q.op(b)
	q.note(&op.Note, noteWrite, p, m.got)
	op.Note.Flags |= flags
	if p.Len > 0 {
		op.Kind, op.MR, op.VA, op.Frag = mem.Scatter, m.mr, m.va+m.got, p.Payload
		op.Tail = i.Place.Ends()
	}
	m.advance(p.Len, i.Place)
	return accepted
}

// findRemote returns what an rkey of the peer leads to, if it may.
func (q *QP) findRemote(rkey uint32, va, n uint64, need mem.Access) *mem.MR {
	return q.cfg.Keys.FindRemote(rkey, q.cfg.PD, q, va, n, need)
}

// startWrite checks the RETH of a WRITE.
func (q *QP) startWrite(p *wire.Packet, m *message) refusal {
	*m = message{}
	m.op, m.va, m.size = wire.OpWrite, p.VA, uint64(p.Length)
	switch {
	case m.size > MaxMessage:
		return invalid
	case q.attr.Access&mem.RemoteWrite == 0:
		return invalid // the QP's own rights come first
	case m.size == 0:
		return accepted // C9-88: neither key nor address is looked at
	}
	m.mr = q.findRemote(p.RKey, p.VA, m.size, mem.RemoteWrite)
	if m.mr == nil {
		return accessDenied
	}
	return accepted
}

// commitRequest takes a request whose ops have all run.
func (q *QP) commitRequest(op *mem.Op) {
	r, n := &q.resp, &op.Note
	if n.Flags&flagInv != 0 && !q.invalidateRemote(n) {
		return
	}
	span := 1
	switch n.Code {
	case noteRead:
		span = q.readPackets(uint64(n.N))
		q.commitRead(op)
	case noteAtomic:
		q.commitAtomic(op)
	}
	r.cpsn = n.PSN.Add(span)
	if n.Flags&flagMessage != 0 {
		r.msn = r.msn.Next()
	}
	if n.Flags&flagReceive != 0 {
		q.received(n)
	}
	if n.Flags&flagAckReq != 0 && n.Code < noteRead {
		if r.ackOwed {
			q.cfg.Counters.AckDeferred++
		}
		r.ackOwed = true
	}
}

// received completes the receive that a message has filled or consumed.
func (q *QP) received(n *mem.Note) {
	c := q.completeReceive(Success)
	c.ByteLen, c.SrcQP, c.Solicited = n.N, q.attr.DestQPN, n.Flags&flagSolicited != 0
	if n.Code == noteWrite {
		c.Opcode = WCRecvWriteImm
	} else {
		q.cfg.Counters.RDMARecvs++
	}
	if n.Flags&flagImm != 0 {
		c.Flags, c.Imm = WCWithImm, n.X
	}
	if n.Flags&flagInv != 0 {
		c.Flags, c.Imm = WCWithInv, n.X
	}
}

// commitReject refuses a request, once all before it is done.
func (q *QP) commitReject(n *mem.Note) {
	event := EventQPReqErr
	if n.Flags&flagAccessErr != 0 {
		event = EventQPAccessErr
	}
	q.resp.recvStatus = WCStatus(n.N)
	q.reject(n.PSN, wire.Syndrome(n.X), event)
}

// reject owes a NAK that ends the connection. A receive in use is completed
// with recvStatus; without one there is an event.
func (q *QP) reject(psn ib.PSN, s wire.Syndrome, event Event) {
	r := &q.resp
	q.countNAK(s)
	q.trace("refused", psn)
	if r.head != r.tail && r.recvStatus != Success {
		q.completeReceive(r.recvStatus)
	} else if event != 0 {
		q.cfg.Host.Notify(q, event)
	}
	r.refused = true
	q.enterErr(true)
	// What the batch had not committed yet is not acknowledged, nor expected.
	r.epsn, r.cpsn = psn, psn
	q.owe(s, psn)
}
