package sim

import (
	"cmp"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/urxe/urxe/internal/seeded"
)

var (
	seeds   = flag.Int("seeds", 200, "how many seeds to run")
	verbose = flag.Bool("verbose", false, "print every packet and what the QPs do; for one seed")
)

// TestSeeds runs the simulation of each seed.
func TestSeeds(t *testing.T) {
	first := cmp.Or(seeded.Given(), 1)
	t.Logf("seeds %d to %d; a failing one runs alone with -seed=N -seeds=1", first, first+uint64(*seeds)-1)
	total := NewCoverage()
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	var all Result
	least := 1 << 30
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			c := NewCoverage()
			c.Verbose = *verbose
			for i := next.Add(1) - 1; i < int64(*seeds) && !t.Failed(); i = next.Add(1) - 1 {
				res, err := Run(first+uint64(i), c)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				all.Posts, all.Packets = all.Posts+res.Posts, all.Packets+res.Packets
				least = min(least, res.Posts)
				if err == nil && (res.QPs < 4 || res.Posts < 500) {
					t.Errorf("seed %d has %d QPs and %d work requests, want at least 4 and 500", first+uint64(i), res.QPs, res.Posts)
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			total.Merge(c)
		})
	}
	wg.Wait()
	t.Logf("%d work requests (at least %d a seed), %d packets\n%s", all.Posts, least, all.Packets, total)
	const enough = 1000 // the rarest come once in a hundred seeds
	if *seeds < enough {
		t.Logf("whether all was met is judged from %d seeds on", enough)
		return
	}
	if t.Failed() {
		return
	}
	for _, m := range total.Missing() {
		t.Errorf("no run met: %s", m)
	}
}
