package ib

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// GUID is a 64-bit globally unique identifier (EUI-64).
type GUID uint64

// GUIDFromMAC makes the modified EUI-64 of a 48-bit MAC address, as RoCE
// devices do: ff:fe in the middle and the universal/local bit flipped. It
// returns 0 when hw isn't 6 bytes long.
func GUIDFromMAC(hw net.HardwareAddr) GUID {
	if len(hw) != 6 {
		return 0
	}
	return GUID(binary.BigEndian.Uint64([]byte{hw[0] ^ 2, hw[1], hw[2], 0xff, 0xfe, hw[3], hw[4], hw[5]}))
}

// GUIDFromName makes a GUID for a device that has no MAC address: the same one
// for the same name, and others on other hosts if host tells them apart. It is
// locally administered, as its second-lowest bit of the first byte says, which is
// set in all of GUIDFromMAC's that a vendor has assigned.
func GUIDFromName(host, name string) GUID {
	sum := sha256.Sum256([]byte(host + "\x00" + name))
	sum[0] &^= 3 // local, and of one device
	return GUID(binary.BigEndian.Uint64(sum[:]))
}

// String gives the form of ibv_devinfo: four groups of four digits.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// ParseGUID reads "0002:c903:0000:1234", "0x0002c90300001234" or the same digits bare.
func ParseGUID(s string) (GUID, error) {
	digits := s
	if len(s) > 2 && strings.EqualFold(s[:2], "0x") {
		digits = s[2:]
	}
	digits = strings.ReplaceAll(digits, ":", "")
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) > 16 {
		return 0, fmt.Errorf("GUID %q: want up to 16 hexadecimal digits, with or without 0x and colons", s)
	}
	return GUID(v), nil
}

// GID is a 128-bit global identifier, in network byte order. In RoCEv2 it is
// the IPv6 address of a port, or its IPv4 address mapped (::ffff:a.b.c.d).
type GID [16]byte

var v4Prefix = [12]byte{10: 0xff, 11: 0xff}

// GIDFromAddr returns the GID of an IP address; an IPv4 address is mapped.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// ParseGID reads an IPv6 address ("fe80::1", "::ffff:10.0.0.1"), the eight
// groups that ibverbs prints, or an IPv4 address.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return GID{}, fmt.Errorf("GID %q: want an IPv6 address, or an IPv4 address", s)
	}
	return a.As16(), nil
}

// GIDFromWire reads the 32 hexadecimal digits that Wire gives.
func GIDFromWire(s string) (g GID, err error) {
	if n, err := hex.Decode(g[:], []byte(s[:min(len(s), 32)])); n != len(g) || err != nil || len(s) != 32 {
		return GID{}, fmt.Errorf("GID %q from a peer: want 32 hexadecimal digits", s)
	}
	return g, nil
}

// Is4 reports whether g is an IPv4 address mapped.
func (g GID) Is4() bool { return [12]byte(g[:12]) == v4Prefix }

// IsZero reports whether g is the empty GID.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast reports whether g names a multicast group, IPv6 or IPv4.
func (g GID) IsMulticast() bool { return g.Addr().IsMulticast() }

// IsLinkLocal reports whether g is a link-local unicast GID (fe80::/10).
func (g GID) IsLinkLocal() bool { return g[0] == 0xfe && g[1]&0xc0 == 0x80 }

// Addr returns g as an IP address, unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String gives the form of inet_ntop, which ibv_*_pingpong prints.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// Full gives all eight groups, as sysfs and ibv_devinfo -v print them.
func (g GID) Full() string { return netip.AddrFrom16(g).StringExpanded() }

// Wire gives the 32 hexadecimal digits that ibv_*_pingpong exchanges over TCP.
func (g GID) Wire() string { return fmt.Sprintf("%x", g[:]) }

// GIDTable is the GID table of a port, by index; an index without a GID is zero.
type GIDTable []GID

// String lists the table, as in "0: fe80::1, 2: ::ffff:10.0.0.1".
func (t GIDTable) String() string {
	var list []string
	for i, g := range t {
		if !g.IsZero() {
			list = append(list, fmt.Sprintf("%d: %v", i, g))
		}
	}
	if list == nil {
		return "none, as the interface has no address, or is down"
	}
	return strings.Join(list, ", ")
}
