package qp

import (
	"fmt"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// Type is the transport service of a QP, numbered as ibv_qp_type.
type Type uint8

// The types. The zero value stands for RC.
const (
	GSI Type = 1 // QP1, of the management: UD with a Q_Key of its own
	RC  Type = 2 // reliable connection
	UC  Type = 3 // unreliable connection
	UD  Type = 4 // unreliable datagram
)

// service is what the QPs of a type do in their own way.
type service struct {
	name      string
	transport wire.Transport
	legal     transitions
	offers    opSet // operations of send work requests
	// sendError is where a failed send work request leads: with an unreliable
	// service only the send queue stops (IBA 10.3.1.6).
	sendError State
	answers   bool // the responder answers what it gets
	datagram  bool // each work request has a destination of its own

	handle func(*QP, *wire.Packet, clock.Time, *mem.Batch) wire.Verdict
	plan   func(*QP, clock.Time, *TxPacket, *mem.Batch) bool
	// fault takes an op of a received packet that could not be run.
	fault func(*QP, *mem.Op)
	// timeout takes the end of requester.ackDeadline.
	timeout func(*QP, clock.Time)
}

var rcService = service{
	name: "RC", transport: wire.RC, legal: rcTransitions, sendError: Err, answers: true,
	offers: opsOf(WRWrite, WRWriteImm, WRSend, WRSendImm, WRRead, WRCompareSwap, WRFetchAdd,
		WRSendInv, WRAtomicWrite, WRFlush, WRLocalInv, WRBindMW, WRRegMR),
	handle: (*QP).handleRC, plan: (*QP).planRC, fault: (*QP).faultRC, timeout: (*QP).timeoutRC,
}

var ucService = service{
	name: "UC", transport: wire.UC, legal: ucTransitions, sendError: SQE,
	offers: opsOf(WRWrite, WRWriteImm, WRSend, WRSendImm),
	handle: (*QP).handleUC, plan: (*QP).planUC, fault: (*QP).faultUC, timeout: (*QP).timeoutUC,
}

var udService = service{
	name: "UD", transport: wire.UD, legal: udTransitions, sendError: SQE, datagram: true,
	offers: opsOf(WRSend, WRSendImm),
	handle: (*QP).handleUD, plan: (*QP).planUD, fault: (*QP).faultUD, timeout: (*QP).timeoutUD,
}

var gsiService = service{
	name: "GSI", transport: wire.UD, legal: gsiTransitions, sendError: SQE, datagram: true,
	offers: opsOf(WRSend), // management datagrams have no immediate data
	handle: (*QP).handleUD, plan: (*QP).planUD, fault: (*QP).faultUD, timeout: (*QP).timeoutUD,
}

// service returns what t is; nil if there is no such type.
func (t Type) service() *service {
	switch t {
	case 0, RC:
		return &rcService
	case UC:
		return &ucService
	case UD:
		return &udService
	case GSI:
		return &gsiService
	}
	return nil
}

// Valid reports whether t is one of the types, or 0, which stands for RC.
func (t Type) Valid() bool { return t.service() != nil }

func (t Type) String() string {
	if s := t.service(); s != nil {
		return s.name
	}
	return fmt.Sprintf("invalid QP type (%d)", uint8(t))
}

// Transport returns the transport of the packets that QPs of type t take.
func (t Type) Transport() wire.Transport { return t.service().transport }

// Datagram reports whether each send work request of QPs of type t has a
// destination of its own, and each receive gets 40 bytes of GRH first.
func (t Type) Datagram() bool { return t.service().datagram }

// Offers reports whether QPs of type t take work requests of opcode o.
func (t Type) Offers(o WROpcode) bool { return t.service().offers.has(o) }
