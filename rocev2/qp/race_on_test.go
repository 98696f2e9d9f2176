//go:build race

package qp

// raceEnabled: the test runs under the race detector, ten times slower.
const raceEnabled = true
