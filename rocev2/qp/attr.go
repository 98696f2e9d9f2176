package qp

import (
	"fmt"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
)

// Limits of the transport (IBA 9.7, 10.2, 11.2).
const (
	// MaxMessage is the longest message, in bytes (C9-92).
	MaxMessage = 1 << 31
	// GRHLen is what a datagram's receive gets before the payload (IBA 11.4.1.2).
	GRHLen = 40
	// MaxRdAtomic is the most READs and atomics that may be outstanding in either direction.
	MaxRdAtomic = 128
)

// AV is the address vector of a connection: where its peer is. The port that
// the QP lives on resolves it; the QP itself only keeps it.
type AV struct {
	DGID      ib.GID
	SGIDIndex uint8
	FlowLabel uint32 // 20 bits
	HopLimit  uint8
	TClass    uint8   // DSCP and ECN
	SL        uint8   // 0 to 15; its low three bits are the priority of frames in a VLAN, and no other packet carries it
	Port      uint8   // 0 or 1
	Rate      ib.Rate // kept for Query; nothing limits it
	// RxeFlush says that the peer is a Linux rxe, which gives a FLUSH an ICRC of
	// its own and drops one with that of the specification (seen in 6.12).
	RxeFlush bool
}

// Attr are the attributes of a QP, as ibv_qp_attr has them.
type Attr struct {
	State           State
	CurState        State
	PathMTU         ib.MTU
	DestQPN         ib.QPN
	RQPSN           ib.PSN // the first PSN that is expected
	SQPSN           ib.PSN // the first PSN that is sent
	Access          mem.Access
	QKey            ib.QKey // of datagram QPs
	PKeyIndex       uint16
	Port            uint8
	MaxRdAtomic     uint8 // READs and atomics that this side may have outstanding
	MaxDestRdAtomic uint8 // READs and atomics that the peer may have outstanding here
	MinRNRTimer     uint8 // code of the RNR NAKs that are sent, 0 to 31
	Timeout         uint8 // local ACK timeout: 4.096 µs × 2^Timeout; 0 waits for ever
	RetryCnt        uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 6; 7 retries for ever
	SQDAsyncNotify  bool  // with a transition to SQD: raise EventSQDrained
	SQDraining      bool  // Query only
	AV              AV
	Caps            Caps // Query only
}

// AttrMask names attributes, numbered as ibv_qp_attr_mask.
type AttrMask uint32

// The attributes.
const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrSQDAsyncNotify  AttrMask = 1 << 2
	AttrAccess          AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrAltPath         AttrMask = 1 << 14
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrPathMigState    AttrMask = 1 << 18
	AttrCap             AttrMask = 1 << 19
	AttrDestQPN         AttrMask = 1 << 20
)

var attrNames = [...]string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU",
	"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
}

// String names the attributes as ibverbs does, without IBV_QP_.
func (m AttrMask) String() string {
	var names []string
	for i, n := range attrNames {
		if m&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	if rest := m >> len(attrNames) << len(attrNames); rest != 0 {
		names = append(names, fmt.Sprintf("0x%x", uint32(rest)))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "|")
}

// has reports whether all of x is in m.
func (m AttrMask) has(x AttrMask) bool { return m&x == x }
