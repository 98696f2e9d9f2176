// Package rigtest has what the tests of commands with two sides begin with.
package rigtest

import (
	"net"
	"testing"

	"github.com/urxe/urxe/verbs"
)

// Pair opens two joined devices until t ends.
func Pair(t testing.TB) (a, b *verbs.Device) {
	t.Helper()
	a, b, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// FreePort returns a TCP port that no one listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
