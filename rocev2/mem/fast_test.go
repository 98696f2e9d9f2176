package mem

import (
	"bytes"
	"strings"
	"testing"

	"github.com/urxe/urxe/internal/seeded"
)

func fastMR(t *testing.T, tab *Table, pd *PD, maxPages int) *FastMR {
	t.Helper()
	f, err := tab.AllocMR(pd, maxPages)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Ops on pages that lie anywhere do what they do on bytes in one piece.
func TestPagesAgainstBytes(t *testing.T) {
	r := seeded.Rand(t)
	for range 50 {
		var tab Table
		pd, qp := new(PD), new(recorder)
		first, last, middle := 1+r.IntN(4096), 1+r.IntN(4096), r.IntN(3)
		var list [][]byte
		for _, n := range append(append([]int{first}, []int{4096, 4096, 4096}[:middle]...), last) {
			list = append(list, aligned(n)[:n:n])
		}
		n := first + last + 4096*middle
		flat := aligned(n)[:n]
		f := fastMR(t, &tab, pd, 8)
		iova := uint64(4096 - first)
		err := tab.FastRegister(&Registration{MR: f, Key: 9, IOVA: iova, Access: allAccess | MWBind, PageList: PageList{4096, list}}, pd)
		if err != nil {
			t.Fatal(err)
		}
		paged := tab.Find(f.Key(), pd, iova, uint64(n), LocalWrite)
		plain := register(t, &tab, pd, NewBytes(flat, 0), 0, iova, uint64(n), allAccess)
		b := NewBatch(2)
		for range 40 {
			kind := []Kind{Gather, Scatter, Scatter, FetchAdd, CompareSwap, Store}[r.IntN(6)]
			off := r.IntN(n)
			size := 1 + r.IntN(min(n-off, 5000))
			if kind.atomic() {
				off = off &^ 7
				off -= int(iova+uint64(off)) % 8 // aligned as peers see it
				if size = 8; off < 0 || off+8 > n {
					continue
				}
			}
			var ops [2]*Op
			for i, m := range []*MR{paged, plain} {
				op := b.Add()
				op.Kind, op.MR, op.VA, op.Owner, op.Tail = kind, m, iova+uint64(off), qp, r.IntN(2) == 0
				op.Swap = uint64(off)
				if !kind.atomic() {
					data := bytes.Repeat([]byte{byte(off)}, size)
					cut := size / 3
					op.Frag = [2][]byte{data[:cut:cut], data[cut:]}
				}
				ops[i] = op
			}
			b.Run()
			if ops[0].Status != OK || ops[1].Status != OK || ops[0].Orig != ops[1].Orig {
				t.Fatalf("%d at %d: status %d and %d, original %#x and %#x", kind, off, ops[0].Status, ops[1].Status, ops[0].Orig, ops[1].Orig)
			}
			if !bytes.Equal(bytes.Join(ops[0].Frag[:], nil), bytes.Join(ops[1].Frag[:], nil)) || !bytes.Equal(bytes.Join(list, nil), flat) {
				t.Fatalf("%d at %d+%d differs", kind, off, size)
			}
		}
		// A window on a part of it.
		w, err := tab.AllocMW(pd, MWType2)
		if err != nil {
			t.Fatal(err)
		}
		skip := uint64(r.IntN(n))
		if err := tab.Bind(&Bind{RKey: w.Key(), LKey: f.Key(), Addr: iova + skip, Length: uint64(n) - skip, Access: RemoteRead | ZeroBased}, pd, qp); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, uint64(n)-skip)
		add(t, b, qp, Gather, tab.FindRemote(w.Key(), pd, qp, 0, uint64(len(got)), RemoteRead), 0, got)
		b.Run()
		if !bytes.Equal(got, flat[skip:]) {
			t.Fatalf("a window from %d on shows other bytes", skip)
		}
	}
}

// An atomic on a word that lies in two pages can't be had: it faults.
func TestAtomicAcrossPages(t *testing.T) {
	var tab Table
	pd, b := new(PD), NewBatch(1)
	f := fastMR(t, &tab, pd, 2)
	list := [][]byte{make([]byte, 12), make([]byte, 4096)}
	if err := tab.FastRegister(&Registration{MR: f, Access: allAccess, PageList: PageList{4096, list}}, pd); err != nil {
		t.Fatal(err)
	}
	op := add(t, b, nil, FetchAdd, tab.Find(f.Key(), pd, 0, 1, 0), 8, nil)
	b.Run()
	if op.Status != Fault {
		t.Errorf("status %d", op.Status)
	}
}

// Pages that follow each other in one buffer are a plain range.
func TestPagesOfOneBuffer(t *testing.T) {
	var tab Table
	pd, buf := new(PD), make([]byte, 3*4096)
	f := fastMR(t, &tab, pd, 3)
	for _, x := range []struct {
		list [][]byte
		one  bool
	}{
		{[][]byte{buf[100:4096], buf[4096:8192], buf[8192:9000]}, true},
		{[][]byte{buf[4096:8192], buf[:4096]}, false},
		{[][]byte{buf[:4096:4096], buf[4096:8192]}, false}, // the first says nothing of what follows
		{[][]byte{buf}, true},
	} {
		size := 4096
		if len(x.list) == 1 {
			size = 4 * 4096
		}
		if err := tab.FastRegister(&Registration{MR: f, Key: 1, PageList: PageList{size, x.list}}, pd); err != nil {
			t.Fatal(err)
		}
		m := tab.Find(f.Key(), pd, 0, 1, 0)
		if (m.Bytes() != nil) != x.one {
			t.Errorf("%d pages: in one piece %v, want %v", len(x.list), m.Bytes() != nil, x.one)
		}
		if err := tab.Invalidate(f.Key(), pd); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFastRegisterStates(t *testing.T) {
	var tab Table
	pd, page := new(PD), make([]byte, 4096)
	f := fastMR(t, &tab, pd, 1)
	if tab.Find(f.Key(), pd, 0, 0, 0) != nil {
		t.Fatal("found before it was registered")
	}
	reg := Registration{MR: f, Key: 1, Access: LocalWrite, PageList: PageList{4096, [][]byte{page}}}
	if err := tab.FastRegister(&reg, pd); err != nil {
		t.Fatal(err)
	}
	old := f.Key()
	if uint8(old) != 1 || tab.Find(old, pd, 0, 4096, LocalWrite) == nil {
		t.Fatalf("key %#x leads nowhere", old)
	}
	if err := tab.InvalidateRemote(old, pd, nil); err == nil {
		t.Error("a peer has invalidated what gives peers no right")
	}
	if err := tab.FastRegister(&reg, pd); err == nil || !strings.Contains(err.Error(), "invalidate it first") {
		t.Errorf("registered twice: %v", err)
	}
	if err := tab.Invalidate(old, new(PD)); err == nil {
		t.Error("invalidated by a QP of another PD")
	}
	if err := tab.Invalidate(old, pd); err != nil { // a region without remote rights, too
		t.Error(err)
	}
	reg.Key, reg.Access = 2, LocalWrite|RemoteRead
	if err := tab.FastRegister(&reg, pd); err != nil {
		t.Fatal(err)
	}
	if tab.Find(old, pd, 0, 1, 0) != nil || f.Key()>>8 != old>>8 {
		t.Error("the old key still leads somewhere, or the index has changed")
	}
	if err := tab.InvalidateRemote(f.Key(), pd, nil); err != nil {
		t.Error(err)
	}
	if err := f.Dealloc(); err != nil {
		t.Error(err)
	}
	if err := tab.FastRegister(&reg, pd); err == nil {
		t.Error("registered after its end")
	}
}

func TestFastRegisterRefuses(t *testing.T) {
	var tab, foreign Table
	pd := new(PD)
	f, other := fastMR(t, &tab, pd, 3), fastMR(t, &foreign, pd, 3)
	page := make([]byte, 4096)
	good := Registration{MR: f, PageList: PageList{4096, [][]byte{page, page, page}}}
	for _, x := range []struct {
		complain string
		change   func(*Registration)
	}{
		{"no region of this device", func(r *Registration) { r.MR = nil }},
		{"no region of this device", func(r *Registration) { r.MR = other }},
		{"made for 3", func(r *Registration) { r.Pages = [][]byte{page, page, page, page} }},
		{"length 0", func(r *Registration) { r.Pages = nil }},
		{"page size 2048", func(r *Registration) { r.Size = 2048 }},
		{"page size 5000", func(r *Registration) { r.Size = 5000 }},
		{"page size 0", func(r *Registration) { r.Size = 0 }},
		{"page 2 of 3 has 100 bytes", func(r *Registration) { r.Pages = [][]byte{page, page[:100], page} }},
		{"page 3 of 3 has 0 bytes", func(r *Registration) { r.Pages = [][]byte{page, page, nil} }},
		{"page 1 of 1 has 8192 bytes", func(r *Registration) { r.Pages = [][]byte{make([]byte, 8192)} }},
		{"exceeds 64 bits", func(r *Registration) { r.IOVA = ^uint64(0) - 100 }},
		{"LOCAL_WRITE", func(r *Registration) { r.Access = RemoteWrite }},
		{"ZERO_BASED", func(r *Registration) { r.IOVA, r.Access = 8, ZeroBased }},
	} {
		r := good
		x.change(&r)
		if err := tab.FastRegister(&r, pd); err == nil || !strings.Contains(err.Error(), x.complain) {
			t.Errorf("error %v, want one with %q", err, x.complain)
		}
	}
	if err := tab.FastRegister(&good, new(PD)); err == nil || !strings.Contains(err.Error(), "another protection domain") {
		t.Errorf("by a QP of another PD: %v", err)
	}
	for _, n := range []int{0, -1, MaxPages + 1} {
		if _, err := tab.AllocMR(pd, n); err == nil {
			t.Errorf("made for %d pages", n)
		}
	}
	if err := tab.FastRegister(&good, pd); err != nil {
		t.Errorf("the refusals left something behind: %v", err)
	}
}
