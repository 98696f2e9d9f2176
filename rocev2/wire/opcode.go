package wire

import "fmt"

// Opcode is the first byte of a BTH: the transport in its top three bits, the
// operation in the low five (IBA 9.2, table 38; Annex A17 and A19).
type Opcode uint8

// Transport is the transport service of an opcode: its top three bits.
type Transport uint8

// The transports that RoCEv2 packets of ours carry.
const (
	RC  Transport = 0x00
	UC  Transport = 0x20
	UD  Transport = 0x60
	CNP Transport = 0x80
)

// Opcodes, named after IBA. The UC ones are those of RC plus UC.
const (
	RCSendFirst         Opcode = 0x00
	RCSendMiddle        Opcode = 0x01
	RCSendLast          Opcode = 0x02
	RCSendLastImm       Opcode = 0x03
	RCSendOnly          Opcode = 0x04
	RCSendOnlyImm       Opcode = 0x05
	RCWriteFirst        Opcode = 0x06
	RCWriteMiddle       Opcode = 0x07
	RCWriteLast         Opcode = 0x08
	RCWriteLastImm      Opcode = 0x09
	RCWriteOnly         Opcode = 0x0a
	RCWriteOnlyImm      Opcode = 0x0b
	RCReadRequest       Opcode = 0x0c
	RCReadRespFirst     Opcode = 0x0d
	RCReadRespMiddle    Opcode = 0x0e
	RCReadRespLast      Opcode = 0x0f
	RCReadRespOnly      Opcode = 0x10
	RCAck               Opcode = 0x11
	RCAtomicAck         Opcode = 0x12
	RCCompareSwap       Opcode = 0x13
	RCFetchAdd          Opcode = 0x14
	RCSendLastInv       Opcode = 0x16
	RCSendOnlyInv       Opcode = 0x17
	RCFlush             Opcode = 0x1c
	RCAtomicWrite       Opcode = 0x1d
	UCSendFirst         Opcode = 0x20
	UCSendMiddle        Opcode = 0x21
	UCSendLast          Opcode = 0x22
	UCSendLastImm       Opcode = 0x23
	UCSendOnly          Opcode = 0x24
	UCSendOnlyImm       Opcode = 0x25
	UCWriteFirst        Opcode = 0x26
	UCWriteMiddle       Opcode = 0x27
	UCWriteLast         Opcode = 0x28
	UCWriteLastImm      Opcode = 0x29
	UCWriteOnly         Opcode = 0x2a
	UCWriteOnlyImm      Opcode = 0x2b
	UDSendOnly          Opcode = 0x64
	UDSendOnlyImm       Opcode = 0x65
	CongestionNotify    Opcode = 0x81
	opcodeOperationMask Opcode = 0x1f
)

// Operation is what a packet does, whatever its transport and its place in a message.
type Operation uint8

// The operations of the opcodes above.
const (
	OpNone Operation = iota // an opcode that doesn't exist
	OpSend
	OpWrite
	OpReadRequest
	OpReadResponse
	OpAck
	OpAtomicAck
	OpCompareSwap
	OpFetchAdd
	OpFlush
	OpAtomicWrite
	OpCNP
)

// Place is where in its message a packet stands.
type Place uint8

// First, Middle, Last; Only is both the first and the last packet of its message.
const (
	Middle Place = 0
	First  Place = 1
	Last   Place = 2
	Only         = First | Last
)

// Starts reports whether a packet at p begins a message.
func (p Place) Starts() bool { return p&First != 0 }

// Ends reports whether a packet at p ends a message.
func (p Place) Ends() bool { return p&Last != 0 }

// Ext is a set of extended transport headers.
type Ext uint16

// The extended headers, in the order in which they stand in a packet.
const (
	ExtDETH Ext = 1 << iota
	ExtFETH
	ExtRETH
	ExtAtomicETH
	ExtAETH
	ExtAtomicAckETH
	ExtImmDt
	ExtIETH
	extCNP // 16 reserved bytes
)

// Has reports whether all headers of x are in e.
func (e Ext) Has(x Ext) bool { return e&x == x }

// Info says what is fixed by an opcode.
type Info struct {
	Name      string // as tshark prints it, without the transport: "SEND First"
	Operation Operation
	Place     Place
	Ext       Ext
	ExtLen    int  // bytes of all extended headers
	Payload   bool // may carry payload
	Request   bool // a requester sends it
}

// Info returns what is fixed by o; its Operation is OpNone when o isn't defined.
func (o Opcode) Info() *Info { return &opcodes[o] }

// Valid reports whether o is defined.
func (o Opcode) Valid() bool { return opcodes[o].Operation != OpNone }

// Transport returns the transport of o, defined or not.
func (o Opcode) Transport() Transport { return Transport(o &^ opcodeOperationMask) }

func (t Transport) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	case CNP:
		return "CNP"
	}
	return fmt.Sprintf("transport 0x%02x", uint8(t))
}

func (o Opcode) String() string {
	if !o.Valid() {
		return fmt.Sprintf("opcode 0x%02x", uint8(o))
	}
	if o == CongestionNotify {
		return "CNP"
	}
	return o.Transport().String() + " " + opcodes[o].Name
}

var opcodes = makeOpcodes()

func makeOpcodes() (t [256]Info) {
	both := func(o Opcode, i Info) { // RC and UC alike
		t[o], t[o+Opcode(UC)] = i, i
	}
	send := func(name string, p Place, e Ext) Info {
		return Info{Name: "SEND " + name, Operation: OpSend, Place: p, Ext: e, Payload: true, Request: true}
	}
	write := func(name string, p Place, e Ext) Info {
		return Info{Name: "RDMA WRITE " + name, Operation: OpWrite, Place: p, Ext: e, Payload: true, Request: true}
	}
	response := func(name string, p Place, e Ext) Info {
		return Info{Name: "RDMA READ response " + name, Operation: OpReadResponse, Place: p, Ext: e, Payload: true}
	}
	both(RCSendFirst, send("First", First, 0))
	both(RCSendMiddle, send("Middle", Middle, 0))
	both(RCSendLast, send("Last", Last, 0))
	both(RCSendLastImm, send("Last Immediate", Last, ExtImmDt))
	both(RCSendOnly, send("Only", Only, 0))
	both(RCSendOnlyImm, send("Only Immediate", Only, ExtImmDt))
	both(RCWriteFirst, write("First", First, ExtRETH))
	both(RCWriteMiddle, write("Middle", Middle, 0))
	both(RCWriteLast, write("Last", Last, 0))
	both(RCWriteLastImm, write("Last Immediate", Last, ExtImmDt))
	both(RCWriteOnly, write("Only", Only, ExtRETH))
	both(RCWriteOnlyImm, write("Only Immediate", Only, ExtRETH|ExtImmDt))
	t[RCReadRequest] = Info{Name: "RDMA READ Request", Operation: OpReadRequest, Place: Only, Ext: ExtRETH, Request: true}
	t[RCReadRespFirst] = response("First", First, ExtAETH)
	t[RCReadRespMiddle] = response("Middle", Middle, 0)
	t[RCReadRespLast] = response("Last", Last, ExtAETH)
	t[RCReadRespOnly] = response("Only", Only, ExtAETH)
	t[RCAck] = Info{Name: "Acknowledge", Operation: OpAck, Place: Only, Ext: ExtAETH}
	t[RCAtomicAck] = Info{Name: "ATOMIC Acknowledge", Operation: OpAtomicAck, Place: Only, Ext: ExtAETH | ExtAtomicAckETH}
	t[RCCompareSwap] = Info{Name: "Compare Swap", Operation: OpCompareSwap, Place: Only, Ext: ExtAtomicETH, Request: true}
	t[RCFetchAdd] = Info{Name: "Fetch Add", Operation: OpFetchAdd, Place: Only, Ext: ExtAtomicETH, Request: true}
	t[RCSendLastInv] = send("Last Invalidate", Last, ExtIETH)
	t[RCSendOnlyInv] = send("Only Invalidate", Only, ExtIETH)
	t[RCFlush] = Info{Name: "FLUSH", Operation: OpFlush, Place: Only, Ext: ExtFETH | ExtRETH, Request: true}
	t[RCAtomicWrite] = Info{Name: "ATOMIC WRITE", Operation: OpAtomicWrite, Place: Only, Ext: ExtRETH, Payload: true, Request: true}
	t[UDSendOnly] = send("Only", Only, ExtDETH)
	t[UDSendOnlyImm] = send("Only Immediate", Only, ExtDETH|ExtImmDt)
	t[CongestionNotify] = Info{Name: "CNP", Operation: OpCNP, Place: Only, Ext: extCNP}
	for i := range t {
		t[i].ExtLen = t[i].Ext.Len()
	}
	return t
}

var extLens = [...]int{
	DETHLen, FETHLen, RETHLen, AtomicETHLen, AETHLen, AtomicAckETHLen, ImmDtLen, IETHLen, cnpLen,
}

// Len returns the bytes that the headers of e take.
func (e Ext) Len() (n int) {
	for i, l := range extLens {
		if e&(1<<i) != 0 {
			n += l
		}
	}
	return n
}
