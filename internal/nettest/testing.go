package nettest

import "os"

// T is the part of testing.TB that this package needs: the demo uses it, too,
// and wants no test framework in its binary.
type T interface {
	Helper()
	Cleanup(func())
	Fatal(...any)
	Fatalf(string, ...any)
	Skipf(string, ...any)
}

// Require skips a test that needs namespaces and AF_XDP, saying what is missing;
// with URXE_REQUIRE=1, as in CI, it fails instead.
func Require(t T) {
	t.Helper()
	if why := Missing(); why != "" {
		SkipOrFail(t, why)
	}
}

// SkipOrFail skips a test for want of something, or fails it with URXE_REQUIRE=1.
func SkipOrFail(t T, why string) {
	t.Helper()
	if os.Getenv("URXE_REQUIRE") == "1" {
		t.Fatalf("missing: %s", why)
	}
	t.Skipf("missing: %s", why)
}

// New makes a pair for a test and removes it at the test's end.
func New(t T, c Config) *Pair {
	t.Helper()
	Require(t)
	p, err := NewPair(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
