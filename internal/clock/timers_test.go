package clock

import (
	"testing"

	"github.com/urxe/urxe/internal/seeded"
)

// The heap against a plain list, with deadlines that come, move both ways, and go.
func TestTimers(t *testing.T) {
	r := seeded.Rand(t)
	var h Timers[int]
	all := make([]Timer[int], 40)
	want := make([]Time, len(all))
	for i := range all {
		all[i].Of, want[i] = i, Never
	}
	for range 20_000 {
		i, at := r.IntN(len(all)), Never
		if r.IntN(3) > 0 {
			at = Time(1 + r.IntN(100))
		}
		h.Set(&all[i], at)
		want[i] = at
		earliest, n := Never, 0
		for k := range all {
			if got := all[k].At(); got != want[k] {
				t.Fatalf("timer %d is at %d, want %d", k, got, want[k])
			}
			if want[k] != Never {
				n++
			}
			earliest = min(earliest, want[k])
		}
		if h.Next() != earliest || h.Len() != n {
			t.Fatalf("the next of %d is at %d, want %d of %d", h.Len(), h.Next(), earliest, n)
		}
		now := Time(r.IntN(101))
		if of, ok := h.Due(now); ok != (earliest <= now) || ok && want[of] != earliest {
			t.Fatalf("at %d: %d, %v; the earliest deadline is %d", now, of, ok, earliest)
		}
	}
}
