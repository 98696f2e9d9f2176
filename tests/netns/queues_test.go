package netns

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

// openPort opens an end's interface in two steps, so that the test sees the port
// under the device.
func openPort(t testing.TB, e *nettest.End) (p *rocev2.Port, d *verbs.Device) {
	t.Helper()
	if err := e.NS.Do(func() (err error) { p, err = rocev2.OpenNetdev(e.Name, rocev2.NetdevOptions{}); return err }); err != nil {
		t.Fatal(err)
	}
	d = verbs.OpenPort(p, verbs.Options{})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, d
}

// Of two queues, QPs live on both. A packet that arrives by the one where its QP
// doesn't live is handed over. Each pairing of homes carries traffic at once.
func TestTwoQueues(t *testing.T) {
	need(t, "ethtool")
	p := nettest.New(t, nettest.Config{Queues: 2})
	var ports [2]*rocev2.Port
	var devs [2]*verbs.Device
	for i, e := range p.Ends {
		ports[i], devs[i] = openPort(t, e)
		if n := len(ports[i].Workers()); n != 2 {
			t.Fatalf("end %d has %d workers", i, n)
		}
	}
	var sides [2][4]*side
	for i := range sides {
		for k := range sides[i] {
			// The home of a new QP is the worker with the fewest: they take turns.
			sides[i][k] = newSide(devs[i], chunks*chunk, p.Ends[i].V4)
		}
	}
	start := time.Now()
	var loads []*load
	for k, peer := range [4]int{0, 1, 3, 2} { // homes 0-0, 1-1, 0-1, 1-0
		connect(t, sides[0][k], sides[1][peer], verbs.ConnectOptions{})
		loads = append(loads, startLoad(t, sides[0][k], sides[1][peer]))
	}
	for _, l := range loads {
		l.progresses(t, 200)
	}
	var bytes int64
	for _, l := range loads {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		bytes += l.done.Load() * chunk
	}
	t.Logf("%.0f MB/s, each byte made and compared", float64(bytes)/time.Since(start).Seconds()/1e6)
	for i, e := range p.Ends {
		for q, n := range queuePackets(t, e) {
			if n < 500 {
				t.Errorf("queue %s of end %d got %d packets", q, i, n)
			}
		}
		for reason, n := range devs[i].Stats().Drops {
			t.Logf("end %d dropped %d packets: %s", i, n, reason)
		}
	}
}

var queuePacket = regexp.MustCompile(`(?m)^\s*rx_queue_(\d)_xdp_packets: (\d+)$`)

// queuePackets returns what each queue of an end has shown to the XDP program.
func queuePackets(t testing.TB, e *nettest.End) map[string]int {
	t.Helper()
	out, err := e.NS.Output("ethtool", "-S", e.Name)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	counts := map[string]int{}
	for _, m := range queuePacket.FindAllStringSubmatch(string(out), -1) {
		counts[m[1]], _ = strconv.Atoi(m[2])
	}
	if len(counts) != 2 {
		t.Fatalf("ethtool tells of %d queues: %s", len(counts), out)
	}
	return counts
}

// Two devices on two interfaces of one namespace and process, each with a peer of
// its own.
func TestTwoDevices(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	f := farBehind(t, p)
	mid := p.Ends[1]
	peers := [2]*verbs.Device{open(t, p.Ends[0]), openName(t, f.ns, f.name)}
	own := [2]*verbs.Device{open(t, mid), openName(t, mid.NS, "near0")}
	addrs := [2][2]netip.Addr{{p.Ends[0].V4, mid.V4}, {f.v4, netip.MustParseAddr("10.88.0.1")}}
	var loads []*load
	for i := range own {
		a, b := newSide(peers[i], chunks*chunk, addrs[i][0]), newSide(own[i], chunks*chunk, addrs[i][1])
		connect(t, a, b, verbs.ConnectOptions{})
		loads = append(loads, startLoad(t, a, b))
	}
	for _, l := range loads {
		l.progresses(t, 100)
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	}
}

// beside gives the namespace of end 1 a second interface on the bridge, in the networks
// of the first.
func beside(t testing.TB, p *nettest.Pair) *nettest.End {
	t.Helper()
	e := &nettest.End{NS: p.Ends[1].NS, Name: "beside0", V4: netip.MustParseAddr("10.77.0.3"), V6: netip.MustParseAddr("fd00:0:0:77::3")}
	err := e.NS.Do(func() error {
		l := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "port2", PeerNamespace: netlink.NsFd(p.Bridge.FD())}
		l.Name = e.Name
		return errors.Join(netlink.LinkAdd(l), addresses(e.Name, e.V4.String()+"/24", e.V6.String()+"/64"))
	})
	if err = errors.Join(err, p.Bridge.Run("ip", "link", "set", "port2", "master", veth.BridgeName, "up")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "beside0 up, and its link-local address, from which the kernel asks for neighbours, its own", func() (up bool) {
		onLink(t, e, func(l netlink.Link) error {
			list, err := netlink.AddrList(l, unix.AF_INET6)
			e.MAC, up = l.Attrs().HardwareAddr, l.Attrs().OperState == netlink.OperUp && len(list) == 2 &&
				!slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 })
			return err
		})
		return up
	})
	return e
}

// Two devices on two interfaces that are in one network: each answers and sends by its
// own, and its peer finds it there.
func TestTwoDevicesInOneNetwork(t *testing.T) {
	conform.Row(t, "bug/66")
	p := nettest.New(t, nettest.Config{Bridge: true})
	peer, second := open(t, p.Ends[0]), beside(t, p)
	wire := startWatch(t, peer)
	// With what Linux does by itself it is chance where a peer finds an address, and said so.
	for _, e := range []*nettest.End{p.Ends[1], second} {
		d := open(t, e)
		other := map[string]string{p.Ends[1].Name: second.Name, second.Name: p.Ends[1].Name}[e.Name]
		if got, want := d.Stats().Trouble, fmt.Sprintf("these would answer ARP: %s for %v ", other, e.V4); !strings.Contains(got, want) {
			t.Errorf("trouble of %s: %q, want %q", e.Name, got, want)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.NS.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*nettest.End{p.Ends[1], second} {
		d := open(t, e)
		if s := d.Stats().Trouble; s != "" {
			t.Errorf("trouble of %s: %s", e.Name, s)
		}
		for _, f := range families {
			a, b := newSide(peer, 1<<16, f.addr(p.Ends[0])), newSide(d, 1<<16, f.addr(e))
			connect(t, a, b, verbs.ConnectOptions{})
			everyOperation(t, a, b, 5001, 1, nil)
			everyOperation(t, b, a, 5001, 2, nil)
			eventually(t, fmt.Sprintf("%s, %s: frames to its own address", e.Name, f.name), func() bool { return bytes.Equal(wire.lastTo(), e.MAC) })
			eventually(t, fmt.Sprintf("%s, %s: frames from its own address", e.Name, f.name), func() bool { return bytes.Equal(wire.lastFrom(), e.MAC) })
			a.destroy(t)
			b.destroy(t)
		}
	}
}

// A device talks to itself, by each of its own addresses and between them, and no
// packet leaves the host.
func TestSameHost(t *testing.T) {
	conform.Row(t, "bug/46")
	p, devs := openPair(t, nettest.Config{Queues: 2})
	e := p.Ends[0]
	addAddr(t, e, "10.77.0.51/24")
	second := netip.MustParseAddr("10.77.0.51")
	eventually(t, "a second address", func() bool { return gidIndex(devs[0], second) >= 0 })
	for i, pair := range [][2]netip.Addr{{e.V4, e.V4}, {e.V6, e.V6}, {e.V4, second}, {second, e.V4}, {e.LL, e.LL}} {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			a, b := newSide(devs[0], 1<<17, pair[0]), newSide(devs[0], 1<<17, pair[1])
			connect(t, a, b, verbs.ConnectOptions{})
			for k, n := range []int{0, 1, 5000, 65537} {
				everyOperation(t, a, b, n, uint64(i*10+k), nil)
				everyOperation(t, b, a, n, uint64(i*10+k), nil)
			}
			a.destroy(t)
			b.destroy(t)
		})
	}
	if s := devs[0].Stats(); s.XDP.Sockets.TxPackets != 0 || s.Counters["sent_pkts"] == 0 {
		t.Errorf("%d packets were sent to the wire; %v", s.XDP.Sockets.TxPackets, s.Counters)
	}
}
