package nettest

import (
	"os"
	"testing"
)

// Require skips a test that needs namespaces and AF_XDP, saying what is missing;
// with URXE_REQUIRE=1, as in CI, it fails instead.
func Require(t testing.TB) {
	t.Helper()
	if why := Missing(); why != "" {
		SkipOrFail(t, why)
	}
}

// SkipOrFail skips a test for want of something, or fails it with URXE_REQUIRE=1.
func SkipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("URXE_REQUIRE") == "1" {
		t.Fatalf("missing: %s", why)
	}
	t.Skipf("missing: %s", why)
}

// New makes a pair for a test and removes it at the test's end.
func New(t testing.TB, c Config) *Pair {
	t.Helper()
	Require(t)
	p, err := NewPair(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
