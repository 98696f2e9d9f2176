package mem

import "testing"

// What is there for the taking is copied at once; all else has to be an op.
func TestGatherAtOnce(t *testing.T) {
	const digits, iova = "0123456789", 0x1000
	var tab Table
	pd := new(PD)
	region := func() *MR {
		mr, err := tab.Register(pd, NewBytes([]byte(digits), 0), 0, iova, uint64(len(digits)), allAccess)
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	own, dead, ends := region(), region(), region()
	if err := tab.Deregister(dead); err != nil {
		t.Fatal(err)
	}
	ends.more = &more{} // as of a window
	for _, c := range []struct {
		what    string
		mr      *MR
		off, n  int
		waiting int
		ok      bool
	}{
		{"in one piece", own, 2, 3, 0, true},
		{"in two pieces", own, 2, 6, 0, true},
		{"no bytes", own, len(digits), 0, 0, true},
		{"beyond the end", own, 5, 6, 0, false},
		{"behind an op", own, 2, 6, 1, false},
		{"of a dead region", dead, 2, 6, 0, false},
		{"of what may end meanwhile", ends, 2, 6, 0, false},
	} {
		b := NewBatch(1)
		for range c.waiting {
			b.Add()
		}
		got := make([]byte, c.n)
		cut := min(c.n, 4)
		ok := b.Gather(c.mr, iova+uint64(c.off), &[2][]byte{got[:cut], got[cut:]})
		if ok != c.ok {
			t.Errorf("%s: %v", c.what, ok)
		} else if ok && string(got) != digits[c.off:][:c.n] {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}
