package arch

import (
	"cmp"
	"go/ast"
	"slices"
	"testing"
)

// What the functions of good network code look like: half of them under ten
// lines, nine in ten within forty, none over eighty.
const (
	medianMax  = 9
	percent90  = 40
	longestMax = 80
)

// mayBeLong are flat dispatches: one case a line, nothing to take apart.
var mayBeLong = []string{}

type function struct {
	name  string // folder.Function or folder.(Type).Method
	where string
	lines int
}

func TestFunctionLengths(t *testing.T) {
	all := functions(t)
	slices.SortFunc(all, func(a, b function) int { return cmp.Compare(a.lines, b.lines) })
	median, p90 := all[len(all)/2].lines, all[len(all)*9/10].lines
	t.Logf("%d functions: median %d lines, p90 %d, longest %d", len(all), median, p90, all[len(all)-1].lines)
	if median > medianMax {
		t.Errorf("half of all functions have more than %d lines: the median is %d", medianMax, median)
	}
	if p90 > percent90 {
		t.Errorf("one in ten functions has more than %d lines: the 90th percentile is %d", percent90, p90)
	}
	for _, f := range all {
		if f.lines > longestMax && !slices.Contains(mayBeLong, f.name) {
			t.Errorf("%s: %s has %d lines, more than %d", f.where, f.name, f.lines, longestMax)
		}
	}
	for _, name := range mayBeLong {
		if !slices.ContainsFunc(all, func(f function) bool { return f.name == name && f.lines > longestMax }) {
			t.Errorf("mayBeLong names %s, which is not there or not long", name)
		}
	}
}

// functions lists the functions with a body, outside tests and generated files.
func functions(t *testing.T) (all []function) {
	t.Helper()
	for _, s := range sources(t) {
		if s.test() || s.generated {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				begin, end := fset.Position(f.Pos()), fset.Position(f.End())
				all = append(all, function{s.dir() + "." + nameOf(f), begin.String(), end.Line - begin.Line + 1})
			}
		}
	}
	return all
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return "(" + id.Name + ")." + f.Name.Name
	}
	return f.Name.Name
}
