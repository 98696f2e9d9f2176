package interop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/tests/interop/guest"
	"github.com/urxe/urxe/tests/owner"
)

// hostEnd is the interface of the system under test.
func hostEnd(t *testing.T, l *guest.Lab) *nettest.End {
	t.Helper()
	ns, err := veth.NamedNS(l.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	e := &nettest.End{NS: ns, Name: guest.Iface, V4: netip.MustParseAddr(guest.HostIP4), V6: netip.MustParseAddr(guest.HostIP6)}
	if err := ns.Do(func() error {
		i, err := net.InterfaceByName(e.Name)
		if err != nil {
			return err
		}
		addrs, err := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsLinkLocalUnicast() {
				e.LL = p.Addr()
			}
		}
		if !e.LL.IsValid() {
			err = errors.Join(err, fmt.Errorf("%s has no link-local address: %v", e.Name, addrs))
		}
		e.Index, e.MAC = i.Index, i.HardwareAddr
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// rxe at the other end of the rungs below AF_XDP by a program of our own: packets of
// one and of several fragments, over either version of IP.
func TestPingpongOverOtherRungs(t *testing.T) {
	for _, k := range guest.Kernels {
		t.Run(string(k), func(t *testing.T) {
			g := guest.Start(t, k, guest.Options{MTU: 4200})
			g.Lab.SetMTU(t, 4200)
			packet := "--link af_packet --allow " + g.IP4 + "," + g.IP6
			pingpong{"rc", 65533, 4096, guest.GIDIPv4, 20, "", packet}.bothWays(t, g)
			pingpong{"rc", 5002, 1024, guest.GIDIPv6, 20, "", packet}.bothWays(t, g)
			pingpong{"ud", 1023, 4096, guest.GIDIPv4, 20, "", packet}.bothWays(t, g)
			w, err := owner.Attach(hostEnd(t, g.Lab), owner.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			pingpong{"rc", 65533, 4096, guest.GIDIPv4, 20, "", "--link xsk_map --xsk-map " + w.Path}.bothWays(t, g)
			pingpong{"rc", 5003, 1024, guest.GIDIPv6, 20, "", ""}.bothWays(t, g) // by AF_PACKET
		})
	}
}
