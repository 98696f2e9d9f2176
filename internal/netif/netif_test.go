package netif

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/tests/conform"
)

// watched is an Interface at one end of a veth pair, and how often it notified.
type watched struct {
	*Interface
	t       *testing.T
	end     *nettest.End
	changes chan struct{}
}

func watch(t *testing.T, e *nettest.End) *watched {
	t.Helper()
	return watchWith(t, e, (*netlink.Handle).LinkList)
}

// watchWith watches with a way of its own to list all links.
func watchWith(t *testing.T, e *nettest.End, links func(*netlink.Handle) ([]netlink.Link, error)) *watched {
	t.Helper()
	w := &watched{t: t, end: e, changes: make(chan struct{}, 1)}
	if err := e.NS.Do(func() (err error) {
		w.Interface, err = openWith(e.Name, links)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.Notify(func() {
		select {
		case w.changes <- struct{}{}:
		default:
		}
	})
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *watched) ip(args ...string) {
	w.t.Helper()
	if err := w.end.NS.Run("ip", args...); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a condition; each look but the first follows a notification.
func (w *watched) until(what string, ok func() bool) {
	w.t.Helper()
	limit := time.After(5 * time.Second)
	for !ok() {
		select {
		case <-w.changes:
		case <-limit:
			w.t.Fatalf("was not notified of this: %s", what)
		}
	}
}

// eventually waits for a condition that is asked for again and again, as a Port
// does with next hops that it doesn't know.
func (w *watched) eventually(what string, ok func() bool) {
	w.t.Helper()
	for limit := time.Now().Add(5 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			w.t.Fatalf("this did not come about: %s", what)
		}
	}
}

func (w *watched) untilGIDs(list ...string) {
	w.t.Helper()
	w.until(fmt.Sprintf("GIDs %q (has %v)", list, w.GIDs()), func() bool { return reflect.DeepEqual(w.GIDs(), gids(list...)) })
}

func TestAddressesFollow(t *testing.T) {
	conform.Row(t, "bug/42")
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	w := watch(t, e)
	ll, v4, v6 := e.LL.String(), e.V4.String(), e.V6.String()
	w.untilGIDs(ll, v4, v6)
	w.ip("addr", "del", v4+"/24", "dev", e.Name)
	w.untilGIDs(ll, "", v6)
	w.ip("addr", "add", "10.9.8.7/24", "dev", e.Name)
	w.untilGIDs(ll, "", v6, "10.9.8.7")
	w.ip("addr", "add", v4+"/24", "dev", e.Name)
	w.untilGIDs(ll, v4, v6, "10.9.8.7")
	w.ip("link", "set", e.Name, "down") // takes the IPv6 addresses along
	w.until("down", func() bool { return !w.Up() })
	w.untilGIDs("", v4, "", "10.9.8.7")
	w.ip("link", "set", e.Name, "mtu", "1400", "up")
	w.until("up with MTU 1400", func() bool { return w.Up() && w.MTU() == 1400 })
}

// The link-local GID is the address that the interface has, which needn't be made of its
// MAC (RFC 7217).
func TestLinkLocalOfNoMAC(t *testing.T) {
	conform.Row(t, "bug/42")
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	for _, args := range [][]string{
		{"addr", "del", e.LL.String() + "/64", "dev", e.Name}, {"addr", "add", "fe80::1234/64", "dev", e.Name, "nodad"},
	} {
		if err := e.NS.Run("ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, e)
	if got := w.GIDs()[0]; got != gids("fe80::1234")[0] {
		t.Errorf("GID 0 is %v", got)
	}
	peer := p.Ends[1]
	w.eventually("the way to the peer's", func() bool {
		h, known, err := w.NextHop(netip.MustParseAddr("fe80::1234"), 0, peer.LL)
		return err == nil && known && h.DstMAC == [6]byte(peer.MAC)
	})
}

// A tentative address is none, and becomes one when no one else has it.
func TestDuplicateAddressDetection(t *testing.T) {
	conform.Row(t, "bug/42")
	p := nettest.New(t, nettest.Config{})
	w, other := watch(t, p.Ends[0]), p.Ends[1]
	name := w.end.Name
	if err := w.end.NS.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("1"), 0)
	}); err != nil {
		t.Logf("accept_dad stays as it is: %v", err)
	}
	before := w.GIDs()
	w.ip("addr", "add", "fd00:1::1/64", "dev", name)
	if g := w.GIDs(); len(g) > len(before) {
		t.Logf("no tentative phase on this system: %v", g)
	}
	w.until("fd00:1::1", func() bool { return w.has("fd00:1::1") })
	w.ip("addr", "add", other.V6.String()+"/64", "dev", name) // the peer's
	time.Sleep(1500 * time.Millisecond)
	if out, _ := w.end.NS.Output("ip", "-6", "addr", "show", "dev", name); strings.Contains(string(out), "dadfailed") && w.has(other.V6.String()) {
		t.Fatalf("an address that failed duplicate detection is listed:\n%s", out)
	}
}

func (w *watched) has(addr string) bool {
	for _, g := range w.GIDs() {
		if g == ib.GIDFromAddr(netip.MustParseAddr(addr)) {
			return true
		}
	}
	return false
}

// hop waits for the next hop from e's address of the same kind to dst.
func (w *watched) hop(dst netip.Addr) (mac [6]byte) {
	w.t.Helper()
	src := w.end.V4
	switch {
	case dst.IsLinkLocalUnicast():
		src = w.end.LL
	case dst.Is6():
		src = w.end.V6
	}
	w.eventually(fmt.Sprintf("next hop to %v", dst), func() bool {
		h, known, err := w.NextHop(src, 0, dst)
		if err != nil {
			w.t.Fatal(err)
		}
		mac = h.DstMAC
		return known
	})
	return mac
}

func TestNextHops(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w, peer := watch(t, p.Ends[0]), p.Ends[1]
	mac := [6]byte(peer.MAC)
	for _, dst := range []netip.Addr{peer.V4, peer.V6, peer.LL} {
		if got := w.hop(dst); got != mac {
			t.Errorf("next hop to %v is %x, want %x", dst, got, mac)
		}
	}
	select { // what became known was told
	case <-w.changes:
	case <-time.After(5 * time.Second):
		t.Error("no notification of a next hop that became known")
	}
	// Behind a gateway.
	far := netip.MustParseAddr("192.0.2.1")
	w.ip("route", "add", "192.0.2.0/24", "via", peer.V4.String())
	if got := w.hop(far); got != mac {
		t.Errorf("next hop to %v is %x, want the gateway %x", far, got, mac)
	}
	// A route that is refused is an error that names it.
	w.ip("route", "add", "unreachable", "198.51.100.0/24")
	refused := netip.MustParseAddr("198.51.100.1")
	w.eventually("an error for an unreachable destination", func() bool {
		_, _, err := w.NextHop(w.end.V4, 0, refused)
		return err != nil && strings.Contains(err.Error(), "198.51.100.1")
	})
	// Another MAC address is followed.
	if err := peer.NS.Run("ip", "link", "set", peer.Name, "address", "02:00:00:00:00:77"); err != nil {
		t.Fatal(err)
	}
	w.ip("neigh", "flush", "dev", w.end.Name)
	w.eventually("the new MAC address", func() bool {
		h, known, _ := w.NextHop(w.end.V4, 0, peer.V4)
		return known && h.DstMAC == [6]byte{2, 0, 0, 0, 0, 0x77}
	})
}

// A neighbour that isn't there is asked for again, with time between.
// Without CAP_NET_ADMIN the kernel can't be asked for a neighbour, and finds it all the same.
func TestNextHopsWithoutPrivileges(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	e, peer := p.Ends[0], p.Ends[1]
	var i *Interface
	if err := e.NS.WithCaps(nil, func() (err error) { i, err = Open(e.Name); return err }); err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if i.knocker == nil {
		t.Fatal("it would ask the kernel")
	}
	w := &watched{Interface: i, t: t, end: e, changes: make(chan struct{}, 1)}
	mac := [6]byte(peer.MAC)
	for _, dst := range []netip.Addr{peer.V4, peer.V6, peer.LL} {
		w.ip("neigh", "flush", "dev", e.Name)
		if got := w.hop(dst); got != mac {
			t.Errorf("next hop to %v is %x, want %x", dst, got, mac)
		}
	}
}

func TestUnansweredNeighbour(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	nobody := w.end.V4
	for nobody == w.end.V4 || nobody == p.Ends[1].V4 {
		nobody = nobody.Next()
	}
	if w.NextHopKnown(w.end.V4, 0, nobody) || len(w.asked) != 0 {
		t.Fatalf("who is looked up is known, or asked for: %v", w.asked)
	}
	for range 10 {
		if _, known, err := w.NextHop(w.end.V4, 0, nobody); known || err != nil {
			t.Fatalf("known %v, error %v", known, err)
		}
	}
	// It comes into being.
	peer := p.Ends[1]
	if err := peer.NS.Run("ip", "addr", "add", nobody.String()+"/24", "dev", peer.Name); err != nil {
		t.Fatal(err)
	}
	w.hop(nobody)
	if !w.NextHopKnown(w.end.V4, 0, nobody) || w.NextHopKnown(nobody, 0, w.end.V4) {
		t.Error("it isn't known, or from an address that the interface doesn't have")
	}
}

func TestInterfaceRemoved(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	w.ip("link", "del", w.end.Name)
	w.until("the interface is gone", w.Gone)
	w.untilGIDs("", "", "")
	if _, _, err := w.NextHop(w.end.V4, 0, p.Ends[1].V4); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Fatalf("error %v, want one that says gone", err)
	}
	if w.Up() {
		t.Error("a removed interface is up")
	}
}

func TestWithoutIPv6(t *testing.T) {
	conform.Row(t, "bug/44")
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	if err := e.NS.Do(func() error {
		return os.WriteFile("/proc/thread-self/root/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	}); err != nil {
		if err := e.NS.Run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"); err != nil {
			nettest.SkipOrFail(t, "a way to disable IPv6 in a namespace: "+err.Error())
		}
	}
	w := watch(t, e)
	w.until("IPv4 at index 1 alone", func() bool { return reflect.DeepEqual(w.GIDs()[:2], gids("", e.V4.String())) })
	if got := w.hop(p.Ends[1].V4); got != [6]byte(p.Ends[1].MAC) {
		t.Errorf("next hop %x", got)
	}
}

// The two ends of a veth pair in one namespace.
func TestNeighbourOnTheSameHost(t *testing.T) {
	nettest.Require(t)
	ns, err := veth.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, args := range []string{
		"link add va type veth peer name vb", "addr add 10.1.0.1/24 dev va", "addr add 10.1.0.2/24 dev vb",
		"link set va up", "link set vb address 02:00:00:00:00:05 up",
	} {
		if err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	var i *Interface
	if err := ns.Do(func() (err error) { i, err = Open("va"); return err }); err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	h, known, err := i.NextHop(netip.MustParseAddr("10.1.0.1"), 0, netip.MustParseAddr("10.1.0.2"))
	if want := [6]byte{2, 0, 0, 0, 0, 5}; err != nil || !known || h.DstMAC != want {
		t.Errorf("next hop %x, known %v, error %v; want %x", h.DstMAC, known, err, want)
	}
	if _, known, err := i.NextHop(netip.MustParseAddr("10.1.0.1"), 0, netip.MustParseAddr("127.0.0.1")); err == nil {
		t.Errorf("next hop to 127.0.0.1 known: %v, without an error", known)
	}
}

func TestOpenOfNothing(t *testing.T) {
	if _, err := Open("no-such-if0"); err == nil || !strings.Contains(err.Error(), "no-such-if0") {
		t.Fatalf("error %v, want one that names the interface", err)
	}
}

func TestCloseLeavesNoDescriptor(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	open := func() {
		i, err := Open("lo")
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open() // whatever the runtime opens once
	before := count()
	for range 20 {
		open()
	}
	if after := count(); after > before {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
}

// An interface that is down for less time than it takes to look has been down.
func TestShortFlap(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	for range 20 {
		w.eventually("the interface up", w.Up)
		before := w.Downs()
		for _, up := range []bool{false, true} {
			if err := w.end.NS.SetUp(w.end.Name, up); err != nil {
				t.Fatal(err)
			}
		}
		w.eventually("a flap", func() bool { return w.Downs() > before })
	}
}
