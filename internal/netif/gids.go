package netif

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
)

// MaxGIDs is how many GIDs a table holds: an address vector has 8 bits for the
// index. Addresses beyond it are not in the table, but counted.
const MaxGIDs = 256

// gidTable gives each address of the interface an index. Index 0 is for the
// link-local IPv6 address, as in the kernel's table, and empty while there is
// none; the others follow in the order in which they were added. An address
// that goes away leaves its index empty, and finds it again when it returns.
type gidTable struct {
	slots []slot
	left  int // addresses that have none
}

type slot struct {
	entry
	present bool
}

// entry is an address: of the same one in two VLANs, there are two.
type entry struct {
	gid    ib.GID
	vlan   uint16 // id; 0: none
	netdev int    // index of the netdev that it is of
}

// is reports whether an entry is that address, whatever the netdev is now.
func (e *entry) is(o entry) bool { return e.gid == o.gid && e.vlan == o.vlan }

// view is what a table shows.
type view struct {
	gids  []ib.GID // zero for absent addresses
	vlans []uint16
	left  int
}

// update makes present the addresses of list, which are in the order in which
// new ones get their index, and reports whether anything changed.
func (t *gidTable) update(list []entry) (changed bool) {
	if t.slots == nil {
		t.slots = make([]slot, 1)
		changed = true
	}
	for i := range t.slots {
		s := &t.slots[i]
		if s.present && !slices.Contains(list, s.entry) {
			s.present, changed = false, true
		}
	}
	left := 0
	for _, e := range list {
		switch s := t.slotOf(e); {
		case s == nil:
			left++
		case !s.present:
			*s, changed = slot{e, true}, true
		}
	}
	changed = changed || left != t.left
	t.left = left
	return changed
}

// slotOf returns the slot that an address has, or gets; nil when the table is full.
func (t *gidTable) slotOf(e entry) *slot {
	unused := -1
	for i := range t.slots {
		s := &t.slots[i]
		if s.is(e) {
			return s
		}
		if i > 0 && !s.present && unused < 0 {
			unused = i
		}
	}
	switch {
	case e.gid.IsLinkLocal() && e.vlan == 0 && t.slots[0].gid.IsZero():
		return &t.slots[0]
	case len(t.slots) < MaxGIDs:
		t.slots = append(t.slots, slot{entry: e})
		return &t.slots[len(t.slots)-1]
	case unused > 0: // of an address that left
		return &t.slots[unused]
	}
	return nil
}

// shown returns what the table shows.
func (t *gidTable) shown() *view {
	g := &view{make([]ib.GID, len(t.slots)), make([]uint16, len(t.slots)), t.left}
	for i, s := range t.slots {
		if s.present {
			g.gids[i], g.vlans[i] = s.gid, s.vlan
		}
	}
	return g
}

// isOf reports whether a netdev has an address of one version of IP.
func (t *gidTable) isOf(netdev int, v4 bool) bool {
	return slices.ContainsFunc(t.slots, func(s slot) bool { return s.present && s.netdev == netdev && s.gid.Is4() == v4 })
}

// netdevOf returns the index of the netdev that an address is of.
func (t *gidTable) netdevOf(e entry) (index int, ok bool) {
	for i := range t.slots {
		if s := &t.slots[i]; s.present && s.is(e) {
			return s.netdev, true
		}
	}
	return 0, false
}

// address is one of an interface's.
type address struct {
	netdev
	ip    netip.Addr
	flags uint32
	added uint32 // hundredths of a second since boot
}

// usable reports whether packets may be sent from a: an address that may turn
// out to be someone else's is none yet.
func (a *address) usable() bool {
	return a.ip.IsValid() && a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
}

// readAddrs looks at the interface's addresses, and reports whether they changed.
func (i *Interface) readAddrs() (changed bool, err error) {
	list, err := i.addrs()
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.table.update(inOrder(list)) {
		return false, nil
	}
	i.forgetRoutes()
	i.gids.Store(i.table.shown())
	return true, nil
}

// inOrder returns the usable addresses in the order in which they were added;
// IPv4 comes first among those of one moment, and link-local ones of IPv6 before
// all others. Of two netdevs with one address, the first has it.
func inOrder(list []address) (entries []entry) {
	slices.SortStableFunc(list, func(a, b address) int {
		local := func(a address) int {
			if a.ip.Is6() && a.ip.IsLinkLocalUnicast() {
				return 0
			}
			return 1
		}
		return cmp.Or(local(a)-local(b), cmp.Compare(a.added, b.added), a.ip.BitLen()-b.ip.BitLen())
	})
	for _, a := range list {
		e := entry{ib.GIDFromAddr(a.ip), a.vlan, a.index}
		if a.usable() && !slices.ContainsFunc(entries, func(o entry) bool { return o.is(e) }) {
			entries = append(entries, e)
		}
	}
	return entries
}

// addrs asks the kernel for the addresses of the interface's netdevs. Package
// netlink doesn't tell when they were added.
func (i *Interface) addrs() (list []address, err error) {
	msgs, err := uninterrupted(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.Sockets = i.dump
		req.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	})
	for _, m := range msgs {
		a, index := parseAddr(m)
		if d, ok := i.netdev(index); ok {
			a.netdev = d
			list = append(list, a)
		}
	}
	return list, err
}

// uninterrupted asks for a list again if something changed while the kernel made it.
func uninterrupted[T any](ask func() ([]T, error)) (list []T, err error) {
	for range 5 {
		if list, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, err
}

// netdev returns the netdev with an index if it is one of the interface's.
func (i *Interface) netdev(index int) (netdev, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, d := range i.netdevs {
		if d.index == index {
			return d, true
		}
	}
	return netdev{}, false
}

// parseAttrs reads attributes. nl.ParseRouteAttr trusts that the last is padded to
// a multiple of four bytes.
func parseAttrs(b []byte) ([]syscall.NetlinkRouteAttr, error) {
	if len(b)%unix.RTA_ALIGNTO != 0 {
		return nil, fmt.Errorf("netlink: %d bytes of attributes: want a multiple of %d", len(b), unix.RTA_ALIGNTO)
	}
	return nl.ParseRouteAttr(b)
}

// parseAddr reads a struct ifaddrmsg with its attributes. The index is 0 if it
// is damaged.
func parseAddr(m []byte) (a address, index int) {
	if len(m) < unix.SizeofIfAddrmsg {
		return a, 0
	}
	attrs, err := parseAttrs(m[unix.SizeofIfAddrmsg:])
	if err != nil {
		return a, 0
	}
	ne := binary.NativeEndian
	a.flags = uint32(m[2])
	local := false
	for _, t := range attrs {
		v := t.Value
		switch t.Attr.Type {
		case unix.IFA_LOCAL: // with a peer's address, IFA_ADDRESS is that
			a.ip, local = addrOf(v), true
		case unix.IFA_ADDRESS:
			if !local {
				a.ip = addrOf(v)
			}
		case unix.IFA_FLAGS:
			if len(v) >= 4 {
				a.flags = ne.Uint32(v)
			}
		case unix.IFA_CACHEINFO:
			if len(v) >= unix.SizeofIfaCacheinfo {
				a.added = ne.Uint32(v[8:])
			}
		}
	}
	return a, int(ne.Uint32(m[4:]))
}
