package mad

import "encoding/binary"

// A MAD of subnet administration, from byte 24 on (IBA 15.2.1.1):
//
//	24 the RMPP header
//	36 SM_Key
//	44 AttributeOffset  reserved
//	48 ComponentMask
//	56 data
const (
	offSMKey           = 36
	offAttributeOffset = 44
	offComponentMask   = 48
	offSAData          = 56

	// SADataSize is how much of a record one MAD holds.
	SADataSize = Size - offSAData
)

// InitSA clears m and makes it a query of subnet administration for the
// records in which the components of mask have the values that the caller
// writes to Data.
func (m MAD) InitSA(method Method, attr AttributeID, mask uint64) {
	m.Init(ClassSubnAdm, method, attr, 0)
	m.SetComponentMask(mask)
}

// SMKey returns the key that makes a query a trusted one.
func (m MAD) SMKey() uint64 { return binary.BigEndian.Uint64(m[offSMKey:]) }

// SetSMKey sets the key.
func (m MAD) SetSMKey(v uint64) { binary.BigEndian.PutUint64(m[offSMKey:], v) }

// RecordStride returns the bytes from one record of a table to the next.
func (m MAD) RecordStride() int { return 8 * int(binary.BigEndian.Uint16(m[offAttributeOffset:])) }

// SetRecordStride sets the AttributeOffset for records of n bytes: they begin
// at multiples of 8 (IBA 15.2.1.1).
func (m MAD) SetRecordStride(n int) {
	binary.BigEndian.PutUint16(m[offAttributeOffset:], uint16((n+7)/8))
}

// ComponentMask returns which components of the record a query names.
func (m MAD) ComponentMask() uint64 { return binary.BigEndian.Uint64(m[offComponentMask:]) }

// SetComponentMask sets which components of the record a query names.
func (m MAD) SetComponentMask(v uint64) { binary.BigEndian.PutUint64(m[offComponentMask:], v) }
