package conform

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeT is a test whose end and outcome the test here decides.
type fakeT struct {
	testing.TB
	name            string
	failed, skipped bool
	fatal           string
	cleanups        []func()
}

func (f *fakeT) Helper()           {}
func (f *fakeT) Name() string      { return f.name }
func (f *fakeT) Failed() bool      { return f.failed }
func (f *fakeT) Skipped() bool     { return f.skipped }
func (f *fakeT) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeT) Fatalf(format string, args ...any) {
	f.fatal = format
	panic(f) // ends the test, as the real one does
}

func (f *fakeT) end() {
	for _, c := range f.cleanups {
		c()
	}
}

// claims runs Row, and returns whether the test went on.
func (f *fakeT) claims(ids ...string) (ok bool) {
	defer func() { ok = recover() == nil }()
	Row(f, ids...)
	return
}

// noteInto has claims noted in a directory of their own.
func noteInto(t *testing.T) (dir string) {
	dir = t.TempDir()
	t.Setenv(Env, dir)
	notes.file = nil
	t.Cleanup(func() { notes.file = nil })
	return dir
}

func TestRowNotesWhatBecameOfAClaim(t *testing.T) {
	dir := noteInto(t)
	for _, f := range []*fakeT{
		{name: "TestPass/sub"}, {name: "TestFail", failed: true}, {name: "TestSkip", skipped: true}, {name: "TestPass/sub2"},
	} {
		if !f.claims("5.11/1", "bug/1") {
			t.Fatal(f.fatal)
		}
		f.end()
	}
	(&fakeT{name: "TestPanic"}).claims("bug/1")
	got, err := readRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := run{}
	for _, id := range []string{"5.11/1", "bug/1"} {
		want[claim{id, "tests/conform", "TestPass"}] = ran{began: 2, passed: 2}
		want[claim{id, "tests/conform", "TestFail"}] = ran{began: 1, failed: 1}
		want[claim{id, "tests/conform", "TestSkip"}] = ran{began: 1, skipped: 1}
	}
	want[claim{"bug/1", "tests/conform", "TestPanic"}] = ran{began: 1}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(claim{})); d != "" {
		t.Errorf("want - got +:\n%s", d)
	}
}

func TestRowRefuses(t *testing.T) {
	noteInto(t)
	for _, id := range []string{"no such row", "bug/49", "5.11/x*", "*", "bug/*"} {
		if f := (&fakeT{name: "TestX"}); f.claims("5.11/1", id) {
			t.Errorf("%s can be claimed", id)
		}
	}
}

func TestReadRunRefuses(t *testing.T) {
	if _, err := readRun(t.TempDir()); err == nil || !strings.Contains(err.Error(), Env) {
		t.Errorf("without notes: %v", err)
	}
}

func TestClaimsOfTheSource(t *testing.T) {
	known, err := known()
	if err != nil {
		t.Fatal(err)
	}
	got, err := claimsIn("testdata/source", known)
	if err != nil {
		t.Fatal(err)
	}
	want := []claim{
		{"5.1/op-00", ".", ""}, {"5.1/op-01", ".", ""}, {"5.11/1", ".", "FuzzSome"}, {"5.11/1", ".", "TestTable"},
		{"5.11/2", ".", "TestTable"}, {"5.5/v4-checksum", ".", ""}, {"5.5/v4-tos", ".", ""}, {"5.5/v4-ttl", ".", ""}, {"bug/1", ".", ""},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(claim{})); d != "" {
		t.Errorf("want - got +:\n%s", d)
	}
}
