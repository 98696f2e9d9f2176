package conform

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// claim is a row's id in the source of a test.
type claim struct {
	id   string
	pkg  string // folder below the module's root
	test string // function; empty when the id stands in a table or a helper
}

func (c claim) String() string {
	if c.test == "" {
		return c.pkg
	}
	return c.pkg + " " + c.test
}

// claimsIn finds the claims in the test files below root: every string that
// names rows, in files that import this package.
func claimsIn(root string, known map[string]*row) (claims []claim, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (name == "testdata" || name[0] == '.') {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err == nil && importsThis(f) {
			claims = append(claims, claimsOf(f, filepath.ToSlash(dir), known)...)
		}
		return err
	})
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	return slices.Compact(claims), err
}

func importsThis(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == strconv.Quote(module+"tests/conform")
	})
}

func claimsOf(f *ast.File, pkg string, known map[string]*row) (claims []claim) {
	for _, d := range f.Decls {
		test := testName(d)
		ast.Inspect(d, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				name, _ := strconv.Unquote(lit.Value)
				for _, id := range named(known, name) {
					claims = append(claims, claim{id, pkg, test})
				}
			}
			return true
		})
	}
	return claims
}

// testName returns the name of a test or fuzz function.
func testName(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
		return f.Name.Name
	}
	return ""
}
