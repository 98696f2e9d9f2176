package wire

import "encoding/binary"

var be = binary.BigEndian

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeVLAN = 0x8100

	protocolUDP      = 17
	protocolFragment = 44 // IPv6 fragment header

	ipv4DontFragment = 0x4000
	ipv4Fragment     = 0x3fff // more fragments, or an offset
)

// Parse takes the packet in f apart into p, and says whether a port may take
// it. All headers must stand in f's first piece; payload, pad and ICRC may lie
// across the cut. The length is what the IP and UDP headers say: bytes behind
// it, such as Ethernet's padding, are ignored. Neither the UDP checksum nor
// that of IPv4 is looked at: the ICRC covers what they do, but for the fields
// that routers may change.
//
// Checks come in rxe's order: opcode, length, TVer, ICRC. When the verdict is
// DropICRC, p is as complete as if the ICRC held.
//
// A reserved opcode of RC passes, with all that follows the BTH as its
// payload: in sequence it is owed a NAK (IBA 9.7.4.1.4), so that a QP must
// see it. Other undefined opcodes are DropOpcode.
//
// Parse writes to the frame while it computes the ICRC, and restores it.
func Parse(p *Packet, f *Frame) Verdict {
	*p = Packet{Frame: f}
	udp, v := p.parseIP(f.Frag[0])
	if v != Accepted {
		return v
	}
	if v := p.parseTransport(udp); v != Accepted {
		return v
	}
	if got, want := ICRC(p); got != want {
		return DropICRC
	}
	return Accepted
}

// parseIP reads the headers up to UDP and returns the bytes of BTH to ICRC.
func (p *Packet) parseIP(b []byte) (n int, v Verdict) {
	if len(b) < EthernetLen+VLANLen {
		return 0, DropNotRoCE
	}
	etherType := be.Uint16(b[12:])
	p.ip = EthernetLen
	if etherType == etherTypeVLAN {
		p.VLAN = be.Uint16(b[14:])
		etherType = be.Uint16(b[16:])
		p.ip += VLANLen
	}
	switch etherType {
	case etherTypeIPv4:
		n, v = p.parseIPv4(b[p.ip:])
	case etherTypeIPv6:
		n, v = p.parseIPv6(b[p.ip:])
	default:
		v = DropNotRoCE
	}
	if v != Accepted {
		return 0, v
	}
	return p.parseUDP(b, n)
}

// parseIPv4 reads the IPv4 header at h and returns the packet's length from there.
func (p *Packet) parseIPv4(h []byte) (int, Verdict) {
	if len(h) < IPv4Len {
		return 0, DropNotRoCE
	}
	if h[0]>>4 != 4 || h[9] != protocolUDP {
		return 0, DropNotRoCE
	}
	if h[0] != 0x45 || be.Uint16(h[6:])&ipv4Fragment != 0 {
		return 0, DropFragment
	}
	p.TClass = h[1]
	p.Src, p.Dst = h[12:16:16], h[16:20:20]
	p.bth = p.ip + IPv4Len + UDPLen
	return int(be.Uint16(h[2:])), Accepted
}

// parseIPv6 reads the IPv6 header at h and returns the packet's length from there.
func (p *Packet) parseIPv6(h []byte) (int, Verdict) {
	if len(h) < IPv6Len {
		return 0, DropNotRoCE
	}
	if h[0]>>4 != 6 {
		return 0, DropNotRoCE
	}
	switch h[6] {
	case protocolUDP:
	case protocolFragment:
		return 0, DropFragment
	default:
		return 0, DropNotRoCE
	}
	p.IPv6 = true
	p.TClass = uint8(be.Uint16(h) >> 4)
	p.Src, p.Dst = h[8:24:24], h[24:40:40]
	p.bth = p.ip + IPv6Len + UDPLen
	return IPv6Len + int(be.Uint16(h[4:])), Accepted
}

// parseUDP reads the UDP header; n are the bytes from the IP header on.
func (p *Packet) parseUDP(b []byte, n int) (int, Verdict) {
	if len(b) < p.bth || p.ip+n < p.bth {
		return 0, DropNotRoCE // no port, so that it might be anybody's
	}
	h := b[p.bth-UDPLen : p.bth]
	if be.Uint16(h[2:]) != Port {
		return 0, DropNotRoCE
	}
	p.SrcPort = be.Uint16(h)
	n -= p.bth - p.ip
	switch length := int(be.Uint16(h[4:])) - UDPLen; {
	case p.bth+n > p.Frame.Len() || length > n || length < 0:
		return 0, DropTruncated
	case length < n:
		return 0, DropLength // one of the two lengths is wrong
	}
	return n, Accepted
}

// parseTransport reads BTH, extended headers and payload; n are the bytes of all that, with the ICRC.
func (p *Packet) parseTransport(n int) Verdict {
	b := p.Frame.Frag[0][p.bth:]
	if n < BTHLen || len(b) < BTHLen {
		return DropTruncated
	}
	pad, tver := p.Header.readBTH(b)
	info := p.Opcode.Info()
	if info.Operation == OpNone && p.Opcode.Transport() != RC {
		return DropOpcode
	}
	ext := b[BTHLen:]
	rest := n - BTHLen - info.ExtLen - ICRCLen
	if rest < 0 || len(ext) < info.ExtLen {
		return DropTruncated
	}
	if !info.allows(rest, pad) {
		return DropLength
	}
	p.end = p.bth + n - ICRCLen
	p.Header.readExt(info.Ext, ext)
	p.Len = rest - pad
	p.Frame.cut(&p.Payload, p.bth+BTHLen+info.ExtLen, p.Len)
	if tver != 0 {
		return DropVersion // IBA 9.6.1.1
	}
	return Accepted
}

// allows reports whether a packet may have n bytes of payload and pad, of
// which pad are pad. How a payload relates to the path MTU is the QP's business.
func (i *Info) allows(n, pad int) bool {
	switch {
	case pad > n || n%4 != 0: // the pad fills up to four bytes (IBA 9.2)
		return false
	case i.Operation == OpNone:
		return true
	case !i.Payload:
		return n == 0
	case !i.Place.Ends(): // a full path MTU, always
		return pad == 0
	}
	return true
}
