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

// The fields that count as ones, as little-endian words.
const (
	maskIPv4  = 0x000000000000ff00 // bytes 0 to 7: type of service
	maskIPv4b = 0x00000000ffff00ff // bytes 8 to 15: time to live, checksum
	maskIPv6  = 0xff000000ffffff0f // bytes 0 to 7: class, label, hop limit
	maskUDP   = 0xffff000000000000 // of a UDP header: checksum
	maskBTH   = 0x000000ff00000000 // bytes 0 to 7: the byte of FECN and BECN
)

// slicing has what a byte adds to the register that 0 to 7 others follow.
// Headers are hashed with it, from words in registers: what is stored for the
// hardware's CRC to load at once would make it wait, and a frame need not be
// written to.
var slicing = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < 8; k++ {
		for i, v := range t[k-1] {
			t[k][i] = v>>8 ^ t[0][v&0xff]
		}
	}
	return t
}()

// hash8 returns the register reg after the eight bytes of a little-endian word.
func hash8(reg uint32, w uint64) uint32 {
	w ^= uint64(reg)
	return slicing[7][uint8(w)] ^ slicing[6][uint8(w>>8)] ^ slicing[5][uint8(w>>16)] ^ slicing[4][uint8(w>>24)] ^
		slicing[3][uint8(w>>32)] ^ slicing[2][uint8(w>>40)] ^ slicing[1][uint8(w>>48)] ^ slicing[0][uint8(w>>56)]
}

// hash4 returns the register reg after the four bytes of a little-endian word.
func hash4(reg, w uint32) uint32 {
	w ^= reg
	return slicing[3][uint8(w)] ^ slicing[2][uint8(w>>8)] ^ slicing[1][uint8(w>>16)] ^ slicing[0][uint8(w>>24)]
}

// hashBytes returns the register reg after b. The hardware's CRC takes 16 bytes
// at a time, and is slow with what is left over: that goes first.
func hashBytes(reg uint32, b []byte) uint32 {
	n := len(b) & 15
	if len(b) < 64+n {
		return hashShort(reg, b)
	}
	reg, b = hashShort(reg, b[:n]), b[n:]
	if folds && len(b) >= foldsFrom {
		lo, hi := fold(reg, b)
		return hash8(hash8(0, lo), hi)
	}
	return ^crc32.Update(^reg, crc32.IEEETable, b)
}

func hashShort(reg uint32, b []byte) uint32 {
	for ; len(b) >= 8; b = b[8:] {
		reg = hash8(reg, le.Uint64(b))
	}
	if len(b) >= 4 {
		reg, b = hash4(reg, le.Uint32(b)), b[4:]
	}
	for _, v := range b {
		reg = reg>>8 ^ slicing[0][uint8(reg)^v]
	}
	return reg
}

// ICRC returns the ICRC that stands in p's frame and the one it should have.
// p must have got so far in Parse that its verdict is Accepted or DropICRC.
func ICRC(p *Packet) (got, want uint32) {
	return p.Frame.readICRC(p.end), p.icrc(new(lastIPv4))
}

// icrc returns the ICRC that p should have.
func (p *Packet) icrc(last *lastIPv4) uint32 {
	h := p.Frame.Frag[0][p.ip:p.bth]
	if p.IPv6 {
		return icrcFromBTH(p.Frame, p.bth, headersCRC(h, true), p.end)
	}
	return icrcFromBTH(p.Frame, p.bth, ipv4CRC((*[IPv4Len + UDPLen]byte)(h), last), p.end)
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

// headersCRC returns the register after the IP and UDP headers that b begins with.
func headersCRC(b []byte, v6 bool) uint32 {
	if !v6 {
		return ipv4CRC((*[IPv4Len + UDPLen]byte)(b), new(lastIPv4))
	}
	h := (*[IPv6Len + UDPLen]byte)(b)
	reg := hash8(icrcStart, le.Uint64(h[:])|maskIPv6)
	for i := 8; i < IPv6Len; i += 8 {
		reg = hash8(reg, le.Uint64(h[i:]))
	}
	return hash8(reg, le.Uint64(h[IPv6Len:])|maskUDP)
}

// lastIPv4 remembers the masked words of the last IPv4 and UDP headers and the
// registers after them: most packets of a burst are of one flow, or from one
// host, and of one length.
type lastIPv4 struct {
	w0, w1, w3 uint64
	w2         uint32
	ip, reg    uint32 // after w0 to w2, and after all
}

func ipv4CRC(h *[IPv4Len + UDPLen]byte, last *lastIPv4) uint32 {
	w0, w1 := le.Uint64(h[:])|maskIPv4, le.Uint64(h[8:])|maskIPv4b
	w2, w3 := le.Uint32(h[16:]), le.Uint64(h[IPv4Len:])|maskUDP
	same := w0 == last.w0 && w1 == last.w1 && w2 == last.w2
	if !same {
		last.w0, last.w1, last.w2 = w0, w1, w2
		last.ip = hash4(hash8(hash8(icrcStart, w0), w1), w2)
	}
	if !same || w3 != last.w3 {
		last.w3, last.reg = w3, hash8(last.ip, w3)
	}
	return last.reg
}

// icrcFromBTH computes the ICRC of a packet of whose headers before the BTH the
// CRC is known: reg is the register after them. The ICRC stands at end.
func icrcFromBTH(f *Frame, bth int, reg uint32, end int) uint32 {
	b := f.Frag[0]
	h := (*[BTHLen]byte)(b[bth:])
	reg = hash8(reg, le.Uint64(h[:])|maskBTH)
	reg = hash4(reg, le.Uint32(h[8:]))
	first := min(len(b), end)
	reg = hashBytes(reg, b[bth+BTHLen:first])
	if end > first {
		reg = hashBytes(reg, f.Frag[1][:end-first])
	}
	return ^reg
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
		t[v] = hashBytes(0, b)
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
