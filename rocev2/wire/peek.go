package wire

import "github.com/urxe/urxe/ib"

// PeekDestQP returns what Parse would find as the destination QP if the frame
// were a RoCEv2 packet with an IPv4 header of 20 bytes, or an IPv6 one, and no
// VLAN tag; 0 if it is too short. It is a guess to look things up ahead by.
func PeekDestQP(f *Frame) ib.QPN {
	b := f.Frag[0]
	at := EthernetLen + IPv4Len + UDPLen
	if len(b) < EthernetLen+IPv6Len+UDPLen+BTHLen {
		if len(b) < at+BTHLen {
			return 0
		}
	} else if b[EthernetLen]>>4 == 6 {
		at = EthernetLen + IPv6Len + UDPLen
	}
	return ib.QPN(be.Uint32(b[at+4:]) & 0xffffff)
}
