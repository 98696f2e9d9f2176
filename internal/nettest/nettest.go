// Package nettest gives tests the networks of package veth, and says what a machine
// lacks for them.
package nettest

import (
	"os"
	"testing"

	"github.com/urxe/urxe/internal/veth"
)

// What New makes, and of what.
type (
	Config = veth.Config
	Pair   = veth.Pair
	End    = veth.End
	NS     = veth.NS
)

// Require skips a test that needs namespaces and AF_XDP, saying what is missing;
// with URXE_REQUIRE=1, as in CI, it fails instead.
func Require(t testing.TB) {
	t.Helper()
	if why := veth.Missing(); why != "" {
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
	p, err := veth.NewPair(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
