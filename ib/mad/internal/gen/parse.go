package main

import (
	"fmt"
	"strconv"
	"strings"
)

type view struct {
	name, clause string
	size         int // Bytes.
	fields       []field
	components   bool
	next         int // The number of the next component.
}

type field struct {
	name, typ string
	off, bits int // Bits.
	count     int // Of an array; else 0.
	component int // The first one's; -1 is none.
	span      int // How many components one element is.
}

func (f field) total() int { return f.bits * max(f.count, 1) }

func (f field) reserved() bool { return f.name == "-" }

// parse reads the table. The fields of a view must fill it exactly.
func parse(src string) ([]*view, error) {
	var views []*view
	byName := map[string]*view{}
	for n, line := range strings.Split(src, "\n") {
		words := strings.Fields(strings.SplitN(line, "#", 2)[0])
		if len(words) == 0 {
			continue
		}
		var err error
		switch {
		case words[0] == "view":
			var v *view
			if v, err = parseView(words); err == nil {
				views = append(views, v)
				byName[v.name] = v
			}
		case len(views) == 0:
			err = fmt.Errorf("a field before the first view")
		case words[0] == "components":
			views[len(views)-1].components = true
		default:
			err = views[len(views)-1].add(words, byName)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return views, checkSizes(views)
}

func parseView(words []string) (*view, error) {
	if len(words) < 4 {
		return nil, fmt.Errorf("want: view NAME BYTES CLAUSE")
	}
	size, err := strconv.Atoi(words[2])
	return &view{name: words[1], size: size, clause: strings.Join(words[3:], " ")}, err
}

// add appends the field that words describe.
func (v *view) add(words []string, byName map[string]*view) error {
	if len(words) < 2 {
		return fmt.Errorf("want: FIELD[COUNT] BITS [TYPE]")
	}
	f := field{off: v.bits(), component: -1, span: 1}
	name, count, array := strings.Cut(strings.TrimSuffix(words[0], "]"), "[")
	f.name = name
	var err error
	if array {
		if f.count, err = strconv.Atoi(count); err != nil {
			return err
		}
	}
	if f.bits, err = strconv.Atoi(words[1]); err != nil {
		return err
	}
	numbered := v.components
	for _, w := range words[2:] {
		switch w {
		case "=-":
			numbered = false
		case "=0+1":
			f.span = 2
		default:
			f.typ = w
		}
	}
	if f.typ == "" {
		f.typ = defaultType(f.bits)
	}
	if numbered {
		f.component = v.next
		v.next += f.components(byName)
	}
	v.fields = append(v.fields, f)
	return nil
}

// components returns how many components f is.
func (f field) components(byName map[string]*view) int {
	inner, ok := strings.CutPrefix(f.typ, "view:")
	if !ok {
		return f.span * max(f.count, 1)
	}
	n := 0
	for _, g := range byName[inner].fields {
		n += g.components(byName)
	}
	return n
}

func (v *view) bits() int {
	n := 0
	for _, f := range v.fields {
		n += f.total()
	}
	return n
}

func defaultType(bits int) string {
	switch {
	case bits == 1:
		return "bool"
	case bits <= 8:
		return "uint8"
	case bits <= 16:
		return "uint16"
	case bits <= 32:
		return "uint32"
	case bits <= 64:
		return "uint64"
	}
	return "bytes"
}

func checkSizes(views []*view) error {
	for _, v := range views {
		if v.bits() != v.size*8 {
			return fmt.Errorf("view %s: fields of %d bits in %d bytes", v.name, v.bits(), v.size)
		}
	}
	return nil
}
