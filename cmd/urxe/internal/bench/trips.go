package bench

import (
	"math/rand/v2"
	"slices"
	"time"
)

// maxSamples is of how many round trips the times are kept.
const maxSamples = 1 << 20

// trips are the times that round trips took: all, or, of more than maxSamples, as many drawn
// from them by lot, so that a measurement may be of any length.
type trips struct {
	n             int
	min, max, sum time.Duration // of all
	samples       []time.Duration
}

func newTrips() *trips { return &trips{samples: make([]time.Duration, 0, maxSamples)} }

func (t *trips) add(d time.Duration) {
	if t.n == 0 {
		t.min = d
	}
	t.n++
	t.min, t.max, t.sum = min(t.min, d), max(t.max, d), t.sum+d
	if len(t.samples) < maxSamples {
		t.samples = append(t.samples, d)
	} else if i := rand.IntN(t.n); i < maxSamples {
		t.samples[i] = d
	}
}

// latency draws the figures from the times.
func (t *trips) latency() Latency {
	if t.n == 0 {
		return Latency{}
	}
	slices.Sort(t.samples)
	k := len(t.samples)
	return Latency{N: t.n, Min: t.min, Median: t.samples[k/2], Avg: t.sum / time.Duration(t.n), P99: t.samples[k*99/100], Max: t.max}
}
