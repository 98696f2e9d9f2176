package mad

import "fmt"

// AttributeID names an attribute; its meaning depends on the class.
type AttributeID uint16

// Attributes of every class.
const (
	AttrClassPortInfo AttributeID = 0x0001
	AttrNotice        AttributeID = 0x0002
	AttrInformInfo    AttributeID = 0x0003
)

// Attributes of subnet management (IBA 14.2.5).
const (
	AttrNodeDescription  AttributeID = 0x0010
	AttrNodeInfo         AttributeID = 0x0011
	AttrSwitchInfo       AttributeID = 0x0012
	AttrGUIDInfo         AttributeID = 0x0014
	AttrPortInfo         AttributeID = 0x0015
	AttrPKeyTable        AttributeID = 0x0016
	AttrSLtoVL           AttributeID = 0x0017
	AttrVLArbitration    AttributeID = 0x0018
	AttrLinearFT         AttributeID = 0x0019
	AttrRandomFT         AttributeID = 0x001a
	AttrMulticastFT      AttributeID = 0x001b
	AttrSMInfo           AttributeID = 0x0020
	AttrVendorDiag       AttributeID = 0x0030
	AttrLedInfo          AttributeID = 0x0031
	AttrPortInfoExtended AttributeID = 0x0033
	AttrMlnxExtPortInfo  AttributeID = 0xff90
)

// Attributes of performance management (IBA 16.1.3, 16.1.4).
const (
	AttrPortSamplesControl            AttributeID = 0x0010
	AttrPortSamplesResult             AttributeID = 0x0011
	AttrPortCounters                  AttributeID = 0x0012
	AttrPortRcvErrorDetails           AttributeID = 0x0015
	AttrPortXmitDiscardDetails        AttributeID = 0x0016
	AttrPortOpRcvCounters             AttributeID = 0x0017
	AttrPortFlowCtlCounters           AttributeID = 0x0018
	AttrPortVLOpPackets               AttributeID = 0x0019
	AttrPortVLOpData                  AttributeID = 0x001a
	AttrPortVLXmitFlowCtlUpdateErrors AttributeID = 0x001b
	AttrPortVLXmitWaitCounters        AttributeID = 0x001c
	AttrPortCountersExtended          AttributeID = 0x001d
)

// Records of subnet administration (IBA 15.2.5).
const (
	AttrNodeRecord          AttributeID = 0x0011
	AttrPortInfoRecord      AttributeID = 0x0012
	AttrSLtoVLRecord        AttributeID = 0x0013
	AttrSwitchInfoRecord    AttributeID = 0x0014
	AttrLinearFTRecord      AttributeID = 0x0015
	AttrRandomFTRecord      AttributeID = 0x0016
	AttrMulticastFTRecord   AttributeID = 0x0017
	AttrSMInfoRecord        AttributeID = 0x0018
	AttrLinkRecord          AttributeID = 0x0020
	AttrGUIDInfoRecord      AttributeID = 0x0030
	AttrServiceRecord       AttributeID = 0x0031
	AttrPKeyTableRecord     AttributeID = 0x0033
	AttrPathRecord          AttributeID = 0x0035
	AttrVLArbitrationRecord AttributeID = 0x0036
	AttrMCMemberRecord      AttributeID = 0x0038
	AttrTraceRecord         AttributeID = 0x0039
	AttrMultiPathRecord     AttributeID = 0x003a
	AttrServiceAssociation  AttributeID = 0x003b
	AttrInformInfoRecord    AttributeID = 0x00f3
)

// Messages of communication management (IBA 12.6.2).
const (
	AttrREQ     AttributeID = 0x0010
	AttrMRA     AttributeID = 0x0011
	AttrREJ     AttributeID = 0x0012
	AttrREP     AttributeID = 0x0013
	AttrRTU     AttributeID = 0x0014
	AttrDREQ    AttributeID = 0x0015
	AttrDREP    AttributeID = 0x0016
	AttrSIDRREQ AttributeID = 0x0017
	AttrSIDRREP AttributeID = 0x0018
	AttrLAP     AttributeID = 0x0019
	AttrAPR     AttributeID = 0x001a
)

// NodeType is what a node is (IBA 14.2.5.3).
type NodeType uint8

// The kinds of node.
const (
	NodeCA     NodeType = 1
	NodeSwitch NodeType = 2
	NodeRouter NodeType = 3
)

func (t NodeType) String() string {
	switch t {
	case NodeCA:
		return "CA"
	case NodeSwitch:
		return "Switch"
	case NodeRouter:
		return "Router"
	}
	return fmt.Sprintf("invalid node type (%d)", uint8(t))
}

// PhysicalState is the state of a port's link at its lowest layer (IBA 14.2.5.6).
type PhysicalState uint8

// The physical states.
const (
	PhysNop PhysicalState = iota
	PhysSleep
	PhysPolling
	PhysDisabled
	PhysTraining
	PhysLinkUp
	PhysErrorRecovery
	PhysTest
)

var physicalStates = [...]string{"No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining",
	"LinkUp", "LinkErrorRecovery", "PhyTest"}

// String gives the name that ibstat and iblinkinfo print.
func (s PhysicalState) String() string {
	if int(s) < len(physicalStates) {
		return physicalStates[s]
	}
	return fmt.Sprintf("invalid state (%d)", uint8(s))
}

// SMState is the state of a subnet manager (IBA 14.4.1).
type SMState uint8

// The states, as SMInfo has them.
const (
	SMNotActive SMState = iota
	SMDiscovering
	SMStandby
	SMMaster
)

var smStates = [...]string{"NOTACTIVE", "DISCOVERING", "STANDBY", "MASTER"}

func (s SMState) String() string {
	if int(s) < len(smStates) {
		return smStates[s]
	}
	return fmt.Sprintf("invalid state (%d)", uint8(s))
}

// What Set(SMInfo) asks of a subnet manager, in the attribute modifier (IBA 14.4.1).
const (
	SMInfoHandover    = 1
	SMInfoAcknowledge = 2
	SMInfoDisable     = 3
	SMInfoStandby     = 4
	SMInfoDiscover    = 5
)

// CapabilityMask says what a port can do (IBA 14.2.5.6).
type CapabilityMask uint32

// The capabilities.
const (
	CapIsSM                       CapabilityMask = 1 << 1
	CapNotice                     CapabilityMask = 1 << 2
	CapTrap                       CapabilityMask = 1 << 3
	CapOptionalIPD                CapabilityMask = 1 << 4
	CapAutomaticMigration         CapabilityMask = 1 << 5
	CapSLMapping                  CapabilityMask = 1 << 6
	CapMKeyNVRAM                  CapabilityMask = 1 << 7
	CapPKeyNVRAM                  CapabilityMask = 1 << 8
	CapLEDInfo                    CapabilityMask = 1 << 9
	CapSMDisabled                 CapabilityMask = 1 << 10
	CapSystemImageGUID            CapabilityMask = 1 << 11
	CapPKeySwitchExternalPortTrap CapabilityMask = 1 << 12
	CapExtendedSpeeds             CapabilityMask = 1 << 14
	CapCapabilityMask2            CapabilityMask = 1 << 15
	CapCommunicationManagement    CapabilityMask = 1 << 16
	CapSNMPTunneling              CapabilityMask = 1 << 17
	CapReinit                     CapabilityMask = 1 << 18
	CapDeviceManagement           CapabilityMask = 1 << 19
	CapVendorClass                CapabilityMask = 1 << 20
	CapDRNotice                   CapabilityMask = 1 << 21
	CapCapabilityMaskNotice       CapabilityMask = 1 << 22
	CapBootManagement             CapabilityMask = 1 << 23
	CapLinkRoundTripLatency       CapabilityMask = 1 << 24
	CapClientReregistration       CapabilityMask = 1 << 25
	CapOtherLocalChangesNotice    CapabilityMask = 1 << 26
	CapLinkSpeedWidthPairsTable   CapabilityMask = 1 << 27
	CapVendorSpecificMads         CapabilityMask = 1 << 28
	CapMulticastPKeyTrapSuppr     CapabilityMask = 1 << 29
	CapMulticastFDBTop            CapabilityMask = 1 << 30
	CapHierarchyInfo              CapabilityMask = 1 << 31
)

// PortInfoExtendedSpeeds, in the attribute modifier of PortInfo, says that the
// requester knows the extended link speeds (SMSupportExtendedSpeeds, IBA
// 14.2.5.6). Ports that run at such speeds answer in full only when it is set.
const PortInfoExtendedSpeeds = 1 << 31
