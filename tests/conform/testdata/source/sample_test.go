package sample

import (
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

var cases = []struct{ row string }{{"5.1/op-00"}, {"5.1/op-01"}, {"no row"}}

func TestTable(t *testing.T) {
	conform.Row(t, "5.11/1", "5.11/2")
	for _, c := range cases {
		t.Run(c.row, func(t *testing.T) { conform.Row(t, c.row) })
	}
}

func FuzzSome(f *testing.F) { conform.Row(f, "5.11/1") }

func helper(t *testing.T) { conform.Row(t, "bug/1", "5.5/v4-*") }

// "5.11/3" in a comment is no claim.
