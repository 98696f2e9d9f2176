package mad

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The RMPP header, which the classes that have it carry behind the common one
// (IBA 13.6.2):
//
//	24 Version  Type  RRespTime(5)|Flags(3)  Status
//	28 SegmentNumber
//	32 PayloadLength (DATA) or NewWindowLast (ACK)
//	36 the class's own header, and data
const (
	offRMPPVersion = 24
	offRMPPType    = 25
	offRMPPFlags   = 26
	offRMPPStatus  = 27
	offSegment     = 28
	offWindow      = 32

	// segmentSize is what a segment carries behind the RMPP header; PayloadLength counts in it.
	segmentSize = Size - offSMKey
)

// RMPPType is what an RMPP packet is.
type RMPPType uint8

// The types (IBA 13.6.2.1).
const (
	RMPPNone RMPPType = iota
	RMPPData
	RMPPAck
	RMPPStop
	RMPPAbort
)

const (
	rmppActive = 1 << iota
	rmppFirst
	rmppLast
)

// RMPPStatus says why a transfer was stopped or aborted (IBA 13.6.2.3).
type RMPPStatus uint8

// The reasons.
const (
	RMPPNormal             RMPPStatus = 0
	RMPPResourcesExhausted RMPPStatus = 1
	RMPPTooLong            RMPPStatus = 118
	RMPPBadLast            RMPPStatus = 119
	RMPPBadFirst           RMPPStatus = 120
	RMPPBadType            RMPPStatus = 121
	RMPPWindowTooSmall     RMPPStatus = 122
	RMPPSegmentTooBig      RMPPStatus = 123
	RMPPIllegalStatus      RMPPStatus = 124
	RMPPBadVersion         RMPPStatus = 125
	RMPPTooManyRetries     RMPPStatus = 126
	RMPPUnspecified        RMPPStatus = 127
)

var rmppStatuses = map[RMPPStatus]string{
	RMPPNormal: "normal", RMPPResourcesExhausted: "resources exhausted", RMPPTooLong: "total time too long",
	RMPPBadLast: "last segment and payload length disagree", RMPPBadFirst: "first segment and segment number disagree",
	RMPPBadType: "unknown type", RMPPWindowTooSmall: "new window last too small", RMPPSegmentTooBig: "segment number too big",
	RMPPIllegalStatus: "illegal status", RMPPBadVersion: "unsupported version", RMPPTooManyRetries: "too many retries",
	RMPPUnspecified: "unspecified",
}

func (s RMPPStatus) String() string {
	if n, ok := rmppStatuses[s]; ok {
		return n
	}
	return fmt.Sprintf("RMPP status %d", uint8(s))
}

// RMPPError is why a transfer failed.
type RMPPError struct {
	Status RMPPStatus
	Remote bool // The other side said so.
}

func (e *RMPPError) Error() string {
	if e.Remote {
		return fmt.Sprintf("RMPP transfer ended by the other side: %v", e.Status)
	}
	return fmt.Sprintf("RMPP transfer aborted: %v", e.Status)
}

// IsRMPP reports whether m is a packet of an RMPP transfer.
func (m MAD) IsRMPP() bool { return m.Class().RMPP() && m[offRMPPFlags]&rmppActive != 0 }

// RMPPType returns the type of an RMPP packet.
func (m MAD) RMPPType() RMPPType { return RMPPType(m[offRMPPType]) }

// RMPPStatus returns the reason of a STOP or an ABORT.
func (m MAD) RMPPStatus() RMPPStatus { return RMPPStatus(m[offRMPPStatus]) }

// Segment returns the number of a DATA's segment, or of the last one that an ACK confirms.
func (m MAD) Segment() uint32 { return binary.BigEndian.Uint32(m[offSegment:]) }

// Window returns an ACK's NewWindowLast, or a DATA's PayloadLength.
func (m MAD) Window() uint32 { return binary.BigEndian.Uint32(m[offWindow:]) }

func (m MAD) first() bool { return m[offRMPPFlags]&rmppFirst != 0 }
func (m MAD) last() bool  { return m[offRMPPFlags]&rmppLast != 0 }

// setRMPP writes the RMPP header.
func (m MAD) setRMPP(t RMPPType, flags byte, status RMPPStatus, segment, window uint32) {
	m[offRMPPVersion] = 1
	m[offRMPPType] = byte(t)
	m[offRMPPFlags] = rmppRespTime<<3 | flags | rmppActive
	m[offRMPPStatus] = byte(status)
	binary.BigEndian.PutUint32(m[offSegment:], segment)
	binary.BigEndian.PutUint32(m[offWindow:], window)
}

// headerSize returns how much of a segment the class's own header takes.
func (m MAD) headerSize() int { return m.Class().DataOffset() - offSMKey }

const (
	// rmppRespTime is the RRespTime that is sent: 31 says that none is given,
	// and the class's own response time holds (IBA 13.6.2.1).
	rmppRespTime = 31

	// The implementation's own limits. The window is that of the Linux kernel.
	rmppWindow       = 64
	rmppTimeout      = 500 * time.Millisecond // The first, and the most while answers come.
	rmppTimeoutMin   = 30 * time.Millisecond
	rmppTimeoutMax   = 4 * time.Second // Timeouts double until there is progress.
	rttTimeouts      = 8               // Round trips that a timeout takes.
	rmppRetries      = 7
	rmppSilence      = 40 * time.Second // Of a sender, until its receiver gives up.
	rmppTotal        = 40 * time.Second
	rmppLinger       = rmppTotal + rmppTimeoutMax // As long as a sender that hears no confirmation goes on.
	rmppMaxBytes     = 1 << 28
	rmppMaxTransfers = 4096
)
