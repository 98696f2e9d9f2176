package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// THIS FILE IS THE CONTRACT while the package is being written; it goes away.

// QP is one queue pair. All methods are called by its home worker, under that worker's token.
type QP struct{}

// New makes a QP in RESET.
func New(c Config) *QP { panic("contract") }

// Number returns the QP's number.
func (q *QP) Number() ib.QPN { panic("contract") }

// State returns the state of the QP.
func (q *QP) State() State { panic("contract") }

// Modify changes attributes, as ibv_modify_qp. The caller has resolved the address vector and calls SetPath before or after.
func (q *QP) Modify(a *Attr, mask AttrMask, now clock.Time) error { panic("contract") }

// Query returns the attributes.
func (q *QP) Query() Attr { panic("contract") }

// SetPath gives the headers for packets to the peer; nil while the next hop isn't known: Plan then sends nothing.
func (q *QP) SetPath(t *wire.Template) { panic("contract") }

// Path returns what SetPath gave.
func (q *QP) Path() *wire.Template { panic("contract") }

// Handle takes a packet for this QP; the port has checked number, P_Key, addresses. For each packet accepted it adds at
// least one op to b, which must have room for HandleOps ops; what the packet causes happens in Commit.
func (q *QP) Handle(p *wire.Packet, now clock.Time, b *mem.Batch) wire.Verdict { panic("contract") }

// HandleOps and PlanOps are the most ops that one packet adds to a batch.
const (
	HandleOps = MaxSGE + 1
	PlanOps   = MaxSGE + 1
)

// Commit is mem.Owner.
func (q *QP) Commit(op *mem.Op) { panic("contract") }

// Plan makes one packet if one is owed and allowed now: it writes headers into p.Frame (which comes with room for
// FrameRoom bytes) and adds gathers to b. It returns false when there is nothing to send now; then ask for Deadline. The caller runs
// b, and then either seals the frame with Path().Seal and sends it, or drops it when p.Void is set.
// A QP in ERR flushes here the work requests that were posted since.
func (q *QP) Plan(now clock.Time, p *TxPacket, b *mem.Batch) bool { panic("contract") }

// FrameRoom returns the bytes of the longest packet that Plan may make now.
func (q *QP) FrameRoom() int { panic("contract") }

// OnlyAcks reports whether all that Plan would send now is a positive acknowledgement, which may wait one Step to share
// the kick of an answer.
func (q *QP) OnlyAcks() bool { panic("contract") }

// Deadline returns when Expire has to be called, clock.Never if it need not.
func (q *QP) Deadline() clock.Time { panic("contract") }

// Expire lets timers that are due run out. The caller calls Plan afterwards.
func (q *QP) Expire(now clock.Time) { panic("contract") }

// Counters are protocol counters of a device, under the names of rxe's hw_counters. One owner (worker) per instance.
type Counters struct {
	DuplicateRequest, OutOfSeqRequest, RcvdRNRErr, SendRNRErr, RcvdSeqErr, AckDeferred, RetryExceededErr,
	RetryRNRExceededErr, CompleterRetryErr, RDMASends, RDMARecvs, SentNAKs, ImpliedNAK uint64
}
