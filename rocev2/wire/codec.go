package wire

import "github.com/urxe/urxe/ib"

// BTH (IBA 9.2):
//
//	0       opcode
//	1       SE 0x80, M 0x40, pad count 0x30, TVer 0x0f
//	2..3    P_Key
//	4       FECN 0x80, BECN 0x40, reserved
//	5..7    destination QP
//	8       AckReq 0x80, reserved
//	9..11   PSN
const (
	bthSE     = 0x80
	bthMigReq = 0x40
	bthTVer   = 0x0f
	bthFECN   = 0x80
	bthBECN   = 0x40
	bthAckReq = 0x80

	bthPadShift = 4
	bthECN      = 4 // offset of the byte that the ICRC does not cover
)

func be24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func putBE24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}

func (h *Header) readBTH(b []byte) (pad int, tver uint8) {
	b = b[:BTHLen]
	h.Opcode = Opcode(b[0])
	h.SE = b[1]&bthSE != 0
	h.MigReq = b[1]&bthMigReq != 0
	h.PKey = ib.PKey(be.Uint16(b[2:]))
	h.FECN = b[4]&bthFECN != 0
	h.BECN = b[4]&bthBECN != 0
	h.DestQP = ib.QPN(be24(b[5:]))
	h.AckReq = b[8]&bthAckReq != 0
	h.PSN = ib.PSN(be24(b[9:]))
	return int(b[1]>>bthPadShift) & 3, b[1] & bthTVer
}

func (h *Header) putBTH(b []byte, pad int) {
	b = b[:BTHLen]
	b[0] = byte(h.Opcode)
	b[1] = bit(h.SE, bthSE) | bit(h.MigReq, bthMigReq) | byte(pad<<bthPadShift)
	be.PutUint16(b[2:], uint16(h.PKey))
	b[4] = bit(h.FECN, bthFECN) | bit(h.BECN, bthBECN)
	putBE24(b[5:], uint32(h.DestQP))
	b[8] = bit(h.AckReq, bthAckReq)
	putBE24(b[9:], uint32(h.PSN))
}

// readExt reads the extended headers e, in the order of their bits.
func (h *Header) readExt(e Ext, b []byte) {
	if e&ExtDETH != 0 { // Q_Key 4, reserved 1, source QP 3
		h.QKey, h.SrcQP = ib.QKey(be.Uint32(b)), ib.QPN(be24(b[5:]))
		b = b[DETHLen:]
	}
	if e&ExtFETH != 0 {
		h.Flush = be.Uint32(b)
		b = b[FETHLen:]
	}
	if e&ExtRETH != 0 { // virtual address 8, R_Key 4, DMA length 4
		h.VA, h.RKey, h.Length = be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])
		b = b[RETHLen:]
	}
	if e&ExtAtomicETH != 0 { // virtual address 8, R_Key 4, swap or add 8, compare 8
		h.VA, h.RKey = be.Uint64(b), be.Uint32(b[8:])
		h.Swap, h.Compare = be.Uint64(b[12:]), be.Uint64(b[20:])
		b = b[AtomicETHLen:]
	}
	if e&ExtAETH != 0 { // syndrome 1, MSN 3
		h.Syndrome, h.MSN = Syndrome(b[0]), ib.MSN(be24(b[1:]))
		b = b[AETHLen:]
	}
	if e&ExtAtomicAckETH != 0 {
		h.Orig = be.Uint64(b)
		b = b[AtomicAckETHLen:]
	}
	if e&ExtImmDt != 0 {
		h.Imm = be.Uint32(b)
		b = b[ImmDtLen:]
	}
	if e&ExtIETH != 0 {
		h.InvKey = be.Uint32(b)
	}
}

// putExt writes the extended headers e, in the order of their bits.
func (h *Header) putExt(e Ext, b []byte) {
	if e&ExtDETH != 0 {
		be.PutUint32(b, uint32(h.QKey))
		be.PutUint32(b[4:], uint32(h.SrcQP)&0xffffff)
		b = b[DETHLen:]
	}
	if e&ExtFETH != 0 {
		be.PutUint32(b, h.Flush)
		b = b[FETHLen:]
	}
	if e&ExtRETH != 0 {
		be.PutUint64(b, h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint32(b[12:], h.Length)
		b = b[RETHLen:]
	}
	if e&ExtAtomicETH != 0 {
		be.PutUint64(b, h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint64(b[12:], h.Swap)
		be.PutUint64(b[20:], h.Compare)
		b = b[AtomicETHLen:]
	}
	if e&ExtAETH != 0 {
		be.PutUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN)&0xffffff)
		b = b[AETHLen:]
	}
	if e&ExtAtomicAckETH != 0 {
		be.PutUint64(b, h.Orig)
		b = b[AtomicAckETHLen:]
	}
	if e&ExtImmDt != 0 {
		be.PutUint32(b, h.Imm)
		b = b[ImmDtLen:]
	}
	if e&ExtIETH != 0 {
		be.PutUint32(b, h.InvKey)
		b = b[IETHLen:]
	}
	if e&extCNP != 0 {
		clear(b[:cnpLen])
	}
}
