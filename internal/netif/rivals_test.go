package netif

import (
	"testing"

	"golang.org/x/sys/unix"
)

// An interface that is up answers ARP, unless it takes no part in that.
func TestRivalsTakePartInARP(t *testing.T) {
	const up = unix.IFF_UP | unix.IFF_RUNNING
	for flags, want := range map[uint32]bool{
		up: true, unix.IFF_UP: false,
		up | unix.IFF_LOOPBACK: false, up | unix.IFF_NOARP: false, up | unix.IFF_POINTOPOINT: false,
	} {
		if got := answersARP(flags); got != want {
			t.Errorf("flags %#x: %v, want %v", flags, got, want)
		}
	}
}
