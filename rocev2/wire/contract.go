package wire

import "github.com/urxe/urxe/ib"

// THIS FILE IS THE CONTRACT while the package is being written; it goes away.

// Packet is a received packet, taken apart: views of the frame, no copies.
type Packet struct {
	Header          // values of BTH and extended headers
	Frame    *Frame // the whole frame, which Parse was given
	VLAN     uint16 // 802.1Q tag control information, 0 when untagged
	IPv6     bool
	Src, Dst []byte // IP addresses as they stand in the frame: 4 or 16 bytes
	TClass   uint8  // DSCP and ECN
	SrcPort  uint16
	Payload  [2][]byte // without pad and ICRC; the second is nil unless the frame's cut runs through the payload
	Len      int       // bytes of payload
}

func Parse(p *Packet, f *Frame) Verdict { panic("contract") }

// Flow is what the packets of a connection have in common below the BTH.
type Flow struct {
	SrcMAC, DstMAC [6]byte
	VLAN           uint16 // tag control information; 0 sends untagged
	Src, Dst       ib.GID // both IPv4-mapped, or neither
	TClass         uint8  // DSCP and ECN
	FlowLabel      uint32 // IPv6 only, 20 bits
	HopLimit       uint8
	SrcPort        uint16
}

// Template is a Flow's headers made ready.
type Template struct{}

func (t *Template) Set(f *Flow) { panic("contract") }

// HeaderLen returns the bytes before the payload of a packet of this flow with opcode o.
func (t *Template) HeaderLen(o Opcode) int { panic("contract") }

// Emit writes all headers, pad and room for the ICRC of a packet with n bytes of payload, cuts f to length, and returns
// where the payload goes (at most two pieces). The packet is complete after Seal.
func (t *Template) Emit(f *Frame, h *Header, n int) (payload [2][]byte) { panic("contract") }

// Seal computes the ICRC over the frame, whose payload is now in place, and writes it.
func (t *Template) Seal(f *Frame) { panic("contract") }

// SourcePort is the UDP source port by the convention of Linux (facts 5.6).
func SourcePort(flowLabel uint32, local, remote ib.QPN) uint16 { panic("contract") }
