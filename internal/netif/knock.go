package netif

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/caps"
)

// knocker has the kernel find neighbours for a process that may not ask it to, for
// want of CAP_NET_ADMIN: by an empty datagram to the neighbour, which has to be found
// for that.
type knocker struct{ v4, v6 int }

const discard = 9 // the UDP port for what nobody wants (RFC 863)

// openKnocker gives nil to who may ask, and to who may not do this either.
func openKnocker(ifname string) *knocker {
	if caps.Has(unix.CAP_NET_ADMIN) {
		return nil
	}
	k := &knocker{-1, -1}
	for family, fd := range map[int]*int{unix.AF_INET: &k.v4, unix.AF_INET6: &k.v6} {
		n, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err == nil {
			*fd = n
			err = unix.BindToDevice(n, ifname) // before Linux 5.7 it needs CAP_NET_RAW
		}
		if err != nil {
			k.close()
			return nil
		}
	}
	return k
}

// knock sends to a neighbour. What can't be sent now is asked for again.
func (k *knocker) knock(hop netip.Addr, ifindex int) {
	if hop.Is4() {
		_ = unix.Sendto(k.v4, nil, unix.MSG_DONTROUTE, &unix.SockaddrInet4{Port: discard, Addr: hop.As4()})
		return
	}
	_ = unix.Sendto(k.v6, nil, unix.MSG_DONTROUTE, &unix.SockaddrInet6{Port: discard, Addr: hop.As16(), ZoneId: uint32(ifindex)})
}

func (k *knocker) close() {
	for _, fd := range []int{k.v4, k.v6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
