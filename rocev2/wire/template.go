package wire

import "github.com/urxe/urxe/ib"

// Flow is what the packets of a connection have in common below the BTH.
type Flow struct {
	SrcMAC, DstMAC [6]byte
	VLAN           uint16 // tag control information; 0 sends untagged
	Src, Dst       ib.GID // both IPv4-mapped, or neither
	TClass         uint8  // DSCP and ECN
	FlowLabel      uint32 // IPv6 only, 20 bits
	HopLimit       uint8  // or time to live; 0 stands for ib.DefaultHopLimit
	SrcPort        uint16
	IPID           uint16 // IPv4 only; packets are never fragmented, so that 0 will do

	// RxeFlush seals a FLUSH with the ICRC that Linux rxe wants (see RxeFlushICRC).
	RxeFlush bool
}

// Template is a Flow's headers made ready. After Set it is only read, so that
// goroutines may share it.
type Template struct {
	hdr      [EthernetLen + VLANLen + IPv6Len + UDPLen]byte
	bth      uint8  // where the BTH begins
	ip       uint8  // where the IP header begins
	sum      uint32 // IPv4: of the header's words but for length and checksum
	crc      uint32 // register of the ICRC before the BTH, with lengths of 0
	v6       bool
	rxeFlush bool
	vlan     uint16 // id
}

// Set makes t ready for packets of flow f.
func (t *Template) Set(f *Flow) {
	*t = Template{v6: !f.Src.Is4(), rxeFlush: f.RxeFlush, vlan: f.VLAN & VLANMask}
	copy(t.hdr[:], f.DstMAC[:])
	copy(t.hdr[6:], f.SrcMAC[:])
	t.ip = EthernetLen
	if f.VLAN != 0 {
		be.PutUint16(t.hdr[12:], etherTypeVLAN)
		be.PutUint16(t.hdr[14:], f.VLAN)
		t.ip += VLANLen
	}
	hop := f.HopLimit
	if hop == 0 {
		hop = ib.DefaultHopLimit
	}
	if t.v6 {
		t.setIPv6(f, hop)
	} else {
		t.setIPv4(f, hop)
	}
	udp := t.hdr[t.bth-UDPLen:]
	be.PutUint16(udp, f.SrcPort)
	be.PutUint16(udp[2:], Port)
	t.crc = headersCRC(t.hdr[t.ip:], t.v6) // of lengths of 0
}

func (t *Template) setIPv4(f *Flow, hop uint8) {
	be.PutUint16(t.hdr[t.ip-2:], etherTypeIPv4)
	h := t.hdr[t.ip : t.ip+IPv4Len]
	h[0], h[1] = 0x45, f.TClass
	be.PutUint16(h[4:], f.IPID)
	be.PutUint16(h[6:], ipv4DontFragment)
	h[8], h[9] = hop, protocolUDP
	copy(h[12:], f.Src[12:])
	copy(h[16:], f.Dst[12:])
	t.sum = sumIPv4(h)
	t.bth = t.ip + IPv4Len + UDPLen
}

func (t *Template) setIPv6(f *Flow, hop uint8) {
	be.PutUint16(t.hdr[t.ip-2:], etherTypeIPv6)
	h := t.hdr[t.ip : t.ip+IPv6Len]
	be.PutUint32(h, 6<<28|uint32(f.TClass)<<20|f.FlowLabel&0xfffff)
	h[6], h[7] = protocolUDP, hop
	copy(h[8:], f.Src[:])
	copy(h[24:], f.Dst[:])
	t.bth = t.ip + IPv6Len + UDPLen
}

// HeaderLen returns the bytes before the payload of a packet of this flow with opcode o.
func (t *Template) HeaderLen(o Opcode) int { return int(t.bth) + BTHLen + o.Info().ExtLen }

// FrameLen returns the bytes of a whole packet of this flow with opcode o and n bytes of payload.
func (t *Template) FrameLen(o Opcode, n int) int { return t.HeaderLen(o) + (n+3)&^3 + ICRCLen }

// DstGID returns the destination address of the flow as a GID.
func (t *Template) DstGID() ib.GID {
	if t.v6 {
		return gidOf(t.hdr[t.ip+24 : t.ip+IPv6Len])
	}
	return gidOf(t.hdr[t.ip+16 : t.ip+IPv4Len])
}

// VLAN returns the id of the VLAN that packets of the flow are in, 0: in none. It
// isn't for a Template that is AnsweredInAnyVLAN.
func (t *Template) VLAN() uint16 { return t.vlan }

// anyVLAN is the id of no VLAN: those have 12 bits.
const anyVLAN = 0xffff

// AnsweredInAnyVLAN has packets of the flow's other end be in any VLAN, or in none.
func (t *Template) AnsweredInAnyVLAN() { t.vlan = anyVLAN }

// InVLAN reports whether p came in the VLAN that packets of the flow's other end are in:
// that of the flow, unless AnsweredInAnyVLAN said otherwise.
func (t *Template) InVLAN(p *Packet) bool { return t.vlan == p.VLANID() || t.vlan == anyVLAN }

// Matches reports whether p comes from the flow's destination to its source.
func (t *Template) Matches(p *Packet) bool {
	if t.v6 != p.IPv6 {
		return false
	}
	if !t.v6 {
		return le.Uint32(t.hdr[t.ip+12:]) == le.Uint32(p.Dst) && le.Uint32(t.hdr[t.ip+16:]) == le.Uint32(p.Src)
	}
	return [16]byte(t.hdr[t.ip+8:]) == [16]byte(p.Dst) && [16]byte(t.hdr[t.ip+24:]) == [16]byte(p.Src)
}

// Emit writes all headers, pad and room for the ICRC of a packet with n bytes
// of payload, cuts f to the packet's length, and returns where the payload goes
// (at most two pieces). The packet is complete after Seal.
//
// f's first piece is filled to its capacity before its second, which may be
// nil. The first must have room for HeaderLen, both together for FrameLen.
func (t *Template) Emit(f *Frame, h *Header, n int) (payload [2][]byte) {
	t.EmitTo(f, h, n, &payload)
	return payload
}

// EmitTo is Emit with a place for the payload's pieces, which are nil.
func (t *Template) EmitTo(f *Frame, h *Header, n int, payload *[2][]byte) {
	info := h.Opcode.Info()
	off := int(t.bth) + BTHLen + info.ExtLen
	pad := -n & 3
	total := off + n + pad + ICRCLen
	f.resize(total)
	b := f.Frag[0][:off]
	copy(b, t.hdr[:t.bth])
	t.putLengths(b, total)
	h.putBTH((*[BTHLen]byte)(b[t.bth:]), pad)
	if info.Ext != 0 {
		h.putExt(info.Ext, b[t.bth+BTHLen:])
	}
	for i := range pad {
		*f.at(off + n + i) = 0
	}
	CutTo(payload, &f.Frag, off, n)
}

// putLengths completes the IP and UDP headers of a packet of n bytes in all.
func (t *Template) putLengths(b []byte, n int) {
	udp := n - int(t.bth) + UDPLen
	be.PutUint16(b[t.bth-UDPLen+4:], uint16(udp))
	if t.v6 {
		be.PutUint16(b[t.ip+4:], uint16(udp))
		return
	}
	h := (*[IPv4Len]byte)(b[t.ip:])
	be.PutUint16(h[2:], uint16(n-int(t.ip)))
	be.PutUint16(h[10:], foldIPv4(t.sum+uint32(n-int(t.ip))))
}

// IPv4Checksum returns the checksum that an IPv4 header without options should have.
func IPv4Checksum(h []byte) uint16 {
	return foldIPv4(sumIPv4(h) - uint32(be.Uint16(h[10:])))
}

// sumIPv4 adds up the words of a header.
func sumIPv4(h []byte) (sum uint32) {
	for i := 0; i < IPv4Len; i += 2 {
		sum += uint32(be.Uint16(h[i:]))
	}
	return sum
}

// foldIPv4 makes a checksum of a sum.
func foldIPv4(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	return ^uint16(sum)
}

// Seal computes the ICRC over the frame, whose payload is now in place, and writes it.
func (t *Template) Seal(f *Frame) {
	n, bth := f.Len(), int(t.bth)
	end := n - ICRCLen
	reg := addLength(t.crc, &lengthCRC[lengthUDP], n-bth+UDPLen)
	if t.v6 {
		reg = addLength(reg, &lengthCRC[lengthIPv6], n-bth+UDPLen)
	} else {
		reg = addLength(reg, &lengthCRC[lengthIPv4], n-int(t.ip))
	}
	crc := icrcFromBTH(f, bth, reg, end)
	if t.rxeFlush && Opcode(f.Frag[0][bth]) == RCFlush {
		crc = rxeFlushICRC(f, bth, end, crc)
	}
	f.putICRC(end, crc)
}

// resize cuts f to n bytes within the capacity of its pieces.
func (f *Frame) resize(n int) {
	first := min(n, cap(f.Frag[0]))
	f.Frag[0] = f.Frag[0][:first]
	f.Frag[1] = f.Frag[1][:n-first]
}

// Copy makes f, which has room for it in its pieces' capacity, a copy of g.
func (f *Frame) Copy(g *Frame) {
	f.resize(g.Len())
	n := 0
	for _, b := range g.Frag {
		to := f.Cut(n, len(b))
		copy(to[1], b[copy(to[0], b):])
		n += len(b)
	}
}

// SourcePort is the UDP source port of a connection by the convention of Linux:
// a hash of the flow label or, when that is 0, of both QP numbers. It is the
// same at both ends.
func SourcePort(flowLabel uint32, local, remote ib.QPN) uint16 {
	label := flowLabel & 0xfffff
	if label == 0 {
		v := uint64(local) * uint64(remote)
		v ^= v >> 20
		v ^= v >> 40
		label = uint32(v) & 0xfffff
	}
	return uint16(label&0x3fff^label>>14) | 0xc000
}

// Touch reads from each cache line of t. The result means nothing.
func (t *Template) Touch() uint8 { return t.hdr[0] + uint8(t.crc) }
