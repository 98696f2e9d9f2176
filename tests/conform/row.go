package conform

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Env names the environment variable with the directory into which test
// processes note their claims. Without it nothing is noted.
const Env = "URXE_CONFORM"

// Row claims rows of the table for the test t: that they hold is what it shows.
// A row is named by its id; "5.2/rnr-*" names all that begin so.
func Row(t testing.TB, names ...string) {
	t.Helper()
	pkg := callerPackage(2)
	var ids []string
	for _, name := range names {
		ids = append(ids, claimable(t, name)...)
	}
	dir := os.Getenv(Env)
	if dir == "" {
		return
	}
	note(t, dir, began, pkg, ids)
	t.Cleanup(func() { note(t, dir, outcomeOf(t), pkg, ids) })
}

// claimable returns the ids of the rows that a name stands for.
func claimable(t testing.TB, name string) []string {
	t.Helper()
	known, err := known()
	if err != nil {
		t.Fatal(err)
	}
	ids := named(known, name)
	if ids == nil {
		t.Fatalf("no row %q in tests/conform/rows.txt", name)
	}
	for _, id := range ids {
		if why := known[id].cannot; why != "" {
			t.Fatalf("row %s is claimed, and says that it can't apply: %s", id, why)
		}
	}
	return ids
}

var known = sync.OnceValues(func() (map[string]*row, error) {
	sections, err := table()
	return ids(sections), err
})

// outcome is what became of a claim in a test.
type outcome string

const (
	began   outcome = "began"
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "skipped"
)

func outcomeOf(t testing.TB) outcome {
	switch {
	case t.Failed():
		return failed
	case t.Skipped():
		return skipped
	}
	return passed
}

var notes struct {
	sync.Mutex
	file *os.File
}

// note appends a line for each claim to this process's file.
func note(t testing.TB, dir string, o outcome, pkg string, ids []string) {
	notes.Lock()
	defer notes.Unlock()
	var err error
	if notes.file == nil {
		notes.file, err = os.CreateTemp(dir, strings.ReplaceAll(pkg, "/", "-")+"-*"+noteSuffix)
	}
	for _, id := range ids {
		if err == nil {
			_, err = fmt.Fprintf(notes.file, "%s\t%s\t%s\t%s\n", o, id, pkg, t.Name())
		}
	}
	if err != nil {
		t.Errorf("%s: a claim can't be noted: %v", Env, err)
	}
}

const noteSuffix = ".claims"

// callerPackage returns the folder, below the module's root, of the package
// whose function is skip calls up.
func callerPackage(skip int) string {
	pc := make([]uintptr, 1)
	runtime.Callers(skip+1, pc)
	frame, _ := runtime.CallersFrames(pc).Next()
	name := strings.TrimPrefix(frame.Function, module)
	dir, last := filepath.Split(name)
	last, _, _ = strings.Cut(last, ".")
	return dir + strings.TrimSuffix(last, "_test")
}

const module = "github.com/urxe/urxe/"
