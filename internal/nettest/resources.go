package nettest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Resources is what the Close of a socket must leave nothing of.
type Resources struct {
	FDs   int // sockets, eventfds, BPF objects
	Rings int // mappings of sockets' rings
	UMEM  int // pages of memory that is kept out of core dumps, as only UMEMs and rings are
}

// CountResources counts what this process has.
func CountResources(t testing.TB) (r Resources) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if strings.HasPrefix(target, "socket:") || strings.Contains(target, "bpf") || strings.Contains(target, "eventfd") {
			r.FDs++
		}
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	kib := 0
	for line := range strings.Lines(string(maps)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "socket:") {
			r.Rings++
		}
		_, _ = fmt.Sscanf(line, "Size: %d kB", &kib)
		if strings.HasPrefix(line, "VmFlags:") && strings.Contains(line+" ", " dd ") {
			r.UMEM += kib / 4
		}
	}
	return r
}
