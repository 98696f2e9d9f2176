package netif

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
)

// memberOf tells of which of groups the kernel says that the interface is a member.
func (w *watched) memberOf(groups []netip.Addr) (is []bool) {
	return w.memberOn(w.end.Name, groups)
}

// memberOn is memberOf of another interface.
func (w *watched) memberOn(dev string, groups []netip.Addr) (is []bool) {
	out, err := w.end.NS.Output("ip", "maddr", "show", "dev", dev)
	if err != nil {
		w.t.Fatalf("ip maddr: %v: %s", err, out)
	}
	for _, g := range groups {
		is = append(is, strings.Contains(string(out)+"\n", " "+g.String()+"\n"))
	}
	return is
}

// The interface is in what it has joined, in its own namespace whoever asks, until
// it leaves or is closed. More groups than a socket takes are no trouble.
func TestJoin(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	var groups []netip.Addr
	for i := range 2*perSocket + 5 {
		groups = append(groups, netip.AddrFrom4([4]byte{239, 1, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("ff0e::%x", i+1)))
	}
	for _, g := range groups {
		if err := w.Join(g, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Join(groups[0], 0); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("joined twice: %v", err)
	}
	if slices.Contains(w.memberOf(groups), false) {
		t.Errorf("it is not in all groups: %v", w.memberOf(groups))
	}
	for i := 0; i < len(groups); i += 2 {
		if err := w.Leave(groups[i], 0); err != nil {
			t.Error(err)
		}
	}
	for i, is := range w.memberOf(groups) {
		if left := i%2 == 0; is == left {
			t.Errorf("in %v: %v, though it was left: %v", groups[i], is, left)
		}
	}
	if err := w.Leave(groups[0], 0); err == nil || !strings.Contains(err.Error(), "not in the group") {
		t.Errorf("left twice: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(w.memberOf(groups), true) {
		t.Errorf("after Close it is in groups: %v", w.memberOf(groups))
	}
	if err := w.Join(groups[0], 0); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}

// Who leaves all groups, or fails to join, holds no descriptor.
func TestJoinLeavesNoDescriptor(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for i := range 50 {
		g := netip.AddrFrom4([4]byte{239, 1, 0, byte(i)})
		if err := w.Join(g, 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Leave(g, 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Join(p.Ends[0].V4, 0); err == nil {
			t.Fatal("joined a unicast address")
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A limit of the system below perSocket costs more sockets, and one that allows
// none is an error that says so.
func TestJoinWithinTheLimit(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	limit := func(n int) {
		if err := w.end.NS.Run("sysctl", "-qw", fmt.Sprintf("net.ipv4.igmp_max_memberships=%d", n)); err != nil {
			nettest.SkipOrFail(t, "a way to limit memberships: "+err.Error())
		}
	}
	limit(3)
	for i := range 10 {
		if err := w.Join(netip.AddrFrom4([4]byte{239, 1, 0, byte(i)}), 0); err != nil {
			t.Fatal(err)
		}
	}
	limit(0)
	if err := w.Join(netip.AddrFrom4([4]byte{239, 1, 1, 1}), 0); err == nil || !strings.Contains(err.Error(), "239.1.1.1") {
		t.Errorf("beyond the limit: %v", err)
	}
}

// An interface that is gone is left without complaint.
func TestLeaveOfTheGone(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	g, more := netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff0e::1")
	for _, x := range []netip.Addr{g, g.Next(), more, more.Next()} {
		if err := w.Join(x, 0); err != nil {
			t.Fatal(err)
		}
	}
	w.ip("link", "del", w.end.Name)
	w.until("the interface is gone", w.Gone)
	for _, x := range []netip.Addr{g, more, g.Next(), more.Next()} {
		if err := w.Leave(x, 0); err != nil {
			t.Error(err)
		}
	}
}

// A group of a VLAN is joined on the VLAN's netdev, also on one that comes in its
// place, and is another than that of the interface.
func TestJoinInVLAN(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	var isThere atomic.Bool
	w := watchWith(t, p.Ends[0], asVLAN("v5", p.Ends[0].Name, 5, &isThere))
	groups := []netip.Addr{netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff0e::1")}
	addVLAN := func() {
		w.ip("link", "add", "v5", "type", "veth", "peer", "name", "p5")
		w.ip("addr", "add", "10.5.0.1/24", "dev", "v5")
		w.ip("addr", "add", "fd05::1/64", "dev", "v5", "nodad")
		w.ip("link", "set", "v5", "up")
		w.ip("link", "set", "p5", "up")
		isThere.Store(true)
		w.ip("link", "set", p.Ends[0].Name, "alias", "news of the link") // that of a real VLAN's parent is its own
		w.until("the VLAN's address", func() bool { return w.has("10.5.0.1") && w.has("fd05::1") })
	}
	if err := w.Join(groups[0], 5); err == nil || !strings.Contains(err.Error(), "in VLAN 5 isn't there") {
		t.Errorf("a VLAN that isn't there: %v", err)
	}
	addVLAN()
	for _, g := range groups {
		if err := w.Join(g, 5); err != nil {
			t.Fatal(err)
		}
	}
	if on, below := w.memberOn("v5", groups), w.memberOf(groups); slices.Contains(on, false) || slices.Contains(below, true) {
		t.Errorf("member on the VLAN's netdev: %v, on the interface: %v", on, below)
	}
	if err := w.Join(groups[0], 0); err != nil {
		t.Fatal(err)
	}
	w.ip("link", "del", "v5")
	isThere.Store(false)
	w.until("the VLAN is gone", func() bool { return !w.has("10.5.0.1") })
	addVLAN()
	w.eventually("the new netdev is the member", func() bool { return !slices.Contains(w.memberOn("v5", groups), false) })
	for _, g := range groups {
		if err := w.Leave(g, 5); err != nil {
			t.Error(err)
		}
	}
	if on, below := w.memberOn("v5", groups), w.memberOf(groups); slices.Contains(on, true) || !below[0] {
		t.Errorf("after Leave, member on the VLAN's netdev: %v, on the interface: %v", on, below)
	}
}
