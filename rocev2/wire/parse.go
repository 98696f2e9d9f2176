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
// payload: in sequence it is owed a NAK (IBA 9.7.4.1), so that a QP must
// see it. Other undefined opcodes are DropOpcode.
func Parse(p *Packet, f *Frame) Verdict { return new(Parser).Parse(p, f) }

// Parser is Parse for one packet after the other, with less work for those that
// follow one of the same flow. The zero value is ready.
type Parser struct {
	last lastIPv4
	// Admits, unless it is nil, judges a packet by its IP header, before the rest is
	// looked at: of p, the addresses, TClass and SrcPort are set.
	Admits func(p *Packet) Verdict
}

// Parse takes the packet in f apart into p.
func (c *Parser) Parse(p *Packet, f *Frame) Verdict {
	*p = Packet{Frame: f}
	udp, v := p.parseIP(f.Frag[0])
	if v == Accepted && c.Admits != nil {
		v = c.Admits(p)
	}
	if v != Accepted {
		return v
	}
	if v := p.parseTransport(udp); v != Accepted {
		return v
	}
	if p.Frame.readICRC(p.end) != p.icrc(&c.last) {
		return DropICRC
	}
	return Accepted
}

// parseIP reads the headers up to UDP and returns the bytes of BTH to ICRC.
// Whose port isn't there, nobody knows: such a frame is none of ours.
func (p *Packet) parseIP(b []byte) (int, Verdict) {
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
	switch b = b[p.ip:]; {
	case etherType == etherTypeIPv4 && len(b) >= IPv4Len+UDPLen:
		return p.parseIPv4((*[IPv4Len + UDPLen]byte)(b))
	case etherType == etherTypeIPv6 && len(b) >= IPv6Len+UDPLen:
		return p.parseIPv6((*[IPv6Len + UDPLen]byte)(b))
	}
	return 0, DropNotRoCE
}

func (p *Packet) parseIPv4(h *[IPv4Len + UDPLen]byte) (int, Verdict) {
	if h[0]>>4 != 4 || h[9] != protocolUDP {
		return 0, DropNotRoCE
	}
	if h[0] != 0x45 || be.Uint16(h[6:])&ipv4Fragment != 0 {
		return 0, DropFragment
	}
	p.TClass = h[1]
	p.Src, p.Dst = h[12:16:16], h[16:20:20]
	p.bth = p.ip + IPv4Len + UDPLen
	return p.parseUDP((*[UDPLen]byte)(h[IPv4Len:]), int(be.Uint16(h[2:]))-IPv4Len)
}

func (p *Packet) parseIPv6(h *[IPv6Len + UDPLen]byte) (int, Verdict) {
	switch {
	case h[0]>>4 != 6:
		return 0, DropNotRoCE
	case h[6] == protocolFragment:
		return 0, DropFragment
	case h[6] != protocolUDP:
		return 0, DropNotRoCE
	}
	p.IPv6 = true
	p.TClass = uint8(be.Uint16(h[:]) >> 4)
	p.Src, p.Dst = h[8:24:24], h[24:40:40]
	p.bth = p.ip + IPv6Len + UDPLen
	return p.parseUDP((*[UDPLen]byte)(h[IPv6Len:]), int(be.Uint16(h[4:])))
}

// parseUDP reads the UDP header of a packet which has n bytes from there on, by its IP header.
func (p *Packet) parseUDP(h *[UDPLen]byte, n int) (int, Verdict) {
	if be.Uint16(h[2:]) != Port || n < UDPLen {
		return 0, DropNotRoCE
	}
	p.SrcPort = be.Uint16(h[:])
	length := int(be.Uint16(h[4:]))
	if length < UDPLen || length > n || p.bth+n-UDPLen > p.Frame.Len() {
		return 0, DropTruncated
	}
	if length < n {
		return 0, DropLength // one of the two lengths is wrong
	}
	return n - UDPLen, Accepted
}

// parseTransport reads BTH, extended headers and payload; n are the bytes of all that, with the ICRC.
func (p *Packet) parseTransport(n int) Verdict {
	b := p.Frame.Frag[0][p.bth:]
	if n < BTHLen || len(b) < BTHLen {
		return DropTruncated
	}
	pad, tver := p.Header.readBTH((*[BTHLen]byte)(b))
	info := p.Opcode.Info()
	if info.Operation == OpNone && p.Opcode.Transport() != RC {
		return DropOpcode
	}
	rest := n - BTHLen - info.ExtLen - ICRCLen
	if rest < 0 || len(b) < BTHLen+info.ExtLen {
		return DropTruncated
	}
	if !info.allows(rest, pad) {
		return DropLength
	}
	p.end = p.bth + n - ICRCLen
	if info.Ext != 0 {
		p.Header.readExt(info.Ext, b[BTHLen:])
	}
	p.Len = rest - pad
	CutTo(&p.Payload, &p.Frame.Frag, p.bth+BTHLen+info.ExtLen, p.Len)
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
