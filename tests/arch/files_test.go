package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// folders are all that may be at the top of the module.
var folders = []string{".ci", "bpf", "cmd", "docs", "examples", "ib", "internal", "rocev2", "scripts", "sm", "tests", "verbs", "xdp"}

func TestTopLevelFolders(t *testing.T) {
	for _, f := range files(t) {
		top, _, below := strings.Cut(f, "/")
		if below && !slices.Contains(folders, top) {
			t.Errorf("%s: the top-level folders are fixed: %v", f, folders)
		}
	}
}

var (
	generatedName   = regexp.MustCompile(`(_bpfe[lb]|_string|_gen)\.go$`)
	generatedHeader = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

func TestGeneratedFilesSaySo(t *testing.T) {
	for _, s := range sources(t) {
		if generatedName.MatchString(s.path) && !s.generated {
			t.Errorf("%s: a generated file starts with a line like %s", s.path, generatedHeader)
		}
	}
}

// machine matches paths that exist on one machine only. It is put together
// here so that this file does not match.
var machine = regexp.MustCompile(strings.Join([]string{
	`(^|[^\w$}])/` + `work/`, `\.\./` + `shared`, `/` + `farm/`, `/tmp/` + `lab`}, "|"))

func TestNoPathOfAMachine(t *testing.T) {
	for _, f := range files(t) {
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			continue // no text
		}
		if at := machine.FindIndex(data); at != nil {
			line := bytes.Count(data[:at[0]+1], []byte("\n")) + 1
			t.Errorf("%s:%d names a path of one machine: %s", f, line, data[at[0]:at[1]])
		}
	}
}

// Only compiled XDP programs are binaries, and nothing is large.
func TestNoBinaries(t *testing.T) {
	mayBe := regexp.MustCompile(`^bpf/.*\.o$|\.pcap(ng)?$|/testdata/`)
	for _, f := range files(t) {
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(data, 0) >= 0 && !mayBe.MatchString(f) {
			t.Errorf("%s is a binary file", f)
		}
		if len(data) > 1<<20 {
			t.Errorf("%s has %d bytes; at most 1 MiB", f, len(data))
		}
	}
}

var promise = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func TestNoPromises(t *testing.T) {
	for _, s := range sources(t) {
		for _, g := range s.file.Comments {
			if w := promise.FindString(g.Text()); w != "" {
				t.Errorf("%s: a comment with %s; do it or file an issue", fset.Position(g.Pos()), w)
			}
		}
	}
}

// clause is a clause of chapter 9, the transport's, with what comes before it.
var clause = regexp.MustCompile(`(\bIBA |\d[,;] |\d to |[\d.])?\b9\.\d+(\.\d+)+`)

// A clause is cited in one form, so that all places that keep it are found: IBA 9.7.6.1, C9-64, Annex A17.9.3.
func TestClausesHaveOneForm(t *testing.T) {
	for _, s := range sources(t) {
		for _, g := range s.file.Comments {
			for _, m := range clause.FindAllStringSubmatch(strings.ReplaceAll(g.Text(), "\n", " "), -1) {
				if m[1] == "" {
					t.Errorf("%s: a comment cites %s: IBA %[2]s", fset.Position(g.Pos()), m[0])
				}
			}
		}
	}
}

// goFile is the name of a Go file, with or without its folder.
var goFile = regexp.MustCompile(`\b[\w/]+\.go\b`)

// Who follows a comment or a document to a file finds it.
func TestFilesThatAreNamedExist(t *testing.T) {
	names := map[string]bool{}
	for _, f := range files(t) {
		names[filepath.Base(f)] = true
	}
	check := func(where, text string) {
		for _, f := range goFile.FindAllString(text, -1) {
			if !names[filepath.Base(f)] {
				t.Errorf("%s names %s, which is not there", where, f)
			}
		}
	}
	for _, s := range sources(t) {
		for _, g := range s.file.Comments {
			check(fset.Position(g.Pos()).String(), g.Text())
		}
	}
	for _, f := range files(t) {
		if strings.HasSuffix(f, ".md") {
			data, err := os.ReadFile(filepath.Join(root, f))
			if err != nil {
				t.Fatal(err)
			}
			check(f, string(data))
		}
	}
}
