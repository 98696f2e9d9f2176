package netif

import (
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Rivals tells which other interfaces of the host would answer ARP for addresses of this
// one, as it was when it was opened, as "eth1 for 10.0.0.1". Linux takes an address for the host's, not
// for an interface's: of two in one network both answer for both, and peers send to the
// one that they heard. (IPv6 has each answer for its own.)
func (i *Interface) Rivals() []string { return i.rivals }

// findRivals finds them, in the calling thread's network namespace. They are good to know,
// no more: what can't be listed has none.
func (i *Interface) findRivals() {
	addrs, _ := uninterrupted(func() ([]netlink.Addr, error) { return i.requests.AddrList(nil, unix.AF_INET) })
	for _, own := range addrs {
		for _, other := range addrs {
			_, ours := i.netdev(other.LinkIndex)
			if own.LinkIndex != i.index || ours || !own.Contains(other.IP) {
				continue
			}
			if l, err := i.requests.LinkByIndex(other.LinkIndex); err == nil && i.isRival(l) {
				i.rivals = append(i.rivals, fmt.Sprintf("%s for %v", l.Attrs().Name, own.IP))
			}
		}
	}
}

// noARP are the flags of interfaces that take no part in ARP.
const noARP = unix.IFF_LOOPBACK | unix.IFF_NOARP | unix.IFF_POINTOPOINT

// isRival reports whether a link that has an address in a network of the interface
// answers for the interface's: not the other end of it, which isn't beside it.
func (i *Interface) isRival(l netlink.Link) bool {
	a := l.Attrs()
	return answersARP(a.RawFlags) && !(l.Type() == "veth" && a.ParentIndex == i.index) && !ignoresARP(a.Name)
}

// answersARP reports whether a link with these flags is up and takes part in ARP.
func answersARP(flags uint32) bool { return isUp(flags) && flags&noARP == 0 }

// ignoresARP reports whether an interface answers ARP for no addresses but its own.
func ignoresARP(ifname string) bool {
	for _, name := range []string{"all", ifname} { // the greater counts
		b, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/arp_ignore")
		if err != nil || strings.TrimSpace(string(b)) != "0" {
			return true
		}
	}
	return false
}
