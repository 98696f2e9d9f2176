package netif

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An interface that is up answers ARP, unless it takes no part in that.
func TestRivalsTakePartInARP(t *testing.T) {
	if ignoresARP("lo") {
		t.Skip("arp_ignore is set here")
	}
	i := &Interface{index: 1}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	for flags, want := range map[uint32]bool{
		up: true, unix.IFF_UP: false,
		up | unix.IFF_LOOPBACK: false, up | unix.IFF_NOARP: false, up | unix.IFF_POINTOPOINT: false,
	} {
		l := &netlink.Dummy{LinkAttrs: attrs(2, "lo", 0)} // the name of one that is there
		l.RawFlags = flags
		if got := i.isRival(l); got != want {
			t.Errorf("flags %#x: %v, want %v", flags, got, want)
		}
	}
}
