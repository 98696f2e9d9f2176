#include "textflag.h"

// A 128-bit remainder moves on by d bits when its halves are multiplied by
// x^(d+32) and x^(d-32) modulo the polynomial. The constants are bit-reflected, as
// the CRC is, and shifted by one, as products of reflected numbers are. The method
// is that of Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction" (Intel, 2009).
DATA by1024<>+0(SB)/8, $0x1e88ef372
DATA by1024<>+8(SB)/8, $0x14a7fe880
GLOBL by1024<>(SB), RODATA|NOPTR, $16
DATA by256<>+0(SB)/8, $0x0f1da05aa
DATA by256<>+8(SB)/8, $0x15a546366
GLOBL by256<>(SB), RODATA|NOPTR, $16
DATA by128<>+0(SB)/8, $0x1751997d0
DATA by128<>+8(SB)/8, $0x0ccaa009e
GLOBL by128<>(SB), RODATA|NOPTR, $16

// ONTO folds acc onto what follows it at the distance of the constants by.
#define ONTO(next, by, acc, tmp) \
	VPCLMULQDQ $0x00, by, acc, tmp; \
	VPCLMULQDQ $0x11, by, acc, acc; \
	VPXOR next, tmp, tmp; \
	VPXOR tmp, acc, acc

// func fold(reg uint32, b []byte) (lo, hi uint64)
TEXT ·fold(SB), NOSPLIT, $0-48
	MOVL    reg+0(FP), AX
	MOVQ    b_base+8(FP), SI
	MOVQ    b_len+16(FP), CX
	VMOVD   AX, X0
	VPXOR   0(SI), Y0, Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	VBROADCASTI128 by1024<>(SB), Y9
	JMP     next

blocks: // of 128 bytes, in four remainders: one alone would wait for each product
	ONTO(0(SI), Y9, Y0, Y4)
	ONTO(32(SI), Y9, Y1, Y5)
	ONTO(64(SI), Y9, Y2, Y6)
	ONTO(96(SI), Y9, Y3, Y7)

next:
	ADDQ $128, SI
	SUBQ $128, CX
	CMPQ CX, $128
	JAE  blocks

	VBROADCASTI128 by256<>(SB), Y9
	ONTO(Y1, Y9, Y0, Y4)
	ONTO(Y2, Y9, Y0, Y4)
	ONTO(Y3, Y9, Y0, Y4)
	VMOVDQU      by128<>(SB), X9
	VEXTRACTI128 $1, Y0, X1
	ONTO(X1, X9, X0, X4)
	JMP  rest

words: // of 16 bytes
	ONTO(0(SI), X9, X0, X4)
	ADDQ $16, SI
	SUBQ $16, CX

rest:
	CMPQ CX, $16
	JAE  words
	VMOVQ   X0, lo+32(FP)
	VPEXTRQ $1, X0, hi+40(FP)
	VZEROUPPER
	RET
