package hostile

import (
	"encoding/binary"
	"fmt"

	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// scene is what the victim is about when a frame comes.
type scene byte

const (
	idle    scene = iota // two receives are posted, nothing is outstanding
	reading              // … and a READ of 600 bytes is
	sending              // … and a SEND is
	adding               // … and a FETCH_ADD is
	numScenes
)

func (s scene) String() string { return [...]string{"idle", "reading", "sending", "adding"}[s] }

// What the scenes use.
const (
	writeOff        = 64   // where requests of the peer write and read
	wordOff         = 128  // its atomics
	recvOff         = 256  // a receive of recvLen bytes
	recvLen         = 16   //
	recv2Off        = 1024 // another of recvLen bytes
	localOff        = 2048 // what the victim sends, and where it wants answers
	readLen         = 600
	requestID       = 7
	immediate       = 0x01020304
	original        = 0x1122334455667788
	added     int64 = 5
)

// play readies the victim for a frame.
func (r *rig) play(s qp.State, sc scene) {
	r.t.Helper()
	v := r.victim
	v.enter(s)
	v.freshKey()
	if s == qp.Reset || s == qp.Err {
		return // nothing can be posted, or is flushed at once
	}
	room := recvLen
	if v.typ == qp.UD {
		room += qp.GRHLen
	}
	v.recv(1, recvOff, room)
	v.recv(2, recv2Off, room)
	w := qp.SendWQE{ID: requestID, SGEs: v.sge(localOff, 8), RemoteAddr: 0x5000, RKey: 9}
	switch sc {
	case idle:
		return
	case reading:
		w.Opcode, w.SGEs = qp.WRRead, v.sge(localOff, readLen)
	case sending:
		w.Opcode = qp.WRSend
	case adding:
		w.Opcode, w.CompareAdd = qp.WRFetchAdd, uint64(added)
	}
	v.post(w)
	r.step()
	if n := len(r.link.take()); n != 1 {
		r.t.Fatalf("%d packets for the victim's request, want 1", n)
	}
}

// cell is one frame of the matrix: well-formed but for what its length, opcode
// and pad count make of it.
type cell struct {
	r     *rig
	len   int // of the whole frame, Ethernet header included
	op    byte
	pad   int
	state qp.State
	scene scene
}

func (x *cell) String() string {
	return fmt.Sprintf("%v, %v: opcode %#02x, frame of %d bytes, pad count %d", x.state, x.scene, x.op, x.len, x.pad)
}

const least = bthAt + 12 + 4 // bytes of a frame with nothing but a BTH

// payload is what is left of the frame for payload; negative: not even the headers fit.
func (x *cell) payload() int { return x.len - least - opcodes[x.op].ext - x.pad }

// head makes the extended headers of the opcode, valid ones.
func (x *cell) head() []byte {
	v := x.r.victim
	key, n := v.mr.Key, max(0, x.payload())
	imm := be.AppendUint32(nil, immediate)
	switch x.op {
	case 0x64, 0x65:
		return append(deth(victimKey, peerQPN), imm...)[:opcodes[x.op].ext]
	}
	switch x.op &^ 0x20 { // UC as RC
	case 0x03, 0x05, 0x09:
		return imm
	case 0x06, 0x0a:
		return reth(base+writeOff, key, n)
	case 0x0b:
		return append(reth(base+writeOff, key, n), imm...)
	case 0x0c, 0x1d:
		return reth(base+writeOff, key, 8)
	case 0x0d, 0x0f, 0x10, 0x11:
		return aeth(0x1f, 1)
	case 0x12:
		return be.AppendUint64(aeth(0x1f, 1), original)
	case 0x13, 0x14:
		return atomicETH(base+wordOff, key, uint64(added), v.word())
	case 0x16, 0x17:
		return be.AppendUint32(nil, v.fast.Key())
	case 0x1c:
		return append([]byte{0, 0, 0, 1}, reth(base+writeOff, key, 8)...)
	}
	return make([]byte, opcodes[x.op].ext)
}

// word is what the peer's atomics find.
func (c *conn) word() uint64 { return binary.NativeEndian.Uint64(c.model[wordOff:]) }

// frame makes the frame; its lengths and its ICRC are right.
func (x *cell) frame() []byte {
	f := x.r.victim.request(x.op, 0, nil, nil)
	if isResponse(x.op) {
		f = x.r.victim.response(x.op, 0, nil, nil)
	}
	f.pad = x.pad
	if x.len >= least {
		f.body = append(append(x.head(), pattern(max(0, x.payload()))...), 0, 0, 0)[:x.len-least]
		return f.bytes()
	}
	b := f.bytes()
	be.PutUint16(b[ipAt+2:], uint16(max(0, x.len-ipAt)))
	be.PutUint16(b[udpAt+4:], uint16(max(0, x.len-udpAt)))
	return b[:x.len]
}

func isResponse(op byte) bool { return op >= 0x0d && op <= 0x12 }

// parse says why a frame is no packet of RoCE, or Accepted.
func (x *cell) parse() wire.Verdict {
	o := opcodes[x.op]
	rest := x.len - least - o.ext
	switch {
	case x.len < bthAt:
		return wire.DropNotRoCE
	case x.len < bthAt+12:
		return wire.DropTruncated
	case o.payload == undefined && x.op >= 0x20:
		return wire.DropOpcode
	case rest < 0:
		return wire.DropTruncated
	case rest%4 != 0, x.pad > rest, o.payload == none && rest > 0, o.payload == full && x.pad > 0:
		return wire.DropLength
	}
	return wire.Accepted
}

// expect says what must come of the frame, and what it does to memory.
func (x *cell) expect() (o outcome, change func([]byte)) {
	if v := x.parse(); v != wire.Accepted {
		return silent(v, x.state), nil
	}
	switch {
	case x.state != qp.RTR && x.state != qp.RTS && x.state != qp.SQD && x.state != qp.SQE:
		return silent(wire.DropQPState, x.state), nil
	case x.op == 0x81 && x.r.victim.typ == qp.UD: // datagrams are of no flow that could be slowed down
		return silent(wire.DropCNP, x.state), nil
	case x.op == 0x81:
		return silent(wire.Accepted, x.state), nil
	case x.op&^0x1f != transports[x.r.victim.typ]:
		return silent(wire.DropTransport, x.state), nil
	case x.r.victim.typ == qp.UC:
		return x.expectUC()
	case x.r.victim.typ == qp.UD:
		return x.expectUD()
	case isResponse(x.op) && x.state == qp.RTR:
		return silent(wire.DropQPState, x.state), nil
	case isResponse(x.op) && x.scene == idle:
		return silent(wire.DropGhost, x.state), nil
	case isResponse(x.op):
		return x.expectResponse()
	}
	o, change = x.expectRequest()
	if x.state == qp.RTR {
		o.Events = append([]qp.Event{qp.EventCommEst}, o.Events...)
	}
	return o, change
}

// expectRequest is the responder's table.
func (x *cell) expectRequest() (outcome, func([]byte)) {
	n := x.payload()
	switch {
	case opcodes[x.op].payload == full && n != x.r.mtu.Bytes(), n > x.r.mtu.Bytes():
		return x.refused(0, qp.EventQPReqErr)
	case x.op == 0x00 || (x.op == 0x04 || x.op == 0x05 || x.op == 0x17) && n > recvLen:
		return x.refused(qp.LocLenErr, 0)
	case x.op == 0x04:
		return x.received(wc(1, qp.WCRecv, qp.Success), recvOff)
	case x.op == 0x05:
		return x.received(withImm(wc(1, qp.WCRecv, qp.Success)), recvOff)
	case x.op == 0x17:
		c := wc(1, qp.WCRecv, qp.Success)
		c.Flags, c.Imm = qp.WCWithInv, x.r.victim.fast.Key()
		return x.received(c, recvOff)
	case x.op == 0x1c:
		return x.accepted(answer(wire.RCReadRespOnly, firstRQ, 0x1f, 1)), nil
	case x.op == 0x1d && n == 8:
		return x.accepted(answer(wire.RCReadRespOnly, firstRQ, 0x1f, 1)), x.lands(writeOff)
	case x.op == 0x0a:
		o := x.accepted(answer(wire.RCAck, firstRQ, 0x1f, 1))
		return o, x.lands(writeOff)
	case x.op == 0x0b:
		return x.received(withImm(wc(1, qp.WCRecvWriteImm, qp.Success)), writeOff)
	case x.op == 0x0c:
		a := answer(wire.RCReadRespOnly, firstRQ, 0x1f, 1)
		a.data = string(x.r.victim.model[writeOff : writeOff+8])
		return x.accepted(a), nil
	case x.op == 0x13, x.op == 0x14:
		a := answer(wire.RCAtomicAck, firstRQ, 0x1f, 1)
		old := x.r.victim.word()
		a.Orig = old
		next := old + uint64(added)
		if x.op == 0x13 {
			next = uint64(added)
		}
		return x.accepted(a), func(m []byte) { binary.NativeEndian.PutUint64(m[wordOff:], next) }
	}
	// Nothing was begun that could go on or end; reserved; no word.
	return x.refused(0, qp.EventQPReqErr)
}

func withImm(c qp.Completion) qp.Completion {
	c.Flags, c.Imm = qp.WCWithImm, immediate
	return c
}

func (x *cell) accepted(a reply) outcome {
	return outcome{Verdict: wire.Accepted, State: x.state, Sent: []reply{a}}
}

// lands puts the frame's payload into the model.
func (x *cell) lands(off int) func([]byte) {
	return func(m []byte) { copy(m[off:], pattern(x.payload())) }
}

// received is the outcome of a message that takes the first receive.
func (x *cell) received(c qp.Completion, off int) (outcome, func([]byte)) {
	o := x.accepted(answer(wire.RCAck, firstRQ, 0x1f, 1))
	c.ByteLen, c.SrcQP = uint32(x.payload()), peerQPN
	o.WC = []qp.Completion{c}
	return o, x.lands(off)
}

// refused is the outcome of an invalid request: NAK 0x61 with its PSN, and the
// QP's end. The receive that it had taken ends with status.
func (x *cell) refused(status qp.WCStatus, e qp.Event) (outcome, func([]byte)) {
	o := outcome{Verdict: wire.DropRejected, State: qp.Err, Sent: []reply{answer(wire.RCAck, firstRQ, 0x61, 0)}}
	first := wc(1, qp.WCRecv, qp.WRFlushErr)
	if status != qp.Success {
		first.Status = status
	}
	if e != 0 {
		o.Events = []qp.Event{e}
	}
	if x.scene == idle {
		o.WC = []qp.Completion{first, wc(2, qp.WCRecv, qp.WRFlushErr)}
		return o, nil
	}
	request := x.request(qp.WRFlushErr)
	o.WC = []qp.Completion{request, first, wc(2, qp.WCRecv, qp.WRFlushErr)}
	if status != qp.Success { // first the receive that failed
		o.WC = []qp.Completion{first, request, wc(2, qp.WCRecv, qp.WRFlushErr)}
	}
	return o, nil
}

// request is the completion of the victim's own request.
func (x *cell) request(s qp.WCStatus) qp.Completion {
	switch x.scene {
	case reading:
		c := wc(requestID, qp.WCRead, s)
		c.ByteLen = readLen
		return c
	case adding:
		c := wc(requestID, qp.WCFetchAdd, s)
		c.ByteLen = 8
		return c
	}
	return wc(requestID, qp.WCSend, s)
}

// expectResponse is the requester's table, for a response to the first PSN.
func (x *cell) expectResponse() (outcome, func([]byte)) {
	switch {
	case x.op == 0x11 && x.scene == sending:
		return outcome{Verdict: wire.Accepted, State: x.state, WC: []qp.Completion{x.request(qp.Success)}}, nil
	case x.op == 0x11: // an ACK where data must come: an implied NAK, and the request is sent again
		return x.accepted(x.again()), nil
	case x.op == 0x12 && x.scene == adding:
		return outcome{Verdict: wire.Accepted, State: x.state, WC: []qp.Completion{x.request(qp.Success)}},
			func(m []byte) { binary.NativeEndian.PutUint64(m[localOff:], original) }
	case x.op == 0x0d && x.scene == reading && x.payload() == x.r.mtu.Bytes():
		return outcome{Verdict: wire.Accepted, State: x.state}, x.lands(localOff)
	}
	return outcome{Verdict: wire.DropUnexpected, State: qp.Err, WC: []qp.Completion{
		x.request(qp.BadRespErr), wc(1, qp.WCRecv, qp.WRFlushErr), wc(2, qp.WCRecv, qp.WRFlushErr)}}, nil
}

// again is the victim's own request, a second time.
func (x *cell) again() reply {
	a := answer(wire.RCReadRequest, firstSQ, 0, 0)
	a.AckReq, a.VA, a.RKey, a.Length = true, 0x5000, 9, readLen
	if x.scene == adding {
		a.Opcode, a.Length, a.Swap = wire.RCFetchAdd, 0, uint64(added)
	}
	return a
}
