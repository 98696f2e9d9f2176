// Package seeded gives random tests their numbers, and says how to get the same again: go test -seed.
package seeded

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var given = flag.Uint64("seed", 0, "seed of the random tests; 0 chooses one")

// Given returns the seed of the command line, 0 without one: for tests that run the same seeds each time.
func Given() uint64 { return *given }

// Seed returns the seed of the command line, or one of its own choosing, and logs the flags that repeat t with it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := *given
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<32)
	}
	t.Logf("again with -run '^%s$' -seed %d", t.Name(), seed)
	return seed
}

// Rand returns a source of random numbers from Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
