package qp

import (
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// SGE is one element of a scatter-gather list: Length bytes at Addr (an IOVA)
// of the region that LKey names.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// MaxSGE is the most elements that a work request may have.
const MaxSGE = 32

// WROpcode is the operation of a send work request, numbered as ibv_wr_opcode.
type WROpcode uint8

// The operations. WRRegMR, which is the kernel's only, has the number that it
// has there.
const (
	WRWrite       WROpcode = 0
	WRWriteImm    WROpcode = 1
	WRSend        WROpcode = 2
	WRSendImm     WROpcode = 3
	WRRead        WROpcode = 4
	WRCompareSwap WROpcode = 5
	WRFetchAdd    WROpcode = 6
	WRLocalInv    WROpcode = 7
	WRBindMW      WROpcode = 8
	WRSendInv     WROpcode = 9
	WRFlush       WROpcode = 14
	WRAtomicWrite WROpcode = 15
	WRRegMR       WROpcode = 32
)

// SendFlags are the flags of a send work request, numbered as ibv_send_flags.
type SendFlags uint8

// The flags.
const (
	Fence     SendFlags = 1 << 0
	Signaled  SendFlags = 1 << 1
	Solicited SendFlags = 1 << 2
	Inline    SendFlags = 1 << 3
)

// Flush says what a FLUSH is about, as the FETH has it (Annex A19).
type Flush uint8

// The bits. Without FlushRegion it is the range that RemoteAddr and Length give.
const (
	FlushGlobal     Flush = 1 << 0 // what was written is seen by all that access the memory
	FlushPersistent Flush = 1 << 1 // … and outlasts a loss of power
	FlushRegion     Flush = 1 << 4 // all of the region or window that the key is of
)

// Local is what a work request asks of this side alone.
type Local struct {
	Bind mem.Bind         // WRBindMW
	Reg  mem.Registration // WRRegMR
}

// SendWQE is a send work request. SGEs and Inline belong to the queue and stay
// valid and unchanged until it is retired. What most of them need comes first:
// in a deep queue each cache line costs.
type SendWQE struct {
	ID     uint64
	Opcode WROpcode
	Flags  SendFlags
	Flush  Flush // of WRFlush
	// Completed is set by the requester before it retires a work request for
	// which it delivered a completion.
	Completed  bool
	RKey       uint32
	RemoteAddr uint64
	SGEs       []SGE
	Imm        uint32 // host order
	InvKey     uint32 // the key that WRSendInv and WRLocalInv invalidate
	Inline     []byte // the payload itself, when Flags has Inline
	Length     uint32 // of the range of WRFlush
	CompareAdd uint64
	Swap       uint64
	Local      *Local // of WRBindMW and WRRegMR

	// Of datagrams.
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey // with the top bit set, the QP's own is sent (IBA 10.2.5)
	PKeyIndex  uint16  // of QP1
}

// RecvWQE is a receive work request.
type RecvWQE struct {
	ID   uint64
	SGEs []SGE
	// Completed is set by the responder before it retires a work request for
	// which it delivered a completion.
	Completed bool
	// Place is the queue's own: an SRQ, whose work requests come back in any
	// order, knows them by it.
	Place any
}

// SendQueue is where the requester takes send work requests from. A Go ring
// and a ring in an application's shared memory both are one. Only the QP's
// worker calls it.
type SendQueue interface {
	// Next takes the oldest work request not taken yet, or returns nil.
	// It stays valid until it is retired.
	Next() *SendWQE
	// Retire gives the oldest taken work request back.
	Retire()
}

// RecvQueue is where the responder takes receive work requests from: its own
// queue, or one that it shares with other QPs.
type RecvQueue interface {
	// Next takes the oldest work request not taken yet, or returns nil. It
	// stays valid until it is retired.
	Next() *RecvWQE
	// Retire gives a taken work request back: of those that this QP holds, the
	// one taken first. One that isn't Completed may wait again, if others share
	// the queue.
	Retire(w *RecvWQE)
}

// AH is an address handle: where datagrams go. The port that made it keeps its
// path; QPs of all workers look at it.
type AH struct {
	Multicast bool // the destination is a multicast group; it never changes
	path      atomic.Pointer[Path]
}

// Path is a way to a destination. After AH.SetPath it is only read.
type Path struct {
	wire.Template
	Loop bool // the destination is on this port
}

// SetPath gives the headers of datagrams to the destination; with nil the next
// hop isn't known, and they wait.
func (a *AH) SetPath(p *Path) { a.path.Store(p) }

// Path returns what SetPath gave.
func (a *AH) Path() *Path { return a.path.Load() }

// WCStatus is the status of a completion, numbered as ibv_wc_status.
type WCStatus uint8

// The statuses.
const (
	Success        WCStatus = 0
	LocLenErr      WCStatus = 1
	LocQPOpErr     WCStatus = 2
	LocEECOpErr    WCStatus = 3
	LocProtErr     WCStatus = 4
	WRFlushErr     WCStatus = 5
	MWBindErr      WCStatus = 6
	BadRespErr     WCStatus = 7
	LocAccessErr   WCStatus = 8
	RemInvReqErr   WCStatus = 9
	RemAccessErr   WCStatus = 10
	RemOpErr       WCStatus = 11
	RetryExcErr    WCStatus = 12
	RNRRetryExcErr WCStatus = 13
	LocRDDViolErr  WCStatus = 14
	RemInvRDReqErr WCStatus = 15
	RemAbortErr    WCStatus = 16
	InvEECNErr     WCStatus = 17
	InvEECStateErr WCStatus = 18
	FatalErr       WCStatus = 19
	RespTimeoutErr WCStatus = 20
	GeneralErr     WCStatus = 21
)

// WCOpcode says what completed, numbered as ibv_wc_opcode.
type WCOpcode uint8

// The operations.
const (
	WCSend         WCOpcode = 0
	WCWrite        WCOpcode = 1
	WCRead         WCOpcode = 2
	WCCompareSwap  WCOpcode = 3
	WCFetchAdd     WCOpcode = 4
	WCBindMW       WCOpcode = 5
	WCLocalInv     WCOpcode = 6
	WCFlush        WCOpcode = 8
	WCAtomicWrite  WCOpcode = 9
	WCRegMR        WCOpcode = 10 // as the kernel numbers it
	WCRecv         WCOpcode = 128
	WCRecvWriteImm WCOpcode = 129
)

// WCFlags say which fields of a completion are valid, numbered as ibv_wc_flags.
type WCFlags uint8

// The flags.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// Completion is a work completion. When Status isn't Success, only ID, Status
// and QPN are valid.
type Completion struct {
	ID        uint64
	ByteLen   uint32
	Imm       uint32 // host order; with WCWithInv, the key that the peer invalidated
	QPN       ib.QPN
	SrcQP     ib.QPN
	PKeyIndex uint16 // of what QP1 got: of the entry that its P_Key matches
	VLAN      uint16 // of a datagram: the id of the VLAN that it came in; 0: none
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	Solicited bool // the peer asked for an event, or Status is an error
}

// CompletionQueue names a completion queue; what it is, its Host knows.
type CompletionQueue any

// Event is an asynchronous event of a QP, numbered as ibv_event_type.
type Event uint8

// The events.
const (
	EventQPFatal     Event = 1
	EventQPReqErr    Event = 2
	EventQPAccessErr Event = 3
	EventCommEst     Event = 4
	EventSQDrained   Event = 5
	// EventLastWQEReached: a QP with an SRQ is in ERR, and all receives that it
	// took have completed (IBA 11.6.3.2).
	EventLastWQEReached Event = 16
)

// Host is the worker that runs a QP, as far as the QP knows it.
type Host interface {
	// Complete returns the place of the next completion, which is zero. The QP
	// fills it in at once.
	Complete(cq CompletionQueue) *Completion
	// Notify delivers an asynchronous event.
	Notify(q *QP, e Event)
}

// Caps are the sizes of a QP's queues.
type Caps struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
}

// Config is what a QP is made of.
type Config struct {
	Type     Type // 0: RC
	SharedRQ bool // RQ is other QPs' too: only what this one has taken is flushed
	SigAll   bool // every send work request is signalled
	Rings    bool // the Host calls Posted after work was posted to SQ: an empty SQ isn't looked at again before
	QPN      ib.QPN
	PD       *mem.PD
	Keys     *mem.Table
	PKeys    ib.PKeyTable // of the port; nil: ib.PKeyDefault alone
	SQ       SendQueue
	Counters *Counters // of the device
	Window   int       // most request packets in flight; 0: DefaultWindow
	Host     Host
	RecvPD   *mem.PD // whose keys receives name: an SRQ has a PD of its own (IBA 10.2.9); nil: PD
	SendCQ   CompletionQueue
	RecvCQ   CompletionQueue
	RQ       RecvQueue
	Caps     Caps
	Trace    Trace // nil: none
}

// Trace is told what a QP does and why.
type Trace func(q *QP, what string, psn ib.PSN)

// TxPacket is a packet that Plan makes.
type TxPacket struct {
	*wire.Frame // with FrameRoom bytes; the caller sets it for Plan
	// Path seals the packet. Plan sets it.
	Path *wire.Template
	// Loop says that the frame goes to this port's own addresses. The caller
	// sets it for Plan; to a connected QP it makes no difference.
	Loop bool
	// Elsewhere is set by a Plan that returned false because the next datagram
	// needs a frame with the other Loop.
	Elsewhere bool
	// Multicast is set by Plan when the packet goes to a multicast group, so that
	// this port's own members are due a copy.
	Multicast bool
	// Void is set when the packet must not be sent after all: its bytes could
	// not be read. It is known after Batch.Run.
	Void bool

	payload [2][]byte // where the payload goes
}
