package wire

import (
	"encoding/binary"
	"hash/crc32"
)

var le = binary.LittleEndian

// The ICRC (Annex A17.3.3) is the CRC-32 of Ethernet, stored with the low byte
// first, over eight bytes of ones in place of an LRH and then the packet from
// the IP header to the pad, in which the fields that may change on the way
// count as ones:
//
//	IPv4: type of service, time to live, header checksum
//	IPv6: traffic class, flow label, hop limit
//	UDP:  checksum
//	BTH:  the byte of FECN and BECN

// icrcStart is the register of the CRC after the eight bytes of ones.
const icrcStart = 0xdebb20e3

// lead is the most bytes that are hashed before the first that counts. The
// hardware's CRC takes 16 bytes at a time, and what is left over at the end
// costs more than all else here: zeros before the first byte, which leave a
// register of zero as it is, make the length right. What the register should
// be is then put into the first four bytes, which comes to the same.
const lead = 12

// leadFor returns how many zeros before n bytes leave the least over.
func leadFor(n int) int { return -(n &^ 3) & lead }

// hash hashes b from a register of zero.
func hash(b []byte) uint32 { return crc32.Update(^uint32(0), crc32.IEEETable, b) }

// The fields that count as ones, as little-endian words.
const (
	maskIPv4  = 0x000000000000ff00 // bytes 0 to 7: type of service
	maskIPv4b = 0x00000000ffff00ff // bytes 8 to 15: time to live, checksum
	maskIPv6  = 0xff000000ffffff0f // bytes 0 to 7: class, label, hop limit
	maskUDP   = 0x00ff00000000ffff // from the UDP checksum to the byte of FECN and BECN
	maskBTH   = 0x000000ff00000000 // bytes 0 to 7
)

// ICRC returns the ICRC that stands in p's frame and the one it should have.
// p must have got so far in Parse that its verdict is Accepted or DropICRC.
func ICRC(p *Packet) (got, want uint32) {
	return p.Frame.readICRC(p.end), invariantCRC(p.Frame, p.ip, p.IPv6, p.end)
}

// RxeFlushICRC returns the ICRC that Linux rxe (seen in 6.12) gives a FLUSH and
// demands of one: it hashes BTH and extended headers once more, unmasked, after
// all that the standard has. p is as for ICRC.
func RxeFlushICRC(p *Packet) uint32 {
	_, want := ICRC(p)
	return rxeFlushICRC(p.Frame, p.bth, p.end, want)
}

// RxeFlushHolds reports whether p is a FLUSH whose ICRC is rxe's. A port that
// speaks with rxe accepts it after Parse said DropICRC.
func RxeFlushHolds(p *Packet) bool {
	return p.Opcode == RCFlush && p.Frame.readICRC(p.end) == RxeFlushICRC(p)
}

func rxeFlushICRC(f *Frame, bth, end int, crc uint32) uint32 {
	for _, b := range f.Cut(bth, end-bth) {
		crc = crc32.Update(crc, crc32.IEEETable, b)
	}
	return crc
}

// invariantCRC computes the ICRC of the packet whose IP header begins at ip
// and whose ICRC stands at end. The masked fields are set to ones in place for
// the time of the computation, and bytes of the Ethernet header to zeros.
func invariantCRC(f *Frame, ip int, v6 bool, end int) uint32 {
	m0, m1, udp := uint64(maskIPv4), uint64(maskIPv4b), ip+IPv4Len
	if v6 {
		m0, m1, udp = maskIPv6, 0, ip+IPv6Len
	}
	b := f.Frag[0]
	before, h, u := (*[lead]byte)(b[ip-lead:]), (*[16]byte)(b[ip:]), (*[8]byte)(b[udp+6:])
	first := min(len(b), end)

	saved, w0, w1, w2 := *before, le.Uint64(h[:]), le.Uint64(h[8:]), le.Uint64(u[:])
	*before = [lead]byte{}
	le.PutUint64(h[:], (w0|m0)^icrcStart)
	le.PutUint64(h[8:], w1|m1)
	le.PutUint64(u[:], w2|maskUDP)
	crc := hash(b[ip-leadFor(first-ip) : first])
	*before = saved
	le.PutUint64(h[:], w0)
	le.PutUint64(h[8:], w1)
	le.PutUint64(u[:], w2)

	if end > first {
		crc = crc32.Update(crc, crc32.IEEETable, f.Frag[1][:end-first])
	}
	return crc
}

// icrcFromBTH is invariantCRC for a packet of whose headers before the BTH the
// CRC is known: reg is the register after them.
func icrcFromBTH(f *Frame, bth int, reg uint32, end int) uint32 {
	b := f.Frag[0]
	before, h := (*[lead]byte)(b[bth-lead:]), (*[8]byte)(b[bth:])
	first := min(len(b), end)

	saved, w := *before, le.Uint64(h[:])
	*before = [lead]byte{}
	le.PutUint64(h[:], (w|maskBTH)^uint64(reg))
	crc := hash(b[bth-leadFor(first-bth) : first])
	*before = saved
	le.PutUint64(h[:], w)

	if end > first {
		crc = crc32.Update(crc, crc32.IEEETable, f.Frag[1][:end-first])
	}
	return crc
}

// A CRC is linear: what a byte adds to the register does not depend on the
// others. lengthCRC has that for the bytes of the lengths in the IP and UDP
// headers, at the end of these headers, so that a Template need not hash them
// again for each packet.
var lengthCRC = [...][2]byteCRC{
	lengthIPv4: {byteCRCs(IPv4Len + UDPLen - 3), byteCRCs(IPv4Len + UDPLen - 4)},
	lengthIPv6: {byteCRCs(IPv6Len + UDPLen - 5), byteCRCs(IPv6Len + UDPLen - 6)},
	lengthUDP:  {byteCRCs(UDPLen - 5), byteCRCs(UDPLen - 6)},
}

// byteCRC is what a byte of each value adds.
type byteCRC [256]uint32

const (
	lengthIPv4 = iota
	lengthIPv6
	lengthUDP
)

// byteCRCs computes what a byte adds that n others follow.
func byteCRCs(n int) (t byteCRC) {
	b := make([]byte, 1+n)
	for v := range t {
		b[0] = byte(v)
		t[v] = ^hash(b)
	}
	return t
}

// addLength returns the register reg with the length n in a place where a 0 was hashed.
func addLength(reg uint32, t *[2]byteCRC, n int) uint32 { return reg ^ t[0][n>>8&0xff] ^ t[1][n&0xff] }

// readICRC reads the ICRC at end, which may lie across the frame's cut.
func (f *Frame) readICRC(end int) uint32 {
	if b := f.Frag[0]; end+ICRCLen <= len(b) {
		return le.Uint32(b[end:])
	}
	var v [ICRCLen]byte
	for i := range v {
		v[i] = *f.at(end + i)
	}
	return le.Uint32(v[:])
}

// putICRC writes the ICRC at end, which may lie across the frame's cut.
func (f *Frame) putICRC(end int, crc uint32) {
	if b := f.Frag[0]; end+ICRCLen <= len(b) {
		le.PutUint32(b[end:], crc)
		return
	}
	for i := range ICRCLen {
		*f.at(end + i) = byte(crc >> (8 * i))
	}
}

// at returns the byte at offset i of the frame.
func (f *Frame) at(i int) *byte {
	if first := len(f.Frag[0]); i >= first {
		return &f.Frag[1][i-first]
	}
	return &f.Frag[0][i]
}
