package netif

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/conform"
)

func attrs(index int, name string, parent int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Index, a.Name, a.ParentIndex, a.HardwareAddr = index, name, parent, net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}
	return a
}

func vlanLink(index int, name string, parent, id int) *netlink.Vlan {
	return &netlink.Vlan{LinkAttrs: attrs(index, name, parent), VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
}

// The netdevs of an interface are itself, its bond while it is the active slave,
// and their VLANs; of nothing else.
func TestNetdevsOfAnInterface(t *testing.T) {
	conform.Row(t, "bug/45")
	slave := func(s netlink.BondSlaveState) *netlink.Device {
		d := &netlink.Device{LinkAttrs: attrs(2, "eth0", 0)}
		d.MasterIndex, d.Slave = 9, &netlink.BondSlave{State: s}
		return d
	}
	ad := vlanLink(7, "ad", 2, 7)
	ad.VlanProtocol = netlink.VLAN_PROTOCOL_8021AD
	elsewhere := vlanLink(8, "elsewhere", 2, 8)
	elsewhere.NetNsID = 3
	port := &netlink.Device{LinkAttrs: attrs(2, "eth0", 0)}
	port.MasterIndex, port.Slave = 10, &netlink.VrfSlave{}
	bond := &netlink.Bond{LinkAttrs: attrs(9, "bond0", 0)}
	rest := []netlink.Link{
		vlanLink(5, "eth0.5", 2, 5), vlanLink(6, "eth0.5.6", 5, 6), ad, elsewhere, vlanLink(4, "eth1.5", 3, 5), bond,
		vlanLink(11, "bond0.4094", 9, 4094), &netlink.Bridge{LinkAttrs: attrs(10, "br0", 0)}, vlanLink(12, "br0.5", 10, 5),
	}
	for what, c := range map[string]struct {
		own  netlink.Link
		want []string
	}{
		"alone":                    {&netlink.Device{LinkAttrs: attrs(2, "eth0", 0)}, []string{"eth0", "eth0.5"}},
		"an active slave":          {slave(netlink.BondStateActive), []string{"eth0", "bond0", "eth0.5", "bond0.4094"}},
		"a backup slave":           {slave(netlink.BondStateBackup), []string{"eth0", "eth0.5"}},
		"a port of another master": {port, []string{"eth0", "eth0.5"}},
		"another that was":         {&netlink.Device{LinkAttrs: attrs(3, "eth1", 0)}, nil},
	} {
		var got []string
		for _, d := range netdevsOf(append([]netlink.Link{c.own}, rest...), 2) {
			got = append(got, d.name)
			if want := map[string]uint16{"eth0.5": 5, "bond0.4094": 4094}[d.name]; d.vlan != want || d.mac[5] != byte(d.index) {
				t.Errorf("%s: %+v", what, d)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: netdevs %q, want %q", what, got, c.want)
		}
	}
}

// Who shares packets with an interface is above it or below it, and not beside it.
func TestSharersOfAnInterface(t *testing.T) {
	slave := func(index int, name string, s netlink.BondSlaveState) *netlink.Device {
		d := &netlink.Device{LinkAttrs: attrs(index, name, 0)}
		d.MasterIndex, d.Slave = 9, &netlink.BondSlave{State: s}
		return d
	}
	port := &netlink.Device{LinkAttrs: attrs(4, "eth2", 0)}
	port.MasterIndex, port.Slave = 10, &netlink.VrfSlave{}
	links := []netlink.Link{
		slave(2, "eth0", netlink.BondStateActive), slave(3, "eth1", netlink.BondStateBackup), port, vlanLink(5, "eth1.5", 3, 5),
		&netlink.Bond{LinkAttrs: attrs(9, "bond0", 0)}, vlanLink(11, "bond0.5", 9, 5), vlanLink(12, "bond0.6", 9, 6), vlanLink(13, "bond0.6.7", 12, 7),
		&netlink.Device{LinkAttrs: attrs(10, "vrf0", 0)},
	}
	for index, want := range map[int][]string{
		2:  {"bond0", "bond0.5", "bond0.6"},
		3:  {"bond0", "eth1.5", "bond0.5", "bond0.6"},
		4:  nil,
		5:  {"eth1"},
		9:  {"bond0.5", "bond0.6", "eth0", "eth1"},
		10: nil,
		11: {"eth0", "eth1", "bond0"},
		12: {"bond0.6.7", "eth0", "eth1", "bond0"},
		13: {"bond0.6"},
		77: nil,
	} {
		if got := sharersOf(links, index); !slices.Equal(got, want) {
			t.Errorf("of %d: %q, want %q", index, got, want)
		}
	}
}

// asVLAN lists the links, and has one of them be a VLAN above another one: this
// machine may have no 8021q module. Everything but the kind of link is real.
func asVLAN(name, parent string, id int, isThere *atomic.Bool) func(*netlink.Handle) ([]netlink.Link, error) {
	return func(h *netlink.Handle) ([]netlink.Link, error) {
		links, err := h.LinkList()
		var v *netlink.Vlan
		index := 0
		for i, l := range links {
			switch a := *l.Attrs(); {
			case a.Name == parent:
				index = a.Index
			case a.Name == name && isThere.Load():
				a.NetNsID = -1
				v = &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
				links[i] = v
			}
		}
		if v != nil {
			v.ParentIndex = index
		}
		return links, err
	}
}

// The addresses of a VLAN come and go with it, keep their indices, and have
// neighbours and routes of their own.
func TestVLANFollows(t *testing.T) {
	conform.Row(t, "bug/45")
	p := nettest.New(t, nettest.Config{})
	e, peer := p.Ends[0], p.Ends[1]
	var isThere atomic.Bool
	w := watchWith(t, e, asVLAN("v5", e.Name, 5, &isThere))
	ll, v4, v6 := e.LL.String(), e.V4.String(), e.V6.String()
	w.ip("link", "add", "v5", "address", "02:00:00:00:05:01", "type", "veth", "peer", "name", "v5", "address", "02:00:00:00:05:02", "netns", peer.NS.Path())
	w.ip("addr", "add", "10.5.0.1/24", "dev", "v5")
	w.ip("addr", "add", e.V6.String()+"/64", "dev", "v5", "nodad") // the interface has it, too
	w.untilGIDs(ll, v4, v6)

	isThere.Store(true)
	w.ip("link", "set", e.Name, "alias", "news of the link") // that of a real VLAN's parent is its own
	w.untilGIDs(ll, v4, v6, "10.5.0.1", v6)
	if got, want := w.VLANs(), []uint16{0, 0, 0, 5, 5}; !slices.Equal(got, want) {
		t.Errorf("VLANs %v, want %v", got, want)
	}
	if got, want := w.Netdevs(), []string{e.Name, e.Name, e.Name, "v5", "v5"}; !slices.Equal(got, want) {
		t.Errorf("netdevs %q, want %q", got, want)
	}

	for _, args := range [][]string{{"addr", "add", "10.5.0.2/24", "dev", "v5"}, {"link", "set", "v5", "up"}} {
		if err := peer.NS.Run("ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	w.ip("link", "set", "v5", "up")
	w.vlanHop("10.5.0.1", 5, "10.5.0.2", Hop{[6]byte{2, 0, 0, 0, 5, 1}, [6]byte{2, 0, 0, 0, 5, 2}})
	w.vlanHop(v4, 0, peer.V4.String(), Hop{[6]byte(e.MAC), [6]byte(peer.MAC)})
	if _, _, err := w.NextHop(e.V4, 5, peer.V4); err == nil {
		t.Error("an address of the interface was taken as the VLAN's")
	}
	if _, _, err := w.NextHop(netip.MustParseAddr("10.5.0.1"), 0, netip.MustParseAddr("10.5.0.2")); err == nil {
		t.Error("an address of the VLAN was taken as the interface's")
	}

	w.ip("addr", "add", "10.5.0.9/24", "dev", "v5")
	w.until("another address of the VLAN", func() bool { return w.has("10.5.0.9") })
	w.ip("link", "del", "v5")
	w.untilGIDsAre(func(have []string) bool {
		return slices.Equal(have[:3], []string{ll, v4, v6}) && !slices.ContainsFunc(have[3:], notZero)
	})
	if vlans := w.VLANs(); !reflect.DeepEqual(vlans, make([]uint16, len(vlans))) {
		t.Errorf("VLANs %v", vlans)
	}
}

func notZero(s string) bool { return s != "::" }

// untilGIDsAre waits until the table pleases.
func (w *watched) untilGIDsAre(ok func([]string) bool) {
	w.t.Helper()
	w.until("a table without what has gone", func() bool {
		var have []string
		for _, g := range w.GIDs() {
			have = append(have, g.Addr().String())
		}
		return ok(have)
	})
}

// vlanHop waits for a next hop.
func (w *watched) vlanHop(src string, vlan uint16, dst string, want Hop) {
	w.t.Helper()
	var got Hop
	w.eventually("next hop to "+dst, func() bool {
		h, known, err := w.NextHop(netip.MustParseAddr(src), vlan, netip.MustParseAddr(dst))
		if err != nil {
			w.t.Fatal(err)
		}
		got = h
		return known
	})
	if got != want {
		w.t.Errorf("from %s in VLAN %d to %s: %x, want %x", src, vlan, dst, got, want)
	}
}
