package wire

import (
	"encoding/binary"

	"github.com/urxe/urxe/ib"
)

// Packet is a received packet, taken apart: views of its frame, no copies. It
// is valid as long as the frame is.
type Packet struct {
	Header          // values of the BTH and of the extended headers
	Frame    *Frame // the whole frame, which Parse was given
	VLAN     uint16 // 802.1Q tag control information, 0 when untagged
	IPv6     bool
	Src, Dst []byte // IP addresses as they stand in the frame: 4 or 16 bytes
	TClass   uint8  // DSCP and ECN
	SrcPort  uint16
	Payload  [2][]byte // without pad and ICRC; the second is nil unless the frame's cut runs through the payload
	Len      int       // bytes of payload

	ip, bth, end int // where in the frame the IP header, the BTH and the ICRC begin
}

// SrcGID returns the sender's address as a GID.
func (p *Packet) SrcGID() ib.GID { return gidOf(p.Src) }

// DstGID returns the destination address as a GID.
func (p *Packet) DstGID() ib.GID { return gidOf(p.Dst) }

func gidOf(addr []byte) (g ib.GID) {
	if len(addr) == 4 {
		g[10], g[11] = 0xff, 0xff
		copy(g[12:], addr)
		return g
	}
	copy(g[:], addr)
	return g
}

// IPHeader returns the IP header, 20 or 40 bytes. A datagram QP puts it at the
// end of the 40 bytes before a received payload (IBA 11.4.1.2, Annex A17.4.5.2).
func (p *Packet) IPHeader() []byte { return p.Frame.Frag[0][p.ip : p.bth-UDPLen] }

// HeaderLen returns the bytes of the frame before the payload.
func (p *Packet) HeaderLen() int { return p.bth + BTHLen + p.Opcode.Info().ExtLen }

// VLANID returns the id of the 802.1Q VLAN that p came in, 0 when in none: a tag
// of id 0 only has a priority.
func (p *Packet) VLANID() uint16 { return p.VLAN & VLANMask }

// SrcMAC returns the sender's Ethernet address.
func (p *Packet) SrcMAC() [6]byte { return [6]byte(p.Frame.Frag[0][6:12]) }

// HopLimit returns the hop limit or time to live that is left.
func (p *Packet) HopLimit() uint8 {
	h := p.IPHeader()
	if p.IPv6 {
		return h[7]
	}
	return h[8]
}

// FlowOf returns the flow that p belongs to, in p's own direction: a packet
// emitted from it and from p's header and payload has the same bytes as p,
// unless p had reserved bits or pad bytes set, a UDP checksum, or an 802.1Q
// tag of 0.
func FlowOf(p *Packet) Flow {
	f := Flow{
		SrcMAC: p.SrcMAC(), DstMAC: [6]byte(p.Frame.Frag[0][:6]), VLAN: p.VLAN,
		Src: p.SrcGID(), Dst: p.DstGID(), TClass: p.TClass, HopLimit: p.HopLimit(), SrcPort: p.SrcPort,
	}
	if h := p.IPHeader(); p.IPv6 {
		f.FlowLabel = binary.BigEndian.Uint32(h) & 0xfffff
	} else {
		f.IPID = binary.BigEndian.Uint16(h[4:])
	}
	return f
}
