package mad

// Components calls fn for each component of a record: its number in the
// component mask, the field, the element of an array, and the bit of the
// record at which the field's view begins. Reserved components are left out.
func (l *Layout) Components(fn func(number int, f *Field, i, base int)) {
	l.components(0, 0, fn)
}

// components numbers the components from first on, unless the fields have
// numbers of their own, and returns the next number.
func (l *Layout) components(first, base int, fn func(number int, f *Field, i, base int)) int {
	n := first
	for k := range l.Fields {
		f := &l.Fields[k]
		switch {
		case f.Component < 0 && base == 0:
		case f.Inner != nil:
			n = f.Inner.components(n, base+f.Bit, fn)
		default:
			for i := range f.Count {
				if f.Name != "" {
					fn(n, f, i, base)
				}
				n += f.Span
			}
		}
	}
	return n
}

// Component returns the number of a component by the name of its field; -1
// when there is none.
func (l *Layout) Component(name string) int {
	found := -1
	l.Components(func(n int, f *Field, i, _ int) {
		if f.Name == name && i == 0 && found < 0 {
			found = n
		}
	})
	return found
}

// Matches reports whether a record has the values of a query in all
// components that mask names (IBA 15.4.4). Components that no record has
// don't count.
func (l *Layout) Matches(mask uint64, record, query []byte) bool {
	same := true
	l.Components(func(n int, f *Field, i, base int) {
		bits := (uint64(1)<<f.Span - 1) << n
		if !same || mask&bits == 0 {
			return
		}
		begin := base + f.Bit + i*f.Bits
		same = sameBits(record, query, begin, begin+f.Bits)
	})
	return same
}

func sameBits(a, b []byte, begin, end int) bool {
	for i := begin / 8; i <= (end-1)/8; i++ {
		mask := byte(0xff)
		if i == begin/8 {
			mask &= 0xff >> (begin % 8)
		}
		if i == (end-1)/8 {
			mask &= 0xff << (7 - (end-1)%8)
		}
		if (a[i]^b[i])&mask != 0 {
			return false
		}
	}
	return true
}
