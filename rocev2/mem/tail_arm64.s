//go:build !race

#include "textflag.h"

// func storeTail8(p *uint8, v uint8)
TEXT ·storeTail8(SB), NOSPLIT, $0-9
	MOVD	p+0(FP), R0
	MOVBU	v+8(FP), R1
	STLRB	R1, (R0)
	RET
