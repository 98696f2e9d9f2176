package arch

import (
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport says which of our own packages the packages of a folder may import;
// the longest folder that matches rules. A name ending in /... stands for a
// folder and all below it.
var mayImport = map[string][]string{
	// the vocabulary and what has nothing to do with RDMA
	"ib":       {},
	"internal": {"internal/...", "ib"},
	"bpf":      {},
	"xdp":      {"bpf", "xdp/...", "internal/..."},

	// management datagrams
	"ib/internal": {"ib", "ib/mad", "internal/..."},
	"ib/mad":      {"ib", "internal/..."},
	"ib/umad":     {"ib", "ib/mad", "ib/internal/..."},
	"ib/ibsim":    {"ib", "ib/mad", "ib/internal/...", "internal/..."},
	"ib/fabric":   {"ib", "ib/mad", "ib/internal/...", "internal/..."},

	// the transport: pure packages below, the Port above
	"rocev2/wire":   {"ib"},
	"rocev2/mem":    {"ib", "internal/...", "rocev2/wire"},
	"rocev2/cc":     {"internal/..."},
	"rocev2/cm":     {"ib", "ib/mad", "internal/..."},
	"rocev2/qp":     {"ib", "internal/...", "rocev2/wire", "rocev2/mem"},
	"rocev2/decode": {"internal/...", "rocev2/wire"},
	"rocev2":        {"ib", "internal/...", "xdp/...", "rocev2/..."},

	// what programs use
	"verbs":        {"ib", "internal/...", "rocev2/...", "xdp"},
	"verbs/rdmacm": {"ib", "ib/mad", "internal/...", "rocev2/cm", "verbs"},
	"sm":           {"ib/...", "internal/...", "sm/..."},

	"examples": {"ib", "verbs/..."},
	"cmd":      {"ib", "internal/...", "rocev2/decode", "verbs/...", "sm/...", "cmd/..."},
	"tests":    {"ib", "internal/...", "rocev2/...", "xdp/...", "bpf", "verbs/...", "tests/..."},
}

// pure packages own no goroutine, socket or clock.
var pure = []string{"rocev2/wire", "rocev2/qp", "rocev2/cc", "rocev2/cm"}

// impure are standard packages that a pure one has no use for.
var impure = []string{"net", "os", "os/exec", "syscall", "golang.org/x/sys/unix"}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		rule, known := mayImport[folderOf(s.dir())]
		if !known {
			t.Errorf("%s: no rule says what %s may import: add it to mayImport, at its place in the tree of docs/architecture.md", s.path, s.dir())
			continue
		}
		for _, name := range importsOf(s) {
			own, found := strings.CutPrefix(name, module)
			if found && own != s.dir() && !allowed(own, rule) {
				t.Errorf("%s imports %s, which is not below it; it may import %v", s.path, own, rule)
			}
		}
	}
}

// What no one imports needs no leave: it would be there for the first who shouldn't.
func TestLeaveIsUsed(t *testing.T) {
	for folder, rule := range mayImport {
		for _, r := range rule {
			used := slices.ContainsFunc(sources(t), func(s source) bool {
				return !s.test() && folderOf(s.dir()) == folder && slices.ContainsFunc(importsOf(s), func(name string) bool {
					own, found := strings.CutPrefix(name, module)
					return found && allowed(own, []string{r})
				})
			})
			if !used {
				t.Errorf("%s may import %s and doesn't", folder, r)
			}
		}
	}
}

// A rule for a folder that isn't there is one that can't be broken.
func TestRulesAreOfFoldersThatExist(t *testing.T) {
	named := append(slices.Collect(maps.Keys(mayImport)), slices.Concat(pure, mayBeUnsafe)...)
	for _, rules := range mayImport {
		named = append(named, rules...)
	}
	for _, n := range named {
		folder, _ := strings.CutSuffix(n, "/...")
		if !slices.ContainsFunc(sources(t), func(s source) bool { return s.in(folder) }) {
			t.Errorf("a rule names %s, where no Go file is", n)
		}
	}
}

func TestPureCoreDoesNoIO(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, name := range importsOf(s) {
			if slices.Contains(impure, name) {
				t.Errorf("%s imports %s: the core does no IO", s.path, name)
			}
		}
	}
}

// They may import internal/clock for its Time, and not read it.
func TestPureCoreHasNoGoroutineOrClock(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, name := range usesOf(s.file, "clock") {
			if name == "Now" || name == "Wall" {
				t.Errorf("%s uses clock.%s: the core takes the time as an argument", s.path, name)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: the core has none", fset.Position(g.Pos()))
			}
			return true
		})
	}
}

func importsOf(s source) (names []string) {
	for _, i := range s.file.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		names = append(names, name)
	}
	return names
}

// folderOf returns the longest folder with a rule that holds dir, "" if none does.
func folderOf(dir string) (longest string) {
	for f := range mayImport {
		if under(dir, f) && len(f) > len(longest) {
			longest = f
		}
	}
	return longest
}

func allowed(dir string, rule []string) bool {
	return slices.ContainsFunc(rule, func(r string) bool {
		if folder, deep := strings.CutSuffix(r, "/..."); deep {
			return under(dir, folder)
		}
		return dir == r
	})
}
