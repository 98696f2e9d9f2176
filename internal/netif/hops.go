package netif

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
)

const (
	// askAgain is how long the kernel has to find a neighbour before it is
	// asked once more.
	askAgain = 80 * time.Millisecond
	// settling is how long after a change of the link its packets may still get lost.
	settling = 2 * time.Second
	// freshen is how often neighbours that were asked for are confirmed. The
	// kernel doesn't see the packets of ours that go to them, and so would
	// never notice that one has moved.
	freshen = 15 * time.Second
	// maxAsked bounds what is remembered of neighbours that were asked for, and
	// of routes.
	maxAsked = 1 << 16
)

// neighbour is what the kernel knows of one.
type neighbour struct {
	mac   [6]byte
	state int // netlink.NUD_…
}

// usable are the states in which a neighbour's MAC address holds (NUD_VALID).
const usable = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE |
	netlink.NUD_PROBE | netlink.NUD_STALE | netlink.NUD_DELAY

// hopKey names a neighbour: those of two netdevs may have one address.
type hopKey struct {
	netdev int
	ip     netip.Addr
}

type routeKey struct {
	netdev   int // by which the packets leave
	src, dst netip.Addr
}

type route struct {
	hop   hopKey // whom the packets go to: dst itself, or a gateway
	local bool   // dst is an address of another interface of this host, with this:
	mac   [6]byte
	err   error
}

// Hop is the way of frames to a next hop.
type Hop struct{ SrcMAC, DstMAC [6]byte }

// NextHop returns the MAC addresses of frames from src, an address in a VLAN, or,
// with 0, in none, to dst. It reports false while the kernel doesn't know that of
// the next hop; it has then been asked to find out, and the function of Notify is
// called when it has. An error says why there is no way from src to dst.
func (i *Interface) NextHop(src netip.Addr, vlan uint16, dst netip.Addr) (h Hop, known bool, err error) {
	dev, err := i.netdevWith(src, vlan)
	if err != nil {
		return h, false, err
	}
	h.SrcMAC = dev.mac
	r := i.route(routeKey{dev.index, src, dst})
	if r.err != nil || r.local {
		h.DstMAC = r.mac
		return h, r.local, r.err
	}
	i.mu.Lock()
	n, known := i.neighbours[r.hop]
	ask, anew := i.mustAsk(r.hop, known)
	i.mu.Unlock()
	if anew {
		// An error says that it isn't there.
		_ = i.requests.NeighDel(&netlink.Neigh{LinkIndex: r.hop.netdev, IP: ipOf(r.hop.ip)})
	}
	if ask {
		err = i.solicit(r.hop)
	}
	h.DstMAC = n.mac
	return h, known, err
}

// NextHopKnown reports whether NextHop would, and asks the kernel for no neighbour.
func (i *Interface) NextHopKnown(src netip.Addr, vlan uint16, dst netip.Addr) bool {
	dev, err := i.netdevWith(src, vlan)
	if err != nil {
		return false
	}
	r := i.route(routeKey{dev.index, src, dst})
	if r.err != nil || r.local {
		return r.local
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_, known := i.neighbours[r.hop]
	return known
}

// SourceMAC returns the MAC address of frames from src, as NextHop does.
func (i *Interface) SourceMAC(src netip.Addr, vlan uint16) (mac [6]byte, err error) {
	d, err := i.netdevWith(src, vlan)
	return d.mac, err
}

// netdevWith returns the netdev that has an address.
func (i *Interface) netdevWith(src netip.Addr, vlan uint16) (d netdev, err error) {
	if i.Gone() {
		return d, fmt.Errorf("%s is gone", i.name)
	}
	i.mu.Lock()
	index, ok := i.table.netdevOf(entry{gid: ib.GIDFromAddr(src), vlan: vlan})
	i.mu.Unlock()
	if ok {
		d, ok = i.netdev(index)
	}
	if !ok {
		return d, fmt.Errorf("%v is not an address of %s", src, where(i.name, vlan))
	}
	return d, nil
}

// where names an interface, and a VLAN above it.
func where(name string, vlan uint16) string {
	if vlan == 0 {
		return name
	}
	return fmt.Sprintf("%s in VLAN %d", name, vlan)
}

// route finds the next hop, in the cache or by asking the kernel.
func (i *Interface) route(k routeKey) route {
	i.mu.Lock()
	r, ok := i.routes[k]
	age := i.routeAge
	i.mu.Unlock()
	if ok {
		return r
	}
	r = i.lookup(k)
	i.mu.Lock()
	defer i.mu.Unlock()
	if age == i.routeAge && len(i.routes) < maxAsked {
		i.routes[k] = r
	}
	return r
}

func (i *Interface) lookup(k routeKey) route {
	found, err := i.requests.RouteGetWithOptions(ipOf(k.dst), &netlink.RouteGetOptions{OifIndex: k.netdev, SrcAddr: ipOf(k.src)})
	switch {
	case err != nil:
		return route{err: fmt.Errorf("no route from %v to %v by %s: %w", k.src, k.dst, i.nameOf(k.netdev), err)}
	case len(found) == 0:
		return route{err: fmt.Errorf("no route from %v to %v by %s", k.src, k.dst, i.nameOf(k.netdev))}
	case found[0].LinkIndex != k.netdev && found[0].Type != unix.RTN_LOCAL:
		return route{err: fmt.Errorf("the route from %v to %v leaves by another interface than %s", k.src, k.dst, i.nameOf(k.netdev))}
	}
	r := &found[0]
	if r.Via != nil { // an IPv4 destination behind an IPv6 gateway (RFC 5549)
		if via, ok := r.Via.(*netlink.Via); ok {
			return route{hop: hopKey{k.netdev, addrOf(via.Addr)}}
		}
	}
	if len(r.Gw) > 0 {
		return route{hop: hopKey{k.netdev, addrOf(r.Gw)}}
	}
	// Asked without an interface, the kernel tells its own addresses.
	if own, err := i.requests.RouteGet(ipOf(k.dst)); err == nil && len(own) > 0 && own[0].Type == unix.RTN_LOCAL {
		return i.neighbourOnHost(k)
	}
	return route{hop: hopKey{k.netdev, k.dst}, err: i.checkOnLink(k)}
}

// neighbourOnHost finds the interface of this host that has address dst: a
// second port, joined with this one by a cable or as a veth pair. The kernel
// doesn't answer when it asks itself for its own neighbours.
func (i *Interface) neighbourOnHost(k routeKey) route {
	addrs, err := i.requests.AddrList(nil, unix.AF_UNSPEC)
	for n := 0; err == nil && n < len(addrs); n++ {
		if addrOf(addrs[n].IP) != k.dst {
			continue
		}
		link, err := i.requests.LinkByIndex(addrs[n].LinkIndex)
		if err == nil && len(link.Attrs().HardwareAddr) == 6 {
			return route{local: true, mac: [6]byte(link.Attrs().HardwareAddr)}
		}
	}
	return route{err: fmt.Errorf("%v is an address of this host, and of no Ethernet interface", k.dst)}
}

// checkOnLink makes sure that there is a route to an IPv4 destination: when
// asked about one interface, the kernel takes for on-link what it has no route for.
func (i *Interface) checkOnLink(k routeKey) error {
	if !k.dst.Is4() {
		return nil
	}
	_, err := i.requests.RouteGetWithOptions(ipOf(k.dst), &netlink.RouteGetOptions{OifIndex: k.netdev, SrcAddr: ipOf(k.src), FIBMatch: true})
	if err != nil {
		return fmt.Errorf("no route from %v to %v by %s: %w", k.src, k.dst, i.nameOf(k.netdev), err)
	}
	return nil
}

// nameOf returns the name of a netdev, for errors.
func (i *Interface) nameOf(index int) string {
	d, _ := i.netdev(index)
	return d.name
}

// forgetRoutes empties the cache. The caller holds mu.
func (i *Interface) forgetRoutes() {
	clear(i.routes)
	i.routeAge++
}

// mustAsk notes that someone wants hop, and reports whether the kernel has to be
// asked for it now, and whether it has to forget first that it is asking: it
// repeats a question only after a second, and the first ones on a link that
// came up are easily lost. The caller holds mu.
func (i *Interface) mustAsk(hop hopKey, known bool) (ask, anew bool) {
	now := clock.Now()
	last, was := i.asked[hop]
	switch {
	case known && was:
		return false, false
	case !known && !i.Up(): // Notify's function asks when it is
		return false, false
	case !known && was && now.Sub(last) < askAgain:
		return false, false
	case !was && len(i.asked) >= maxAsked:
		return !known, false
	}
	i.asked[hop] = now
	return !known, !known && last != 0 && now.Sub(i.linkChanged) < settling
}

// mayAskAtOnce forgets when neighbours were asked for: what was asked of a link
// that was down is lost.
func (i *Interface) mayAskAtOnce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.linkChanged = clock.Now()
	for hop := range i.asked {
		i.asked[hop] = 0
	}
}

// solicit makes the kernel find or confirm a neighbour, as if it had a packet for it.
func (i *Interface) solicit(hop hopKey) error {
	if i.knocker != nil {
		i.knocker.knock(hop.ip, hop.netdev)
		return nil
	}
	family := unix.AF_INET
	if hop.ip.Is6() {
		family = unix.AF_INET6
	}
	err := i.requests.NeighSet(&netlink.Neigh{LinkIndex: hop.netdev, Family: family, IP: ipOf(hop.ip), Flags: netlink.NTF_USE})
	if err == nil || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) {
		return nil // a link that is down is waited for
	}
	return fmt.Errorf("ask for neighbour %v on %s (needs CAP_NET_ADMIN): %w", hop.ip, i.nameOf(hop.netdev), err)
}

// keepFresh has the neighbours in use confirmed from time to time.
func (i *Interface) keepFresh() {
	defer i.ended.Done()
	tick := time.NewTicker(freshen)
	defer tick.Stop()
	for {
		select {
		case <-i.stop:
			return
		case <-tick.C:
			for _, hop := range i.stale() {
				_ = i.solicit(hop) // what fails now is tried at the next tick
			}
		}
	}
}

// stale lists the neighbours in use that the kernel has not heard of lately, and
// forgets those that are neither known nor asked for any more.
func (i *Interface) stale() (list []hopKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for hop, last := range i.asked {
		n, known := i.neighbours[hop]
		switch {
		case known && n.state&netlink.NUD_STALE != 0:
			list = append(list, hop)
		case !known && clock.Now().Sub(last) > freshen:
			delete(i.asked, hop)
		}
	}
	return list
}

// readNeighbours looks at all neighbours, and reports whether any changed.
func (i *Interface) readNeighbours() (changed bool, err error) {
	i.mu.Lock()
	netdevs := i.netdevs
	i.mu.Unlock()
	var list []netlink.Neigh
	for _, d := range netdevs {
		l, err := i.neighboursOf(d.index)
		if err != nil {
			return false, fmt.Errorf("list the neighbours of %s: %w", d.name, err)
		}
		list = append(list, l...)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.neighbours
	i.neighbours = make(map[hopKey]neighbour, len(list))
	for k := range list {
		i.setNeighbour(&list[k])
	}
	changed = len(old) != len(i.neighbours)
	for k, n := range i.neighbours {
		changed = changed || old[k].mac != n.mac
	}
	return changed, nil
}

// neighboursOf asks for the neighbours of a netdev.
func (i *Interface) neighboursOf(index int) ([]netlink.Neigh, error) {
	return uninterrupted(func() ([]netlink.Neigh, error) { return i.requests.NeighList(index, unix.AF_UNSPEC) })
}

// setNeighbour takes in what the kernel says of one, and reports whether a MAC
// address became known, or another. The caller holds mu.
func (i *Interface) setNeighbour(n *netlink.Neigh) (changed bool) {
	ip := addrOf(n.IP)
	if !ip.IsValid() {
		return false
	}
	k := hopKey{n.LinkIndex, ip}
	old, was := i.neighbours[k]
	if n.State&usable == 0 || len(n.HardwareAddr) != 6 && n.State&netlink.NUD_NOARP == 0 {
		delete(i.neighbours, k)
		return false
	}
	now := neighbour{state: n.State}
	copy(now.mac[:], n.HardwareAddr)
	i.neighbours[k] = now
	return !was || old.mac != now.mac
}
