package seeded

import (
	"flag"
	"testing"
)

// What is given is taken, and gives the same numbers; without it they are others each time.
func TestSeed(t *testing.T) {
	was := Given()
	defer func() { *given = was }()
	*given = 0
	if a, b := Seed(t), Seed(t); a == 0 || a == b {
		t.Errorf("of its own choosing: %d and %d", a, b)
	}
	if err := flag.Set("seed", "1234"); err != nil {
		t.Fatal(err)
	}
	if Given() != 1234 || Seed(t) != 1234 {
		t.Errorf("given 1234: %d, %d", Given(), Seed(t))
	}
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a != b {
		t.Errorf("of one seed: %d and %d", a, b)
	}
}
