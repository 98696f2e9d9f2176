package sim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/urxe/urxe/rocev2/wire"
)

// Offsets in an untagged IPv4 frame; the ones of IPv6 lie 20 further.
const (
	ipAt  = wire.EthernetLen
	udpAt = ipAt + wire.IPv4Len
	bthAt = udpAt + wire.UDPLen
)

// forge sends a packet of its own beside a real one: what a hostile or broken
// sender, or another protocol, might. Its ICRC is right where that is checked
// at all, and nothing it asks may be done.
func (n *network) forge(dst *link, data []byte) {
	b := slices.Clone(data)
	bth := bthAt
	if b[ipAt]>>4 == 6 {
		bth += wire.IPv6Len - wire.IPv4Len
	}
	b = forgeries[n.r.IntN(len(forgeries))](n, b, bth)
	seal(b)
	n.deliver(dst, b, n.delay()+time.Duration(n.r.Int64N(int64(n.f.latency))))
}

// seal makes the ICRC right.
func seal(b []byte) {
	var p wire.Packet
	f := wire.Frame{Frag: [2][]byte{b}}
	if wire.Parse(&p, &f) == wire.DropICRC {
		_, want := wire.ICRC(&p)
		binary.LittleEndian.PutUint32(b[len(b)-wire.ICRCLen:], want)
	}
}

var forgeries = []func(n *network, b []byte, bth int) []byte{
	func(n *network, b []byte, bth int) []byte { b[bth+1] |= 1 << n.r.IntN(4); return b },    // TVer
	func(_ *network, b []byte, bth int) []byte { b[bth+2], b[bth+3] = 0x12, 0x34; return b }, // P_Key of another partition
	func(_ *network, b []byte, bth int) []byte { b[bth+2], b[bth+3] = 0, 0; return b },       // the invalid P_Key
	func(n *network, b []byte, bth int) []byte { // no such QP
		b[bth+5], b[bth+6], b[bth+7] = 0, 0, uint8(n.r.IntN(2))
		return b
	},
	func(_ *network, b []byte, bth int) []byte { // another transport than the QP's
		switch wire.Opcode(b[bth]).Transport() {
		case wire.CNP: // for any connection
			return b
		case wire.UC, wire.UD:
			b[bth] &= 0x1f
			return b
		}
		b[bth] = byte(wire.UCSendOnly) | b[bth]&0x1f&^0x18
		return b
	},
	func(_ *network, b []byte, bth int) []byte { b[bth] = 0xff; return b }, // no opcode
	func(n *network, b []byte, bth int) []byte { return cnp(b, bth) },
	func(_ *network, b []byte, bth int) []byte { // a sender that isn't the peer
		b[bth-wire.UDPLen-5] ^= 0x10
		if b[ipAt]>>4 == 6 {
			b[ipAt+20] ^= 0x10
		}
		return b
	},
	padded,
	tagged,
	func(_ *network, b []byte, bth int) []byte { b[bth-wire.UDPLen+3]++; return b },                   // another UDP port
	func(n *network, b []byte, _ int) []byte { return b[:1+n.r.IntN(len(b))] },                        // cut off
	func(_ *network, b []byte, _ int) []byte { b[ipAt+6] |= 0x20; return b },                          // an IP fragment, or IPv6 of another protocol
	func(_ *network, b []byte, bth int) []byte { binary.BigEndian.PutUint16(b[bth-4:], 9); return b }, // UDP length
	ghost,
}

// mark sets CE in a packet with ECT(0). Nothing covers it but the checksum of
// IPv4, which no one here looks at.
func mark(b []byte) {
	if b[ipAt]>>4 == 6 {
		b[ipAt+1] |= 1 << 4
		return
	}
	b[ipAt+1] |= 1
}

// cnp makes a congestion notification (Annex A17.9.3).
func cnp(b []byte, bth int) []byte {
	b = append(b[:bth+wire.BTHLen], make([]byte, 16+wire.ICRCLen)...)
	b[bth], b[bth+1] = byte(wire.CongestionNotify), 0
	setLength(b, bth)
	return b
}

// setLength makes the IP and UDP lengths fit.
func setLength(b []byte, bth int) {
	n := len(b) - bth + wire.UDPLen
	binary.BigEndian.PutUint16(b[bth-4:], uint16(n))
	if b[ipAt]>>4 == 6 {
		binary.BigEndian.PutUint16(b[ipAt+4:], uint16(n))
	} else {
		binary.BigEndian.PutUint16(b[ipAt+2:], uint16(n+wire.IPv4Len))
	}
}

// ghost makes an ACK of a packet that is far from being sent, out of a response.
func ghost(n *network, b []byte, bth int) []byte {
	if wire.Opcode(b[bth]).Info().Request {
		return b // its PSN says nothing of what the receiver has sent
	}
	b = append(b[:bth+wire.BTHLen], byte(wire.SyndromeAck), 0, 0, 0, 0, 0, 0, 0)
	b[bth], b[bth+1], b[bth+8] = byte(wire.RCAck), 0x40, 0
	b[bth+9] += 0x20 + byte(n.r.IntN(0x20))
	setLength(b, bth)
	return b
}

// padded gives a packet pad bytes that may have none.
func padded(_ *network, b []byte, bth int) []byte {
	if i := wire.Opcode(b[bth]).Info(); !i.Payload || !i.Place.Ends() {
		b[bth+1] |= 0x10
	}
	return b
}

// tagged puts a packet into a VLAN that no host is in.
func tagged(_ *network, b []byte, _ int) []byte {
	const etherTypes = wire.EthernetLen - 2
	return slices.Insert(b, etherTypes, 0x81, 0x00, 0x00, 0x05)
}

// garble turns a response into one of another kind and the same length.
func garble(b []byte, o wire.Opcode) {
	other := map[wire.Opcode]wire.Opcode{
		wire.RCAck: wire.RCReadRespOnly, wire.RCReadRespOnly: wire.RCReadRespLast, wire.RCReadRespFirst: wire.RCReadRespOnly,
	}[o]
	if other == 0 {
		return
	}
	bth := bthAt
	if b[ipAt]>>4 == 6 {
		bth += wire.IPv6Len - wire.IPv4Len
	}
	b[bth] = byte(other)
	seal(b)
}
