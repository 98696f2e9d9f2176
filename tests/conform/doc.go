// Package conform holds the conformance table: every rule that a RoCEv2 device
// has to keep, and every public bug report about others that kept one not, each
// a row with an id (rows.txt).
//
// A test claims the rows that it shows, by their ids:
//
//	func TestSequenceNAK(t *testing.T) {
//		conform.Row(t, "5.3/req-nak-sequence", "bug/15")
//
// The names of rows must stand in the file that claims them, in full. A claim is
// a promise: in a run of scripts/test.sh the test must execute and
// pass, in whichever package and process it runs. Claim a row in the test or
// subtest that can skip, not above it. docs/conformance.md is the table with the
// tests that claim its rows; go generate ./tests/conform makes it.
//
// How a run is checked: the claims are read from the source, so that a test
// which doesn't run is missed. Each test process notes in a directory, named by
// the environment, which claims began and how they ended; tests/conform/run
// compares the two at the end. As the directory differs from run to run, and the
// variable counts for the cache of go test, no result is a cached one.
package conform

//go:generate go run ./run table -o ../../docs/conformance.md
