package qp

import "github.com/urxe/urxe/rocev2/wire"

// operation is what a send work request of one opcode asks for.
type operation struct {
	name       string
	completion WCOpcode
	packets    [4]wire.Opcode // by place; those of RC, whose low five bits all transports share
	send       bool           // a SEND
	receives   bool           // it takes a receive of the peer, and so may raise an event there
	responds   bool           // it is answered by a response, not by an acknowledgement
	fetches    bool           // … which brings data here
	atomic     bool
	word       bool // its message has 8 bytes
	bare       bool // its message has no bytes
	// local does what this side does alone, without a packet.
	local  func(*QP, *SendWQE) error
	drains bool // … when all before it is complete
}

// operations has what each opcode of a work request asks for.
var operations = [...]operation{
	WRWrite: {name: "WRITE", completion: WCWrite,
		packets: [4]wire.Opcode{wire.RCWriteMiddle, wire.RCWriteFirst, wire.RCWriteLast, wire.RCWriteOnly}},
	WRWriteImm: {name: "WRITE_IMM", completion: WCWrite, receives: true,
		packets: [4]wire.Opcode{wire.RCWriteMiddle, wire.RCWriteFirst, wire.RCWriteLastImm, wire.RCWriteOnlyImm}},
	WRSend: {name: "SEND", completion: WCSend, send: true, receives: true,
		packets: [4]wire.Opcode{wire.RCSendMiddle, wire.RCSendFirst, wire.RCSendLast, wire.RCSendOnly}},
	WRSendImm: {name: "SEND_IMM", completion: WCSend, send: true, receives: true,
		packets: [4]wire.Opcode{wire.RCSendMiddle, wire.RCSendFirst, wire.RCSendLastImm, wire.RCSendOnlyImm}},
	WRSendInv: {name: "SEND_INV", completion: WCSend, send: true, receives: true,
		packets: [4]wire.Opcode{wire.RCSendMiddle, wire.RCSendFirst, wire.RCSendLastInv, wire.RCSendOnlyInv}},
	WRRead:        {name: "READ", completion: WCRead, responds: true, fetches: true},
	WRCompareSwap: {name: "CMP_SWAP", completion: WCCompareSwap, responds: true, fetches: true, atomic: true, word: true},
	WRFetchAdd:    {name: "FETCH_ADD", completion: WCFetchAdd, responds: true, fetches: true, atomic: true, word: true},
	WRAtomicWrite: {name: "ATOMIC_WRITE", completion: WCAtomicWrite, responds: true, word: true,
		packets: [4]wire.Opcode{wire.First | wire.Last: wire.RCAtomicWrite}},
	WRFlush:    {name: "FLUSH", completion: WCFlush, responds: true, bare: true},
	WRLocalInv: {name: "LOCAL_INV", completion: WCLocalInv, local: (*QP).invalidateLocal, drains: true},
	WRBindMW:   {name: "BIND_MW", completion: WCBindMW, local: (*QP).bind},
	WRRegMR:    {name: "REG_MR", completion: WCRegMR, local: (*QP).fastRegister},
}

// noOperation is that of an opcode which isn't one.
var noOperation operation

func (o WROpcode) operation() *operation {
	if int(o) < len(operations) {
		return &operations[o]
	}
	return &noOperation
}

// Valid reports whether o is one of the operations.
func (o WROpcode) Valid() bool { return o.operation().name != "" }

// opSet is a set of opcodes.
type opSet uint64

func opsOf(list ...WROpcode) (s opSet) {
	for _, o := range list {
		s |= 1 << o
	}
	return s
}

func (s opSet) has(o WROpcode) bool { return s>>o&1 != 0 }
