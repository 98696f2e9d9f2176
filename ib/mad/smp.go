package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/urxe/urxe/ib"
)

// A directed SMP, from byte 24 on (IBA 14.2.1.2; an SMP that is routed by LID
// has the same M_Key and data, and nothing else):
//
//	 24 M_Key
//	 32 DrSLID  DrDLID
//	 36 reserved
//	 64 data
//	128 InitialPath: the egress port of hop n at byte n; byte 0 is unused
//	192 ReturnPath: the port that hop n came in by, likewise
const (
	offMKey    = 24
	offDrSLID  = 32
	offDrDLID  = 34
	offSMPData = 64

	pathOffset, returnPathOffset = 128, 192

	// SMPDataSize is the most that an attribute of subnet management holds.
	SMPDataSize = 64
	// MaxHops is the most hops that a directed route may have.
	MaxHops = 63
)

// InitSMP clears m and makes it a directed SMP along path: the egress port at
// this node, at the next, and so on; an empty path is this node itself.
func (m MAD) InitSMP(method Method, attr AttributeID, modifier uint32, path []byte) error {
	if len(path) > MaxHops {
		return fmt.Errorf("directed route of %d hops: want at most %d", len(path), MaxHops)
	}
	m.Init(ClassSubnDirect, method, attr, modifier)
	m.SetDrSLID(ib.LIDPermissive)
	m.SetDrDLID(ib.LIDPermissive)
	m[offHopCount] = byte(len(path))
	copy(m[pathOffset+1:], path)
	return nil
}

// MKey returns the management key of an SMP.
func (m MAD) MKey() uint64 { return binary.BigEndian.Uint64(m[offMKey:]) }

// SetMKey sets the management key of an SMP.
func (m MAD) SetMKey(v uint64) { binary.BigEndian.PutUint64(m[offMKey:], v) }

// DrSLID returns the LID where the directed part of a route begins;
// ib.LIDPermissive when it is directed from the start.
func (m MAD) DrSLID() ib.LID { return ib.LID(binary.BigEndian.Uint16(m[offDrSLID:])) }

// SetDrSLID sets DrSLID.
func (m MAD) SetDrSLID(v ib.LID) { binary.BigEndian.PutUint16(m[offDrSLID:], uint16(v)) }

// DrDLID returns the LID where a route goes on by LID after its directed part;
// ib.LIDPermissive when it is directed to its end.
func (m MAD) DrDLID() ib.LID { return ib.LID(binary.BigEndian.Uint16(m[offDrDLID:])) }

// SetDrDLID sets DrDLID.
func (m MAD) SetDrDLID(v ib.LID) { binary.BigEndian.PutUint16(m[offDrDLID:], uint16(v)) }

// HopPointer returns how far a directed SMP has come.
func (m MAD) HopPointer() int { return int(m[offHopPointer]) }

// SetHopPointer sets how far a directed SMP has come.
func (m MAD) SetHopPointer(v int) { m[offHopPointer] = byte(v) }

// HopCount returns the length of a directed route.
func (m MAD) HopCount() int { return int(m[offHopCount]) }

// Returning reports the D bit: a directed SMP is on its way back.
func (m MAD) Returning() bool { return m[offStatus]&0x80 != 0 }

func (m MAD) setReturning() { m[offStatus] |= 0x80 }

// Path returns a view of the initial path: the egress port of each hop.
func (m MAD) Path() []byte {
	n := min(m.HopCount(), MaxHops)
	return m[pathOffset+1 : pathOffset+1+n : pathOffset+1+n]
}

// ReturnPath returns a view of the return path: the port by which each hop came in.
func (m MAD) ReturnPath() []byte {
	n := min(m.HopCount(), MaxHops)
	return m[returnPathOffset+1 : returnPathOffset+1+n : returnPathOffset+1+n]
}
