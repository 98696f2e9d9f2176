package wire

import (
	"fmt"
	"math/bits"

	"github.com/urxe/urxe/ib"
)

// Lengths of headers in bytes (IBA 9.2 to 9.3; Annex A17, A19).
const (
	EthernetLen     = 14
	VLANLen         = 4
	IPv4Len         = 20
	IPv6Len         = 40
	UDPLen          = 8
	BTHLen          = 12
	DETHLen         = 8
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	ICRCLen         = 4
	cnpLen          = 16

	// VLANMask is the VLAN id in the tag control information of an 802.1Q tag.
	// Above it stand the drop eligible indicator and, in the top three bits, the
	// priority code point.
	VLANMask = 0xfff

	// Port is the UDP destination port of RoCEv2 (Annex A17.3.2.2).
	Port = 4791

	// MaxHeaderLen is the most that stands before a payload: a tagged frame,
	// IPv6, and the longest extended headers.
	MaxHeaderLen = EthernetLen + VLANLen + IPv6Len + UDPLen + BTHLen + AtomicETHLen
	// MaxPacketLen is the longest packet of ours, at path MTU 4096.
	MaxPacketLen = MaxHeaderLen + 4096 + ICRCLen
)

// Header holds the values of a BTH and of the extended headers that its opcode
// has; the fields of other headers are ignored by Emit and zero after Parse.
type Header struct {
	Opcode   Opcode
	SE       bool // solicited event
	MigReq   bool // migration state; ours is always true ("migrated")
	FECN     bool
	BECN     bool
	AckReq   bool
	PKey     ib.PKey
	DestQP   ib.QPN
	PSN      ib.PSN
	Syndrome Syndrome // AETH
	MSN      ib.MSN   // AETH
	SrcQP    ib.QPN   // DETH
	QKey     ib.QKey  // DETH
	Imm      uint32   // ImmDt, in host order
	InvKey   uint32   // IETH: the rkey to invalidate
	Flush    uint32   // FETH, placement type and range selector
	RKey     uint32   // RETH, AtomicETH
	VA       uint64   // RETH, AtomicETH
	Length   uint32   // RETH: DMA length
	Swap     uint64   // AtomicETH: swap or add data
	Compare  uint64   // AtomicETH
	Orig     uint64   // AtomicAckETH: original remote data
}

// Syndrome is the first byte of an AETH: an ACK with credits, an RNR NAK with
// its timer, or a NAK with its code (IBA 9.7.5.2.4).
type Syndrome uint8

// Syndromes. SyndromeAck carries no credit count (end-to-end flow control off);
// CreditSyndrome makes those that do.
const (
	SyndromeAck Syndrome = 0x1f
	SyndromeRNR Syndrome = 0x20 // the low 5 bits are the timer code

	NakSequence         Syndrome = 0x60
	NakInvalidRequest   Syndrome = 0x61
	NakRemoteAccess     Syndrome = 0x62
	NakRemoteOperation  Syndrome = 0x63
	NakInvalidRDRequest Syndrome = 0x64

	syndromeKind  = 0x60
	syndromeValue = 0x1f
)

// CreditSyndrome returns the ACK syndrome that says that n receives wait: the
// largest number that it can tell which is at most n (IBA 9.7.7.2).
func CreditSyndrome(n int) Syndrome {
	if n < 4 {
		return Syndrome(max(n, 0))
	}
	k := bits.Len(uint(n)) - 1 // 2^k, or with half of it more
	return min(Syndrome(2*k+n>>(k-1)&1), SyndromeAck-1)
}

// Credits returns how many receives an ACK says that wait, and whether it says so.
func (s Syndrome) Credits() (n int, limited bool) {
	v := int(s.Value())
	switch {
	case !s.IsAck() || s == SyndromeAck:
		return 0, false
	case v < 4:
		return v, true
	}
	return (2 + v&1) << (v/2 - 1), true
}

// IsAck reports whether s is a positive acknowledgement.
func (s Syndrome) IsAck() bool { return s&(0x80|syndromeKind) == 0 }

// IsRNR reports whether s is an RNR NAK.
func (s Syndrome) IsRNR() bool { return s&(0x80|syndromeKind) == 0x20 }

// IsNak reports whether s is a NAK other than RNR.
func (s Syndrome) IsNak() bool { return s&(0x80|syndromeKind) == 0x60 }

// Value returns the low 5 bits: credit count, timer code or NAK code.
func (s Syndrome) Value() uint8 { return uint8(s & syndromeValue) }

func (s Syndrome) String() string {
	switch {
	case s == SyndromeAck:
		return "ACK"
	case s.IsAck():
		return fmt.Sprintf("ACK, credit code %d", s.Value())
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK, timer code %d", s.Value())
	}
	switch s {
	case NakSequence:
		return "NAK, PSN sequence error"
	case NakInvalidRequest:
		return "NAK, invalid request"
	case NakRemoteAccess:
		return "NAK, remote access error"
	case NakRemoteOperation:
		return "NAK, remote operational error"
	case NakInvalidRDRequest:
		return "NAK, invalid RD request"
	}
	return fmt.Sprintf("reserved syndrome 0x%02x", uint8(s))
}

// Frame is a packet in one or two pieces: a receiver whose buffers hold 3840
// bytes gets a longer packet as 3840 bytes and the rest. To be sent, a Frame
// comes with the room it may fill, which is the capacity of its pieces, and
// Emit cuts it to the packet's length: a piece of a larger memory needs its
// capacity limited.
type Frame struct {
	Frag [2][]byte
}

// Len returns the bytes of both pieces.
func (f *Frame) Len() int { return len(f.Frag[0]) + len(f.Frag[1]) }

// Cut returns the bytes [off, off+n) of the frame, in at most two pieces,
// without copying. The range must lie within the frame.
func (f *Frame) Cut(off, n int) (piece [2][]byte) {
	CutTo(&piece, &f.Frag, off, n)
	return piece
}

// CutTo makes to, whose pieces are nil, the bytes [off, off+n) of from.
func CutTo(to, from *[2][]byte, off, n int) {
	first := len(from[0])
	switch {
	case off+n <= first:
		to[0] = from[0][off : off+n]
	case off >= first:
		to[0] = from[1][off-first : off-first+n]
	default:
		to[0] = from[0][off:]
		to[1] = from[1][:off+n-first]
	}
}
