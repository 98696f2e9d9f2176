package netif

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netdev is one whose addresses are an Interface's: the interface itself; the
// bond that it is the active slave of; and VLANs above these. So does Linux make
// up the GID table of a RoCE device.
type netdev struct {
	index int
	name  string
	mac   [6]byte
	vlan  uint16 // id; 0: none
}

// vlanMask is where the id is in a tag; 0xfff is no id.
const vlanMask = 0xfff

// netdevsOf finds the netdevs of the interface with an index among all links, the
// interface first.
func netdevsOf(links []netlink.Link, index int) []netdev { return netdevsAt(links, index, isActive) }

// netdevsAt is netdevsOf with what has a slave be one that has its bond's packets.
func netdevsAt(links []netlink.Link, index int, has func(*netlink.BondSlave) bool) (list []netdev) {
	own := linkAt(links, index)
	if own == nil {
		return nil
	}
	list = append(list, netdevOf(own, 0))
	if s, ok := own.Attrs().Slave.(*netlink.BondSlave); ok && has(s) {
		if m := linkAt(links, own.Attrs().MasterIndex); m != nil {
			list = append(list, netdevOf(m, 0))
		}
	}
	for _, l := range links {
		if v := vlanOf(l); v != nil && slices.ContainsFunc(list, isBelow(v)) {
			list = append(list, netdevOf(l, uint16(v.VlanId)&vlanMask))
		}
	}
	return list
}

func isActive(s *netlink.BondSlave) bool { return s.State == netlink.BondStateActive }

func linkAt(links []netlink.Link, index int) netlink.Link {
	if i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index }); i >= 0 {
		return links[i]
	}
	return nil
}

// vlanOf returns a link as a VLAN of a netdev of this namespace, nil if it is none.
func vlanOf(l netlink.Link) *netlink.Vlan {
	if v, ok := l.(*netlink.Vlan); ok && v.NetNsID < 0 && v.VlanProtocol == netlink.VLAN_PROTOCOL_8021Q {
		return v
	}
	return nil
}

// Sharers returns the names of the interfaces that the interface would take packets from,
// or that would take its: the bond of a slave, whichever is the active one now, the slaves
// of a bond, and VLANs above any of these.
func (i *Interface) Sharers() ([]string, error) {
	links, err := uninterrupted(i.listLinks)
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	return sharersOf(links, i.index), nil
}

func sharersOf(links []netlink.Link, index int) (names []string) {
	always := func(*netlink.BondSlave) bool { return true }
	for _, d := range netdevsAt(links, index, always) {
		if d.index != index {
			names = append(names, d.name)
		}
	}
	masters := []int{index}
	if v := vlanOf(linkAt(links, index)); v != nil {
		masters = append(masters, v.ParentIndex)
	}
	for _, l := range links {
		a := l.Attrs()
		_, slave := a.Slave.(*netlink.BondSlave)
		if slices.Contains(masters[1:], a.Index) || slave && slices.Contains(masters, a.MasterIndex) {
			names = append(names, a.Name)
		}
	}
	return names
}

// isBelow returns whether a netdev is the untagged one that v is a VLAN of. A VLAN
// of a VLAN is none of ours: its frames have two tags.
func isBelow(v *netlink.Vlan) func(netdev) bool {
	return func(d netdev) bool { return d.vlan == 0 && d.index == v.ParentIndex }
}

func netdevOf(l netlink.Link, vlan uint16) netdev {
	a := l.Attrs()
	d := netdev{index: a.Index, name: a.Name, vlan: vlan}
	copy(d.mac[:], a.HardwareAddr)
	return d
}

// readNetdevs looks which netdevs are the interface's, and reports whether they changed.
func (i *Interface) readNetdevs() (changed bool, err error) {
	links, err := uninterrupted(i.listLinks)
	if err != nil {
		return false, fmt.Errorf("list the links: %w", err)
	}
	list := netdevsOf(links, i.index)
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Equal(list, i.netdevs) {
		return false, nil
	}
	i.netdevs = list
	i.forgetRoutes()
	return true, nil
}

// isOf reports whether a netdev is one of the interface's. The caller holds mu.
func (i *Interface) isOf(index int) bool {
	return index == i.index || slices.ContainsFunc(i.netdevs, func(d netdev) bool { return d.index == index })
}

// concerns reports whether a message of the kernel is about a netdev of the
// interface. Its index is at the same place in struct ifinfomsg, ifaddrmsg and
// ndmsg.
func (i *Interface) concerns(m []byte) bool {
	if len(m) < 8 {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.isOf(int(int32(binary.NativeEndian.Uint32(m[4:]))))
}

// isAbove reports whether a message about a link, struct ifinfomsg with its
// attributes, is about one above a netdev of the interface.
func (i *Interface) isAbove(m []byte) bool {
	if len(m) < unix.SizeofIfInfomsg {
		return false
	}
	attrs, err := parseAttrs(m[unix.SizeofIfInfomsg:])
	if err != nil {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_LINK && len(a.Value) >= 4 {
			return i.isOf(int(int32(binary.NativeEndian.Uint32(a.Value))))
		}
	}
	return false
}
