package xdp

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
}

func findDevice(ifname string) (*device, error) {
	link, err := netlink.LinkByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("find the interface: %w", err)
	}
	a := link.Attrs()
	d := &device{name: a.Name, index: a.Index, mtu: a.MTU, speed: LinkSpeed(a.Name), rx: a.NumRxQueues, tx: a.NumTxQueues}
	if a.Xdp != nil && a.Xdp.Attached {
		d.attached, d.progID, d.generic = true, a.Xdp.ProgId, a.Xdp.AttachMode == nl.XDP_ATTACHED_SKB
	}
	d.slots = max(d.rx, d.tx, 1)
	if ch, err := ethtoolChannels(a.Name); err == nil && ch.RxCount+ch.CombinedCt > 0 {
		d.rx, d.tx = int(ch.RxCount+ch.CombinedCt), int(ch.TxCount+ch.CombinedCt)
	}
	d.rx = max(d.rx, 1)
	return d, nil
}

// singleBuffer reports whether no packet that fits the MTU is longer than a
// frame's room: Ethernet header, one VLAN tag.
func (d *device) singleBuffer() bool { return d.mtu+14+4 <= rxFrameRoom }
