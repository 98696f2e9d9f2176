package mem

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Ranges that touch are one iovec; what ends a message is one of its own, to
// which what follows may be joined, but not what precedes.
func TestRemoteRangesMerge(t *testing.T) {
	type op struct {
		addr uint64
		n    int
		tail bool
	}
	for name, x := range map[string]struct {
		ops  []op
		want []unix.RemoteIovec
	}{
		"contiguous":       {[]op{{0x1000, 1024, false}, {0x1400, 1024, false}, {0x1800, 3, false}}, []unix.RemoteIovec{{Base: 0x1000, Len: 2051}}},
		"gap":              {[]op{{0x1000, 8, false}, {0x1010, 8, false}}, []unix.RemoteIovec{{Base: 0x1000, Len: 8}, {Base: 0x1010, Len: 8}}},
		"again":            {[]op{{0x1000, 8, false}, {0x1000, 8, false}}, []unix.RemoteIovec{{Base: 0x1000, Len: 8}, {Base: 0x1000, Len: 8}}},
		"message":          {[]op{{0x1000, 1024, false}, {0x1400, 1024, true}}, []unix.RemoteIovec{{Base: 0x1000, Len: 2040}, {Base: 0x17f8, Len: 8}}},
		"odd end":          {[]op{{0x1000, 1023, true}}, []unix.RemoteIovec{{Base: 0x1000, Len: 1022}, {Base: 0x13fe, Len: 1}}},
		"end at 4":         {[]op{{0x1000, 12, true}}, []unix.RemoteIovec{{Base: 0x1000, Len: 8}, {Base: 0x1008, Len: 4}}},
		"word by itself":   {[]op{{0x1000, 8, false}, {0x1008, 8, true}}, []unix.RemoteIovec{{Base: 0x1000, Len: 8}, {Base: 0x1008, Len: 8}}},
		"message after it": {[]op{{0x1000, 16, true}, {0x1010, 100, false}}, []unix.RemoteIovec{{Base: 0x1000, Len: 8}, {Base: 0x1008, Len: 108}}},
		"nothing":          {[]op{{0x1000, 0, true}}, []unix.RemoteIovec{}},
	} {
		c := newVMCall(8, false)
		c.begin(&Process{}, true)
		for _, o := range x.ops {
			mr := &MR{Length: 1 << 20}
			c.add(&Op{Kind: Scatter, MR: mr, VA: o.addr, Tail: o.tail, Frag: [2][]byte{make([]byte, o.n)}})
		}
		if d := cmp.Diff(x.want, c.remote); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
