package veth

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/ethtool_netlink.h, where x/sys/unix lacks them.
const (
	ethtoolVersion = 1
	bitsetBits     = 3
	bitsetBitsBit  = 1
	bitsetBitName  = 2
	featuresWanted = 3
	headerDevName  = 2
	featuresHeader = 1
	msgFeaturesSet = 12
)

// unwanted are the features of a veth that leave checksums, segments or VLAN
// tags to a NIC that isn't there. XDP does not see a tag that is not in the packet.
var unwanted = []string{
	"tx-checksum-ip-generic", "tx-checksum-sctp", "tx-generic-segmentation", "tx-tcp-segmentation",
	"tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation", "tx-vlan-hw-insert",
}

// offloadsOff makes the kernel finish the checksums, segments and tags of what it
// sends on an interface, on a thread in its namespace.
func offloadsOff(ifname string) error {
	family, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return fmt.Errorf("find the kernel's ethtool (CONFIG_ETHTOOL_NETLINK): %w", err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: msgFeaturesSet, Version: ethtoolVersion})
	header := nl.NewRtAttr(unix.NLA_F_NESTED|featuresHeader, nil)
	header.AddRtAttr(headerDevName, nl.ZeroTerminated(ifname))
	wanted := nl.NewRtAttr(unix.NLA_F_NESTED|featuresWanted, nil)
	bits := wanted.AddRtAttr(unix.NLA_F_NESTED|bitsetBits, nil)
	for _, name := range unwanted {
		bit := bits.AddRtAttr(unix.NLA_F_NESTED|bitsetBitsBit, nil)
		bit.AddRtAttr(bitsetBitName, nl.ZeroTerminated(name)) // without a value: off
	}
	req.AddData(header)
	req.AddData(wanted)
	if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("turn off the offloads of %s: %w", ifname, err)
	}
	return nil
}
