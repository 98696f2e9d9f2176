package netif

import (
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
)

func gids(list ...string) (gids []ib.GID) {
	for _, s := range list {
		if s == "" {
			gids = append(gids, ib.GID{})
			continue
		}
		gids = append(gids, ib.GIDFromAddr(netip.MustParseAddr(s)))
	}
	return gids
}

// untagged makes entries of addresses that are of no VLAN.
func untagged(gids []ib.GID) (list []entry) {
	for _, g := range gids {
		if !g.IsZero() {
			list = append(list, entry{gid: g})
		}
	}
	return list
}

func TestIndicesDoNotMove(t *testing.T) {
	var table gidTable
	for _, step := range []struct{ have, want []ib.GID }{
		{gids("10.0.0.1"), gids("", "10.0.0.1")},
		{gids("fe80::1", "10.0.0.1", "fd00::1"), gids("fe80::1", "10.0.0.1", "fd00::1")},
		{gids("fe80::1", "fd00::1"), gids("fe80::1", "", "fd00::1")},
		{gids("fe80::1", "fd00::1", "10.0.0.2"), gids("fe80::1", "", "fd00::1", "10.0.0.2")},
		{gids("10.0.0.1", "fd00::1", "10.0.0.2"), gids("", "10.0.0.1", "fd00::1", "10.0.0.2")},
		{gids("fe80::2", "fd00::1", "10.0.0.2"), gids("", "", "fd00::1", "10.0.0.2", "fe80::2")},
		{gids("fe80::1", "fd00::1", "10.0.0.2"), gids("fe80::1", "", "fd00::1", "10.0.0.2", "")},
	} {
		if !table.update(untagged(step.have)) {
			t.Errorf("%v: no change was reported", step.have)
		}
		if table.update(untagged(step.have)) {
			t.Errorf("%v: a change was reported twice", step.have)
		}
		if got := table.shown().gids; !reflect.DeepEqual(got, step.want) {
			t.Fatalf("table %v, want %v", got, step.want)
		}
	}
}

func TestFullTableTakesIndicesOfTheGone(t *testing.T) {
	var table gidTable
	for i := range MaxGIDs + 10 {
		table.update(untagged([]ib.GID{ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))}))
	}
	if n := len(table.shown().gids); n != MaxGIDs {
		t.Fatalf("%d GIDs, want %d", n, MaxGIDs)
	}
	present := 0
	for _, g := range table.shown().gids {
		if !g.IsZero() {
			present++
		}
	}
	if present != 1 {
		t.Fatalf("%d GIDs are present, want 1", present)
	}
}

// Addresses that find the table full are counted, and get an index when one is free.
func TestAddressesWithoutGID(t *testing.T) {
	var table gidTable
	var list []ib.GID
	for i := range MaxGIDs + 2 { // index 0 is for a link-local one
		list = append(list, ib.GIDFromAddr(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})))
	}
	for _, c := range []struct{ from, left int }{{3, 0}, {2, 1}, {0, 3}, {1, 2}, {5, 0}} {
		if !table.update(untagged(list[c.from:])) || table.shown().left != c.left {
			t.Errorf("%d addresses: %d without a GID, want %d", len(list)-c.from, table.shown().left, c.left)
		}
	}
}

func TestOrderOfAddresses(t *testing.T) {
	a := func(s string, added, flags uint32) address {
		return address{ip: netip.MustParseAddr(s), added: added, flags: flags}
	}
	got := inOrder([]address{
		a("fd00::1", 5, 0), a("10.0.0.2", 7, 0), a("10.0.0.1", 5, 0), a("fd00::2", 3, unix.IFA_F_TENTATIVE),
		a("fe80::1", 9, unix.IFA_F_PERMANENT), a("fd00::3", 1, unix.IFA_F_DADFAILED), a("fd00::4", 1, unix.IFA_F_DEPRECATED),
	})
	if want := untagged(gids("fe80::1", "fd00::4", "10.0.0.1", "fd00::1", "10.0.0.2")); !reflect.DeepEqual(got, want) {
		t.Fatalf("order %v, want %v", got, want)
	}
}

func FuzzParseAddr(f *testing.F) {
	f.Add([]byte{2, 24, 0x80, 0, 7, 0, 0, 0, 8, 0, 2, 0, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, m []byte) { parseAddr(m) })
}
