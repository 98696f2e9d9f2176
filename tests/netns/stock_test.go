package netns

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// stock is what a process holds that a device that was closed must not.
type stock map[string]int

// takeStock counts this process's descriptors by kind, its mappings of rings and
// its goroutines.
func takeStock(t testing.TB) stock {
	t.Helper()
	s := stock{"goroutines": runtime.NumGoroutine()}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil {
			kind, _, _ := strings.Cut(name, "[")
			s["fd "+kind]++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "socket:[") { // rings
			s["rings mapped"]++
		}
	}
	return s
}

// compare waits until what is held is what was held, or less.
func (s stock) compare(t testing.TB) {
	t.Helper()
	var more []string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		now := takeStock(t)
		more = nil
		for _, k := range slices.Sorted(maps.Keys(now)) {
			if now[k] > s[k] {
				more = append(more, fmt.Sprintf("%s: %d, was %d", k, now[k], s[k]))
			}
		}
		if more == nil {
			return
		}
	}
	t.Errorf("still held: %s", strings.Join(more, "; "))
}
