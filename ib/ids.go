package ib

import "fmt"

// QPN is a 24-bit queue pair number.
type QPN uint32

const (
	// QPNSubnetManagement is QP0, which carries subnet management (SMP) traffic.
	QPNSubnetManagement QPN = 0
	// QPNGeneralServices is QP1, the general services interface (GSI).
	QPNGeneralServices QPN = 1
	// QPNMulticast is the destination QP of every multicast packet.
	QPNMulticast QPN = 0xffffff
)

// Valid reports whether q fits in 24 bits.
func (q QPN) Valid() bool { return q <= 0xffffff }

func (q QPN) String() string { return fmt.Sprintf("0x%06x", uint32(q)) }

// LID is a 16-bit local identifier of a port in an InfiniBand subnet.
type LID uint16

const (
	// LIDPermissive addresses the port at the other end of the link, whatever its LID.
	LIDPermissive LID = 0xffff
	// LIDMulticastFirst is the first LID of the multicast range; 0xfffe is the last.
	LIDMulticastFirst LID = 0xc000
)

// Unicast reports whether l names a single port: 0x0001 to 0xbfff.
func (l LID) Unicast() bool { return l != 0 && l < LIDMulticastFirst }

// Multicast reports whether l names a multicast group: 0xc000 to 0xfffe.
func (l LID) Multicast() bool { return l >= LIDMulticastFirst && l != LIDPermissive }

// PKey is a partition key: bit 15 says full member, the low 15 bits name the partition.
type PKey uint16

const (
	// PKeyDefault is the full-member key of the default partition.
	PKeyDefault PKey = 0xffff

	pkeyFull PKey = 0x8000
)

// Full reports whether k is the key of a full member.
func (k PKey) Full() bool { return k&pkeyFull != 0 }

// Matches reports whether packets with key k pass a table entry t: the same,
// non-zero partition, and at least one of the two a full member (IBA 10.9.3).
func (k PKey) Matches(t PKey) bool {
	return k&^pkeyFull != 0 && (k^t)&^pkeyFull == 0 && (k | t).Full()
}

func (k PKey) String() string { return fmt.Sprintf("0x%04x", uint16(k)) }

// QKey is the queue key of a datagram QP.
type QKey uint32

// QKeyGSI is the well-known queue key of QP1 (IBA 12.4.2).
const QKeyGSI QKey = 0x80010000

// Controlled reports whether k has its top bit set: a work request that names
// such a key is sent with the key of its QP instead (IBA 10.2.5).
func (k QKey) Controlled() bool { return k&0x80000000 != 0 }

func (k QKey) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// DefaultHopLimit is the hop limit, or time to live, of packets for which nobody names one, as by Linux.
const DefaultHopLimit = 64
