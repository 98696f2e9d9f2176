package hostile

import (
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// transports are the top bits of the opcodes that a type of QP takes.
var transports = map[qp.Type]byte{qp.RC: 0x00, qp.UC: 0x20, qp.UD: 0x60}

// deth makes the header of a datagram.
func deth(key, src uint32) []byte { return be.AppendUint32(be.AppendUint32(nil, key), src) }

// expectUC is the table of a responder that answers nothing (IBA 9.8.2).
func (x *cell) expectUC() (o outcome, change func([]byte)) {
	o, change = x.expectMessage()
	if x.state == qp.RTR {
		o.Events = []qp.Event{qp.EventCommEst}
	}
	return o, change
}

func (x *cell) expectMessage() (outcome, func([]byte)) {
	n, mtu := x.payload(), x.r.mtu.Bytes()
	switch x.op {
	case 0x21, 0x22, 0x23, 0x27, 0x28, 0x29: // nothing was begun
		return silent(wire.DropIncomplete, x.state), nil
	}
	switch {
	case opcodes[x.op].payload == full && n != mtu, n > mtu, x.op == 0x26: // a FIRST whose RETH says that it is the whole
		return silent(wire.DropRejected, x.state), nil
	case x.op == 0x20, (x.op == 0x24 || x.op == 0x25) && n > recvLen:
		return silent(wire.DropTooLong, x.state), nil
	case x.op == 0x24:
		return x.taken(wc(1, qp.WCRecv, qp.Success)), x.lands(recvOff)
	case x.op == 0x25:
		return x.taken(withImm(wc(1, qp.WCRecv, qp.Success))), x.lands(recvOff)
	case x.op == 0x2b:
		return x.taken(withImm(wc(1, qp.WCRecvWriteImm, qp.Success))), x.lands(writeOff)
	}
	return outcome{Verdict: wire.Accepted, State: x.state}, x.lands(writeOff)
}

// taken is the outcome of a message that takes the first receive.
func (x *cell) taken(c qp.Completion) outcome {
	c.ByteLen, c.SrcQP = uint32(x.payload()), peerQPN
	return outcome{Verdict: wire.Accepted, State: x.state, WC: []qp.Completion{c}}
}

// expectUD is the table of datagrams (IBA 9.8.3).
func (x *cell) expectUD() (outcome, func([]byte)) {
	n := x.payload()
	if n > recvLen {
		return silent(wire.DropTooLong, x.state), nil
	}
	c := wc(1, qp.WCRecv, qp.Success)
	if x.op == 0x65 {
		c = withImm(c)
	}
	c.Flags |= qp.WCGRH
	o := x.taken(c)
	o.WC[0].ByteLen += qp.GRHLen
	return o, func(m []byte) {
		x.lands(recvOff + qp.GRHLen)(m)
		x.grh(m[recvOff:][:qp.GRHLen])
	}
}

// grh puts the 40 bytes that come before the payload: the IPv6 header of the
// frame, or its IPv4 header behind 20 zero bytes (Annex A17.4.5.2).
func (x *cell) grh(m []byte) {
	ip := x.frame()[ipAt:]
	if x.r.v6 == 1 {
		copy(m, ip)
		return
	}
	clear(m[:20])
	copy(m[20:], ip[:20])
	be.PutUint16(m[30:], wire.IPv4Checksum(ip[:20])) // the frames have none
}

// Datagrams that any Q_Key but the QP's leads nowhere, whichever bits differ.
func TestQKeys(t *testing.T) {
	conform.Row(t, "5.11/19")
	r := newRigOf(t, qp.UD, ib.MTU256)
	for bit := range 32 {
		r.play(qp.RTS, idle)
		b := r.victim.request(0x64, 0, deth(victimKey^1<<bit, peerQPN), pattern(8)).bytes()
		r.want(bit, r.deliver(b, nil), silent(wire.DropQKey, qp.RTS))
	}
}

// Where a multicast packet has which bit wrong: it is to another group, to no
// group, for no member, or damaged; else it is welcome.
func TestEveryBitOfMulticast(t *testing.T) {
	for v6 := range uint8(2) {
		r := newRigOf(t, qp.UD, ib.MTU256)
		r.v6 = v6
		r.join()
		good := r.victim.request(0x64, 0, deth(victimKey, peerQPN), pattern(8)).bytes()
		for at := range len(good) - 4 {
			for bit := range 8 {
				r.play(qp.RTS, idle)
				b := slices.Clone(good)
				b[at] ^= 1 << bit
				o := r.deliver(seal(b), func(m []byte) { copy(m, r.victim.mem[:readAt]) })
				taken := o.Verdict == wire.Accepted
				if taken != (len(o.WC) == 1) || len(o.Sent) > 0 || o.State != qp.RTS {
					t.Fatalf("bit %d of byte %d: %+v", bit, at, o)
				}
				dst := at - ipAt - 16
				if v6 == 1 {
					dst = at - ipAt - 24
				}
				if n := len((&frame{v6: v6 == 1}).dst()); dst >= 0 && dst < n && o.Verdict != wire.DropNoMember && o.Verdict != wire.DropAddress {
					t.Fatalf("bit %d of byte %d, in the destination address: %v", bit, at, o.Verdict)
				}
			}
		}
	}
}

// Every cut through a message of UC: what lacks a packet is dropped, whatever
// comes, and the message after it is whole.
func TestGapsOfUC(t *testing.T) {
	message := []byte{0x20, 0x21, 0x21, 0x22}
	for lost := range len(message) {
		for _, again := range []bool{false, true} { // the lost one comes late
			r := newRigOf(t, qp.UC, ib.MTU256)
			r.victim.enter(qp.RTS)
			r.victim.recv(1, recvOff, 4*256)
			r.victim.recv(2, recv2Off+1024, 4*256)
			order := slices.Delete([]int{0, 1, 2, 3}, lost, lost+1)
			if again && lost < 3 {
				order = append(order, lost)
			}
			for _, i := range order {
				n := 256
				if i == 3 {
					n = 9
				}
				o := r.deliver(r.victim.request(message[i], i, nil, pattern(n)).bytes(), func(m []byte) { copy(m[recvOff:recvOff+1024], r.victim.mem[recvOff:]) })
				if len(o.WC) > 0 || len(o.Sent) > 0 || o.State != qp.RTS {
					t.Fatalf("without packet %d: packet %d gave %+v", lost, i, o)
				}
			}
			o := r.deliver(r.victim.request(0x24, 4, nil, pattern(8)).bytes(), func(m []byte) { copy(m[recvOff:], pattern(8)) })
			c := wc(1, qp.WCRecv, qp.Success)
			c.ByteLen, c.SrcQP = 8, peerQPN
			r.want("the next message", o, outcome{Verdict: wire.Accepted, State: qp.RTS, WC: []qp.Completion{c}})
		}
	}
}

// Packets whose ICRC is right, and little else: what is dropped changes nothing,
// nothing completes twice, nothing is answered.
func TestRandomUnreliable(t *testing.T) {
	for _, typ := range []qp.Type{qp.UC, qp.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			rnd := seeded.Rand(t)
			r := newRigOf(t, typ, ib.MTU256)
			var done map[uint64]bool
			for i := range frames(30_000) {
				if i%50 == 0 {
					r.play(qp.RTS, idle)
					done = map[uint64]bool{}
					for id := range uint64(5) {
						r.victim.recv(100+id, recvOff, 700)
					}
				}
				b := r.mutant(rnd)
				o := r.deliver(b, func(m []byte) { copy(m, r.victim.mem[:readAt]) })
				if len(o.Sent) > 0 || o.State != qp.RTS {
					t.Fatalf("frame %x: %+v", b, o)
				}
				for _, c := range o.WC {
					if done[c.ID] || c.Status != qp.Success {
						t.Fatalf("frame %x: completion %+v", b, c)
					}
					done[c.ID] = true
				}
			}
			if d := r.port.Drops(); d[wire.Accepted] < uint64(frames(500)) {
				t.Errorf("%d frames accepted", d[wire.Accepted])
			}
		})
	}
}
