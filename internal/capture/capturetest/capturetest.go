// Package capturetest makes captures for tests.
package capturetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/capture"
)

// Of returns a pcapng stream of frames of one interface, 1.5 µs apart from 14:13:20 on. Directions take turns: unknown,
// in, out; every other frame has the comment "why".
func Of(t testing.TB, frames ...[]byte) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.AddInterface("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		at := time.Unix(1790000000, int64(i)*1500)
		if err := w.Write(id, at, capture.Direction(i%3), [2][]byte{f}, len(f), strings.Repeat("why", i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return &b
}
