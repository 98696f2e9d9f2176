package rocev2

import (
	"crypto/sha256"
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
)

// Net is the control plane of the interface under a Port: addresses, routes and
// neighbours. One kind watches netlink; FixedNet is a table.
type Net interface {
	// GIDs returns the table: index → GID. An index never moves while the Port
	// lives; a removed address leaves a zero GID in its place until the same
	// address returns.
	GIDs() []ib.GID
	// VLANs returns the ids of the 802.1Q VLANs that the GIDs are of, by index: 0
	// for one of untagged frames, and so is what is missing at the end. Look at
	// GIDs first: then there is one for each that is of a VLAN.
	VLANs() []uint16
	// Resolve gives the flow (MACs, addresses) from sgid, in a VLAN or with 0 in
	// none, to dgid, or false while the next hop isn't known; it has then been asked
	// for, and the function of Notify is called when something became known. An error
	// says why there can be no flow. To a multicast group the next hop is always known.
	Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (wire.Flow, bool, error)
	// Known reports whether Resolve would, and asks for nothing.
	Known(sgid ib.GID, vlan uint16, dgid ib.GID) bool
	// Notify sets the function that is called, on any goroutine, when
	// addresses, routes, neighbours or the link changed. It must not block.
	Notify(func())
	// Join has packets to a multicast group, in a VLAN or with 0 in none, come here,
	// as switches are told by IGMP or MLD, until Leave. Each is called once for a
	// group of a VLAN at a time.
	Join(group ib.GID, vlan uint16) error
	Leave(group ib.GID, vlan uint16) error
	MTU() int // of the interface, in bytes
	Up() bool
	Close() error
}

// FixedNet is a Net whose addresses never change and whose peers are all on the
// link, with MAC addresses made from their GIDs.
type FixedNet struct {
	Addresses []ib.GID
	Tags      []uint16 // ids of the VLANs of the addresses; see Net.VLANs
	LinkMTU   int      // 0: 4200
}

// GIDs returns the addresses.
func (n *FixedNet) GIDs() []ib.GID { return n.Addresses }

// VLANs returns the VLANs of the addresses.
func (n *FixedNet) VLANs() []uint16 { return n.Tags }

// Resolve gives the flow from sgid to dgid.
func (n *FixedNet) Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (wire.Flow, bool, error) {
	for i, g := range n.Addresses {
		if g == sgid && vlanOf(n.Tags, i) == vlan {
			f := wire.Flow{SrcMAC: macOf(sgid), DstMAC: macOf(dgid), Src: sgid, Dst: dgid}
			if dgid.IsMulticast() {
				f.DstMAC = wire.MulticastMAC(dgid)
			}
			return f, true, nil
		}
	}
	return wire.Flow{}, false, fmt.Errorf("%v is not an address of this port", sgid)
}

// Known reports whether sgid is an address of this port: then all next hops are known.
func (n *FixedNet) Known(sgid ib.GID, vlan uint16, dgid ib.GID) bool {
	_, known, _ := n.Resolve(sgid, vlan, dgid)
	return known
}

// macOf makes a locally administered MAC address from a GID.
func macOf(g ib.GID) (mac [6]byte) {
	sum := sha256.Sum256(g[:])
	mac[0] = 2
	copy(mac[1:], sum[:])
	return mac
}

// Notify is ignored: nothing changes.
func (n *FixedNet) Notify(func()) {}

// Join does nothing: what is sent to a group comes.
func (n *FixedNet) Join(ib.GID, uint16) error { return nil }

// Leave does nothing.
func (n *FixedNet) Leave(ib.GID, uint16) error { return nil }

// MTU returns the MTU of the link in bytes.
func (n *FixedNet) MTU() int {
	if n.LinkMTU == 0 {
		return 4200
	}
	return n.LinkMTU
}

// Up returns true.
func (n *FixedNet) Up() bool { return true }

// Close does nothing.
func (n *FixedNet) Close() error { return nil }
