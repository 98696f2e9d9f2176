// Package capture reads and writes packet captures: pcap and pcapng in,
// pcapng out. Only Ethernet frames are read and written.
//
// tcpdump does not see the frames that an AF_XDP socket sends and receives, so
// that a capture of them is the business of whoever owns the socket.
package capture

import (
	"fmt"
	"time"
)

// Direction is which way a packet went, numbered as in pcapng's epb_flags.
type Direction uint8

// The directions.
const (
	Unknown Direction = 0
	In      Direction = 1
	Out     Direction = 2
)

func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	}
	return "unknown"
}

// Packet is one captured frame.
type Packet struct {
	Time      time.Time // zero when the capture has none for this packet
	Interface string    // name of the interface, when the capture has one
	Direction Direction
	Comment   string // several comments are joined by "; "
	Data      []byte // from the Ethernet header on
	Length    int    // bytes that the frame had on the wire: more than Data when the capture cut it
}

// DamageError says where and why a capture cannot be read any further. The
// packets before are good.
type DamageError struct {
	Offset  int64 // of the record or block that is damaged, in bytes from the beginning
	Packets int   // read before it
	Reason  string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("capture is damaged at byte %d, after %d packets: %s", e.Offset, e.Packets, e.Reason)
}

// LinkTypeError says that a capture holds frames of another link than Ethernet.
type LinkTypeError struct {
	LinkType  uint32
	Interface string // when the capture names it
}

// linkTypes are the kinds that a RoCE user may meet.
var linkTypes = map[uint32]string{
	0: "BSD loopback", 101: "raw IP", 113: "Linux cooked (tcpdump -i any)", 127: "802.11 radiotap",
	197: "ERF", 247: "InfiniBand", 276: "Linux cooked v2 (tcpdump -i any)",
}

func (e *LinkTypeError) Error() string {
	kind, on := linkTypes[e.LinkType], ""
	if kind == "" {
		kind = "unknown"
	}
	if e.Interface != "" {
		on = " on interface " + e.Interface
	}
	return fmt.Sprintf("capture has link type %d (%s)%s: only Ethernet (1) can be read; capture on one Ethernet interface", e.LinkType, kind, on)
}
