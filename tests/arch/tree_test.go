package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/urxe/urxe/"

// source is a Go file of the module.
type source struct {
	path      string // below the module's root
	file      *ast.File
	generated bool
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// dir is the file's folder below the module's root, which is also its import
// path without the module's.
func (s source) dir() string { return filepath.Dir(s.path) }

// in reports whether the file is in one of the folders or below.
func (s source) in(folders ...string) bool { return under(s.dir(), folders...) }

func under(dir string, folders ...string) bool {
	for _, f := range folders {
		if dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}

var fset = token.NewFileSet()

const root = "../.."

// tracked lists the files that git knows or would add, below the root; all of them
// where there is no git, as in an unpacked archive, or it doesn't trust the owner.
var tracked = sync.OnceValues(func() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return walked(root)
	}
	var files []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		// a file that is in the index but was removed is none
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files, nil
})

// walked lists the files below dir, but for those that are made there.
func walked(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", ".cache"}, d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, name)
		return err
	})
	return files, err
}

// Both ways see the same source.
func TestWalked(t *testing.T) {
	all, err := walked(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t) {
		if !slices.Contains(all, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func files(t *testing.T) []string {
	t.Helper()
	f, err := tracked()
	if err != nil {
		t.Fatal("list files:", err)
	}
	return f
}

var parsed = sync.OnceValues(func() ([]source, error) {
	names, err := tracked()
	if err != nil {
		return nil, err
	}
	var all []source
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		all = append(all, source{name, f, ast.IsGenerated(f)})
	}
	return all, nil
})

func sources(t *testing.T) []source {
	t.Helper()
	s, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
