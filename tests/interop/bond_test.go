package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/tests/interop/guest"
)

// bond is bond0 of a guest's eth1 and eth2. Its GIDs have the indices that those of
// eth0 have, and the slaves are on the same bridge as that.
type bond struct {
	*guest.Guest
	urxe string // the command, in the guest
}

// The bond's addresses are of the guests' networks, and no one else's.
const bondIP4, bondIP6 = "10.77.0.9", "fd77::9"

// bondIn makes a bond with options of ip-link(8) for the rest of the test.
func bondIn(t *testing.T, g *guest.Guest, options string) bond {
	t.Helper()
	return bondWith(t, g, options, bondIP4, bondIP6)
}

// bondWith is bondIn with addresses.
func bondWith(t *testing.T, g *guest.Guest, options, ip4, ip6 string) bond {
	t.Helper()
	// Of the guest's interfaces in one network, each answers ARP for its own address alone.
	g.Run(t, "sh", "-ec", `modprobe bonding max_bonds=0
		echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
		ethtool -s eth1 speed 1000 duplex full # for 802.3ad
		ethtool -s eth2 speed 1000 duplex full
		ip link add bond0 type bond miimon 10 `+options+`
		ip link set eth1 master bond0
		ip link set eth2 master bond0
		for k in accept_dad dad_transmits router_solicitations accept_ra; do echo 0 >/proc/sys/net/ipv6/conf/bond0/$k; done
		ip link set bond0 up
		ip addr add `+ip4+`/24 dev bond0
		ip addr add `+ip6+`/64 dev bond0 nodad`)
	t.Cleanup(func() {
		g.Run(t, "sh", "-ec", "ip link del bond0; ip link set eth1 down; ip link set eth2 down; echo 0 >/proc/sys/net/ipv4/conf/all/arp_ignore")
	})
	b := bond{g, g.Put(t, urxe(t))}
	b.until(t, "bond0 has a carrier", func() bool { return b.read(t, "/sys/class/net/bond0/operstate") == "up" })
	return b
}

func (b bond) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not yet: %s", what)
		}
	}
}

func (b bond) read(t *testing.T, file string) string {
	t.Helper()
	return strings.TrimSpace(b.Run(t, "cat", file))
}

// sent counts what a slave has sent.
func (b bond) sent(t *testing.T, slave string) int {
	t.Helper()
	n, err := strconv.Atoi(b.read(t, "/sys/class/net/"+slave+"/statistics/tx_packets"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// urxeEnded is a file of the guest that is there when the urxe of pingpongWith has ended;
// urxeRuns is the shell's check of it, for who waits for its traffic.
const (
	urxeEnded = "/tmp/urxe-ended"
	urxeRuns  = `[ ! -e ` + urxeEnded + ` ] || { echo "urxe has ended, there is no more traffic to wait for" >&2; exit 1; }`
)

// failOver takes the active slave down, n times, once traffic is under way on it, waits for
// the other one to take over and gives the first back. It does so by one script, as traffic
// doesn't wait.
func (b bond) failOver(t *testing.T, n int) {
	t.Helper()
	b.Run(t, "sh", "-ec", `cd /sys/class/net
		active() { read -r slave <bond0/bonding/active_slave; }
		rx() { read -r rx <$slave/statistics/rx_packets; }
		traffic() { rx; want=$((rx + 200)); while [ $rx -lt $want ]; do `+urxeRuns+`; usleep 10000; rx; done; }
		n=`+fmt.Sprint(n)+`
		while [ $n -gt 0 ]; do
			active; was=$slave; traffic
			ip link set $was down
			while [ $slave = $was ]; do usleep 10000; active; done
			ip link set $was up
			n=$((n - 1))
		done`)
}

// inTraffic runs commands, each when the bond has received some more packets.
func (b bond) inTraffic(t *testing.T, commands ...string) {
	t.Helper()
	b.Run(t, "sh", "-ec", `more() {
			read -r rx </sys/class/net/bond0/statistics/rx_packets; want=$((rx + 200))
			while [ $rx -lt $want ]; do `+urxeRuns+`; usleep 10000; read -r rx </sys/class/net/bond0/statistics/rx_packets; done
		}
		more; `+strings.Join(commands, "; more; "))
}

// pingpong runs urxe on one of the guest's interfaces with ibv_*_pingpong on a peer,
// does something meanwhile, and returns how both ended; the client is urxe.
func (b bond) pingpong(t *testing.T, p pingpong, iface string, peer *guest.Guest, meanwhile func()) (server, client func(context.Context) end) {
	t.Helper()
	return b.pingpongWith(t, p, iface, peer, guest.Device, meanwhile)
}

// pingpongWith is pingpong with a device of the peer.
func (b bond) pingpongWith(t *testing.T, p pingpong, iface string, peer *guest.Guest, device string, meanwhile func()) (server, client func(context.Context) end) {
	t.Helper()
	s := peer.Background(t, append([]string{p.program()}, p.args(device)...)...)
	peer.WaitListen(t, pingpongPort)
	b.Run(t, "rm", "-f", urxeEnded)
	args := slices.Concat([]string{"sh", "-c", `"$@"; status=$?; : >` + urxeEnded + `; exit $status`, "sh", b.urxe, "pingpong", p.service}, p.args(iface), strings.Fields(p.flags), []string{peer.IP4})
	c := b.Background(t, args...)
	meanwhile()
	ended := func(c *guest.Cmd) func(context.Context) end {
		return func(ctx context.Context) end { return ofGuest(c.Wait(ctx)) }
	}
	return ended(s), ended(c)
}

// withoutRxe removes a guest's rxe for the rest of the test, which would answer what
// comes by AF_PACKET.
func withoutRxe(t *testing.T, g *guest.Guest) {
	t.Helper()
	g.Run(t, "sh", "-ec", "rdma link del "+guest.Device+"; rmmod rdma_rxe")
	t.Cleanup(func() {
		g.Run(t, "sh", "-ec", `modprobe rdma_rxe; rdma link add `+guest.Device+` type rxe netdev eth0
			until grep -q ACTIVE /sys/class/infiniband/`+guest.Device+`/ports/1/state; do usleep 20000; done`)
	})
}

// urxe on a bond, and rxe: what they say of each test, over either version of IP, and
// groups, which the bond's slaves have to let in.
func TestBond(t *testing.T) {
	x, y := guest.Start(t, guest.Kernel612, guest.Options{}), guest.Start(t, guest.Kernel61, guest.Options{})
	bondIn(t, y, "mode active-backup")
	rxe, urxe := guestSide(t, x), urxeInGuest(t, y, "bond0")
	runBatch(t, batch{[]string{"send_imm", "sizes", "reads", "atomics", "ud", "mcast"}, guest.GIDIPv4, 1024, 1500}, rxe, urxe)
	runBatch(t, batch{[]string{"send_imm", "sizes", "reads", "atomics", "ud", "mcast"}, guest.GIDIPv6, 1024, 1500}, urxe, rxe)
}

// Slaves fail in the middle of traffic, one after the other: a connection over the
// bond goes on, by AF_XDP as by AF_PACKET, on either kernel.
func TestBondFailsOver(t *testing.T) {
	for _, c := range []struct {
		kernel, peer guest.Kernel
		link         string
		gid          int
	}{
		{guest.Kernel61, guest.Kernel612, "generic", guest.GIDIPv4},
		{guest.Kernel612, guest.Kernel61, "auto", guest.GIDIPv6},
		{guest.Kernel61, guest.Kernel612, "af_packet", guest.GIDIPv4},
	} {
		t.Run(fmt.Sprintf("%s of %s, gid %d", c.link, c.kernel, c.gid), func(t *testing.T) {
			y, x := guest.Start(t, c.kernel, guest.Options{}), guest.Start(t, c.peer, guest.Options{})
			if c.link == "af_packet" {
				withoutRxe(t, y)
			}
			b := bondIn(t, y, "mode active-backup")
			p := pingpong{"rc", 65533, 1024, c.gid, 150, "", "--link " + c.link}
			server, client := b.pingpong(t, p, "bond0", x, func() {
				b.failOver(t, 3)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			p.check(t, server(ctx), client(ctx))
		})
	}
}

// A VLAN above the bond has GIDs of the bond's device, which goes by AF_PACKET then: by XDP the frames would have lost their tags.
func TestVLANOfABond(t *testing.T) {
	x, y := guest.Start(t, guest.Kernel612, guest.Options{}), guest.Start(t, guest.Kernel61, guest.Options{})
	withoutRxe(t, y)
	bondIn(t, y, "mode active-backup")
	addVLAN(t, x, "eth0", "10.5.0.2")
	addVLAN(t, y, "bond0", "10.5.0.3")
	b := batch{[]string{"send_imm", "ud", "mcast"}, gidVLAN, 1024, 1500}
	rxe, urxe := guestSide(t, x), urxeInGuest(t, y, "bond0")
	runBatch(t, b, rxe, urxe)
	runBatch(t, b, urxe, rxe)
}

// The other modes reorder what is sent, double it, or send by slaves with addresses of their own. One slave fails in the
// middle, and connections go on.
func TestBondModes(t *testing.T) {
	y, x := guest.Start(t, guest.Kernel61, guest.Options{}), guest.Start(t, guest.Kernel612, guest.Options{})
	withoutRxe(t, y)
	for _, mode := range []string{"balance-rr", "broadcast", "balance-tlb", "balance-alb"} {
		for _, link := range []string{"auto", "af_packet"} {
			t.Run(mode+", "+link, func(t *testing.T) {
				b := bondIn(t, y, "mode "+mode)
				before := []int{b.sent(t, "eth1"), b.sent(t, "eth2")}
				p := pingpong{"srq", 1027, 1024, guest.GIDIPv4, 5000, "", "--link " + link}
				server, client := b.pingpong(t, p, "bond0", x, func() {
					b.inTraffic(t, "ip link set eth1 down", "ip link set eth1 up", "ip link set eth2 down", "ip link set eth2 up")
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				p.check(t, server(ctx), client(ctx))
				for i, slave := range []string{"eth1", "eth2"} {
					if n := b.sent(t, slave) - before[i]; n < 100 {
						t.Errorf("%s sent %d packets", slave, n)
					}
				}
			})
		}
	}
}

// In a mode that hashes flows over the slaves, QPs go by both. (By AF_XDP, Linux hashes
// MAC addresses whatever it is told: the kernel's frames have no protocol then.)
func TestBondHashes(t *testing.T) {
	y, x := guest.Start(t, guest.Kernel61, guest.Options{}), guest.Start(t, guest.Kernel612, guest.Options{})
	withoutRxe(t, y)
	for _, link := range []string{"auto", "af_packet"} {
		t.Run(link, func(t *testing.T) {
			b := bondIn(t, y, "mode balance-xor xmit_hash_policy layer3+4")
			b.hashes(t, link, x, guest.Device)
		})
	}
}

// hashes has 16 QPs talk with a device of a peer, and checks that, where the bond can tell
// them apart, both slaves send.
func (b bond) hashes(t *testing.T, link string, peer *guest.Guest, device string) {
	t.Helper()
	before := []int{b.sent(t, "eth1"), b.sent(t, "eth2")}
	p := pingpong{"srq", 1027, 1024, guest.GIDIPv4, 500, "", "--link " + link}
	server, client := b.pingpongWith(t, p, "bond0", peer, device, func() {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.check(t, server(ctx), client(ctx))
	for i, slave := range []string{"eth1", "eth2"} {
		if n := b.sent(t, slave) - before[i]; link == "af_packet" && n < 100 {
			t.Errorf("%s sent %d packets of 16 QPs", slave, n)
		}
	}
}

// Two bonds that have agreed on an aggregate by LACP, urxe on one and rxe on the other,
// with cables between them, as the lab's bridge passes no LACP on.
func TestBond8023ad(t *testing.T) {
	y, x := guest.Start(t, guest.Kernel61, guest.Options{}), guest.Start(t, guest.Kernel612, guest.Options{})
	withoutRxe(t, y)
	for i := 1; i <= 2; i++ {
		cable(t, y.Lab, fmt.Sprintf("t%d-%s", i, x.Name), fmt.Sprintf("t%d-%s", i, y.Name))
	}
	const mode = "mode 802.3ad lacp_rate fast xmit_hash_policy layer3+4"
	a, b := bondWith(t, x, mode, "10.78.0.2", "fd78::2"), bondWith(t, y, mode, "10.78.0.3", "fd78::3")
	for _, e := range []bond{a, b} {
		e.until(t, "an aggregate of both slaves", func() bool {
			return e.read(t, "/sys/class/net/bond0/bonding/ad_num_ports") == "2"
		})
	}
	x.Run(t, "rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "bond0")
	t.Cleanup(func() { x.Run(t, "rdma", "link", "del", "rxe1") })
	for _, link := range []string{"auto", "af_packet"} {
		t.Run(link, func(t *testing.T) { b.hashes(t, link, x, "rxe1") })
	}
	t.Run("a cable fails", func(t *testing.T) {
		p := pingpong{"srq", 1027, 1024, guest.GIDIPv4, 5000, "", ""}
		server, client := b.pingpongWith(t, p, "bond0", x, "rxe1", func() {
			b.inTraffic(t, "ip link set eth1 down")
			x.Run(t, "ip", "link", "set", "eth1", "down")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p.check(t, server(ctx), client(ctx))
	})
}

// cable joins two taps of the lab for the rest of the test, in the place of the bridge.
func cable(t *testing.T, l *guest.Lab, a, b string) {
	t.Helper()
	ns, err := veth.NamedNS(l.Switch())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	var ends [2]int
	for i, tap := range []string{a, b} {
		if err := ns.Run("ip", "link", "set", tap, "nomaster"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ns.Run("ip", "link", "set", tap, "master", "br0"); err != nil {
				t.Error(err)
			}
		})
		if err := ns.Do(func() (err error) { ends[i], err = packetSocket(tap); return err }); err != nil {
			t.Fatal(err)
		}
	}
	var stopping atomic.Bool
	var ended sync.WaitGroup
	for i := range ends {
		ended.Go(func() { carry(ends[i], ends[1-i], &stopping) })
	}
	t.Cleanup(func() {
		stopping.Store(true)
		ended.Wait()
		unix.Close(ends[0])
		unix.Close(ends[1])
	})
}

// packetSocket opens a socket that has what comes in on an interface.
func packetSocket(ifname string) (fd int, err error) {
	i, err := net.InterfaceByName(ifname)
	if err != nil {
		return -1, err
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	patience := unix.NsecToTimeval(int64(100 * time.Millisecond)) // then it is looked whether the test is over
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// carry sends by one socket what comes by another.
func carry(from, to int, stopping *atomic.Bool) {
	frame := make([]byte, 1<<16)
	for !stopping.Load() {
		if n, err := unix.Read(from, frame); err == nil {
			_, _ = unix.Write(to, frame[:n]) // a cable loses what finds no room
		}
	}
}

// A slave is a device of its own, as for the kernel's RoCE: with the bond's GIDs while it
// is the active one. When it fails they are the other's, and its connections end.
func TestBondSlaves(t *testing.T) {
	y, x := guest.Start(t, guest.Kernel61, guest.Options{}), guest.Start(t, guest.Kernel612, guest.Options{})
	b := bondIn(t, y, "mode active-backup")
	b.checkGIDs(t, map[string]bool{"eth1": true, "eth2": false})
	// Of 16 connections some are sending, which is what notices.
	p := pingpong{"srq", 32767, 1024, guest.GIDIPv4, 20000, "", "--link driver"}
	_, client := b.pingpong(t, p, "eth1", x, func() { b.failOver(t, 1) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e := client(ctx); e.err == nil || !strings.Contains(e.errs, "transport retry counter exceeded (12)") {
		t.Errorf("a connection of the slave that failed: %v\n%s", e.err, e.errs)
	}
	b.checkGIDs(t, map[string]bool{"eth1": false, "eth2": true})
	r, err := b.Exec(ctx, b.urxe, "pingpong", "rc", "-d", "eth1", "-g", "1", x.IP4)
	if err != nil || r.Status == 0 || !strings.Contains(r.Stderr, "GID") {
		t.Errorf("a new connection of that slave: %+v, %v", r, err)
	}

	// A slave would take the bond's packets, or the bond the slave's, whichever is the active one: who comes second is told.
	for _, c := range [][2]string{{"bond0", "eth1"}, {"eth1", "bond0"}, {"eth2", "bond0"}} {
		first := b.Background(t, b.urxe, "pingpong", "rc", "-d", c[0])
		y.WaitListen(t, pingpongPort)
		r, err := b.Exec(ctx, b.urxe, "pingpong", "rc", "-d", c[1])
		if err != nil || r.Status == 0 || !strings.Contains(r.Stderr, "packets in common with "+c[0]+", which is held by process") {
			t.Errorf("%s beside %s: %+v, %v", c[1], c[0], r, err)
		}
		first.Kill()
	}
	if r, err := b.Exec(ctx, b.urxe, "pingpong", "rc", "-d", "bond0", "--link", "driver"); err != nil || !strings.Contains(r.Stderr, "a bond's program runs at its slaves") {
		t.Errorf("a bond in driver mode: %+v, %v", r, err)
	}
}

// checkGIDs checks the GIDs of the bond and of slaves, some of which have the bond's.
func (b bond) checkGIDs(t *testing.T, slaves map[string]bool) {
	t.Helper()
	list := b.devices(t)
	for iface, has := range slaves {
		got := list[iface]
		if has != slices.Contains(got, "::ffff:"+bondIP4+" (bond0)") || has != slices.Contains(got, bondIP6+" (bond0)") || !has && len(got) > 0 {
			t.Errorf("GIDs of %s: %q, want the bond's: %v", iface, got, has)
		}
	}
	if got := list["bond0"]; len(got) != 3 || !slices.Equal(got[1:], []string{"::ffff:" + bondIP4, bondIP6}) {
		t.Errorf("GIDs of bond0: %q", got)
	}
}

// devices returns the GIDs that urxe devices tells of each interface.
func (b bond) devices(t *testing.T) map[string][]string {
	t.Helper()
	list := make(map[string][]string)
	var iface string
	for line := range strings.Lines(b.Run(t, b.urxe, "devices")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case !strings.HasPrefix(line, " "):
			iface = name
		case strings.HasPrefix(name, "GID "):
			list[iface] = append(list[iface], rest)
		}
	}
	return list
}
