package veth

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/clock"
)

// Config says what a Pair is like. The zero value is a veth pair of one queue
// and MTU 1500.
type Config struct {
	MTU    int // 0: 1500
	Queues int // RX and TX queues of both ends; 0: 1
	// Bridge puts a third namespace between the two ends, with a bridge in it,
	// where their packets can be seen and disturbed.
	Bridge bool
	// Offloads leaves checksum, segmentation and VLAN offload on. By default they
	// are off, so that what kernel sockets send is as it would be on a cable.
	Offloads bool
	// Name is the name of the interface at both ends; "" is "veth0".
	Name string
}

// End is one end of a Pair.
type End struct {
	NS     *NS
	Name   string // the interface, in NS
	Index  int
	MAC    net.HardwareAddr
	V4, V6 netip.Addr // V6 is a global address (fd00::)
	LL     netip.Addr // the link-local address
}

// Pair is two namespaces with an interface each, connected, up, with addresses
// and no duplicate address detection.
type Pair struct {
	Ends   [2]*End
	Bridge *NS       // nil without one
	Ports  [2]string // the bridge's interfaces towards the ends
}

const firstIndex = 100 // of interfaces at the ends

const genModeNone = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h

// BridgeName is the bridge's interface in Pair.Bridge.
const BridgeName = "br0"

// Missing says what the machine lacks for namespaces and AF_XDP; "" if nothing.
func Missing() string {
	if why := MissingNamespaces(); why != "" {
		return why
	}
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("open an AF_XDP socket (needs CONFIG_XDP_SOCKETS, and root or CAP_NET_RAW): %v", err)
	}
	unix.Close(fd)
	return ""
}

// MissingNamespaces says what the machine lacks for namespaces; "" if nothing.
func MissingNamespaces() string {
	ns, err := NewNS()
	if err != nil {
		return err.Error()
	}
	ns.Close()
	return ""
}

// NewPair makes a pair. Close it.
func NewPair(c Config) (_ *Pair, err error) {
	c = c.filled()
	p := &Pair{Ends: [2]*End{{Name: c.Name}, {Name: c.Name}}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for i := range p.Ends {
		if p.Ends[i].NS, err = NewNS(); err != nil {
			return nil, err
		}
	}
	if c.Bridge {
		err = p.viaBridge(c)
	} else {
		err = join(p.Ends[0].NS, c.Name, p.Ends[1].NS, c.Name, c)
	}
	if err != nil {
		return nil, err
	}
	for i, e := range p.Ends {
		if err := e.NS.Do(func() error { return e.configure(i, c) }); err != nil {
			return nil, fmt.Errorf("end %d: %w", i, err)
		}
	}
	return p, p.awaitUp()
}

// awaitUp waits until packets pass: the kernel tells a link's users that it has
// a carrier up to a second late.
func (p *Pair) awaitUp() error {
	for _, e := range p.Ends {
		if err := awaitUp(e.NS, e.Name); err != nil {
			return err
		}
	}
	if p.Bridge == nil {
		return nil
	}
	return errors.Join(awaitUp(p.Bridge, p.Ports[0]), awaitUp(p.Bridge, p.Ports[1]), awaitUp(p.Bridge, BridgeName))
}

func awaitUp(ns *NS, ifname string) error {
	return ns.Do(func() error {
		for end := clock.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			l, err := netlink.LinkByName(ifname)
			if err != nil {
				return fmt.Errorf("%s: %w", ifname, err)
			}
			if l.Attrs().OperState == netlink.OperUp {
				return nil
			}
			if clock.Now() > end {
				return fmt.Errorf("%s does not come up: it is %v", ifname, l.Attrs().OperState)
			}
		}
	})
}

func (c Config) filled() Config {
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.Name == "" {
		c.Name = "veth0"
	}
	return c
}

// join makes a pair of interfaces inside two namespaces, never outside.
func join(a *NS, nameA string, b *NS, nameB string, c Config) error {
	return a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nameA, c.MTU
		// Unlike its peer's: the kernel then takes it for a stacked link, whose carrier it
		// announces at once and not within a second.
		attrs.Index = firstIndex
		attrs.NumRxQueues, attrs.NumTxQueues = c.Queues, c.Queues
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD()),
			PeerNumRxQueues: uint32(c.Queues), PeerNumTxQueues: uint32(c.Queues), PeerMTU: uint32(c.MTU),
		})
		if err != nil {
			return fmt.Errorf("make a veth pair: %w", err)
		}
		return nil
	})
}

func (p *Pair) viaBridge(c Config) (err error) {
	if p.Bridge, err = NewNS(); err != nil {
		return err
	}
	for i, e := range p.Ends {
		p.Ports[i] = fmt.Sprintf("port%d", i)
		if err := join(e.NS, e.Name, p.Bridge, p.Ports[i], c); err != nil {
			return err
		}
	}
	return p.Bridge.Do(func() error { return makeBridge(p.Ports[:], c) })
}

func makeBridge(ports []string, c Config) error {
	// A new namespace has netfilter look at bridged frames, which drops those
	// with a malformed IPv4 header. The file is not there without br_netfilter.
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = BridgeName, c.MTU
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	for _, name := range ports {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := errors.Join(netlink.LinkSetMaster(l, br), c.offloads(name), netlink.LinkSetUp(l)); err != nil {
			return fmt.Errorf("bridge port %s: %w", name, err)
		}
	}
	return up(BridgeName)
}

func (c Config) offloads(ifname string) error {
	if c.Offloads {
		return nil // as a new veth has them
	}
	return offloadsOff(ifname)
}

// configure gives an end its addresses and sets it up, on a thread in its namespace.
func (e *End) configure(i int, c Config) error {
	if err := c.offloads(e.Name); err != nil {
		return err
	}
	l, err := netlink.LinkByName(e.Name)
	if err != nil {
		return err
	}
	e.Index, e.MAC = l.Attrs().Index, l.Attrs().HardwareAddr
	e.V4 = netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)})
	e.V6 = netip.AddrFrom16([16]byte{0: 0xfd, 7: 0x77, 15: byte(i + 1)})
	e.LL = linkLocal(e.MAC)
	// The kernel would try its link-local address for a second or two, for
	// duplicates, and refuse it until then.
	if err := netlink.LinkSetIP6AddrGenMode(l, genModeNone); err != nil {
		return fmt.Errorf("%s: no link-local address by the kernel: %w", e.Name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", e.Name, err)
	}
	return errors.Join(e.addAddr(l, e.LL, 64), e.addAddr(l, e.V4, 24), e.addAddr(l, e.V6, 64))
}

func (e *End) addAddr(l netlink.Link, a netip.Addr, bits int) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("add address %v to %s: %w", a, e.Name, err)
	}
	return nil
}

// linkLocal is the address that the kernel makes of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	a := [16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]}
	return netip.AddrFrom16(a)
}

// Close removes the pair with everything in it. It may be called twice.
func (p *Pair) Close() error {
	var errs []error
	for _, e := range p.Ends {
		if e.NS != nil {
			errs = append(errs, e.NS.Close())
		}
	}
	if p.Bridge != nil {
		errs = append(errs, p.Bridge.Close())
	}
	return errors.Join(errs...)
}
