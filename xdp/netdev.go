package xdp

import (
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// device is what the kernel says of an interface, in the network namespace of
// the calling thread.
type device struct {
	name     string
	index    int
	mtu      int
	rx, tx   int // queues in use
	speed    int // Mb/s; 0: the driver doesn't know
	slots    int // queues allocated: attaching a program may put more to use
	progID   uint32
	attached bool // an XDP program is
	generic  bool // in generic mode
	bond     bool
	vlans    bool   // a bond has VLANs above it
	master   string // that it is a slave of; "": of none
}

func findDevice(ifname string) (*device, error) {
	link, err := netlink.LinkByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("find the interface: %w", err)
	}
	a := link.Attrs()
	d := &device{name: a.Name, index: a.Index, mtu: a.MTU, speed: LinkSpeed(a.Name)}
	_, d.bond = link.(*netlink.Bond)
	if m, err := netlink.LinkByIndex(a.MasterIndex); err == nil && a.MasterIndex != 0 {
		d.master = m.Attrs().Name
	}
	if a.Xdp != nil && a.Xdp.Attached {
		d.attached, d.progID, d.generic = true, a.Xdp.ProgId, a.Xdp.AttachMode == nl.XDP_ATTACHED_SKB
	}
	d.slots = max(a.NumRxQueues, a.NumTxQueues, 1)
	d.rx, d.tx = queuesOf(a)
	if d.bond {
		slaves, vlans := aroundBond(a.Index)
		d.rx, d.vlans = min(d.rx, slaves), vlans
	}
	return d, nil
}

// queuesOf returns how many queues are in use, of at least one to receive.
func queuesOf(a *netlink.LinkAttrs) (rx, tx int) {
	rx, tx = a.NumRxQueues, a.NumTxQueues
	if ch, err := ethtoolChannels(a.Name); err == nil && ch.RxCount+ch.CombinedCt > 0 {
		rx, tx = int(ch.RxCount+ch.CombinedCt), int(ch.TxCount+ch.CombinedCt)
	}
	return max(rx, 1), tx
}

// aroundBond returns how many of a bond's receive queues can have packets: they come
// to the one of the slave's queue. Without slaves these are all. It also says whether
// there are VLANs above the bond.
func aroundBond(bond int) (queues int, vlans bool) {
	links, _ := netlink.LinkList() // what an interrupted dump lacks is no worse than what changes later
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex == bond {
			rx, _ := queuesOf(a)
			queues = max(queues, rx)
		}
		_, vlan := l.(*netlink.Vlan)
		vlans = vlans || vlan && a.ParentIndex == bond && a.NetNsID < 0
	}
	if queues == 0 {
		queues = math.MaxInt
	}
	return queues, vlans
}

// singleBuffer reports whether no packet that fits the MTU is longer than a
// frame's room: Ethernet header, one VLAN tag.
func (d *device) singleBuffer() bool { return d.mtu+14+4 <= rxFrameRoom }

// reaches says why no packets, or not all, come to the device's sockets from a program
// in a mode, though it could be attached. Who asks for generic mode gets what there is.
func (d *device) reaches(m Mode, o Options) error {
	switch {
	case d.bond && m == ModeDriver:
		return fmt.Errorf("a bond's program runs at its slaves, and the packets are of their queues, not of the bond's sockets: %w", unix.EOPNOTSUPP)
	case d.bond && d.vlans && o.Mode == ModeAuto && o.XSKMap == "":
		return fmt.Errorf("there are VLANs above the bond, and the kernel takes their tags off before its program runs: who doesn't need them can ask for generic mode: %w", unix.EOPNOTSUPP)
	}
	return nil
}
