package wire

import "github.com/urxe/urxe/ib"

// MulticastMAC returns the Ethernet address that packets to a multicast group go
// to: 01:00:5e and the low 23 bits of an IPv4 group (RFC 1112, 6.4), 33:33 and
// the low 32 bits of an IPv6 one (RFC 2464, 7).
func MulticastMAC(g ib.GID) [6]byte {
	if g.Is4() {
		return [6]byte{0x01, 0x00, 0x5e, g[13] & 0x7f, g[14], g[15]}
	}
	return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
}
