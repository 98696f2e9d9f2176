package netns

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/verbs"
)

var errNoEntry = unix.ENOENT

// far is a namespace behind end 1 of a pair, which routes: its interface, and
// the addresses that it has there.
type far struct {
	ns     *nettest.NS
	name   string
	v4, v6 netip.Addr
}

// farBehind makes it.
func farBehind(t testing.TB, p *nettest.Pair) *far {
	t.Helper()
	ns, err := veth.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	f := &far{ns: ns, name: "far0", v4: netip.MustParseAddr("10.88.0.2"), v6: netip.MustParseAddr("fd00:0:0:88::2")}
	router := p.Ends[1].NS
	err = errors.Join(
		router.Do(func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: f.name, PeerNamespace: netlink.NsFd(ns.FD())}
			veth.Name = "near0"
			return errors.Join(netlink.LinkAdd(veth), addresses("near0", "10.88.0.1/24", "fd00:0:0:88::1/64"), forward())
		}),
		ns.Do(func() error {
			return errors.Join(addresses(f.name, f.v4.String()+"/24", f.v6.String()+"/64"),
				route("0.0.0.0/0", "10.88.0.1"), route("::/0", "fd00:0:0:88::1"))
		}),
		p.Ends[0].NS.Do(func() error {
			return errors.Join(route("10.88.0.0/24", p.Ends[1].V4.String()), route("fd00:0:0:88::/64", p.Ends[1].V6.String()))
		}))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{f.v4, f.v6} { // the new links take a moment
		eventually(t, "way to "+addr.String(), func() bool { return datagram(p.Ends[0].NS, ns, netip.AddrPortFrom(addr, 9), 10) == nil })
	}
	return f
}

// addresses gives an interface addresses and sets it up, in the thread's namespace.
func addresses(ifname string, list ...string) error {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return err
	}
	err = netlink.LinkSetUp(l)
	for _, s := range list {
		a, e := netlink.ParseAddr(s)
		if e != nil {
			return e
		}
		a.Flags = unix.IFA_F_NODAD
		err = errors.Join(err, netlink.AddrAdd(l, a))
	}
	return err
}

// route adds a route by way of a gateway, in the thread's namespace.
func route(dst, via string) error {
	_, n, err := net.ParseCIDR(dst)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: n, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route to %s via %s: %w", dst, via, err)
	}
	return nil
}

// forward makes the thread's namespace a router.
func forward() error {
	return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
		os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
}

// A router's device takes what is for the router, and leaves what it forwards,
// port 4791 or not, to the kernel.
func TestForeignDestinationsPass(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	f := farBehind(t, p)
	a, b := newSides(t, p, devs, chunks*chunk, verbs.ConnectOptions{})
	l := startLoad(t, a, b)
	for _, addr := range []netip.Addr{f.v4, f.v6} {
		for _, port := range []uint16{4791, 4789} {
			for range 20 {
				if err := datagram(p.Ends[0].NS, f.ns, netip.AddrPortFrom(addr, port), 1200); err != nil {
					t.Errorf("forwarded by a device's namespace: %v", err)
				}
			}
		}
	}
	l.progresses(t, 10)
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// Fragments are no RoCE, also when they go to port 4791 of an address of ours:
// the kernel gets them.
func TestFragmentsPass(t *testing.T) {
	p, _ := openPair(t, nettest.Config{})
	for _, f := range families {
		if err := datagram(p.Ends[0].NS, p.Ends[1].NS, netip.AddrPortFrom(f.addr(p.Ends[1]), 4791), 2000); err != nil {
			t.Errorf("fragments of a datagram to port 4791: %v", err)
		}
	}
}

// Two devices two hops apart, with a router between.
func TestAcrossARouter(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	f := farBehind(t, p)
	devs := [2]*verbs.Device{open(t, p.Ends[0]), openName(t, f.ns, f.name)}
	for _, addrs := range [][2]netip.Addr{{p.Ends[0].V4, f.v4}, {p.Ends[0].V6, f.v6}} {
		a, b := newSide(devs[0], 1<<17, addrs[0]), newSide(devs[1], 1<<17, addrs[1])
		connect(t, a, b, verbs.ConnectOptions{})
		for i, n := range []int{0, 1, 5000, 65537} {
			everyOperation(t, a, b, n, uint64(i), nil)
			everyOperation(t, b, a, n, uint64(i), nil)
		}
		a.destroy(t)
		b.destroy(t)
	}
}

// A route that changes is followed, under load: frames go to the new next hop, and
// to the old one when the route is as before.
func TestRouteChangesUnderLoad(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	f := farBehind(t, p)
	near, name := p.Ends[0].NS, p.Ends[0].Name
	devs := [2]*verbs.Device{open(t, p.Ends[0]), openName(t, f.ns, f.name)}
	for _, c := range []struct{ src, dst, net, via, other string }{
		{p.Ends[0].V4.String(), f.v4.String(), "10.88.0.0/24", p.Ends[1].V4.String(), "10.77.0.200"},
		{p.Ends[0].V6.String(), f.v6.String(), "fd00:0:0:88::/64", p.Ends[1].V6.String(), "fd00::200"},
	} {
		a, b := newSide(devs[0], chunks*chunk, netip.MustParseAddr(c.src)), newSide(devs[1], chunks*chunk, netip.MustParseAddr(c.dst))
		l := loaded(t, a, b, verbs.ConnectOptions{})
		wire := startWatch(t, devs[0])
		elsewhere := net.HardwareAddr{2, 0x47, 0x91, 0, 0, 9}
		for _, s := range []struct {
			via string
			mac net.HardwareAddr
		}{{c.other, elsewhere}, {c.via, p.Ends[1].MAC}} {
			if s.via == c.other {
				if err := near.Run("ip", "neigh", "replace", s.via, "lladdr", s.mac.String(), "dev", name, "nud", "permanent"); err != nil {
					t.Fatal(err)
				}
			}
			if err := near.Run("ip", "route", "replace", c.net, "via", s.via, "dev", name, "onlink"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "frames to next hop "+s.via, func() bool { return bytes.Equal(wire.lastTo(), s.mac) })
		}
		l.progresses(t, 20)
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		a.destroy(t)
		b.destroy(t)
	}
}

// The hop limit of an address vector is what datagrams start with; each router
// takes one.
func TestHopLimitAcrossARouter(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	f := farBehind(t, p)
	a, b := newDatagramSide(t, open(t, p.Ends[0])), newDatagramSide(t, openName(t, f.ns, f.name))
	for _, c := range []struct {
		src, dst  netip.Addr
		hopLimit  uint8
		at        int // of it, in the 40 bytes of GRH
		want      uint8
		wantClass int // where the traffic class is, 0x68; of IPv6 it lies across two bytes
	}{{p.Ends[0].V4, f.v4, 5, 28, 4, 21}, {p.Ends[0].V4, f.v4, 0, 28, 63, 21}, {p.Ends[0].V6, f.v6, 5, 7, 4, 0}} {
		must(b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 200)}}))
		av := verbs.AV{DGID: ib.GIDFromAddr(c.dst), SGIDIndex: uint8(gidIndex(a.dev, c.src)), HopLimit: c.hopLimit, TClass: 0x6b, FlowLabel: 0x12345}
		must(a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: []byte("hello"), AH: must(a.pd.CreateAH(av)),
			RemoteQPN: b.qp.Number(), RemoteQKey: qkey}))
		b.done(t, 1)
		if got := b.buf[c.at]; got != c.want {
			t.Errorf("to %v with hop limit %d: came with %d, want %d", c.dst, c.hopLimit, got, c.want)
		}
		if c.wantClass != 0 && b.buf[c.wantClass] != 0x68 {
			t.Errorf("to %v: traffic class %#x, want 0x68: ECN is the network's", c.dst, b.buf[c.wantClass])
		}
		if c.wantClass == 0 && [4]byte(b.buf[:4]) != [4]byte{0x66, 0x81, 0x23, 0x45} {
			t.Errorf("to %v: % x, want traffic class 0x68 and flow label 0x12345", c.dst, b.buf[:4])
		}
	}
}
