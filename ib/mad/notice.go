package mad

// TrapNumber names a generic notice (IBA 14.2.5.1).
type TrapNumber uint16

// The traps of subnet management, and the notices that subnet administration makes.
const (
	TrapGIDInService    TrapNumber = 64
	TrapGIDOutOfService TrapNumber = 65
	TrapGroupCreated    TrapNumber = 66
	TrapGroupDeleted    TrapNumber = 67
	TrapLinkState       TrapNumber = 128
	TrapLinkIntegrity   TrapNumber = 129
	TrapBufferOverrun   TrapNumber = 130
	TrapFlowControl     TrapNumber = 131
	TrapCapabilityMask  TrapNumber = 144
	TrapSystemImageGUID TrapNumber = 145
	TrapBadMKey         TrapNumber = 256
	TrapBadPKey         TrapNumber = 257
	TrapBadQKey         TrapNumber = 258
	TrapBadPKeySwitch   TrapNumber = 259
)

// NoticeType is how grave a notice is (IBA 13.4.8.2).
type NoticeType uint8

// The types of notice.
const (
	NoticeFatal         NoticeType = 0
	NoticeUrgent        NoticeType = 1
	NoticeSecurity      NoticeType = 2
	NoticeSubnetManager NoticeType = 3
	NoticeInformational NoticeType = 4
	NoticeEmpty         NoticeType = 0x7f
)

// The four kinds of node that make notices, as Notice.Producer has them.
const (
	ProducerCA      = 1
	ProducerSwitch  = 2
	ProducerRouter  = 3
	ProducerManager = 4
)

// Trap returns the view of n's details that its number calls for: a
// DetailsGID, DetailsLink, DetailsPort, DetailsCapability,
// DetailsSystemImageGUID, DetailsMKey, DetailsKey or DetailsSwitchPKey. It is
// nil for notices of vendors and numbers that aren't known.
func (n Notice) Trap() View {
	d := n.Details()
	if !n.IsGeneric() {
		return nil
	}
	switch n.TrapNumber() {
	case TrapGIDInService, TrapGIDOutOfService, TrapGroupCreated, TrapGroupDeleted:
		return DetailsGID(d)
	case TrapLinkState:
		return DetailsLink(d)
	case TrapLinkIntegrity, TrapBufferOverrun, TrapFlowControl:
		return DetailsPort(d)
	case TrapCapabilityMask:
		return DetailsCapability(d)
	case TrapSystemImageGUID:
		return DetailsSystemImageGUID(d)
	case TrapBadMKey:
		return DetailsMKey(d)
	case TrapBadPKey, TrapBadQKey:
		return DetailsKey(d)
	case TrapBadPKeySwitch:
		return DetailsSwitchPKey(d)
	}
	return nil
}
