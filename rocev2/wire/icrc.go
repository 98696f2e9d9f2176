package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// The ICRC (Annex A17) is the CRC-32 of Ethernet, stored with the low byte
// first, over eight bytes of ones in place of an LRH and then the packet from
// the IP header to the pad, in which the fields that may change on the way
// count as ones:
//
//	IPv4: type of service, time to live, header checksum
//	IPv6: traffic class, flow label, hop limit
//	UDP:  checksum
//	BTH:  the byte of FECN and BECN

// icrcStart are the CRCs to start from when 0, 4, 8 or 12 bytes of ones stand
// before the IP header, so that the CRC after them is that of eight such bytes.
var icrcStart = [4]uint32{0x2144df1c, 0xffffffff, 0, 0x9226f562}

// icrcLead is the most bytes of ones before the IP header.
const icrcLead = 12

// The fields that count as ones, as little-endian words.
const (
	maskIPv4  = 0x000000000000ff00 // bytes 0 to 7: type of service
	maskIPv4b = 0x00000000ffff00ff // bytes 8 to 15: time to live, checksum
	maskIPv6  = 0xff000000ffffff0f // bytes 0 to 7: class, label, hop limit
	maskUDP   = 0x00ff00000000ffff // from the UDP checksum to the byte of FECN and BECN
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
// the time of the computation, and so are bytes of the Ethernet header: the
// hardware's CRC takes 16 bytes at a time, and what is left over at the end
// costs more than all of this.
func invariantCRC(f *Frame, ip int, v6 bool, end int) uint32 {
	le := binary.LittleEndian
	m0, m1, udp := uint64(maskIPv4), uint64(maskIPv4b), ip+IPv4Len
	if v6 {
		m0, m1, udp = maskIPv6, 0, ip+IPv6Len
	}
	b := f.Frag[0]
	lead, h, u := (*[icrcLead]byte)(b[ip-icrcLead:]), (*[16]byte)(b[ip:]), (*[8]byte)(b[udp+6:])
	first := min(len(b), end)
	ones := -((first - ip) &^ 3) & icrcLead

	saved := *lead
	w0, w1, w2 := le.Uint64(h[:]), le.Uint64(h[8:]), le.Uint64(u[:])
	le.PutUint64(lead[:], ^uint64(0))
	le.PutUint32(lead[8:], ^uint32(0))
	le.PutUint64(h[:], w0|m0)
	le.PutUint64(h[8:], w1|m1)
	le.PutUint64(u[:], w2|maskUDP)

	crc := crc32.Update(icrcStart[ones/4], crc32.IEEETable, b[ip-ones:first])

	*lead = saved
	le.PutUint64(h[:], w0)
	le.PutUint64(h[8:], w1)
	le.PutUint64(u[:], w2)
	if end > first {
		crc = crc32.Update(crc, crc32.IEEETable, f.Frag[1][:end-first])
	}
	return crc
}

// readICRC reads the ICRC at end, which may lie across the frame's cut.
func (f *Frame) readICRC(end int) uint32 {
	if b := f.Frag[0]; end+ICRCLen <= len(b) {
		return binary.LittleEndian.Uint32(b[end:])
	}
	var v [ICRCLen]byte
	for i := range v {
		v[i] = *f.at(end + i)
	}
	return binary.LittleEndian.Uint32(v[:])
}

// putICRC writes the ICRC at end, which may lie across the frame's cut.
func (f *Frame) putICRC(end int, crc uint32) {
	if b := f.Frag[0]; end+ICRCLen <= len(b) {
		binary.LittleEndian.PutUint32(b[end:], crc)
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
