package hostile

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/urxe/urxe/ib"
)

var be = binary.BigEndian

// Where things stand in an untagged IPv4 frame, and how much further in IPv6.
const (
	ipAt   = 14
	udpAt  = ipAt + 20
	bthAt  = udpAt + 8
	v6More = 20
)

// frame has the fields of a frame to the port. The bytes and the ICRC are made
// here, without the code under test.
type frame struct {
	v6, vlan bool
	group    bool // to theGroup, instead of the port
	src      byte // last byte of the address: peers differ in it
	sport    uint16
	op       byte
	flags    byte // SE 0x80, M 0x40, TVer 0x0f
	pad      int  // pad count as it is said
	pkey     uint16
	byte4    byte // FECN, BECN, reserved
	qpn      uint32
	ackReq   bool
	psn      uint32
	body     []byte // what follows the BTH up to the ICRC: headers, payload, pad
}

const (
	ownAddress  = 2 // of 10.0.0.x and fd00::x
	peerAddress = 1
)

// bytes makes the frame, its lengths and ICRC right.
func (f *frame) bytes() []byte {
	b := make([]byte, 0, 100+len(f.body))
	b = append(b, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)
	if f.vlan {
		b = append(b, 0x81, 0, 0xa0, 0) // a priority, and no VLAN
	}
	n := 8 + 12 + len(f.body) + 4
	if f.v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, byte(n>>8), byte(n), 17, 64)
		b = append(b, v6Address(f.src)...)
		b = append(b, f.dst()...)
	} else {
		total := n + 20
		b = append(b, 8, 0, 0x45, 0, byte(total>>8), byte(total), 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, f.src)
		b = append(b, f.dst()...)
	}
	b = be.AppendUint16(b, f.sport)
	b = append(b, 4791>>8, 4791&0xff, byte(n>>8), byte(n), 0, 0)
	b = append(b, f.op, f.flags|byte(f.pad)<<4)
	b = be.AppendUint16(b, f.pkey)
	b = be.AppendUint32(b, uint32(f.byte4)<<24|f.qpn)
	psn := f.psn
	if f.ackReq {
		psn |= 1 << 31
	}
	b = be.AppendUint32(b, psn)
	b = append(b, f.body...)
	b = append(b, 0, 0, 0, 0)
	copy(b[len(b)-4:], icrc(b))
	return b
}

// dst is the destination address.
func (f *frame) dst() []byte {
	g := gid4(ownAddress)
	switch {
	case f.group:
		g = theGroup(f.v6)
	case f.v6:
		g = gid6(ownAddress)
	}
	if f.v6 {
		return g[:]
	}
	return g[12:]
}

// theGroup is the multicast group that a victim may be in.
func theGroup(v6 bool) ib.GID {
	if v6 {
		return ib.GID{0: 0xff, 1: 0x0e, 14: 0x42, 15: 0x42}
	}
	return ib.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
}

func v6Address(last byte) []byte { return []byte{0: 0xfd, 15: last} }

// icrc computes the ICRC of a whole frame: CRC-32 over eight bytes of ones and
// the packet, with what routers may change replaced by ones (Annex A17.3.3).
func icrc(b []byte) []byte {
	ip := ipAt
	if b[12] == 0x81 {
		ip += 4
	}
	m := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, b[ip:len(b)-4]...)
	p, bth := m[8:], bthAt-ipAt
	if p[0]>>4 == 6 {
		bth += v6More
		p[0] |= 0x0f
		p[1], p[2], p[3], p[7] = 0xff, 0xff, 0xff, 0xff
	} else {
		p[1], p[8], p[10], p[11] = 0xff, 0xff, 0xff, 0xff
	}
	p[bth-2], p[bth-1], p[bth+4] = 0xff, 0xff, 0xff
	return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(m))
}

// seal makes the ICRC of a frame right again.
func seal(b []byte) []byte {
	if len(b) >= bthAt+16 {
		copy(b[len(b)-4:], icrc(b))
	}
	return b
}

// opcode is what the table of facts says of an opcode: bytes of extended
// headers, and which payloads it may have.
type opcode struct {
	ext     int
	payload payload
}

type payload byte

const (
	undefined payload = iota
	none              // no payload
	full              // a whole path MTU: first and middle packets
	some              // any: last and only packets
)

// opcodes are those that are defined (IBA 9.2, table 38; Annex A17, A19).
var opcodes = func() (t [256]opcode) {
	for class := range 2 { // RC, UC
		o := class * 0x20
		for i, x := range []opcode{
			{0, full}, {0, full}, {0, some}, {4, some}, {0, some}, {4, some}, // SEND
			{16, full}, {0, full}, {0, some}, {4, some}, {16, some}, {20, some}, // WRITE
		} {
			t[o+i] = x
		}
	}
	for i, x := range []opcode{
		{16, none}, {4, full}, {0, full}, {4, some}, {4, some}, {4, none}, {12, none}, {28, none}, {28, none},
	} {
		t[0x0c+i] = x
	}
	t[0x16], t[0x17], t[0x1c], t[0x1d] = opcode{4, some}, opcode{4, some}, opcode{20, none}, opcode{16, some}
	t[0x64], t[0x65], t[0x81] = opcode{8, some}, opcode{12, some}, opcode{16, none}
	return t
}()

// pattern is a payload of n bytes.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(0x30 + i*7)
	}
	return b
}

func reth(va uint64, rkey uint32, length int) []byte {
	b := be.AppendUint64(nil, va)
	b = be.AppendUint32(b, rkey)
	return be.AppendUint32(b, uint32(length))
}

func atomicETH(va uint64, rkey uint32, swap, compare uint64) []byte {
	b := be.AppendUint64(nil, va)
	b = be.AppendUint32(b, rkey)
	b = be.AppendUint64(b, swap)
	return be.AppendUint64(b, compare)
}

func aeth(syndrome byte, msn uint32) []byte { return be.AppendUint32(nil, uint32(syndrome)<<24|msn) }

// padded appends the pad that data needs, and says how much that is.
func padded(head, data []byte) (body []byte, pad int) {
	pad = -len(data) & 3
	body = append(append(body, head...), data...)
	return append(body, make([]byte, pad)...), pad
}
