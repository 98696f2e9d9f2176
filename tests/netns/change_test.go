package netns

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

// quick lets an unanswered request fail after 4 × 33 ms.
var quick = verbs.ConnectOptions{Timeout: 13, RetryCnt: 3}

// onLink runs f on an end's interface, in its namespace.
func onLink(t testing.TB, e *nettest.End, f func(netlink.Link) error) {
	t.Helper()
	err := e.NS.Do(func() error {
		l, err := netlink.LinkByName(e.Name)
		if err != nil {
			return err
		}
		return f(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addAddr and delAddr change the addresses of an end.
func addAddr(t testing.TB, e *nettest.End, s string) {
	t.Helper()
	onLink(t, e, func(netlink.Link) error { return addresses(e.Name, s) })
}

func delAddr(t testing.TB, e *nettest.End, s string) {
	t.Helper()
	onLink(t, e, func(l netlink.Link) error { return netlink.AddrDel(l, must(netlink.ParseAddr(s))) })
}

// wantEvent waits for an event, past others.
func wantEvent(t testing.TB, d *verbs.Device, want verbs.EventType) {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case e, ok := <-d.Events():
			if !ok {
				t.Fatalf("no %v before the device closed", want)
			}
			if e.Type == want {
				return
			}
		case <-end:
			t.Fatalf("no %v in %v", want, patience)
		}
	}
}

// Addresses come and go: indices stay, and a new GID can be used at once.
func TestAddressesChange(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	e, d := p.Ends[1], devs[1]
	before := d.GIDs()
	for _, c := range []struct {
		addr  string
		reach netip.Addr
	}{{"10.77.0.50/32", p.Ends[0].V4}, {"fd00:0:0:77::50/64", p.Ends[0].V6}} {
		a := netip.MustParsePrefix(c.addr).Addr()
		addAddr(t, e, c.addr)
		eventually(t, c.addr+" a GID", func() bool { return gidIndex(d, a) >= 0 })
		wantEvent(t, d, verbs.EventGIDChange)
		x, y := newSide(devs[0], 1<<16, c.reach), newSide(d, 1<<16, a)
		connect(t, x, y, verbs.ConnectOptions{})
		everyOperation(t, x, y, 5001, 1, nil)
		x.destroy(t)
		y.destroy(t)
	}
	index := gidIndex(d, netip.MustParseAddr("10.77.0.50"))
	for i, g := range before {
		if d.GIDs()[i] != g {
			t.Errorf("index %d was %v and is %v", i, g, d.GIDs()[i])
		}
	}
	delAddr(t, e, "10.77.0.2/24")
	eventually(t, "10.77.0.2 gone", func() bool { return gidIndex(d, e.V4) < 0 })
	if got := gidIndex(d, netip.MustParseAddr("10.77.0.50")); got != index {
		t.Errorf("another address went, and the index of 10.77.0.50 went from %d to %d", index, got)
	}
	addAddr(t, e, "10.77.0.2/24")
	eventually(t, "10.77.0.2 back", func() bool { return gidIndex(d, e.V4) >= 0 })
	for i, g := range before {
		if d.GIDs()[i] != g {
			t.Errorf("index %d was %v and is %v", i, g, d.GIDs()[i])
		}
	}
}

// The address that a connection uses goes away under load: its requests fail; when
// it comes back, a new connection works.
func TestAddressRemovedUnderLoad(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, quick)
	delAddr(t, p.Ends[1], "10.77.0.2/24")
	if s := l.fails(t); s != verbs.RetryExcErr {
		t.Errorf("status %v, want %v", s, verbs.RetryExcErr)
	}
	addAddr(t, p.Ends[1], "10.77.0.2/24")
	eventually(t, "10.77.0.2 back", func() bool { return gidIndex(devs[1], p.Ends[1].V4) >= 0 })
	a, b = newSides(t, p, devs, 1<<16, verbs.ConnectOptions{})
	everyOperation(t, a, b, 5001, 1, nil)
}

// The peer gets another MAC address under load. Its kernel announces it, and all
// goes on, to the new address.
func TestNeighbourMovesUnderLoad(t *testing.T) {
	p, devs := openPair(t, nettest.Config{Bridge: true})
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, verbs.ConnectOptions{})
	mac := net.HardwareAddr{2, 0x47, 0x91, 0, 0, 7}
	onLink(t, p.Ends[1], func(l netlink.Link) error {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+l.Attrs().Name+"/arp_notify", []byte("1"), 0); err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, mac)
	})
	wire := startWatch(t, devs[0])
	eventually(t, "frames to the new address", func() bool { return bytes.Equal(wire.lastTo(), mac) })
	eventually(t, "frames from the new address", func() bool { return bytes.Equal(wire.lastFrom(), mac) })
	l.progresses(t, 50)
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// A peer that no one answers for: requests fail, as for any that doesn't answer.
func TestNobodyAnswers(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	for _, s := range []string{"10.77.0.99", "fd00:0:0:77::99"} {
		addr := netip.MustParseAddr(s)
		from := p.Ends[0].V4
		if addr.Is6() {
			from = p.Ends[0].V6
		}
		a, b := newSide(devs[0], 1<<16, from), newSide(devs[1], 1<<16, addr)
		join(t, a, b, quick)
		start := time.Now()
		a.write(t, b, 1, 0, 5000)
		a.write(t, b, 2, 0, 5000)
		wcs := a.wait(t, 2)
		if wcs[0].Status != verbs.RetryExcErr || wcs[1].Status != verbs.WRFlushErr {
			t.Errorf("%s: statuses %v, %v; want %v, %v", s, wcs[0].Status, wcs[1].Status, verbs.RetryExcErr, verbs.WRFlushErr)
		}
		t.Logf("%s failed after %v", s, time.Since(start))
		a.destroy(t)
		b.destroy(t)
	}
}

// Who doesn't answer yet is waited for.
func TestPeerAppears(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	late := netip.MustParseAddr("10.77.0.99")
	a, b := newSide(devs[0], 1<<16, p.Ends[0].V4), newSide(devs[1], 1<<16, late)
	join(t, a, b, verbs.ConnectOptions{Timeout: 20}) // 4 s
	fill(a.buf, 1)
	a.write(t, b, 1, 0, 5000)
	addAddr(t, p.Ends[1], "10.77.0.99/24")
	eventually(t, "10.77.0.99 a GID", func() bool { return gidIndex(devs[1], late) >= 0 })
	join(t, b, a, verbs.ConnectOptions{})
	a.done(t, 1)
	settle(b)
	same(t, "WRITE", b.buf[:5000], a.buf[:5000])
}

// A link that is down for less than the retries goes on; for longer, the requests
// fail; then a new connection works. Both for this side's link and the peer's.
func TestLinkFlaps(t *testing.T) {
	for i, which := range []string{"own", "peer"} {
		t.Run(which, func(t *testing.T) {
			p, devs := openPair(t, nettest.Config{Bridge: true})
			a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
			l := loaded(t, a, b, verbs.ConnectOptions{Timeout: 16}) // 8 × 268 ms
			e := p.Ends[i]
			for range 3 {
				setUp(t, e, false)
				time.Sleep(100 * time.Millisecond)
				setUp(t, e, true)
				l.progresses(t, 50)
			}
			setUp(t, e, false)
			wantEvent(t, devs[i], verbs.EventPortErr)
			if s := l.fails(t); s != verbs.RetryExcErr {
				t.Errorf("status %v, want %v", s, verbs.RetryExcErr)
			}
			setUp(t, e, true)
			eventually(t, "the port active", func() bool { return devs[i].QueryPort().State == ib.PortActive })
			a, b = newSides(t, p, devs, 1<<16, verbs.ConnectOptions{})
			everyOperation(t, a, b, 5001, 1, nil)
		})
	}
}

// Addresses that find the GID table full are told of, by the device and by who lists it.
func TestMoreAddressesThanGIDs(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	e := p.Ends[0]
	var batch strings.Builder
	for i := range 300 {
		fmt.Fprintf(&batch, "addr add 10.78.%d.%d/16 dev %s\n", i>>8, i&255, e.Name)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.NS.Run("ip", "-batch", file); err != nil {
		t.Fatal(err)
	}
	const left = 300 + 3 - 256 // beside the link-local address, an IPv4 and an IPv6 one
	eventually(t, "addresses without a GID", func() bool { return devs[0].Stats().NoGID == left })
	if err := e.NS.Do(func() error {
		list, err := verbs.Devices()
		for _, d := range list {
			if d.Name == e.Name && d.NoGID != left {
				t.Errorf("%d addresses without a GID, want %d", d.NoGID, left)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.NS.Run("ip", "addr", "flush", "dev", e.Name, "to", "10.78.0.0/24"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all addresses GIDs", func() bool { return devs[0].Stats().NoGID == 0 })
}

// A link that is down for less than 2 ms was down: both events tell so, each time.
func TestShortFlaps(t *testing.T) {
	p, devs := openPair(t, nettest.Config{Bridge: true})
	for range 20 {
		setUp(t, p.Ends[0], false)
		setUp(t, p.Ends[0], true)
		wantEvent(t, devs[0], verbs.EventPortErr)
		wantEvent(t, devs[0], verbs.EventPortActive)
		eventually(t, "the port active", func() bool { return devs[0].QueryPort().State == ib.PortActive })
	}
	if n := devs[0].Stats().Counters["link_downed"]; n < 20 {
		t.Errorf("link_downed is %d", n)
	}
}

// setUp sets an end's link up or down. Down, it loses its IPv6 addresses, which
// come back here.
func setUp(t testing.TB, e *nettest.End, up bool) {
	t.Helper()
	if err := e.NS.SetUp(e.Name, up); err != nil {
		t.Fatal(err)
	}
	if up {
		addAddr(t, e, e.V6.String()+"/64")
	}
}

// The interface goes away under load, at either end.
func TestInterfaceRemovedUnderLoad(t *testing.T) {
	conform.Row(t, "bug/53")
	for i, which := range []string{"own", "peer"} {
		t.Run(which, func(t *testing.T) {
			p := nettest.New(t, nettest.Config{Bridge: true})
			before := takeStock(t)
			devs := [2]*verbs.Device{open(t, p.Ends[0]), open(t, p.Ends[1])}
			a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
			l := loaded(t, a, b, quick)
			onLink(t, p.Ends[i], netlink.LinkDel)
			if s := l.fails(t); s != verbs.RetryExcErr {
				t.Errorf("status %v, want %v", s, verbs.RetryExcErr)
			}
			wantEvent(t, devs[i], verbs.EventDeviceFatal)
			if s := devs[i].QueryPort().State; s != ib.PortDown {
				t.Errorf("the port is %v", s)
			}
			for _, d := range devs {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			before.compare(t)
		})
	}
}

// The MTU of the link rises, and the path MTU with it; then it falls again.
func TestMTUChanges(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	for _, c := range []struct {
		mtu    int
		active ib.MTU
	}{{1500, ib.MTU1024}, {9000, ib.MTU4096}, {3000, ib.MTU2048}, {1500, ib.MTU1024}} {
		for _, e := range p.Ends {
			onLink(t, e, func(l netlink.Link) error { return netlink.LinkSetMTU(l, c.mtu) })
		}
		for _, d := range devs {
			eventually(t, c.active.String()+" active", func() bool { return d.QueryPort().ActiveMTU == c.active })
		}
		a, b := newSides(t, p, devs, 1<<16, verbs.ConnectOptions{PathMTU: c.active})
		everyOperation(t, a, b, 9001, 1, nil)
		a.destroy(t)
		b.destroy(t)
	}
}
