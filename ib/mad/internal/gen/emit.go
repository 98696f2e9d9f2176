package main

import (
	"bytes"
	"fmt"
	"strings"
)

// inIB are the types that package ib defines.
var inIB = map[string]bool{"GUID": true, "GID": true, "LID": true, "PKey": true, "QKey": true, "QPN": true,
	"MTU": true, "Rate": true, "PortState": true}

func emitView(b *bytes.Buffer, v *view) {
	fmt.Fprintf(b, "\n// %sSize is the length of a %s in bytes.\nconst %sSize = %d\n", v.name, v.name, v.name, v.size)
	fmt.Fprintf(b, "\n// %s is a view of %d bytes (%s).\ntype %s []byte\n", v.name, v.size, v.clause, v.name)
	emitOffsets(b, v)
	emitLayout(b, v)
	for _, f := range v.fields {
		if f.reserved() {
			continue
		}
		switch {
		case strings.HasPrefix(f.typ, "view:"):
			emitInner(b, v, f)
		case f.typ == "bytes":
			emitBytes(b, v, f)
		case f.typ == "text":
			emitText(b, v, f)
		case f.typ == "GID":
			emitGID(b, v, f)
		default:
			emitScalar(b, v, f)
		}
	}
}

// emitViews lists one empty value of each view.
func emitViews(b *bytes.Buffer, views []*view) {
	b.WriteString("\n// Views has a nil view of each kind, for those who handle them by name.\nvar Views = []View{\n")
	for _, v := range views {
		fmt.Fprintf(b, "%s(nil),\n", v.name)
	}
	b.WriteString("}\n")
}

// offset names the constant of a field's first byte.
func offset(v *view, f field) string { return "off" + v.name + f.name }

func emitOffsets(b *bytes.Buffer, v *view) {
	b.WriteString("\nconst (\n")
	for _, f := range v.fields {
		if !f.reserved() {
			fmt.Fprintf(b, "%s = %d\n", offset(v, f), f.off/8)
		}
	}
	b.WriteString(")\n")
}

func emitLayout(b *bytes.Buffer, v *view) {
	fmt.Fprintf(b, "\nvar layout%s = Layout{Name: %q, Size: %sSize, Fields: []Field{\n", v.name, v.name, v.name)
	for _, f := range v.fields {
		inner := "nil"
		if name, ok := strings.CutPrefix(f.typ, "view:"); ok {
			inner = "&layout" + name
		}
		name := f.name
		if f.reserved() {
			name = ""
		}
		fmt.Fprintf(b, "{Name: %q, Bit: %d, Bits: %d, Count: %d, Component: %d, Span: %d, Inner: %s},\n",
			name, f.off, f.bits, max(f.count, 1), f.component, f.span, inner)
	}
	b.WriteString("}}\n")
	fmt.Fprintf(b, "\n// Layout describes the fields of a %s.\nfunc (%s) Layout() *Layout { return &layout%s }\n", v.name, v.name, v.name)
}

func emitInner(b *bytes.Buffer, v *view, f field) {
	typ := strings.TrimPrefix(f.typ, "view:")
	fmt.Fprintf(b, "\n// %s returns a view of the %s inside.\nfunc (v %s) %s() %s { return %s(v[%s:%s+%d]) }\n",
		f.name, typ, v.name, f.name, typ, typ, offset(v, f), offset(v, f), f.bits/8)
}

func emitBytes(b *bytes.Buffer, v *view, f field) {
	fmt.Fprintf(b, "\n// %s returns a view of %d bytes.\nfunc (v %s) %s() []byte { return v[%s:%s+%d:%s+%d] }\n",
		f.name, f.bits/8, v.name, f.name, offset(v, f), offset(v, f), f.bits/8, offset(v, f), f.bits/8)
}

func emitText(b *bytes.Buffer, v *view, f field) {
	fmt.Fprintf(b, "\n// %s returns the text up to its first NUL.\nfunc (v %s) %s() string { return text(v[%s:%s+%d]) }\n",
		f.name, v.name, f.name, offset(v, f), offset(v, f), f.bits/8)
	fmt.Fprintf(b, "\n// Set%s sets the text, cut to %d bytes.\nfunc (v %s) Set%s(s string) { setText(v[%s:%s+%d], s) }\n",
		f.name, f.bits/8, v.name, f.name, offset(v, f), offset(v, f), f.bits/8)
}

func emitGID(b *bytes.Buffer, v *view, f field) {
	fmt.Fprintf(b, "\n// %s returns the field.\nfunc (v %s) %s() ib.GID { return ib.GID(v[%s:%s+16]) }\n",
		f.name, v.name, f.name, offset(v, f), offset(v, f))
	fmt.Fprintf(b, "\n// Set%s sets the field.\nfunc (v %s) Set%s(x ib.GID) { copy(v[%s:], x[:]) }\n",
		f.name, v.name, f.name, offset(v, f))
}

// emitScalar writes the accessors of a number, or of an array of numbers.
func emitScalar(b *bytes.Buffer, v *view, f field) {
	typ := f.typ
	if inIB[typ] {
		typ = "ib." + typ
	}
	if f.count > 0 {
		emitArray(b, v, f, typ)
		return
	}
	w, shift := window(f)
	get, set := access(v, f, w, shift)
	fmt.Fprintf(b, "\n// %s returns the field of %d bits.\nfunc (v %s) %s() %s {\nreturn ", f.name, f.bits, v.name, f.name, typ)
	if typ == "bool" {
		fmt.Fprintf(b, "v[%s]&0x%02x != 0\n}\n", offset(v, f), 1<<shift)
		fmt.Fprintf(b, "\n// Set%s sets the field.\nfunc (v %s) Set%s(x bool) { setBit(v, %s, 0x%02x, x) }\n",
			f.name, v.name, f.name, offset(v, f), 1<<shift)
		return
	}
	fmt.Fprintf(b, "%s(%s)\n}\n", typ, get)
	fmt.Fprintf(b, "\n// Set%s sets the field of %d bits.\nfunc (v %s) Set%s(x %s) {\n%s\n}\n", f.name, f.bits, v.name, f.name, typ, set)
}

// window returns the width in bits of the smallest word at the field's first
// byte that holds it, and how far the field lies above the word's last bit.
func window(f field) (width, shift int) {
	lead := f.off % 8
	for width = 8; width < lead+f.bits; width *= 2 {
	}
	return width, width - lead - f.bits
}

// access returns the expression that reads a field and the statement that
// writes it. A field of three bytes is read with the byte before it, which
// every view has, so that no word reaches past the end.
func access(v *view, f field, width, shift int) (get, set string) {
	off := offset(v, f)
	if over := (f.off/8+width/8)*8 - v.size*8; over > 0 {
		off = fmt.Sprintf("%s-%d", off, over/8)
		shift -= over
	}
	word := fmt.Sprintf("binary.BigEndian.Uint%d(v[%s:])", width, off)
	put := fmt.Sprintf("binary.BigEndian.PutUint%d(v[%s:], ", width, off)
	end := ")"
	if width == 8 {
		word, put, end = fmt.Sprintf("v[%s]", off), fmt.Sprintf("v[%s] = ", off), ""
	}
	if f.bits == width {
		return word, fmt.Sprintf("%suint%d(x)%s", put, width, end)
	}
	mask := uint64(1)<<f.bits - 1
	get = fmt.Sprintf("%s >> %d & 0x%x", word, shift, mask)
	set = fmt.Sprintf("%s%s &^ (0x%x << %d) | uint%d(x) & 0x%x << %d%s", put, word, mask, shift, width, mask, shift, end)
	return get, set
}

func emitArray(b *bytes.Buffer, v *view, f field, typ string) {
	fmt.Fprintf(b, "\n// %s returns element i of %d.\nfunc (v %s) %s(i int) %s {\nreturn ", f.name, f.count, v.name, f.name, typ)
	off := offset(v, f)
	var get, set string
	switch {
	case f.bits == 8:
		get = fmt.Sprintf("v[%s+i]", off)
		set = fmt.Sprintf("v[%s+i] = uint8(x)", off)
	case f.bits < 8:
		get = fmt.Sprintf("subByte(v[%s:], i, %d)", off, f.bits)
		set = fmt.Sprintf("setSubByte(v[%s:], i, %d, uint8(x))", off, f.bits)
	default:
		get = fmt.Sprintf("binary.BigEndian.Uint%d(v[%s+%d*i:])", f.bits, off, f.bits/8)
		set = fmt.Sprintf("binary.BigEndian.PutUint%d(v[%s+%d*i:], uint%d(x))", f.bits, off, f.bits/8, f.bits)
	}
	fmt.Fprintf(b, "%s(%s)\n}\n", typ, get)
	fmt.Fprintf(b, "\n// Set%s sets element i of %d.\nfunc (v %s) Set%s(i int, x %s) { %s }\n", f.name, f.count, v.name, f.name, typ, set)
}
