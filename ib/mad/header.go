package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/urxe/urxe/ib"
)

// Size is the length of every MAD in bytes (IBA 13.4.2).
const Size = 256

// MAD is a view of the Size bytes of a management datagram.
//
//	 0 BaseVersion  MgmtClass  ClassVersion  R|Method
//	 4 Status (SMP: D|Status)  ClassSpecific (SMP: HopPointer HopCount)
//	 8 TransactionID
//	16 AttributeID  reserved
//	20 AttributeModifier
//	24 the class's own header and data
type MAD []byte

const (
	offBaseVersion  = 0
	offClass        = 1
	offClassVersion = 2
	offMethod       = 3
	offStatus       = 4
	offHopPointer   = 6
	offHopCount     = 7
	offTID          = 8
	offAttributeID  = 16
	offModifier     = 20

	// offVendorData follows the RMPP header and a reserved byte with the OUI (IBA 16.5.1).
	offVendorData = 40

	// HeaderSize is the length of the header that all classes share.
	HeaderSize = 24
)

// Class is a management class (IBA 13.4.4).
type Class uint8

// The management classes.
const (
	ClassSubnLID    Class = 0x01 // Subnet management, routed by LID.
	ClassSubnDirect Class = 0x81 // Subnet management, by directed route.
	ClassSubnAdm    Class = 0x03
	ClassPerf       Class = 0x04
	ClassBM         Class = 0x05
	ClassDevMgt     Class = 0x06
	ClassCM         Class = 0x07
	ClassSNMP       Class = 0x08
	ClassBIS        Class = 0x12
	ClassCC         Class = 0x21

	classVendor2, classVendor2Last Class = 0x30, 0x4f // They carry an OUI.
)

// Subnet reports whether c is subnet management, which QP0 carries.
func (c Class) Subnet() bool { return c == ClassSubnLID || c == ClassSubnDirect }

// RMPP reports whether MADs of class c have the RMPP header behind the common one.
func (c Class) RMPP() bool {
	return c == ClassSubnAdm || c == ClassDevMgt || c == ClassBIS || c.vendor2()
}

func (c Class) vendor2() bool { return c >= classVendor2 && c <= classVendor2Last }

// Version returns the class version that is spoken: 2 for subnet
// administration and communication management, 1 for the rest.
func (c Class) Version() uint8 {
	if c == ClassSubnAdm || c == ClassCM || c == ClassCC {
		return 2
	}
	return 1
}

// DataOffset returns where the attribute begins in a MAD of class c.
func (c Class) DataOffset() int {
	switch {
	case c == ClassSubnAdm:
		return offSAData
	case c == ClassCM:
		return HeaderSize
	case c.vendor2():
		return offVendorData
	}
	return offSMPData
}

// QPN returns the queue pair that MADs of class c are sent to and from.
func (c Class) QPN() ib.QPN {
	if c.Subnet() {
		return ib.QPNSubnetManagement
	}
	return ib.QPNGeneralServices
}

// Method is what a MAD asks for (IBA 13.4.5). Answers have Response set.
type Method uint8

// The methods, and those of subnet administration (IBA 15.2.2).
const (
	MethodGet         Method = 0x01
	MethodSet         Method = 0x02
	MethodSend        Method = 0x03
	MethodTrap        Method = 0x05
	MethodReport      Method = 0x06
	MethodTrapRepress Method = 0x07
	MethodGetTable    Method = 0x12
	MethodGetTrace    Method = 0x13
	MethodGetMulti    Method = 0x14
	MethodDelete      Method = 0x15

	// Response marks the answer to a method.
	Response Method = 0x80

	MethodGetResp      = MethodGet | Response
	MethodReportResp   = MethodReport | Response
	MethodGetTableResp = MethodGetTable | Response
	MethodGetMultiResp = MethodGetMulti | Response
	MethodDeleteResp   = MethodDelete | Response
)

// IsResponse reports whether m answers a request. TrapRepress does, although
// its R bit is clear (IBA 13.4.5).
func (m Method) IsResponse() bool { return m&Response != 0 || m == MethodTrapRepress }

// Status is the status of a MAD (IBA 13.4.7).
type Status uint16

// Status values of every class, and those of subnet administration.
const (
	StatusOK                   Status = 0
	StatusBusy                 Status = 0x0001
	StatusRedirect             Status = 0x0002
	StatusBadVersion           Status = 0x0004
	StatusUnsupportedMethod    Status = 0x0008
	StatusUnsupportedAttribute Status = 0x000c // Method and attribute don't go together.
	StatusInvalidField         Status = 0x001c

	StatusSANoResources       Status = 0x0100
	StatusSARequestInvalid    Status = 0x0200
	StatusSANoRecords         Status = 0x0300
	StatusSATooManyRecords    Status = 0x0400
	StatusSAInvalidGID        Status = 0x0500
	StatusSAInsufficientComps Status = 0x0600
	StatusSARequestDenied     Status = 0x0700
	StatusSAPrioritySuggested Status = 0x0800
)

// statusDirection is the D bit of a directed SMP, which lies in its status.
const statusDirection Status = 0x8000

var statusNames = map[Status]string{
	StatusOK: "OK", StatusBusy: "busy", StatusRedirect: "redirect", StatusBadVersion: "bad version",
	StatusUnsupportedMethod: "unsupported method", StatusUnsupportedAttribute: "unsupported method/attribute",
	StatusInvalidField: "invalid field", StatusSANoResources: "no resources", StatusSARequestInvalid: "invalid request",
	StatusSANoRecords: "no records", StatusSATooManyRecords: "too many records", StatusSAInvalidGID: "invalid GID",
	StatusSAInsufficientComps: "insufficient components", StatusSARequestDenied: "request denied",
	StatusSAPrioritySuggested: "priority suggested",
}

func (s Status) String() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("status 0x%04x", uint16(s))
}

// Init clears m and makes it a MAD of class c.
func (m MAD) Init(c Class, method Method, attr AttributeID, modifier uint32) {
	clear(m)
	m[offBaseVersion] = 1
	m[offClass] = byte(c)
	m[offClassVersion] = c.Version()
	m[offMethod] = byte(method)
	m.SetAttribute(attr)
	m.SetModifier(modifier)
}

// Parse checks a datagram that came in and returns its view. MADs that are
// shorter than Size, or not of base version 1, are refused.
func Parse(b []byte) (MAD, error) {
	if len(b) < Size {
		return nil, fmt.Errorf("MAD of %d bytes: want %d", len(b), Size)
	}
	if b[offBaseVersion] != 1 {
		return nil, fmt.Errorf("MAD of base version %d: want 1", b[offBaseVersion])
	}
	m := MAD(b[:Size:Size])
	if m.Class() == ClassSubnDirect && (m.HopCount() > MaxHops || m.HopPointer() > m.HopCount()+1) {
		return nil, fmt.Errorf("directed SMP at hop %d of %d: want at most %d hops", m.HopPointer(), m.HopCount(), MaxHops)
	}
	return m, nil
}

// BaseVersion returns the version of the MAD format: 1.
func (m MAD) BaseVersion() uint8 { return m[offBaseVersion] }

// Class returns the management class.
func (m MAD) Class() Class { return Class(m[offClass]) }

// ClassVersion returns the version of the class's format.
func (m MAD) ClassVersion() uint8 { return m[offClassVersion] }

// Method returns the method, Response included.
func (m MAD) Method() Method { return Method(m[offMethod]) }

// SetMethod sets the method.
func (m MAD) SetMethod(v Method) { m[offMethod] = byte(v) }

// Status returns the status, without the D bit that a directed SMP has there.
func (m MAD) Status() Status {
	s := Status(binary.BigEndian.Uint16(m[offStatus:]))
	if m.Class() == ClassSubnDirect {
		s &^= statusDirection
	}
	return s
}

// SetStatus sets the status, and leaves the D bit of a directed SMP alone.
func (m MAD) SetStatus(s Status) {
	if m.Class() == ClassSubnDirect {
		s = s&^statusDirection | Status(binary.BigEndian.Uint16(m[offStatus:]))&statusDirection
	}
	binary.BigEndian.PutUint16(m[offStatus:], uint16(s))
}

// TID returns the transaction ID, which an answer shares with its request.
func (m MAD) TID() uint64 { return binary.BigEndian.Uint64(m[offTID:]) }

// SetTID sets the transaction ID.
func (m MAD) SetTID(v uint64) { binary.BigEndian.PutUint64(m[offTID:], v) }

// Attribute returns the attribute ID.
func (m MAD) Attribute() AttributeID { return AttributeID(binary.BigEndian.Uint16(m[offAttributeID:])) }

// SetAttribute sets the attribute ID.
func (m MAD) SetAttribute(v AttributeID) { binary.BigEndian.PutUint16(m[offAttributeID:], uint16(v)) }

// Modifier returns the attribute modifier.
func (m MAD) Modifier() uint32 { return binary.BigEndian.Uint32(m[offModifier:]) }

// SetModifier sets the attribute modifier.
func (m MAD) SetModifier(v uint32) { binary.BigEndian.PutUint32(m[offModifier:], v) }

// Data returns the attribute: 64 bytes of an SMP, 200 of subnet
// administration, 232 of communication management, 192 of other classes.
func (m MAD) Data() []byte {
	switch c := m.Class(); {
	case c.Subnet():
		return m[offSMPData:pathOffset:pathOffset]
	default:
		return m[c.DataOffset():Size:Size]
	}
}

// IsResponse reports whether m answers a request. A class may count R's clear
// methods as answers: CM's MADs all are requests, TrapRepress is an answer.
func (m MAD) IsResponse() bool { return m.Method().IsResponse() }

// Respond turns a request into its answer in place: the method becomes its
// response, a directed SMP turns around, and the data stays.
func (m MAD) Respond(s Status) {
	switch m.Method() {
	case MethodSet:
		m.SetMethod(MethodGetResp)
	case MethodTrap:
		m.SetMethod(MethodTrapRepress)
	default:
		m.SetMethod(m.Method() | Response)
	}
	if m.Class() == ClassSubnDirect {
		m.setReturning()
	}
	m.SetStatus(s)
}

func (m MAD) String() string {
	if len(m) < Size {
		return fmt.Sprintf("MAD of %d bytes", len(m))
	}
	s := fmt.Sprintf("class 0x%02x method 0x%02x attribute 0x%04x modifier 0x%08x TID 0x%016x", uint8(m.Class()),
		uint8(m.Method()), uint16(m.Attribute()), m.Modifier(), m.TID())
	if m.Status() != StatusOK {
		s += " " + m.Status().String()
	}
	if m.Class() == ClassSubnDirect {
		s += fmt.Sprintf(" path %v", m.Path())
	}
	return s
}
