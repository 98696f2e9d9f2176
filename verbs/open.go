package verbs

import (
	"net"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/netif"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/xdp"
)

// LinkKind says what a device's frames are to go by.
type LinkKind = rocev2.LinkKind

// The kinds; Options.XDP says in which way of AF_XDP.
const (
	LinkAuto     = rocev2.LinkAuto     // AF_XDP in the best way that can be had, else AF_PACKET
	LinkAFXDP    = rocev2.LinkAFXDP    // AF_XDP or fail
	LinkAFPacket = rocev2.LinkAFPacket // AF_PACKET or fail
)

// XDPOptions say how AF_XDP is used: mode, copy or zero-copy, frames; another XDP program's map (docs/xskmap.md).
type XDPOptions = xdp.Options

// Values of XDPOptions.Mode and XDPOptions.Copy. The zero values take the best that can be had.
const (
	XDPDriver   = xdp.ModeDriver  // Mode: the XDP program runs in the driver, or opening fails
	XDPGeneric  = xdp.ModeGeneric // Mode: it runs in the kernel's stack, on any device
	XDPCopy     = xdp.CopyOnly    // Copy: frames are copied, whatever the driver can
	XDPZeroCopy = xdp.ZeroCopy    // Copy: frames aren't copied, or opening fails
)

// Open opens a network interface, of the calling thread's network namespace, as an RDMA device over AF_XDP. It needs
// root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. The interface goes on serving the kernel's traffic; only RoCEv2 to its
// own addresses comes here.
//
// Where AF_XDP can't be had (another XDP program, an interface or a kernel that refuses it, missing capabilities), the
// device is over AF_PACKET, which needs CAP_NET_RAW only and is slower; Options.Link can forbid that. Stats tells what was
// got, and why.
//
// A device holds its interface for itself: a second opener, in this process or another, gets ErrHeld with the name of the
// holder. If AF_XDP was asked for and another XDP program or AF_XDP socket has the interface already, the error is
// ErrXDPInUse and names that.
func Open(netdev string, o Options) (*Device, error) {
	p, err := rocev2.OpenNetdev(netdev, rocev2.NetdevOptions{
		Name: o.Name, Link: o.Link, XDP: o.XDP, Spin: o.Spin, PKeys: o.PKeys, AllowPeers: o.AllowPeers,
		NoCongestionControl: o.NoCongestionControl})
	if err != nil {
		return nil, err
	}
	if i, err := net.InterfaceByName(netdev); err == nil && o.NodeGUID == 0 {
		o.NodeGUID = ib.GUIDFromMAC(i.HardwareAddr)
	}
	return OpenPort(p, o), nil
}

// DeviceInfo describes a network interface that Open may open as a device.
type DeviceInfo struct {
	Name     string
	NodeGUID ib.GUID
	MTU      int // of the interface, in bytes
	Port     PortAttr
	GIDs     []ib.GID // as the device's GID table would begin
	VLANs    []uint16 // ids of the 802.1Q VLANs that the GIDs are of, by index; 0: none
	NoGID    int      // addresses of the interface that have no GID, as the table is full
	Netdevs  []string // that have the addresses: the interface, VLANs above it, or the bond that it is the active slave of
}

// Devices lists the Ethernet interfaces of the calling thread's network namespace, in the kernel's order.
func Devices() ([]DeviceInfo, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []DeviceInfo
	for _, i := range all {
		if len(i.HardwareAddr) != 6 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		d, err := describe(&i)
		if err != nil {
			continue // removed a moment ago
		}
		list = append(list, d)
	}
	return list, nil
}

func describe(i *net.Interface) (DeviceInfo, error) {
	n, err := netif.Open(i.Name)
	if err != nil {
		return DeviceInfo{}, err
	}
	defer n.Close()
	d := DeviceInfo{
		Name: i.Name, NodeGUID: ib.GUIDFromMAC(i.HardwareAddr), MTU: n.MTU(), GIDs: n.GIDs(), VLANs: n.VLANs(), Netdevs: n.Netdevs(), NoGID: n.WithoutGID(),
		Port: portAttr(ib.PortDown, ib.MTUForLink(n.MTU())),
	}
	if n.Up() {
		d.Port.State = ib.PortActive
	}
	return d, nil
}
