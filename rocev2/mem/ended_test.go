package mem

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Workers write by a key for as long as it leads somewhere. When what ends it
// returns, the memory is the program's alone: it writes there without a lock,
// as the race detector is told by nothing but the table.
func TestNothingTouchesWhatHasEnded(t *testing.T) {
	for _, x := range []struct {
		name string
		// begin gives the memory a key; end takes it away.
		prepare func(l *windowLab) (begin func() uint32, end func(key uint32) error)
	}{
		{"window invalidated", func(l *windowLab) (func() uint32, func(uint32) error) {
			w := l.alloc(MWType2)
			return func() uint32 { return l.bind(w, 0, 4096, RemoteWrite) },
				func(key uint32) error { return l.tab.Invalidate(key, l.pd) }
		}},
		{"window of type 1 bound elsewhere", func(l *windowLab) (func() uint32, func(uint32) error) {
			w := l.alloc(MWType1)
			return func() uint32 { return l.bind(w, 0, 4096, RemoteWrite) },
				func(uint32) error { l.bind(w, 8192, 4096, RemoteWrite); return nil }
		}},
		{"window deallocated", func(l *windowLab) (func() uint32, func(uint32) error) {
			var w *MW
			return func() uint32 { w = l.alloc(MWType2); return l.bind(w, 0, 4096, RemoteWrite) },
				func(uint32) error { return w.Dealloc() }
		}},
		{"fast registration invalidated by the peer", func(l *windowLab) (func() uint32, func(uint32) error) {
			f := fastMR(l.t, &l.tab, l.pd, 2)
			reg := Registration{MR: f, IOVA: labBase, Access: allAccess, PageList: PageList{4096, [][]byte{l.buf[:2048:2048], l.buf[2048:4096]}}}
			return func() uint32 {
					reg.Key++
					if err := l.tab.FastRegister(&reg, l.pd); err != nil {
						l.t.Error(err)
					}
					return f.Key()
				}, func(key uint32) error {
					return l.tab.InvalidateRemote(key, l.pd, l.qps[0])
				}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newWindowLab(t)
			begin, end := x.prepare(l)
			var key atomic.Uint32
			var done atomic.Bool
			var workers sync.WaitGroup
			var written atomic.Uint64
			for id := range 2 {
				workers.Go(func() { l.writeOn(&key, &done, &written, byte(id+1)) })
			}
			tombstone := bytes.Repeat([]byte{0xee}, 4096)
			for range 300 {
				k := begin()
				key.Store(k)
				for before := written.Load(); written.Load() < before+3 && !t.Failed(); {
				}
				if err := end(k); err != nil {
					t.Error(err)
				}
				copy(l.buf, tombstone)
				if !bytes.Equal(l.buf[:4096], tombstone) {
					t.Error("written to after its end")
				}
			}
			done.Store(true)
			workers.Wait()
		})
	}
}

func (l *windowLab) writeOn(key *atomic.Uint32, done *atomic.Bool, written *atomic.Uint64, b byte) {
	batch, data := NewBatch(4), bytes.Repeat([]byte{b}, 4096)
	for !done.Load() {
		m := l.tab.FindRemote(key.Load(), l.pd, l.qps[0], labBase, 4096, RemoteWrite)
		if m == nil {
			continue
		}
		op := batch.Add()
		op.Kind, op.MR, op.VA, op.Frag[0], op.Tail = Scatter, m, labBase, data, true
		batch.Run()
		written.Add(1)
	}
}

// modelKey is what a key should lead to.
type modelKey struct {
	w      *MW
	f      *FastMR
	key    uint32
	base   uint64
	n      uint64
	acc    Access
	only   Owner // nil: any
	parent *modelKey
}

// The keys of a device against a list of what each should lead to.
func TestKeysAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab Table
		pd, qps := new(PD), []Owner{new(recorder), new(recorder)}
		buf := make([]byte, 4096)
		mr, err := tab.Register(pd, NewBytes(buf, 0), 0, 0, 4096, allAccess|MWBind)
		if err != nil {
			t.Fatal(err)
		}
		var all []*modelKey
		pick := func(t *rapid.T) *modelKey {
			if len(all) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(all).Draw(t, "of")
		}
		windowsOn := func(k *modelKey) (n int) {
			for _, o := range all {
				if o.parent == k && o.n > 0 {
					n++
				}
			}
			return n
		}
		want := func(t *rapid.T, err error, ok bool) bool {
			if (err == nil) != ok {
				t.Fatalf("error %v, want success %v", err, ok)
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				k := new(modelKey)
				if typ := rapid.IntRange(0, 2).Draw(t, "type"); typ > 0 {
					k.w, _ = tab.AllocMW(pd, MWType(typ))
					k.key = k.w.Key()
				} else {
					k.f, _ = tab.AllocMR(pd, 1)
					k.key = k.f.Key()
				}
				all = append(all, k)
			},
			"bind": func(t *rapid.T) {
				k, by := pick(t), rapid.SampledFrom(qps).Draw(t, "by")
				b := Bind{RKey: k.key, Key: rapid.Byte().Draw(t, "byte"), LKey: mr.Key, Addr: rapid.Uint64Range(0, 4200).Draw(t, "addr"), Length: 50, Access: RemoteRead}
				var parent *modelKey
				limit := uint64(4096)
				if rapid.Bool().Draw(t, "on another") {
					parent = pick(t)
					b.LKey, limit = parent.key, 0
					if parent.f != nil {
						limit = parent.n
					}
				}
				ok := k.w != nil && (k.w.Type() == MWType1 || k.n == 0) && b.Addr+50 <= limit
				if want(t, tab.Bind(&b, pd, by), ok) {
					k.key, k.base, k.n, k.acc, k.only, k.parent = k.key&^255|uint32(b.Key), b.Addr, 50, RemoteRead, nil, parent
					if k.w.Type() == MWType2 {
						k.only = by
					}
				}
			},
			"register": func(t *rapid.T) {
				k := pick(t)
				r := Registration{MR: k.f, Key: rapid.Byte().Draw(t, "byte"), Access: RemoteRead | MWBind, PageList: PageList{4096, [][]byte{buf[:1000]}}}
				if want(t, tab.FastRegister(&r, pd), k.f != nil && k.n == 0) {
					k.key, k.base, k.n, k.acc = k.key&^255|uint32(r.Key), 0, 1000, r.Access
				}
			},
			"invalidate": func(t *rapid.T) {
				k := pick(t)
				ok := (k.f != nil || k.w.Type() == MWType2) && windowsOn(k) == 0
				if want(t, tab.Invalidate(k.key, pd), ok) {
					k.n = 0
				}
			},
			"invalidate remotely": func(t *rapid.T) {
				k, by := pick(t), rapid.SampledFrom(qps).Draw(t, "by")
				ok := (k.f != nil || k.w.Type() == MWType2) && windowsOn(k) == 0 && k.n > 0 && (k.only == nil || k.only == by)
				if want(t, tab.InvalidateRemote(k.key, pd, by), ok) {
					k.n = 0
				}
			},
			"dealloc": func(t *rapid.T) {
				k := pick(t)
				var err error
				if k.f != nil {
					err = k.f.Dealloc()
				} else {
					err = k.w.Dealloc()
				}
				if want(t, err, windowsOn(k) == 0) {
					for i := range all {
						if all[i] == k {
							all = append(all[:i:i], all[i+1:]...)
							break
						}
					}
				}
			},
			"": func(t *rapid.T) {
				if tab.Len() != 1+len(all) {
					t.Fatalf("%d keys, want %d", tab.Len(), 1+len(all))
				}
				for _, k := range all {
					for _, by := range qps {
						found := tab.FindRemote(k.key, pd, by, k.base, k.n, RemoteRead) != nil
						if want := k.n > 0 && (k.only == nil || k.only == by); found != want {
							t.Fatalf("key %#x: found %v, want %v", k.key, found, want)
						}
					}
				}
			},
		})
	})
}
