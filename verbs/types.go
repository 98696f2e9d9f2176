package verbs

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// Access says what a memory region, or the peer of a QP, may be used for.
type Access = mem.Access

// The rights, numbered as ibv_access_flags. Reading by this side is always allowed.
const (
	LocalWrite   = mem.LocalWrite   // this side's receives, READs and atomics may write it
	RemoteWrite  = mem.RemoteWrite  // a peer may WRITE it; needs LocalWrite
	RemoteRead   = mem.RemoteRead   // a peer may READ it
	RemoteAtomic = mem.RemoteAtomic // a peer may run atomics on it; needs LocalWrite
	ZeroBased    = mem.ZeroBased    // peers name the first byte of the region by address 0
	MWBind       = mem.MWBind       // memory windows may be bound to it
	FlushGlobal  = mem.FlushGlobal  // a peer may FLUSH it
)

// QPType is the transport service of a QP.
type QPType = qp.Type

// The types, numbered as ibv_qp_type. The zero value stands for RC.
const (
	RC  = qp.RC  // reliable connection
	UC  = qp.UC  // unreliable connection: SEND and WRITE; what is lost is lost
	UD  = qp.UD  // unreliable datagram: SEND of one packet to anyone
	GSI = qp.GSI // QP1 of the port, for management datagrams: UD with the Q_Key 0x80010000
)

// QPState is the state of a QP.
type QPState = qp.State

// The states, numbered as ibv_qp_state.
const (
	StateReset = qp.Reset
	StateInit  = qp.Init
	StateRTR   = qp.RTR
	StateRTS   = qp.RTS
	StateSQD   = qp.SQD
	StateSQE   = qp.SQE
	StateErr   = qp.Err
)

// QPAttr are the attributes of a QP, AttrMask names some of them, and AV says where a peer is.
type (
	QPAttr   = qp.Attr
	AttrMask = qp.AttrMask
	AV       = qp.AV
)

// The attributes, numbered as ibv_qp_attr_mask.
const (
	AttrState           = qp.AttrState
	AttrCurState        = qp.AttrCurState
	AttrSQDAsyncNotify  = qp.AttrSQDAsyncNotify
	AttrAccess          = qp.AttrAccess
	AttrPKeyIndex       = qp.AttrPKeyIndex
	AttrPort            = qp.AttrPort
	AttrQKey            = qp.AttrQKey
	AttrAV              = qp.AttrAV
	AttrPathMTU         = qp.AttrPathMTU
	AttrTimeout         = qp.AttrTimeout
	AttrRetryCnt        = qp.AttrRetryCnt
	AttrRNRRetry        = qp.AttrRNRRetry
	AttrRQPSN           = qp.AttrRQPSN
	AttrMaxRdAtomic     = qp.AttrMaxRdAtomic
	AttrMinRNRTimer     = qp.AttrMinRNRTimer
	AttrSQPSN           = qp.AttrSQPSN
	AttrMaxDestRdAtomic = qp.AttrMaxDestRdAtomic
	AttrDestQPN         = qp.AttrDestQPN
)

// Opcode is the operation of a send work request.
type Opcode = qp.WROpcode

// The operations, numbered as ibv_wr_opcode.
const (
	OpWrite       = qp.WRWrite
	OpWriteImm    = qp.WRWriteImm
	OpSend        = qp.WRSend
	OpSendImm     = qp.WRSendImm
	OpRead        = qp.WRRead
	OpCompareSwap = qp.WRCompareSwap
	OpFetchAdd    = qp.WRFetchAdd
	OpSendInv     = qp.WRSendInv     // SEND, and the peer's key InvKey is invalidated
	OpAtomicWrite = qp.WRAtomicWrite // WRITE of 8 bytes that others see as one
	OpFlush       = qp.WRFlush       // completes when what was written before is seen by all at the peer
	OpLocalInv    = qp.WRLocalInv    // invalidates this side's key InvKey, when all before it is complete
	OpBindMW      = qp.WRBindMW      // binds a memory window, as Bind says
	OpRegMR       = qp.WRRegMR       // registers a region of AllocMR, as Reg says
)

// FlushFlags say what an OpFlush is about.
type FlushFlags = qp.Flush

// FlushRegion makes it all of the region or window that RKey is of, whatever RemoteAddr and Length say.
const FlushRegion = qp.FlushRegion

// SendFlags are the flags of a send work request.
type SendFlags = qp.SendFlags

// The flags, numbered as ibv_send_flags.
const (
	Fence     = qp.Fence     // start only when the READs and atomics before it have ended
	Signaled  = qp.Signaled  // make a completion also when it succeeds
	Solicited = qp.Solicited // raise an event at a receiver that armed its CQ for solicited ones only
	Inline    = qp.Inline    // copy the payload at post
)

// WCStatus is the status of a work completion.
type WCStatus = qp.WCStatus

// The statuses that a QP gives, numbered as ibv_wc_status.
const (
	Success        = qp.Success
	LocLenErr      = qp.LocLenErr
	LocQPOpErr     = qp.LocQPOpErr
	LocProtErr     = qp.LocProtErr
	WRFlushErr     = qp.WRFlushErr
	MWBindErr      = qp.MWBindErr // also of OpRegMR and OpLocalInv
	BadRespErr     = qp.BadRespErr
	LocAccessErr   = qp.LocAccessErr
	RemInvReqErr   = qp.RemInvReqErr
	RemAccessErr   = qp.RemAccessErr
	RemOpErr       = qp.RemOpErr
	RetryExcErr    = qp.RetryExcErr
	RNRRetryExcErr = qp.RNRRetryExcErr
	FatalErr       = qp.FatalErr
	GeneralErr     = qp.GeneralErr
)

// WCOpcode says what completed.
type WCOpcode = qp.WCOpcode

// What completed, numbered as ibv_wc_opcode.
const (
	WCSend         = qp.WCSend
	WCWrite        = qp.WCWrite
	WCRead         = qp.WCRead
	WCCompareSwap  = qp.WCCompareSwap
	WCFetchAdd     = qp.WCFetchAdd
	WCRecv         = qp.WCRecv
	WCRecvWriteImm = qp.WCRecvWriteImm
	WCBindMW       = qp.WCBindMW
	WCLocalInv     = qp.WCLocalInv
	WCFlush        = qp.WCFlush
	WCAtomicWrite  = qp.WCAtomicWrite
	WCRegMR        = qp.WCRegMR
)

// WCFlags say which fields of a completion are valid.
type WCFlags = qp.WCFlags

// The flags, numbered as ibv_wc_flags.
const (
	WCGRH     = qp.WCGRH     // the first GRHLen bytes of the receive are of the datagram's header
	WCWithImm = qp.WCWithImm // WC.Imm is valid
	WCWithInv = qp.WCWithInv // WC.Imm is the key that the peer invalidated
)

// WC is a work completion. When Status isn't Success, only ID, Status and QPN are valid.
type WC struct {
	ID        uint64 // of the work request
	ByteLen   uint32 // bytes received or read; of a datagram, with the GRHLen before its payload
	Imm       uint32 // with WCWithImm, immediate data in host order; with WCWithInv, the key that the peer invalidated
	QPN       ib.QPN // of this side's QP
	SrcQP     ib.QPN // of the sender
	PKeyIndex uint16 // of what a GSI QP got: of the P_Key that it came with
	VLAN      uint16 // of a datagram: the id of the 802.1Q VLAN that it came in; 0: none
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	Solicited bool // the sender asked for an event
}

// Err returns nil for a success, else a *CompletionError.
func (wc *WC) Err() error {
	if wc.Status == Success {
		return nil
	}
	return &CompletionError{*wc}
}

// Caps are the sizes of a QP's queues: work requests, scatter-gather elements of each, and bytes of inline data.
type Caps = qp.Caps

// DefaultCaps is what the zero Caps stands for.
var DefaultCaps = Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128}

// SGE is one element of a scatter-gather list: Length bytes from Offset of a memory region. Whether they lie in the
// region is checked when the work request runs, as in ibverbs: it then completes with LocProtErr.
type SGE struct {
	MR     *MR
	Offset int
	Length int
}

// SendWR is a send work request.
type SendWR struct {
	ID         uint64 // comes back as WC.ID
	Opcode     Opcode
	Flags      SendFlags
	SGEs       []SGE  // the payload; for a READ or an atomic, where the answer goes
	InlineData []byte // instead of SGEs: a payload that is copied at post and needs no MR; sets the flag Inline
	Imm        uint32 // of OpSendImm and OpWriteImm, in host order
	RemoteAddr uint64 // of what accesses the peer's memory: IOVA there
	RKey       uint32 // … and the key of that memory
	CompareAdd uint64 // OpCompareSwap: the value compared with; OpFetchAdd: the value added
	Swap       uint64 // OpCompareSwap: the value stored when the comparison holds
	InvKey     uint32 // of OpSendInv and OpLocalInv
	Length     uint32 // of OpFlush: bytes from RemoteAddr
	Flush      FlushFlags
	Bind       *BindAttr // of OpBindMW
	Reg        *RegAttr  // of OpRegMR

	// Of UD and GSI QPs.
	AH         *AH     // where to; of the QP's PD
	RemoteQPN  ib.QPN  // to whom there
	RemoteQKey ib.QKey // that of the QP there; with the top bit set, this QP's own is sent
	PKeyIndex  uint16  // of GSI: the index of the P_Key; a UD QP has one, by QPAttr.PKeyIndex
}

// RecvWR is a receive work request.
type RecvWR struct {
	ID   uint64 // comes back as WC.ID
	SGEs []SGE  // where the message goes
}
