package hostile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// lands is the outcome of a SEND of the peer, the n-th, into the n-th receive.
func (c *conn) lands(n int, length int) outcome {
	w := wc(uint64(n+1), qp.WCRecv, qp.Success)
	w.ByteLen, w.SrcQP = uint32(length), peerQPN
	ack := answer(wire.RCAck, firstRQ+uint32(n), 0x1f, ib.MSN(n+1))
	ack.PKey = pkeys[c.pkey]
	return outcome{Verdict: wire.Accepted, State: qp.RTS, WC: []qp.Completion{w}, Sent: []reply{ack}}
}

// sends is the n-th SEND of the peer, to be changed.
func (c *conn) sends(n int) *frame { return c.request(0x04, n, nil, pattern(recvLen-1)) }

// welcome sends a frame that must be taken as the n-th SEND, whatever is odd in it.
func (r *rig) welcome(what string, n int, b []byte) {
	r.t.Helper()
	r.victim.recv(uint64(n+1), recvOff, recvLen)
	got := r.deliver(b, func(m []byte) { copy(m[recvOff:], pattern(recvLen-1)) })
	r.want(what, got, r.victim.lands(n, recvLen-1))
	r.scrub()
}

// scrub makes the receive such that the next message is seen to land.
func (r *rig) scrub() {
	clear(r.victim.mem[recvOff : recvOff+recvLen])
	clear(r.victim.model[recvOff : recvOff+recvLen])
}

// dropped sends a frame that must vanish.
func (r *rig) dropped(what string, v wire.Verdict, b []byte) {
	r.t.Helper()
	r.want(what, r.deliver(b, nil), silent(v, qp.RTS))
}

// Every bit of a packet: what routers may change is not covered by the ICRC,
// what Ethernet says is not looked at but for the VLAN, and anything else makes
// the packet vanish.
func TestEveryBit(t *testing.T) {
	conform.Row(t, "5.11/17", "5.5/rest")
	for _, v6 := range []uint8{0, 1} {
		for _, vlan := range []bool{false, true} {
			t.Run(fmt.Sprintf("v6=%d,vlan=%v", v6, vlan), func(t *testing.T) {
				r := newRig(t, ib.MTU256)
				r.v6 = v6
				r.victim.enter(qp.RTS)
				n := 0
				for at := 0; ; at++ {
					for bit := range 8 {
						f := r.victim.sends(n)
						f.vlan = vlan
						b := f.bytes()
						if at == len(b) {
							return
						}
						b[at] ^= 1 << bit
						what := fmt.Sprintf("bit %d of byte %d", bit, at)
						if mayDiffer(at, bit, v6 == 1, vlan) {
							r.welcome(what, n, b)
							n++
							continue
						}
						o := r.deliver(b, nil)
						r.want(what, o, silent(o.Verdict, qp.RTS))
						if o.Verdict == wire.Accepted || isData(at, v6 == 1, vlan) && o.Verdict != wire.DropICRC {
							t.Fatalf("%s flipped: %v", what, o.Verdict)
						}
					}
				}
			})
		}
	}
}

// mayDiffer reports whether a bit may be flipped on the way (Annex A17.3.3), or
// is Ethernet's.
func mayDiffer(at, bit int, v6, vlan bool) bool {
	if at < 12 {
		return true // MAC addresses
	}
	if vlan {
		if at -= 4; at < 12 {
			return at == 10 && bit >= 4 // the tag: its priority, not its VLAN
		}
	}
	ip, udp := at-ipAt, at-udpAt
	if v6 {
		udp -= v6More
	}
	switch {
	case udp == 6 || udp == 7: // checksum
		return true
	case udp == 8+4: // FECN, BECN, reserved
		return true
	case v6:
		return ip == 0 && bit < 4 || ip >= 1 && ip <= 3 || ip == 7 // traffic class, flow label, hop limit
	}
	return ip == 1 || ip == 8 || ip == 10 || ip == 11 // TOS, TTL, checksum
}

// isData reports whether a byte lies behind what is looked at before the ICRC:
// the first two bytes of the BTH.
func isData(at int, v6, vlan bool) bool {
	if v6 {
		at -= v6More
	}
	if vlan {
		at -= 4
	}
	return at >= bthAt+2
}

// Damage in each region of packets of each kind is silent; the packet itself,
// afterwards, is welcome.
func TestDamageInEachRegion(t *testing.T) {
	conform.Row(t, "5.11/16")
	r := newRig(t, ib.MTU256)
	for _, op := range []byte{0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x13, 0x14} {
		x := cell{r, least + opcodes[op].ext + 8, op, 0, qp.RTS, idle}
		if opcodes[op].payload == none {
			x.len -= 8
		}
		r.play(qp.RTS, idle)
		b := x.frame()
		for at := bthAt + 2; at < len(b); at++ {
			if at == bthAt+4 {
				continue // not covered
			}
			b[at] ^= 0x10
			r.dropped(fmt.Sprintf("opcode %#02x, byte %d", op, at), wire.DropICRC, b)
			b[at] ^= 0x10
		}
		r.try(&x, true)
	}
}

func TestTransportVersion(t *testing.T) {
	conform.Row(t, "5.11/19")
	r := newRig(t, ib.MTU256)
	r.victim.enter(qp.RTS)
	for v := byte(1); v < 16; v++ {
		f := r.victim.sends(0)
		f.flags |= v
		r.dropped("TVer", wire.DropVersion, f.bytes())
	}
}

// A QP takes the P_Keys that match its own, and no other that the port has.
func TestPKeys(t *testing.T) {
	conform.Row(t, "5.7/pkey-ffff-ffff", "5.7/pkey-7fff-ffff", "5.7/pkey-0000-ffff", "5.7/pkey-ffff-7fff", "5.7/pkey-7fff-7fff",
		"5.7/pkey-0000-7fff", "5.7/pkey-ffff-8001", "5.7/pkey-7fff-8001", "5.7/pkey-0000-8001", "5.7/pkey-drop", "5.11/19")
	for i, taken := range [][]int{{0x7fff, 0xffff}, {0xffff}, {0x0001, 0x8001}, {0x8002}} {
		r := newRig(t, ib.MTU256)
		r.victim.pkey = uint16(i)
		r.victim.enter(qp.RTS)
		n := 0
		for key := range 1 << 16 {
			f := r.victim.sends(n)
			f.pkey = uint16(key)
			if slices.Contains(taken, key) {
				r.welcome("P_Key", n, f.bytes())
				n++
			} else if key < 4 || key > 0xfff0 || key&0x0fff == 0x0001 || key&0x7ff0 == 0x7ff0 {
				r.dropped(fmt.Sprintf("P_Key %#04x at a QP of index %d", key, i), wire.DropPKey, f.bytes())
			}
		}
		if n != len(taken) {
			t.Errorf("index %d: %d keys were taken, want %#x", i, n, taken)
		}
	}
}

// What a peer may choose freely.
func TestPeersFreedom(t *testing.T) {
	conform.Row(t, "5.11/26", "5.11/27", "bug/3")
	r := newRig(t, ib.MTU256)
	r.victim.enter(qp.RTS)
	for n, change := range []func(f *frame){
		func(f *frame) { f.flags &^= 0x40 }, // MigReq 0, as rxe sends it
		func(f *frame) { f.flags |= 0x40 },
		func(f *frame) { f.sport = 0 },
		func(f *frame) { f.sport = 0xffff }, // changes within the connection
		func(f *frame) { f.sport = 4791 },
		func(f *frame) { f.byte4 = 0xc0 }, // FECN, BECN
		func(f *frame) { f.byte4 = 0x3f }, // reserved
		func(f *frame) { f.vlan = true },
	} {
		f := r.victim.sends(n)
		change(f)
		r.welcome(fmt.Sprintf("freedom %d", n), n, f.bytes())
	}
}

// Whom a packet is for.
func TestDestinations(t *testing.T) {
	r := newRig(t, ib.MTU256)
	r.victim.enter(qp.RTS)
	for _, qpn := range []uint32{0, 1, 2, victimQPN + 1, 0xfffffe, 0xffffff} {
		for _, op := range []byte{0x04, 0x11, 0x24, 0x64, 0x81} {
			x := cell{r: r, op: op}
			f := r.victim.request(op, 0, x.head(), nil)
			f.qpn = qpn
			v := wire.DropNoQP
			if qpn == 0xffffff { // which is for groups, and this is to no group
				v = wire.DropAddress
			}
			r.dropped(fmt.Sprintf("opcode %#02x to QP %#x", op, qpn), v, f.bytes())
		}
	}
	// A QP knows its peer by both addresses.
	f := r.victim.sends(0)
	f.src = 9
	r.dropped("another sender", wire.DropAddress, f.bytes())
	f = r.victim.sends(0)
	f.v6 = true
	r.dropped("the other IP version", wire.DropAddress, f.bytes())
	b := r.victim.sends(0).bytes()
	b[udpAt-1] = 77 // sent to another address, and here all the same
	r.dropped("another destination", wire.DropAddress, seal(b))
	f = r.victim.sends(0)
	f.group = true
	r.dropped("a group, and the number of a QP", wire.DropAddress, f.bytes())
	f = r.victim.sends(0)
	f.qpn = bystanderQPN
	r.dropped("the bystander, from the victim's peer", wire.DropAddress, f.bytes())
	r.welcome("the peer", 0, r.victim.sends(0).bytes())
}

// A congestion notification touches neither sequence numbers nor what is owed,
// whatever its fields say.
func TestCongestionNotifications(t *testing.T) {
	conform.Row(t, "5.9/cnp-state")
	r := newRig(t, ib.MTU256)
	r.victim.enter(qp.RTS)
	for n, change := range []func(f *frame){
		func(f *frame) { f.flags, f.psn, f.ackReq = 0, 0, false }, // as hardware sends it
		func(f *frame) {}, // with the PSN that is expected
		func(f *frame) { f.psn = 5 },
	} {
		f := r.victim.request(0x81, n, make([]byte, 16), nil)
		f.byte4 = 0x40
		change(f)
		r.want("CNP", r.deliver(f.bytes(), nil), silent(wire.Accepted, qp.RTS))
		r.welcome("a SEND after it", n, r.victim.sends(n).bytes())
	}
}

// Payloads of 0 to 7 bytes, both ways: pad and ICRC.
func TestSmallPayloads(t *testing.T) {
	conform.Row(t, "5.11/15", "5.1/pad", "bug/1")
	r := newRig(t, ib.MTU256)
	r.victim.enter(qp.RTS)
	for n := range 8 {
		r.victim.recv(uint64(n+1), recvOff, recvLen)
		got := r.deliver(r.victim.request(0x04, n, nil, pattern(n)).bytes(), func(m []byte) { copy(m[recvOff:], pattern(n)) })
		r.want("in", got, r.victim.lands(n, n))
		r.scrub()
		r.victim.post(qp.SendWQE{ID: 9, Opcode: qp.WRSend, SGEs: r.victim.sge(localOff, n)})
		r.step()
		sent := r.link.sent
		p := r.link.take()
		if len(p) != 1 || p[0].data != string(r.victim.mem[localOff:localOff+n]) {
			t.Fatalf("a SEND of %d bytes made %+v", n, p)
		}
		if pad := sent[0][bthAt+1] >> 4 & 3; int(pad) != -n&3 || len(sent[0]) != least+n+int(pad) {
			t.Fatalf("a SEND of %d bytes has pad count %d, frame length %d", n, pad, len(sent[0]))
		}
	}
}
