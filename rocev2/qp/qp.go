package qp

import (
	"math/bits"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// HandleOps and PlanOps are the most memory ops that one packet adds to a batch.
const (
	HandleOps = MaxSGE + 3 // a READ's last bytes, and what ends the QP, follow its payload
	PlanOps   = MaxSGE
)

// SharedHeld is how many receives of a shared queue a QP may hold: that of the
// message in progress, and those of the packets handled since the last Batch.Run.
const SharedHeld = 128

// DefaultWindow is how many request packets a QP keeps in flight. It is half of
// the 256 that a veth queue holds, and as much as rxe sends.
const DefaultWindow = 128

// QP is one queue pair. Its home worker calls all methods, one at a time.
// What each packet needs stands together, here and in its parts: see touch.go.
type QP struct {
	svc   *service
	state State
	// dying is set by Handle when it has met an error that Commit will turn
	// into ERR: what arrives in between no longer counts.
	dying    bool
	holdAcks bool // see HoldAcks
	// respond says whose turn it is in Plan when both sides have a packet.
	respond bool
	cnpOwed bool           // see Congested
	linkMTU ib.MTU         // see SetMTU
	mtu     int            // bytes of the path MTU; of a datagram QP, of the longest packet
	path    *wire.Template // of a connected QP
	pace    clock.Time     // see Pace
	posted  PostedQueue
	cfg     Config
	req     requester
	resp    responder
	attr    Attr
}

// New makes a QP in RESET. Its type must be valid.
func New(c Config) *QP {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.PKeys == nil {
		c.PKeys = ib.PKeyTable{ib.PKeyDefault}
	}
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	if c.RecvPD == nil {
		c.RecvPD = c.PD
	}
	q := &QP{cfg: c, svc: c.Type.service()}
	held := SharedHeld
	if !c.SharedRQ {
		q.posted, _ = c.RQ.(PostedQueue)
		held = c.Caps.MaxRecvWR
	}
	q.req.ring = make([]request, ceilPow2(c.Caps.MaxSendWR))
	q.resp.taken = make([]receive, ceilPow2(held))
	if q.svc.datagram {
		q.resp.headers = make([][wire.IPv4Len]byte, len(q.resp.taken))
	}
	q.reset()
	return q
}

// ceilPow2 returns the least power of two that is at least n and 1.
func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}

// Number returns the QP's number.
func (q *QP) Number() ib.QPN { return q.cfg.QPN }

// State returns the QP's state.
func (q *QP) State() State { return q.state }

// SetPath gives the headers of packets to the peer of a connected QP. With nil
// the next hop isn't known: requests and responses wait, and the requests'
// timers run.
func (q *QP) SetPath(t *wire.Template) { q.path = t }

// Path returns what SetPath gave.
func (q *QP) Path() *wire.Template { return q.path }

// FrameRoom returns the bytes of the longest packet that Plan makes.
func (q *QP) FrameRoom() int { return wire.MaxHeaderLen + q.mtu + wire.ICRCLen }

// Handle takes a packet for this QP, whose number, P_Key and addresses the port
// has checked. For each packet that it accepts it adds at least one op to b,
// which has room for HandleOps; what the packet causes happens in Commit.
func (q *QP) Handle(p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict {
	switch {
	case !q.state.Receives() || q.dying:
		return wire.DropQPState
	case p.Opcode.Transport() != q.svc.transport:
		return wire.DropTransport
	}
	return q.svc.handle(q, p, now, b)
}

// Plan makes one packet if one is owed and allowed now: it writes headers into
// p.Frame, which comes with FrameRoom bytes, and adds the ops that fetch the
// payload to b, which has room for PlanOps. The caller runs b, then seals and
// sends the packet, or drops it when it has become Void. Plan returns false
// when there is nothing to send now; Deadline says until when.
func (q *QP) Plan(now clock.Time, p *TxPacket, b *mem.Batch) bool {
	p.Void, p.Elsewhere, p.Multicast = false, false, false
	switch q.state { // what was posted since
	case Err:
		q.flush()
	case SQE:
		q.flushSends()
	}
	switch {
	case q.cnpOwed && q.path != nil:
		q.planCNP(p)
		return true
	case q.paced(now) && !q.svc.answers: // all that it sends is data
		return false
	}
	return q.svc.plan(q, now, p, b)
}

// packets returns how many packets n bytes take. A path MTU is a power of two.
func (q *QP) packets(n uint64) uint64 {
	return max(1, (n+uint64(q.mtu)-1)>>bits.TrailingZeros32(uint32(q.mtu)))
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

// Commit takes the outcome of an op; it implements mem.Owner.
func (q *QP) Commit(op *mem.Op) {
	n := &op.Note
	switch n.Code {
	case noteRequestOut, noteResponseOut, noteMessageOut, noteDatagramOut:
		q.commitPlanned(op)
		return
	}
	switch {
	case q.state == Err:
		return
	case op.Status == mem.Discarded: // after a fault that RC and UD don't survive
		q.rollBack(op)
		return
	case op.Status != mem.OK:
		q.svc.fault(q, op)
		return
	case n.Flags&flagEnd == 0:
		return // more ops of this packet follow
	}
	switch n.Code {
	case noteProgress:
		q.commitProgress(n)
	case noteFail:
		q.commitProgress(n)
		q.failOldest(WCStatus(n.X))
	case noteReject:
		q.commitReject(n)
	case noteBadReceive:
		q.failReceive(LocProtErr)
	case noteLeft:
		q.completeReceive(WCStatus(n.X))
	case noteDatagram:
		q.commitDatagram(n)
	default:
		q.commitRequest(op)
	}
}

// commitPlanned takes the outcome of a gather for a packet that Plan made.
func (q *QP) commitPlanned(op *mem.Op) {
	n := &op.Note
	if op.Status == mem.OK {
		if n.Code >= noteMessageOut && n.Flags&flagEnd != 0 && q.state.sends() {
			q.sent(n)
		}
		return
	}
	n.Ref.(*TxPacket).Void = true
	switch {
	case op.Status == mem.Discarded:
	case n.Code == noteResponseOut:
		if q.state != Err || q.resp.refused {
			q.failResponse(n.PSN)
		}
	case q.state.sends():
		q.failLocal(n.X, LocProtErr)
	}
}

// sent takes note that the whole payload of a packet is in its frame. With an
// unreliable service that is all that a request waits for.
func (q *QP) sent(n *mem.Note) {
	switch n.Code {
	case noteMessageOut:
		q.req.una++
		q.commitProgress(n)
	case noteDatagramOut:
		q.commitSent(n.X)
	}
}

// What an op's note says: Code is one of note…, Flags are flag….
const (
	noteProgress    = iota // requester: N more PSNs are acknowledged
	noteFail               // requester: N more, then the oldest request fails with status X
	noteSend               // responder: part of a SEND
	noteWrite              // responder: part of a WRITE
	noteRead               // responder: a READ request of N bytes
	noteAtomic             // responder: an atomic, an ATOMIC WRITE or a FLUSH; X is its rkey, N its opcode
	noteReject             // responder: refuse with syndrome X; N is the completion status for the receive
	noteBadReceive         // responder: the receive in use is no good
	noteLeft               // responder: the message that the receive was for is dropped; X is its completion status
	noteHeader             // responder: the GRH of a datagram
	noteDatagram           // responder: a datagram; N bytes with the GRH
	noteRequestOut         // the payload of a request; X is its index
	noteResponseOut        // the payload of a response
	noteMessageOut         // the payload of a packet of UC; X is the index of its request
	noteDatagramOut        // the payload of a datagram; X is the index of its request
)

const (
	flagEnd       = 1 << iota // the last op of its packet
	flagAckReq                // the packet asks for an acknowledgement
	flagMessage               // the packet ends its message
	flagReceive               // the message consumes a receive
	flagImm                   // X holds immediate data
	flagSolicited             // the receiver asked for an event
	flagInv                   // X holds the key that the peer invalidates
)

// trace reports an event to the hook, if there is one.
func (q *QP) trace(what string, psn ib.PSN) {
	if q.cfg.Trace != nil {
		q.cfg.Trace(q, what, psn)
	}
}

// Deadline returns when Expire has something to do, or clock.Never.
func (q *QP) Deadline() clock.Time {
	d := clock.Never
	if q.pace != 0 {
		d = q.pace
	}
	if q.state.sends() {
		d = min(d, q.req.ackDeadline, q.req.rnrUntil, q.req.timing.at)
	}
	return d
}

// Prolong has the timers that wait for an answer, if they are due, be so at until: the
// answer may have come and not been handled yet. A real timer may be late (IBA
// 9.7.6.1.3). It reports whether nothing is due now.
func (q *QP) Prolong(now, until clock.Time) bool {
	r := &q.req
	if r.ackDeadline <= now {
		r.ackDeadline = until
	}
	if r.timing.at <= now {
		r.timing.at = until
	}
	return q.Deadline() > now
}

// Expire lets run out the timers that are due. Plan may have work afterwards.
func (q *QP) Expire(now clock.Time) {
	if q.Deadline() > now {
		return
	}
	if q.pace <= now {
		q.pace = 0
	}
	r := &q.req
	if r.rnrUntil <= now {
		r.rnrUntil = clock.Never
		q.trace("rnr wait over", q.psnOf(r.una))
	}
	switch {
	case r.ackDeadline <= now:
		q.svc.timeout(q, now)
	case r.timing.at <= now:
		q.probe(now)
	}
}
