package wire

import "github.com/klauspost/cpuid/v2"

// folds is whether this processor has the instructions of fold. The standard
// library multiplies 16 bytes at once, and 64 only with AVX-512; with 32, as
// processors since 2019 (Ice Lake, Zen 3) do it, the CRC of a payload takes half the time.
var folds = cpuid.CPU.Supports(cpuid.AVX2, cpuid.VPCLMULQDQ)

// foldsFrom is the length from which fold takes less time than the standard library.
const foldsFrom = 128

// fold returns 16 bytes, as two little-endian words, that make of a register 0 what
// b makes of reg. b is a multiple of 16 bytes long, and at least foldsFrom.
//
//go:noescape
func fold(reg uint32, b []byte) (lo, hi uint64)
