package verbs

import (
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
)

// PairOptions are how a pair of devices is made. The zero value works.
type PairOptions struct {
	LinkMTU int // of the interfaces, in bytes; 0: room for a path MTU of 4096
}

// OpenPair makes two devices, mem0 and mem1, that are joined by a link in memory. They need no privileges and no
// network; the transport between them is all there. Their addresses are fe80::ff:fe00:1 and 192.0.2.1, and the same
// ending in 2. Close both.
func OpenPair(o PairOptions) (a, b *Device, err error) {
	la, lb, err := rocev2.NewPair(rocev2.PairOptions{})
	if err != nil {
		return nil, nil, err
	}
	a, errA := openPaired(0, la, o)
	b, errB := openPaired(1, lb, o)
	if err := errors.Join(errA, errB); err != nil {
		for _, d := range []*Device{a, b} {
			if d != nil {
				err = errors.Join(err, d.Close())
			}
		}
		return nil, nil, err
	}
	return a, b, nil
}

// openPaired makes one of a pair.
func openPaired(i byte, l rocev2.Link, o PairOptions) (*Device, error) {
	guid := ib.GUIDFromMAC(net.HardwareAddr{2, 0, 0, 0, 0, i + 1})
	p, err := rocev2.NewPort(rocev2.Config{
		Name:  "mem" + strconv.Itoa(int(i)),
		Links: []rocev2.Link{l},
		Net: &rocev2.FixedNet{LinkMTU: o.LinkMTU, Addresses: []ib.GID{
			{0xfe, 0x80, 11: 0xff, 12: 0xfe, 15: i + 1},
			ib.GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, i + 1})),
		}},
	})
	if err != nil {
		return nil, err
	}
	return OpenPort(p, Options{NodeGUID: guid}), nil
}
