package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// mayBeUnsafe are the folders whose files may import unsafe, if they say why:
// they share memory with the kernel or with other processes.
var mayBeUnsafe = []string{"xdp", "rocev2/mem", "ib/umad"}

func TestUnsafeStaysAtTheBorders(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated || !slices.Contains(importsOf(s), "unsafe") {
			continue
		}
		if !s.in(mayBeUnsafe...) {
			t.Errorf("%s imports unsafe; only %v may", s.path, mayBeUnsafe)
		}
		if !s.test() && !saysUnsafe(s.file) {
			t.Errorf("%s imports unsafe; no comment of it says what is unsafe about it", s.path)
		}
	}
}

func saysUnsafe(f *ast.File) bool {
	return slices.ContainsFunc(f.Comments, func(g *ast.CommentGroup) bool {
		return strings.Contains(strings.ToLower(g.Text()), "unsafe")
	})
}

// readsClock are the functions of package time that read the clock, and waits
// are those that make something happen later.
var (
	readsClock = []string{"Now", "Since", "Until"}
	waits      = []string{"Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
)

func TestTimeIsAnArgument(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.in("tests", "examples", "internal/clock") {
			continue
		}
		forbidden := slices.Clone(readsClock)
		if slices.Contains(pure, s.dir()) {
			forbidden = append(forbidden, waits...)
		}
		for _, name := range usesOf(s.file, "time") {
			if slices.Contains(forbidden, name) {
				t.Errorf("%s uses time.%s: take the time as an argument, or clock.Now at the edge", s.path, name)
			}
		}
	}
}

// usesOf lists the names of a package that a file uses.
func usesOf(f *ast.File, pkg string) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg && id.Obj == nil {
				names = append(names, sel.Sel.Name)
			}
		}
		return true
	})
	return names
}
