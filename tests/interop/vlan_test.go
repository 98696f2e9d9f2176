package interop

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/tests/interop/guest"
)

// gidVLAN is the index of the GID of a VLAN that has one address and came last.
const gidVLAN = 3

// addVLAN gives a guest VLAN 5 above an interface, with an IPv4 address.
func addVLAN(t *testing.T, g *guest.Guest, iface, addr string) {
	t.Helper()
	g.Run(t, "sh", "-ec", strings.ReplaceAll(`modprobe 8021q
		ip link add link IFACE name IFACE.5 type vlan id 5
		echo 1 >/proc/sys/net/ipv6/conf/IFACE.5/disable_ipv6
		ip addr add `+addr+`/24 dev IFACE.5
		ip link set IFACE.5 up`, "IFACE", iface))
	t.Cleanup(func() { g.Run(t, "ip", "link", "del", iface+".5") })
}

// urxeInGuest runs ct.Main on an interface of a guest, whose kernel has VLANs and
// bonds: that of the host may not.
func urxeInGuest(t *testing.T, g *guest.Guest, iface string) side {
	t.Helper()
	in := g.Put(t, build(t, "urxe-ct", "env", "CGO_ENABLED=0", "go", "test", "-c", "-o"))
	start := func(t *testing.T, args ...string) func(context.Context) (string, error) {
		args = append(args[:3:3], append([]string{iface}, args[3:]...)...)
		c := g.Background(t, append([]string{"env", asCT + "=1", in}, args...)...)
		return func(ctx context.Context) (string, error) {
			r, err := c.Wait(ctx)
			if err == nil && r.Status != 0 {
				err = fmt.Errorf("exit status %d: %s", r.Status, r.Stderr)
			}
			return r.Stdout, err
		}
	}
	return side{"urxe in " + string(g.Kernel), true, g.IP4, start}
}

// urxe and rxe within a VLAN, each with a GID of the device below it. All that
// they say to each other there is tagged.
func TestVLAN(t *testing.T) {
	conform.Row(t, "bug/45", "bug/57")
	x, y := guest.Start(t, guest.Kernel612, guest.Options{}), guest.Start(t, guest.Kernel61, guest.Options{})
	addVLAN(t, x, "eth0", "10.5.0.2")
	addVLAN(t, y, "eth0", "10.5.0.3")
	b := batch{[]string{"send_imm", "sizes", "reads", "atomics", "ud", "mcast"}, gidVLAN, 1024, 1500}
	rxe, urxe := guestSide(t, x), urxeInGuest(t, y, "eth0")
	runBatch(t, b, rxe, urxe)
	runBatch(t, b, urxe, rxe)
	// What rxe got came through its VLAN's netdev: urxe's frames were tagged.
	if got := strings.TrimSpace(x.Run(t, "cat", fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d", guest.Device, gidVLAN))); got != "eth0.5" {
		t.Errorf("rxe's GID %d is of %q", gidVLAN, got)
	}
	n, err := strconv.Atoi(strings.TrimSpace(x.Run(t, "cat", "/sys/class/net/eth0.5/statistics/rx_packets")))
	if err != nil || n < 100 {
		t.Errorf("%d packets came in rxe's VLAN, %v; want more", n, err)
	}
}
