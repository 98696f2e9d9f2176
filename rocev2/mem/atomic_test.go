package mem

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
)

// originals collects what atomics returned.
type originals struct {
	t      *testing.T
	values []uint64
}

func (o *originals) Commit(op *Op) {
	if op.Status != OK {
		o.t.Errorf("atomic: status %d", op.Status)
	}
	o.values = append(o.values, op.Orig)
}

// hammer lets workers count at va, each by its own region, and checks that no
// two saw the same value.
func hammer(t *testing.T, limit func(*Batch), rounds int, mrs []*MR, va uint64) {
	var wg sync.WaitGroup
	all := make([]originals, len(mrs))
	for w, mr := range mrs {
		wg.Go(func() {
			all[w].t = t
			b := NewBatch(4)
			limit(b)
			defer b.Close()
			for range rounds {
				op := b.Add()
				op.Kind, op.MR, op.VA, op.Swap, op.Owner = FetchAdd, mr, mr.IOVA+va, 1, &all[w]
				b.Run()
			}
		})
	}
	wg.Wait()
	var seen []uint64
	for w := range all {
		if !slices.IsSorted(all[w].values) {
			t.Errorf("worker %d saw the counter fall", w)
		}
		seen = append(seen, all[w].values...)
	}
	slices.Sort(seen)
	for i, v := range seen {
		if v != uint64(i) {
			t.Fatalf("value %d of the counter was %d", i, v)
		}
	}
}

func TestAtomicsOnProcess(t *testing.T) {
	for name, limit := range modes {
		for _, misaligned := range []uint64{0, 3} {
			t.Run(name, func(t *testing.T) {
				c := startChild(t)
				var tab Table
				pd := new(PD)
				// Overlapping regions, known by other addresses, of two Processes.
				p, p2 := c.process(), c.process()
				mrs := []*MR{
					register(t, &tab, pd, p, c.addr+misaligned, 0x8000, 4096, allAccess),
					register(t, &tab, pd, p2, c.addr+misaligned, 0, 4096, allAccess),
				}
				hammer(t, func(b *Batch) { b.Guard(limit) }, 500, mrs, 16)
				if got := binary.NativeEndian.Uint64(c.bytes(16+int(misaligned), 8)); got != 1000 {
					t.Errorf("the counter is %d, want 1000", got)
				}
			})
		}
	}
}

func TestAtomicsOnBytes(t *testing.T) {
	for _, misaligned := range []int{0, 5} {
		var tab Table
		pd, buf := new(PD), aligned(64)
		mrs := []*MR{
			register(t, &tab, pd, NewBytes(buf[misaligned:], 0), 0, 0, 56, allAccess),
			register(t, &tab, pd, NewBytes(buf[misaligned:], 0x700), 0x700, 0, 56, allAccess),
		}
		hammer(t, func(*Batch) {}, 5000, mrs, 16)
		if got := binary.NativeEndian.Uint64(buf[16+misaligned:]); got != 10000 {
			t.Errorf("the counter is %d, want 10000", got)
		}
	}
}

// The program's own atomics and its peers' share words.
func TestAtomicsAndAccessors(t *testing.T) {
	buf := aligned(64)
	_, _, mr := regionOf(t, buf)
	const rounds = 5000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			Add64(buf, 8, 1)
		}
	}()
	b := NewBatch(1)
	for range rounds {
		op := b.Add()
		op.Kind, op.MR, op.VA, op.Swap = FetchAdd, mr, 8, 1
		b.Run()
	}
	<-done
	if got := Load64(buf, 8); got != 2*rounds {
		t.Errorf("the counter is %d, want %d", got, 2*rounds)
	}
}

func TestCompareSwap(t *testing.T) {
	c := startChild(t)
	var tab Table
	pd := new(PD)
	mrs := map[string]*MR{
		"bytes":   register(t, &tab, pd, NewBytes(aligned(64), 0), 0, 0, 64, allAccess),
		"process": register(t, &tab, pd, c.process(), c.addr, 0, 64, allAccess),
	}
	for name, mr := range mrs {
		b := NewBatch(4)
		var r recorder
		for i, x := range []struct{ compare, swap, orig uint64 }{
			{1, 2, 0}, {0, 5, 0}, {5, 1 << 63, 5}, {5, 6, 1 << 63},
		} {
			op := add(t, b, &r, CompareSwap, mr, 8, nil)
			op.Compare, op.Swap = x.compare, x.swap
			b.Run()
			if got := r.ops[i]; got.Status != OK || got.Orig != x.orig {
				t.Errorf("%s: step %d: status %d, original %#x, want %#x", name, i, got.Status, got.Orig, x.orig)
			}
		}
		// At the end of the region, and beyond it.
		op := add(t, b, &r, FetchAdd, mr, 56, nil)
		op.Swap = ^uint64(0)
		add(t, b, &r, FetchAdd, mr, 57, nil)
		b.Run()
		if r.ops[4].Status != OK || r.ops[5].Status != Fault {
			t.Errorf("%s: at the end: status %d, beyond: %d", name, r.ops[4].Status, r.ops[5].Status)
		}
		b.Close()
	}
}
