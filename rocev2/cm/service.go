package cm

import (
	"fmt"
	"net/netip"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// ServiceID names what a listener offers.
type ServiceID uint64

// PortSpace is the protocol whose ports the RDMA IP CM service uses (Annex A11.2).
type PortSpace uint8

// The port spaces, with the numbers of IP protocols.
const (
	TCP PortSpace = 0x06 // for connections
	UDP PortSpace = 0x11 // for datagrams
)

// ipPrefix begins the service ids of the RDMA IP CM service: 40 bits (Annex A11.2.1).
const ipPrefix ServiceID = 0x0000000001

// IPService returns the service id of a port, as Annex A11.2 makes it: 0x0000000001064853 for TCP port 18515.
func IPService(s PortSpace, port uint16) ServiceID {
	return ipPrefix<<24 | ServiceID(s)<<16 | ServiceID(port)
}

// IP returns the port of a service id of the RDMA IP CM service; ok is false for others.
func (s ServiceID) IP() (space PortSpace, port uint16, ok bool) {
	return PortSpace(s >> 16), uint16(s), s>>24 == ipPrefix
}

func (s ServiceID) String() string { return fmt.Sprintf("0x%016x", uint64(s)) }

// IPHeaderLen is how much of the private data of a REQ or a SIDR_REQ the IP CM service uses.
const IPHeaderLen = mad.IPCMHeaderSize

// IPHeader is what the IP CM service says at the beginning of the private data (Annex A11.4).
type IPHeader struct {
	SourcePort          uint16
	Source, Destination netip.Addr // both IPv4, or both IPv6
}

// Put writes h into b, which has IPHeaderLen bytes or more. An IPv4 address is the last four of its 16 bytes, and the
// others are 0.
func (h *IPHeader) Put(b []byte) {
	v := mad.IPCMHeader(b[:IPHeaderLen])
	clear(v)
	v.SetIPVersion(6)
	if h.Destination.Is4() {
		v.SetIPVersion(4)
	}
	v.SetSourcePort(h.SourcePort)
	putAddr(v.SourceAddress(), h.Source)
	putAddr(v.DestinationAddress(), h.Destination)
}

func putAddr(b []byte, a netip.Addr) {
	s := a.AsSlice()
	copy(b[16-len(s):], s)
}

// ParseIPHeader reads the header at the beginning of private data. The error says that b is shorter than IPHeaderLen, or
// that the version isn't 0.x of IPv4 or IPv6 (Annex A11.4.1).
func ParseIPHeader(b []byte) (h IPHeader, err error) {
	if len(b) < IPHeaderLen {
		return h, fmt.Errorf("IP CM header: %d bytes of private data: want %d", len(b), IPHeaderLen)
	}
	v := mad.IPCMHeader(b[:IPHeaderLen])
	h.SourcePort = v.SourcePort()
	switch {
	case v.MajorVersion() != 0:
		return h, fmt.Errorf("IP CM header of version %d: want 0", v.MajorVersion())
	case v.IPVersion() == 4:
		h.Source, h.Destination = addr4(v.SourceAddress()), addr4(v.DestinationAddress())
	case v.IPVersion() == 6:
		h.Source, h.Destination = netip.AddrFrom16([16]byte(v.SourceAddress())), netip.AddrFrom16([16]byte(v.DestinationAddress()))
	default:
		return h, fmt.Errorf("IP CM header of IP version %d: want 4 or 6", v.IPVersion())
	}
	return h, nil
}

func addr4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[12:])) }

// Transport is the service of a connection's queue pairs, as a REQ encodes it (IBA 12.7.6).
type Transport uint8

// The transports that there are.
const (
	RC Transport = 0
	UC Transport = 1
)

var transportNames = [...]string{RC: "RC", UC: "UC"}

func (t Transport) String() string {
	if int(t) < len(transportNames) {
		return transportNames[t]
	}
	return fmt.Sprintf("invalid transport (%d)", uint8(t))
}

// pathLocal is the LID of an end on Ethernet, where there are none: the permissive one, as Linux has it.
const pathLocal = ib.LIDPermissive
