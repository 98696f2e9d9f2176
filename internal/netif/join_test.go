package netif

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
)

// memberOf tells of which of groups the kernel says that the interface is a member.
func (w *watched) memberOf(groups []netip.Addr) (is []bool) {
	out, err := w.end.NS.Output("ip", "maddr", "show", "dev", w.end.Name)
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
		if err := w.Join(g); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Join(groups[0]); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("joined twice: %v", err)
	}
	if slices.Contains(w.memberOf(groups), false) {
		t.Errorf("it is not in all groups: %v", w.memberOf(groups))
	}
	for i := 0; i < len(groups); i += 2 {
		if err := w.Leave(groups[i]); err != nil {
			t.Error(err)
		}
	}
	for i, is := range w.memberOf(groups) {
		if left := i%2 == 0; is == left {
			t.Errorf("in %v: %v, though it was left: %v", groups[i], is, left)
		}
	}
	if err := w.Leave(groups[0]); err == nil || !strings.Contains(err.Error(), "not in group") {
		t.Errorf("left twice: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(w.memberOf(groups), true) {
		t.Errorf("after Close it is in groups: %v", w.memberOf(groups))
	}
	if err := w.Join(groups[0]); err == nil || !strings.Contains(err.Error(), "closed") {
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
		if err := w.Join(g); err != nil {
			t.Fatal(err)
		}
		if err := w.Leave(g); err != nil {
			t.Fatal(err)
		}
		if err := w.Join(p.Ends[0].V4); err == nil {
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
		if err := w.Join(netip.AddrFrom4([4]byte{239, 1, 0, byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	limit(0)
	if err := w.Join(netip.AddrFrom4([4]byte{239, 1, 1, 1})); err == nil || !strings.Contains(err.Error(), "239.1.1.1") {
		t.Errorf("beyond the limit: %v", err)
	}
}

// An interface that is gone is left without complaint.
func TestLeaveOfTheGone(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	w := watch(t, p.Ends[0])
	g, more := netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff0e::1")
	for _, x := range []netip.Addr{g, g.Next(), more, more.Next()} {
		if err := w.Join(x); err != nil {
			t.Fatal(err)
		}
	}
	w.ip("link", "del", w.end.Name)
	w.until("the interface is gone", w.Gone)
	for _, x := range []netip.Addr{g, more, g.Next(), more.Next()} {
		if err := w.Leave(x); err != nil {
			t.Error(err)
		}
	}
}
