package bench

import (
	"testing"
	"time"
)

// A measurement longer than what is kept of it: the extremes and the mean are of all trips, and
// the others near what they are of all.
func TestMoreTripsThanAreKept(t *testing.T) {
	const n = 3 * maxSamples
	x := newTrips()
	for i := range n {
		x.add(time.Duration(i))
	}
	l := x.latency()
	if l.N != n || l.Min != 0 || l.Max != n-1 || l.Avg != (n-1)/2 || len(x.samples) != maxSamples {
		t.Errorf("%+v of %d samples", l, len(x.samples))
	}
	// of a million samples a hundredth is ten standard deviations and more
	for _, c := range []struct{ got, want time.Duration }{{l.Median, n / 2}, {l.P99, n * 99 / 100}} {
		if d := c.got - c.want; d < -n/100 || d > n/100 {
			t.Errorf("%v, want about %v", c.got, c.want)
		}
	}
	if l := newTrips().latency(); l != (Latency{}) {
		t.Errorf("of no trip: %+v", l)
	}
}
