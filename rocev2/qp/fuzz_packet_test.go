package qp

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// message is a whole SEND or WRITE of the peer, in sequence.
func (z *fuzzed) message() {
	write, packets, imm := z.s.next()&1 != 0, 1+int(z.s.next()%5), z.s.next()&1 != 0
	off, last := int(z.s.next())*8, int(z.s.next())
	key, base := z.mr.Key, uint64(memBase)
	if z.s.next() == 1 && z.otherMR != nil {
		key, base = z.otherMR.Key, 0
	}
	for i := range packets {
		kind := WRSend
		if write {
			kind = WRWrite
		}
		if imm {
			kind += WRWriteImm - WRWrite
		}
		n := z.mtu
		if i == packets-1 {
			n = last
		}
		h := wire.Header{
			Opcode: kind.operation().packets[placeOf(uint64(i), uint64(packets))], PSN: z.resp.epsn, AckReq: i == packets-1,
			VA: base + uint64(off), RKey: key, Length: uint32((packets-1)*z.mtu + last), Imm: 5,
		}
		z.give(h, seq(n))
	}
}

// request is one request of the peer, in sequence or nearly so.
func (z *fuzzed) request() {
	h := wire.Header{Opcode: wire.Opcode(z.s.next() & 0x1f)}
	h.PSN = z.resp.epsn.Add(int(int8(z.s.next())) / 2)
	flags := z.s.next()
	h.AckReq, h.SE = flags&1 != 0, flags&2 != 0
	h.VA = memBase + uint64(z.s.next())*8 + uint64(flags>>4&1)
	h.RKey = z.mr.Key
	switch {
	case flags&4 != 0 && z.otherMR != nil:
		h.RKey, h.VA = z.otherMR.Key, h.VA-memBase
	case flags&8 != 0:
		h.RKey ^= 1
	}
	h.Length = uint32(z.s.next()) | uint32(z.s.next())<<8
	if flags == 0xff {
		h.Length = z.s.word()
	}
	h.Swap, h.Compare = uint64(z.s.next()), uint64(z.s.next())
	z.give(h, seq(z.length()))
}

// length is the length of a payload.
func (z *fuzzed) length() int {
	lengths := [...]int{0, z.mtu, 4, z.mtu - 1, z.mtu + 1, z.mtu - 4}
	if i := int(z.s.next()) % (len(lengths) + 1); i < len(lengths) {
		return lengths[i]
	}
	return int(z.s.next())
}

// response is an answer of the peer near the oldest packet not acknowledged.
func (z *fuzzed) response() {
	h := wire.Header{Opcode: wire.Opcode(z.s.next() & 0x1f)}
	h.PSN = z.psnOf(z.req.una).Add(int(int8(z.s.next())))
	h.Syndrome = wire.Syndrome(z.s.next())
	h.MSN = ib.MSN(z.s.next())
	n := z.length()
	if z.s.next() < 128 && z.state != Err && z.req.una < z.req.high { // what is asked for
		if t := z.req.at(z.req.find(z.req.una)); t.isRead() {
			n = int(min(t.length-(z.req.una-t.first)*uint64(z.mtu), uint64(z.mtu)))
		}
	}
	z.give(h, seq(n))
}

// packet is an arbitrary packet.
func (z *fuzzed) packet() {
	h := wire.Header{
		Opcode: wire.Opcode(z.s.next()), PSN: ib.PSN(z.s.word() & 0xffffff), VA: uint64(z.s.word())<<32 | uint64(z.s.word()),
		RKey: z.s.word(), Length: z.s.word(), Syndrome: wire.Syndrome(z.s.next()), AckReq: z.s.next()&1 != 0, SE: z.s.next()&1 != 0,
	}
	z.give(h, seq(z.length()))
}

// give hands the QP a packet such as Parse lets through.
func (z *fuzzed) give(h wire.Header, data []byte) {
	i := h.Opcode.Info()
	switch {
	case !h.Opcode.Valid():
	case !i.Payload:
		data = nil
	case !i.Place.Ends():
		data = data[:len(data)&^3]
	}
	if z.batch.Free() < HandleOps {
		z.run()
	}
	burst := z.burst
	z.burst = true // the batch is run below
	cpsn, msn, place := z.resp.cpsn, z.resp.msn, z.resp.epsn
	v := z.gets(h, data)
	if testing.Verbose() {
		z.t.Logf("  %v: %v", pkt{h, data}, v)
	}
	z.burst = burst
	if z.resp.cpsn != cpsn || z.resp.msn != msn {
		z.t.Fatalf("%v: Handle moved what Commit moves", h.Opcode)
	}
	if v == wire.Accepted && i.Request {
		if h.PSN != place {
			z.t.Fatalf("%v with PSN %v was accepted, expected is %v", h.Opcode, h.PSN, place)
		}
		z.note(&h, data)
	}
	if v == wire.DropRejected && i.Operation == wire.OpSend {
		z.torn = z.sending
		if i.Place.Starts() && z.taken < len(z.rq.recvs) {
			z.torn = z.rq.recvs[z.taken]
		}
	}
	if !z.burst {
		z.run()
	}
}

// note adds the effects of a request that was accepted.
func (z *fuzzed) note(h *wire.Header, data []byte) {
	i := h.Opcode.Info()
	at := effect{psn: h.PSN, main: h.RKey == z.mr.Key, off: h.VA, swap: h.Swap, cmp: h.Compare}
	if at.main {
		at.off -= memBase
	}
	switch i.Operation {
	case wire.OpWrite:
		if i.Place.Starts() {
			z.writing = at
		}
		z.writing.psn, z.writing.data = h.PSN, data
		z.effects = append(z.effects, z.writing)
		z.writing.off += uint64(len(data))
		if i.Ext.Has(wire.ExtImmDt) {
			z.taken++
		}
	case wire.OpSend:
		if i.Place.Starts() {
			z.sending, z.filled = z.rq.recvs[z.taken], 0
			z.taken++
		}
		z.noteSend(h.PSN, data)
	case wire.OpCompareSwap, wire.OpFetchAdd:
		at.atomic = h.Opcode
		z.effects = append(z.effects, at)
	}
}

// forgive lets the model have what the receive of a refused SEND holds: some of
// its elements may have taken their bytes before another was found bad.
func (z *fuzzed) forgive(w *RecvWQE) {
	for i := 0; w != nil && i < len(w.SGEs); i++ {
		s := &w.SGEs[i]
		m, real, off := z.otherMod, z.other, s.Addr
		if s.LKey == z.mr.Key {
			m, real, off = z.model, z.mem, s.Addr-memBase
		}
		if end := min(off+uint64(s.Length), uint64(len(m))); off < end {
			copy(m[off:end], real[off:end])
		}
	}
}

// noteSend adds an effect for each element that data goes to.
func (z *fuzzed) noteSend(psn ib.PSN, data []byte) {
	skip := z.filled
	z.filled += uint64(len(data))
	for _, s := range z.sending.SGEs {
		n := uint64(s.Length)
		if skip >= n {
			skip -= n
			continue
		}
		n = min(n-skip, uint64(len(data)))
		e := effect{psn: psn, main: s.LKey == z.mr.Key, off: s.Addr + skip, data: data[:n]}
		if e.main {
			e.off -= memBase
		}
		z.effects = append(z.effects, e)
		if data, skip = data[n:], 0; len(data) == 0 {
			return
		}
	}
}

// run commits the burst. All of it has landed, or all before the packet that
// failed and nothing behind it.
func (z *fuzzed) run() {
	z.batch.Run()
	for i := range z.effects {
		e := &z.effects[i]
		m, real := z.otherMod, z.other
		if e.main {
			m, real = z.model, z.mem
		}
		switch d := e.psn.Sub(z.resp.cpsn); {
		case d < 0:
			e.apply(m)
		case z.state == Err && (d == 0 || !z.resp.refused):
			// It may have landed in part or, where the requester's failure ended
			// the QP in this burst, as a whole, though nobody is told.
			end := min(e.off+max(8, uint64(len(e.data))), uint64(len(m)))
			copy(m[min(e.off, end):end], real[min(e.off, end):end])
		case z.state != Err:
			z.t.Fatalf("PSN %v was accepted and not committed, expected is %v", e.psn, z.resp.cpsn)
		}
	}
	z.effects = z.effects[:0]
	z.forgive(z.torn)
	z.torn = nil
	if z.state != Err && z.resp.cpsn != z.resp.epsn {
		z.t.Fatalf("expected is %v, committed only up to %v", z.resp.epsn, z.resp.cpsn)
	}
	z.sameMemory(z.mem, z.model)
	z.sameMemory(z.other, z.otherMod)
}

func (z *fuzzed) sameMemory(got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			z.t.Fatalf("memory of %d bytes is %#x at %#x; the packets accepted make it %#x", len(got), got[i], i, want[i])
		}
	}
}

// planAll takes all that the QP would send, in bursts.
func (z *fuzzed) planAll() {
	z.run()
	most := z.cfg.Window + z.resp.owed.len() + 4
	for i := range z.resp.owed.len() {
		o := z.resp.owed.at(i)
		most += max(0, o.last.Sub(o.psn)+1)
	}
	burst := 1 + int(z.s.next()%8)
	packets := make([]TxPacket, burst)
	for made := 0; ; made += burst {
		if made > most+burst {
			z.t.Fatalf("Plan goes on after %d packets, owed were %d at most", made, most)
		}
		n := 0
		for ; n < burst; n++ {
			packets[n] = TxPacket{Frame: &wire.Frame{Frag: [2][]byte{make([]byte, z.FrameRoom())}}}
			if z.batch.Free() < PlanOps || !z.Plan(z.now, &packets[n], z.batch) {
				break
			}
		}
		z.batch.Run()
		for i := range packets[:n] {
			z.sent(&packets[i])
		}
		if n == 0 {
			break
		}
	}
	z.checkIdle()
}

// sent checks a packet that the QP made.
func (z *fuzzed) sent(p *TxPacket) {
	if p.Void {
		return
	}
	z.Path().Seal(p.Frame)
	var q wire.Packet
	if v := wire.Parse(&q, p.Frame); v != wire.Accepted {
		z.t.Fatalf("the QP made a packet that is %v", v)
	}
	if testing.Verbose() {
		z.t.Logf("  sent %v", pkt{q.Header, q.Payload[0]})
	}
	if q.Opcode.Info().Request {
		if z.state != RTS && z.state != SQD && z.state != Err {
			z.t.Fatalf("a request is sent in %v", z.state)
		}
		return
	}
	// With a positive answer all up to its PSN is done; with a NAK, all before.
	done := q.PSN
	if !q.Opcode.Info().Ext.Has(wire.ExtAETH) || q.Syndrome.IsAck() {
		done = done.Next()
	}
	if done.Sub(z.resp.cpsn) > 0 {
		z.t.Fatalf("%v with PSN %v, syndrome %v is sent; committed is only what lies before %v", q.Opcode, q.PSN, q.Syndrome, z.resp.cpsn)
	}
}

// checkIdle checks that nothing is forgotten after Plan had nothing to send.
func (z *fuzzed) checkIdle() {
	r := &z.req
	if z.path == nil {
		return
	}
	switch {
	case z.owesResponse():
		z.t.Fatalf("Plan has nothing to send, but an answer is owed")
	case z.state == Err && (z.sq.retired != len(z.sq.sends) || z.rq.retired != len(z.rq.recvs)):
		z.t.Fatalf("work requests are left in ERR")
	case z.state != RTS && z.state != SQD:
	case r.una < r.high && z.attr.Timeout != 0 && z.Deadline() == clock.Never:
		z.t.Fatalf("packets are unacknowledged, and no timer runs")
	case z.state == RTS && r.una == r.high && z.sq.retired != len(z.sq.sends):
		z.t.Fatalf("nothing is outstanding, and %d requests aren't sent", len(z.sq.sends)-z.sq.retired)
	}
}
