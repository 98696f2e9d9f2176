package mad

import "bytes"

// Layout describes the fields of a view, for those who handle attributes by
// name: printing, comparing by component mask, tests.
type Layout struct {
	Name   string
	Size   int // Bytes.
	Fields []Field
}

// Field is one field of a Layout, or an array of Count equal ones.
type Field struct {
	Name      string // Empty when it is reserved.
	Bit, Bits int    // Where it begins, and the width of one element.
	Count     int
	Component int     // Its number in the component mask of a record; -1 is none.
	Span      int     // How many components one element is.
	Inner     *Layout // Of an attribute inside a record.
}

// View is what every attribute and record of this package is.
type View interface{ Layout() *Layout }

// text returns b up to its first NUL.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// setText writes s into b, cut or padded with NULs to its length.
func setText(b []byte, s string) { clear(b[copy(b, s):]) }

func setBit(b []byte, i int, mask byte, on bool) {
	b[i] &^= mask
	if on {
		b[i] |= mask
	}
}

// subByte returns element i of an array whose elements are parts of bytes, the
// first in the high bits.
func subByte(b []byte, i, bits int) uint8 {
	shift := 8 - bits - i*bits%8
	return b[i*bits/8] >> shift & (1<<bits - 1)
}

func setSubByte(b []byte, i, bits int, v uint8) {
	shift := 8 - bits - i*bits%8
	mask := byte(1<<bits-1) << shift
	p := &b[i*bits/8]
	*p = *p&^mask | v<<shift&mask
}

// Get reads element i of f, which is at most 64 bits wide, from a view. It is
// for those who handle fields by name; accessors are faster.
func (f *Field) Get(v []byte, i int) uint64 {
	var x uint64
	for b := f.Bit + i*f.Bits; b < f.Bit+(i+1)*f.Bits; b++ {
		x = x<<1 | uint64(v[b/8]>>(7-b%8)&1)
	}
	return x
}

// Set writes element i of f, which is at most 64 bits wide, into a view.
func (f *Field) Set(v []byte, i int, x uint64) {
	for b := f.Bit + (i+1)*f.Bits - 1; b >= f.Bit+i*f.Bits; b-- {
		mask := byte(1) << (7 - b%8)
		setBit(v, b/8, mask, x&1 != 0)
		x >>= 1
	}
}
