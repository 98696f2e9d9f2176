package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/urxe/urxe/tests/interop/ct"
	"github.com/urxe/urxe/tests/interop/guest"
	"github.com/urxe/urxe/tests/interop/rcm"
)

// built holds the programs that the tests compile, one folder for the process.
var built struct {
	sync.Mutex
	dir string
}

// asCT in the environment makes this program ct.Main.
const asCT = "URXE_INTEROP_CT"

func TestMain(m *testing.M) {
	if os.Getenv(asCT) != "" {
		os.Exit(ct.Main(os.Args[1:]))
	}
	if os.Getenv(asRCM) != "" {
		os.Exit(rcm.Main(os.Args[1:]))
	}
	code := guest.Main(m)
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// build runs a compiler unless the program of that name is there already, and
// returns the program's path. The compiler's last argument is the path.
func build(t *testing.T, name string, compiler ...string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "urxe-interop-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
	}
	path := filepath.Join(built.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if out, err := exec.Command(compiler[0], append(compiler[1:], path)...).CombinedOutput(); err != nil {
		t.Fatalf("%s does not compile: %v\n%s", name, err, out)
	}
	return path
}

// putCT puts the verbs test program testdata/ct.c into a guest and returns its
// path there. It needs the Debian packages gcc and libibverbs-dev.
func putCT(t *testing.T, g *guest.Guest) string {
	t.Helper()
	return g.Put(t, build(t, "ct", "gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-Wno-missing-field-initializers", "-D_GNU_SOURCE", "testdata/ct.c", "-libverbs", "-o"))
}

// urxe builds the command and returns its path on the host. It runs in guests, too,
// which have other libraries.
func urxe(t *testing.T) string {
	t.Helper()
	return build(t, "urxe", "env", "CGO_ENABLED=0", "go", "build", "-C", "../../cmd/urxe", "-o")
}
