package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// stock is what a process holds that a device that was closed must not.
type stock map[string]int

// takeStock counts this process's descriptors and special mappings by kind, its
// goroutines, and the machine's XDP links.
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

// bpfObjects lists the XDP links, and the programs and maps of ours, that exist
// on the machine.
func bpfObjects() (ids []string) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && info.XDP() != nil {
			ids = append(ids, fmt.Sprintf("XDP link %d", info.ID))
		}
	}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return ids
		}
		if err != nil {
			return append(ids, err.Error())
		}
		id = next
		ids = append(ids, programName(id)...)
	}
}

func programName(id ebpf.ProgramID) []string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil // it went
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil || !strings.HasPrefix(info.Name, "urxe") {
		return nil
	}
	return []string{fmt.Sprintf("program %d %s", id, info.Name)}
}
