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
