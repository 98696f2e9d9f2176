package arch

import (
	"cmp"
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
	"ib/internal": {"ib", "ib/mad", "internal/clock"},
	"ib/mad":      {"ib", "internal/clock"},
	"ib/umad":     {"ib", "ib/mad", "ib/internal/...", "internal/..."},
	"ib/ibsim":    {"ib", "ib/mad", "ib/internal/...", "ib/umad", "internal/..."},
	"ib/fabric":   {"ib", "ib/mad", "ib/internal/...", "internal/..."},

	// the transport: pure packages below, the Port above
	"rocev2/wire": {"ib", "internal/..."},
	"rocev2/mem":  {"ib", "internal/...", "rocev2/wire"},
	"rocev2/cc":   {"ib", "internal/...", "rocev2/wire"},
	"rocev2/cm":   {"ib", "ib/mad", "internal/..."},
	"rocev2/qp":   {"ib", "internal/...", "rocev2/wire", "rocev2/mem", "rocev2/cc"},
	"rocev2":      {"ib/...", "internal/...", "xdp/...", "bpf", "rocev2/..."},

	// the reader of captures stands above the packets that it prints
	"internal/decode": {"ib", "internal/capture", "rocev2/wire"},

	// what programs use
	"verbs":        {"ib/...", "internal/...", "rocev2/...", "xdp/...", "bpf"},
	"verbs/rdmacm": {"ib/...", "internal/...", "rocev2/...", "verbs"},
	"sm":           {"ib/...", "internal/...", "sm/...", "verbs"},

	"examples": {"ib", "verbs/..."},
	"cmd":      {"ib/...", "internal/...", "rocev2/...", "xdp/...", "bpf", "verbs/...", "sm/...", "cmd/..."},
	"tests":    {"ib/...", "internal/...", "rocev2/...", "xdp/...", "bpf", "verbs/...", "sm/...", "tests/..."},
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
		rule, known := ruleOf(s.dir())
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

// ruleOf returns the rule of the longest folder that holds dir.
func ruleOf(dir string) (rule []string, known bool) {
	var folders []string
	for f := range mayImport {
		if under(dir, f) {
			folders = append(folders, f)
		}
	}
	if len(folders) == 0 {
		return nil, false
	}
	longest := slices.MaxFunc(folders, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return mayImport[longest], true
}

func allowed(dir string, rule []string) bool {
	return slices.ContainsFunc(rule, func(r string) bool {
		if folder, deep := strings.CutSuffix(r, "/..."); deep {
			return under(dir, folder)
		}
		return dir == r
	})
}
