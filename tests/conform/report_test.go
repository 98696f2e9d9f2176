package conform

import (
	"strings"
	"testing"
)

// A claim that failed, didn't end or didn't run makes the run fail; one that
// skipped does where nothing may be missing.
func TestCompare(t *testing.T) {
	inTest := claim{"5.11/1", "a", "TestX"}
	inTable := claim{"5.11/1", "a", ""}
	for name, c := range map[string]struct {
		claim   claim
		notes   run
		require bool
		want    string // part of what is wrong; none when empty
	}{
		"passed":               {claim: inTest, notes: run{inTest: {began: 1, passed: 1}}},
		"passed, once skipped": {claim: inTest, notes: run{inTest: {began: 2, passed: 1, skipped: 1}}, require: true},
		"passed from a table":  {claim: inTable, notes: run{{"5.11/1", "a", "TestY"}: {began: 1, passed: 1}}},
		"failed":               {claim: inTest, notes: run{inTest: {began: 2, passed: 1, failed: 1}}, want: "failed"},
		"without an end":       {claim: inTest, notes: run{inTest: {began: 2, passed: 1}}, want: "didn't end"},
		"not run":              {claim: inTest, notes: run{}, want: "did not run"},
		"skipped":              {claim: inTest, notes: run{inTest: {began: 1, skipped: 1}}},
		"skipped in CI":        {claim: inTest, notes: run{inTest: {began: 1, skipped: 1}}, require: true, want: "skipped"},
		"by another test": {claim: inTest, notes: run{{"5.11/1", "a", "TestY"}: {began: 1, passed: 1}},
			want: "did not run"},
		"of another package": {claim: inTest, notes: run{{"5.11/1", "b", "TestX"}: {began: 1, passed: 1}},
			want: "did not run"},
		"name made up of parts": {claim: inTest, notes: run{inTest: {began: 1, passed: 1}, {"5.11/2", "a", "TestX"}: {began: 1, passed: 1}},
			want: "5.11/2, claimed by a TestX: its name isn't in the source"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := strings.Join(c.notes.compare([]claim{c.claim}, c.require), "\n")
			if (c.want == "") != (wrong == "") || !strings.Contains(wrong, c.want) {
				t.Errorf("wrong is %q, want %q", wrong, c.want)
			}
		})
	}
}

func TestCheckCounts(t *testing.T) {
	dir := noteInto(t)
	f := &fakeT{name: "TestTable"}
	f.claims("5.11/1")
	f.end()
	var out strings.Builder
	err := Check(&out, "testdata/source", dir, false)
	if err == nil || !strings.Contains(err.Error(), "5.11/2, claimed by . TestTable: did not run") {
		t.Errorf("claims that didn't run: %v", err)
	}
	if !strings.HasPrefix(out.String(), "conformance: 0 of ") || !strings.Contains(out.String(), " 8 were not shown here") {
		t.Errorf("printed %q", out.String())
	}
}
