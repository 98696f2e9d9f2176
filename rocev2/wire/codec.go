package wire

import "github.com/urxe/urxe/ib"

// BTH (IBA 9.2), three words:
//
//	opcode 8 · SE, M, pad count 2, TVer 4 · P_Key 16
//	FECN, BECN, reserved 6 · destination QP 24
//	AckReq, reserved 7 · PSN 24
const (
	bthSE     = 1 << 23
	bthMigReq = 1 << 22
	bthFECN   = 1 << 31
	bthBECN   = 1 << 30
	bthAckReq = 1 << 31

	bthPadShift  = 20
	bthTVerShift = 16
)

// flag returns mask if set.
func flag(set bool, mask uint32) uint32 {
	if set {
		return mask
	}
	return 0
}

func (h *Header) readBTH(b *[BTHLen]byte) (pad int, tver uint8) {
	first, qp, psn := be.Uint32(b[:]), be.Uint32(b[4:]), be.Uint32(b[8:])
	h.Opcode = Opcode(first >> 24)
	h.SE = first&bthSE != 0
	h.MigReq = first&bthMigReq != 0
	h.PKey = ib.PKey(first)
	h.FECN = qp&bthFECN != 0
	h.BECN = qp&bthBECN != 0
	h.DestQP = ib.QPN(qp & 0xffffff)
	h.AckReq = psn&bthAckReq != 0
	h.PSN = ib.PSN(psn & 0xffffff)
	return int(first >> bthPadShift & 3), uint8(first >> bthTVerShift & 0xf)
}

func (h *Header) putBTH(b *[BTHLen]byte, pad int) {
	be.PutUint32(b[:], uint32(h.Opcode)<<24|flag(h.SE, bthSE)|flag(h.MigReq, bthMigReq)|uint32(pad)<<bthPadShift|uint32(h.PKey))
	be.PutUint32(b[4:], flag(h.FECN, bthFECN)|flag(h.BECN, bthBECN)|uint32(h.DestQP)&0xffffff)
	be.PutUint32(b[8:], flag(h.AckReq, bthAckReq)|uint32(h.PSN)&0xffffff)
}

// readExt reads the extended headers e, in the order of their bits.
func (h *Header) readExt(e Ext, b []byte) {
	if e == ExtRETH { // the most usual
		h.readRETH((*[RETHLen]byte)(b))
		return
	}
	if e&ExtDETH != 0 { // Q_Key 4, reserved 1, source QP 3
		h.QKey, h.SrcQP = ib.QKey(be.Uint32(b)), ib.QPN(be.Uint32(b[4:])&0xffffff)
		b = b[DETHLen:]
	}
	if e&ExtFETH != 0 {
		h.Flush = be.Uint32(b)
		b = b[FETHLen:]
	}
	if e&ExtRETH != 0 {
		h.readRETH((*[RETHLen]byte)(b))
		b = b[RETHLen:]
	}
	if e&ExtAtomicETH != 0 { // virtual address 8, R_Key 4, swap or add 8, compare 8
		h.VA, h.RKey = be.Uint64(b), be.Uint32(b[8:])
		h.Swap, h.Compare = be.Uint64(b[12:]), be.Uint64(b[20:])
		b = b[AtomicETHLen:]
	}
	if e&ExtAETH != 0 { // syndrome 1, MSN 3
		v := be.Uint32(b)
		h.Syndrome, h.MSN = Syndrome(v>>24), ib.MSN(v&0xffffff)
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

// readRETH reads virtual address 8, R_Key 4 and DMA length 4.
func (h *Header) readRETH(b *[RETHLen]byte) {
	h.VA, h.RKey, h.Length = be.Uint64(b[:]), be.Uint32(b[8:]), be.Uint32(b[12:])
}

func (h *Header) putRETH(b *[RETHLen]byte) {
	be.PutUint64(b[:], h.VA)
	be.PutUint32(b[8:], h.RKey)
	be.PutUint32(b[12:], h.Length)
}

// putExt writes the extended headers e, in the order of their bits.
func (h *Header) putExt(e Ext, b []byte) {
	if e == ExtRETH {
		h.putRETH((*[RETHLen]byte)(b))
		return
	}
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
		h.putRETH((*[RETHLen]byte)(b))
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
