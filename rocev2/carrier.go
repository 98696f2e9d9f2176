package rocev2

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urxe/urxe/xdp"
	"github.com/urxe/urxe/xdp/afpacket"
)

// LinkKind says what an interface's frames are to go by.
type LinkKind uint8

// The ladder is AF_XDP in the ways of package xdp, then AF_PACKET.
const (
	LinkAuto     LinkKind = iota // the first rung that holds
	LinkAFXDP                    // AF_XDP in any way, or fail
	LinkAFPacket                 // AF_PACKET, or fail
)

// String names the kind as Stats.Link does.
func (k LinkKind) String() string {
	return [...]string{"auto", "af_xdp", "af_packet"}[min(k, LinkAFPacket)]
}

// carrier is what moves the frames of an interface.
type carrier interface {
	kind() LinkKind
	links() ([]Link, error)
	AddAddr([16]byte) error // its packets come to us
	RemoveAddr([16]byte) error
	// selects reports whether packets to other addresses stay with the kernel.
	selects() bool
	maxFrame() int // bytes, with a VLAN tag
	speed() int    // of the link in Mb/s, 0 if it isn't known
	// detached reports whether someone else ended that frames come.
	detached() bool
	describe(*Stats)
	Close() error
}

// climb opens the interface by the first rung that holds. The reasons say what was
// wrong with those before.
func climb(ifname string, o *NetdevOptions) (c carrier, reasons []string, err error) {
	var noXDP error
	if o.Link != LinkAFPacket {
		x, err := xdp.Open(ifname, o.XDP)
		if err == nil {
			return xdpCarrier{x}, x.Info().Reasons, nil
		}
		// What isn't an *xdp.Error is one of the options.
		if o.Link == LinkAFXDP || !errors.As(err, new(*xdp.Error)) {
			return nil, nil, err
		}
		noXDP = err
		reasons = strings.Split(err.Error(), "\n") // one for each rung
	}
	s, err := afpacket.Open(ifname, afpacket.Options{})
	if err != nil {
		return nil, nil, errors.Join(noXDP, err)
	}
	return packetCarrier{s, xdp.LinkSpeed(ifname)}, reasons, nil
}

type xdpCarrier struct{ *xdp.Port }

func (c xdpCarrier) kind() LinkKind { return LinkAFXDP }
func (c xdpCarrier) selects() bool  { return c.Info().XSKMap == "" }
func (c xdpCarrier) detached() bool { return c.Detached() }
func (c xdpCarrier) speed() int     { return c.Info().Speed }

// links makes a Link of each socket.
func (c xdpCarrier) links() (links []Link, err error) {
	sends := false
	for _, s := range c.Sockets() {
		l, err := newXDPLink(s, c.Info().RxFrames)
		if err != nil {
			closeLinks(links)
			return nil, err
		}
		links = append(links, l)
		sends = sends || s.CanSend()
	}
	if !sends {
		closeLinks(links)
		return nil, fmt.Errorf("none of the %d queues can send by AF_XDP", len(links))
	}
	return links, nil
}

func closeLinks(links []Link) {
	for _, l := range links {
		_ = l.Close() // another error is under way
	}
}

func (c xdpCarrier) maxFrame() int {
	n := 1 << 16
	for _, s := range c.Sockets() {
		n = min(n, s.MaxReceive())
		if s.CanSend() {
			n = min(n, s.MaxSend())
		}
	}
	return n
}

func (c xdpCarrier) describe(s *Stats) {
	s.XDP = &XDPStats{Info: c.Info(), Sockets: c.Port.Stats()}
	s.XDP.Program, _ = c.ProgramStats() // zero once it is closed
	s.Rung, s.Trouble = s.XDP.Info.String(), c.Trouble()
}

type packetCarrier struct {
	*afpacket.Socket
	mbps int
}

func (c packetCarrier) kind() LinkKind { return LinkAFPacket }
func (c packetCarrier) selects() bool  { return true }
func (c packetCarrier) detached() bool { return false }
func (c packetCarrier) speed() int     { return c.mbps }

func (c packetCarrier) links() ([]Link, error) {
	l, err := newPacketLink(c.Socket)
	if err != nil {
		return nil, err
	}
	return []Link{l}, nil
}

func (c packetCarrier) maxFrame() int { return afpacket.MaxFrame }

func (c packetCarrier) describe(s *Stats) {
	st := c.Socket.Stats()
	s.AFPacket, s.Rung = &st, c.Socket.String()
}
