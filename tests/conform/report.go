package conform

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// everyRow makes a run fail while a row that can apply is claimed by no test.
const everyRow = true

// ran is what a run knows of one claim.
type ran map[outcome]int

// run is what the processes of a run noted, by claim; test is the name of the
// top-level function, whether its claim is in the source of a function or not.
type run map[claim]ran

// readRun reads the notes of a run.
func readRun(dir string) (run, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+noteSuffix))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("%s: %d files of claims (%v): did the tests run with %s=%s?", dir, len(names), err, Env, dir)
	}
	r := run{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) != 4 {
				return nil, fmt.Errorf("%s: line %q, want outcome, id, package, test", name, line)
			}
			r.add(outcome(f[0]), f[1], f[2], f[3])
		}
	}
	return r, nil
}

func (r run) add(o outcome, id, pkg, test string) {
	test, _, _ = strings.Cut(test, "/")
	c := claim{id, pkg, test}
	if r[c] == nil {
		r[c] = ran{}
	}
	r[c][o]++
}

// of sums up what became of a claim of the source.
func (r run) of(c claim) (sum ran) {
	sum = ran{}
	for got, n := range r {
		if got.id == c.id && got.pkg == c.pkg && (c.test == "" || c.test == got.test) {
			for o, k := range n {
				sum[o] += k
			}
		}
	}
	return sum
}

// verdict says what is wrong with a claim, or nothing.
func (n ran) verdict(require bool) string {
	switch {
	case n[failed] > 0:
		return "failed"
	case n[began] > n[passed]+n[skipped]:
		return "began and didn't end"
	case n[passed] > 0:
		return ""
	case n[skipped] == 0:
		return "did not run"
	case require:
		return "skipped"
	}
	return ""
}

// Check compares the notes of a run in dir with the claims of the source below
// root, and writes how many rows hold. The error names the claims that didn't
// pass: those that failed or didn't run, and with require those that skipped.
func Check(w io.Writer, root, dir string, require bool) error {
	sections, err := table()
	if err != nil {
		return err
	}
	claims, err := claimsIn(root, ids(sections))
	if err != nil {
		return err
	}
	r, err := readRun(dir)
	if err != nil {
		return err
	}
	wrong := r.compare(claims, require)
	s := summary(sections, claims, r)
	fmt.Fprintln(w, s)
	if everyRow && s.open > 0 {
		wrong = append(wrong, fmt.Sprintf("%d rows are claimed by no test", s.open))
	}
	if wrong != nil {
		return fmt.Errorf("conformance:\n  %s", strings.Join(wrong, "\n  "))
	}
	return nil
}

// compare lists what is wrong with the claims.
func (r run) compare(claims []claim, require bool) (wrong []string) {
	for _, c := range claims {
		if v := r.of(c).verdict(require); v != "" {
			wrong = append(wrong, fmt.Sprintf("%s, claimed by %v: %s", c.id, c, v))
		}
	}
	for got := range r {
		inSource := func(c claim) bool {
			return c.id == got.id && c.pkg == got.pkg && (c.test == "" || c.test == got.test)
		}
		if !slices.ContainsFunc(claims, inSource) {
			wrong = append(wrong, fmt.Sprintf("%s, claimed by %v: its name isn't in the source in full", got.id, got))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// counts are the rows of a run by what became of them.
type counts struct{ rows, passed, missing, open, cannot int }

func (c counts) String() string {
	s := fmt.Sprintf("conformance: %d of %d rows pass; %d can't apply, %d are open", c.passed, c.rows, c.cannot, c.open)
	if c.missing > 0 {
		s += fmt.Sprintf(", %d were not shown here", c.missing)
	}
	return s
}

func summary(sections []section, claims []claim, r run) (n counts) {
	held, claimed := map[string]bool{}, map[string]bool{}
	for _, c := range claims {
		claimed[c.id] = true
		held[c.id] = held[c.id] || r.of(c)[passed] > 0
	}
	for _, s := range sections {
		for _, row := range s.rows {
			n.rows++
			switch {
			case row.cannot != "":
				n.cannot++
			case held[row.id]:
				n.passed++
			case claimed[row.id]:
				n.missing++
			default:
				n.open++
			}
		}
	}
	return n
}
