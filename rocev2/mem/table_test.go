package mem

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/urxe/urxe/tests/conform"
)

// edges are addresses and lengths near which sums wrap around or ranges end.
func edges() *rapid.Generator[uint64] {
	near := rapid.SampledFrom([]uint64{0, 1 << 12, 1 << 31, 1 << 32, 1 << 63, math.MaxUint64})
	return rapid.Custom(func(t *rapid.T) uint64 {
		return near.Draw(t, "near") + rapid.Uint64Range(0, 64).Draw(t, "by") - 32
	})
}

// within says in numbers without bounds whether [va, va+n) is in the region.
func within(m *MR, va, n uint64) bool {
	num := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	end := new(big.Int).Add(num(va), num(n))
	limit := new(big.Int).Add(num(m.IOVA), num(m.Length))
	return num(va).Cmp(num(m.IOVA)) >= 0 && end.Cmp(limit) <= 0
}

func TestFindAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab Table
		pds := []*PD{new(PD), new(PD)}
		var all []*MR
		live := map[*MR]bool{}
		access := rapid.SampledFrom([]Access{0, LocalWrite, RemoteRead, LocalWrite | RemoteWrite, allAccess})
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				n := rapid.IntRange(1, 64).Draw(t, "length")
				iova := edges().Draw(t, "iova")
				pd := rapid.SampledFrom(pds).Draw(t, "pd")
				m, err := tab.Register(pd, NewBytes(make([]byte, n), 0), 0, iova, uint64(n), access.Draw(t, "access"))
				if fits := iova <= math.MaxUint64-uint64(n); fits != (err == nil) {
					t.Fatalf("Register at %#x+%d: %v", iova, n, err)
				}
				if err == nil {
					all, live[m] = append(all, m), true
				}
			},
			"deregister": func(t *rapid.T) {
				if len(all) > 0 {
					m := rapid.SampledFrom(all).Draw(t, "region")
					tab.Deregister(m) // perhaps again
					live[m] = false
				}
			},
			"find": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				m := rapid.SampledFrom(all).Draw(t, "region")
				key := m.Key ^ rapid.SampledFrom([]uint32{0, 0, 0, 1, 0x80, 0x100, 1 << 31}).Draw(t, "key off by")
				pd, need := rapid.SampledFrom(pds).Draw(t, "pd"), access.Draw(t, "need")
				va := m.IOVA + rapid.Uint64Range(0, 130).Draw(t, "offset") - 65
				if rapid.Bool().Draw(t, "anywhere") {
					va = edges().Draw(t, "va")
				}
				n := edges().Draw(t, "length")
				if rapid.Bool().Draw(t, "small") {
					n = rapid.Uint64Range(0, 65).Draw(t, "small length")
				}
				var want *MR
				for _, x := range all {
					if live[x] && x.Key == key && x.PD == pd && x.Access&need == need && within(x, va, n) {
						want = x
					}
				}
				if got := tab.Find(key, pd, va, n, need); got != want {
					t.Fatalf("Find(%#x, %#x+%#x) = %+v, want %+v", key, va, n, got, want)
				}
			},
		})
		for m, l := range live {
			if m.Dead() == l || m.Key>>keyByteBits == 0 {
				t.Fatalf("region %+v: dead %v, want %v", m, m.Dead(), !l)
			}
		}
	})
}

func TestFindAtTheEdges(t *testing.T) {
	var tab Table
	pd := new(PD)
	m := register(t, &tab, pd, NewBytes(make([]byte, 100), 0), 0, 1000, 100, LocalWrite|RemoteWrite)
	top := register(t, &tab, pd, NewBytes(make([]byte, 100), 0), 0, math.MaxUint64-100, 100, 0)
	for _, x := range []struct {
		mr    *MR
		va, n uint64
		found bool
	}{
		{m, 1000, 100, true}, {m, 1000, 0, true}, {m, 1099, 1, true},
		{m, 1100, 0, true}, // IBA allows an empty range at the end
		{m, 1100, 1, false}, {m, 1101, 0, false}, {m, 999, 1, false}, {m, 999, 0, false},
		{m, 1050, 51, false}, {m, 1000, math.MaxUint64, false}, {m, 1099, math.MaxUint64 - 1098, false},
		{m, math.MaxUint64, 1002, false}, // wraps into the region
		{m, 0, 0, false},
		{top, math.MaxUint64 - 100, 100, true}, {top, math.MaxUint64, 0, true},
		{top, math.MaxUint64, 1, false}, {top, 0, 0, false}, {top, math.MaxUint64 - 1, 2, false},
	} {
		if got := tab.Find(x.mr.Key, pd, x.va, x.n, 0); (got == x.mr) != x.found {
			t.Errorf("Find at %#x+%#x in %#x+%#x: found %v", x.va, x.n, x.mr.IOVA, x.mr.Length, got != nil)
		}
	}
	if tab.Find(0, pd, 0, 0, 0) != nil || tab.Find(m.Key, new(PD), 1000, 1, 0) != nil || tab.Find(m.Key, pd, 1000, 1, RemoteRead|RemoteWrite) != nil {
		t.Error("found without key, with a foreign PD or without one of the rights")
	}
	if n := testing.AllocsPerRun(100, func() { tab.Find(m.Key, pd, 1000, 1, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeysAreUnpredictable(t *testing.T) {
	_, pd, _ := regionOf(t, make([]byte, 1))
	var tab Table
	sp := NewBytes(make([]byte, 1), 0)
	indices, lowBytes := map[uint32]bool{}, map[uint32]bool{}
	near := 0
	var last uint32
	for range 2000 {
		k := register(t, &tab, pd, sp, 0, 0, 1, 0).Key
		if indices[k>>8] {
			t.Fatalf("index %#x given twice", k>>8)
		}
		indices[k>>8], lowBytes[k&0xff] = true, true
		if d := k - last; d+1<<16 < 2<<16 {
			near++
		}
		last = k
	}
	if near > 20 || len(lowBytes) < 250 {
		t.Errorf("%d keys of 2000 follow their predecessors, %d of 256 key bytes occur", near, len(lowBytes))
	}
	if tab.Len() != 2000 {
		t.Errorf("Len = %d", tab.Len())
	}
}

// Regions, windows and regions that work requests register have keys of one space: no
// index is of two of them, and what is of one kind is no other by any key.
func TestKeySpacesDontOverlap(t *testing.T) {
	conform.Row(t, "bug/37")
	l := newWindowLab(t)
	indices := map[uint32]bool{l.mr.Key >> keyByteBits: true}
	add := func(key uint32) uint32 {
		if indices[key>>keyByteBits] {
			t.Fatalf("key %#x: its index is another's", key)
		}
		indices[key>>keyByteBits] = true
		return key
	}
	for range 500 {
		region := add(register(t, &l.tab, l.pd, NewBytes(l.buf, 0), 0, 0, 8, allAccess).Key)
		f := fastMR(t, &l.tab, l.pd, 1)
		add(f.Key())
		if err := l.tab.FastRegister(&Registration{MR: f, Access: allAccess, PageList: PageList{4096, [][]byte{l.buf[:8]}}}, l.pd); err != nil {
			t.Fatal(err)
		}
		for _, typ := range []MWType{MWType1, MWType2} {
			w := l.alloc(typ)
			add(w.Key())
			l.wantFound(true, l.bind(w, 0, 8, RemoteRead), 0, labBase, 8, RemoteRead)
			if l.tab.Find(w.Key(), l.pd, labBase, 8, 0) != nil {
				t.Fatal("a window is an lkey")
			}
		}
		if l.tab.Find(region, l.pd, 0, 8, LocalWrite) == nil || l.tab.Find(f.Key(), l.pd, 0, 8, LocalWrite) == nil {
			t.Fatal("a region is none")
		}
		for _, key := range []uint32{region, f.Key()} {
			if err := l.tab.Bind(&Bind{RKey: key, LKey: l.mr.Key, Addr: labBase, Length: 8, Access: RemoteRead}, l.pd, l.qps[0]); err == nil {
				t.Fatal("a region was bound as a window")
			}
		}
	}
	if l.tab.Len() != len(indices) {
		t.Errorf("%d keys for %d objects", l.tab.Len(), len(indices))
	}
}

func TestRegisterRefuses(t *testing.T) {
	pd, sp := new(PD), NewBytes(make([]byte, 100), 1000)
	for _, x := range []struct {
		pd                 *PD
		addr, iova, length uint64
		acc                Access
		complain           string
	}{
		{pd, 1000, 0, 100, 0, ""},
		{pd, 1000, 0, 100, allAccess | MWBind | ZeroBased | 1<<20, ""},
		{nil, 1000, 0, 100, 0, "protection domain"},
		{pd, 1000, 0, 0, 0, "length 0"},
		{pd, 999, 0, 2, 0, "isn't within"},
		{pd, 1000, 0, 101, 0, "isn't within"},
		{pd, 1099, 0, math.MaxUint64 - 1000, 0, "64 bits"},
		{pd, 1000, math.MaxUint64 - 98, 100, 0, "64 bits"},
		{pd, 1000, 0, 1, RemoteWrite, "LOCAL_WRITE"},
		{pd, 1000, 0, 1, RemoteAtomic | RemoteRead, "LOCAL_WRITE"},
		{pd, 1000, 0, 1, LocalWrite | 1<<12, "allowed are LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC|MW_BIND|ZERO_BASED|FLUSH_GLOBAL"},
		{pd, 1000, 0, 1, FlushPersistent, "isn't persistent"},
		{pd, 1000, 4, 1, ZeroBased, "ZERO_BASED"},
	} {
		_, err := new(Table).Register(x.pd, sp, x.addr, x.iova, x.length, x.acc)
		switch {
		case x.complain == "" && err != nil:
			t.Errorf("%+v: %v", x, err)
		case x.complain != "" && (err == nil || !strings.Contains(err.Error(), x.complain)):
			t.Errorf("%+v: error %v, want one with %q", x, err, x.complain)
		}
	}
}
