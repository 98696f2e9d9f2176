package mem

import (
	"errors"
	"strings"
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

// windowLab is a region, two QPs that peers come by, and windows to bind.
type windowLab struct {
	t    *testing.T
	tab  Table
	pd   *PD
	qps  [2]Owner
	buf  []byte
	mr   *MR
	b    *Batch
	next uint8
}

const labBase = 0x10000

func newWindowLab(t *testing.T) *windowLab {
	l := &windowLab{t: t, pd: new(PD), qps: [2]Owner{new(recorder), new(recorder)}, buf: make([]byte, 64<<10), b: NewBatch(8)}
	l.mr = register(t, &l.tab, l.pd, NewBytes(l.buf, labBase), labBase, labBase, uint64(len(l.buf)), allAccess|MWBind)
	return l
}

func (l *windowLab) alloc(typ MWType) *MW {
	l.t.Helper()
	w, err := l.tab.AllocMW(l.pd, typ)
	if err != nil {
		l.t.Fatal(err)
	}
	return w
}

// bind binds w to n bytes at off of the region, for the first QP.
func (l *windowLab) bind(w *MW, off, n uint64, acc Access) uint32 {
	l.t.Helper()
	l.next++
	err := l.tab.Bind(&Bind{RKey: w.Key(), Key: l.next, LKey: l.mr.Key, Addr: labBase + off, Length: n, Access: acc}, l.pd, l.qps[0])
	if err != nil {
		l.t.Fatal(err)
	}
	if got := w.Key(); uint8(got) != l.next {
		l.t.Fatalf("key %#x, want one that ends in %#x", got, l.next)
	}
	return w.Key()
}

func (l *windowLab) wantFound(found bool, rkey uint32, qp int, va, n uint64, need Access) *MR {
	l.t.Helper()
	m := l.tab.FindRemote(rkey, l.pd, l.qps[qp], va, n, need)
	if (m != nil) != found {
		l.t.Fatalf("key %#x, QP %d, %#x+%#x, %v: found %v, want %v", rkey, qp, va, n, need, m != nil, found)
	}
	return m
}

func TestWindowOpensAPart(t *testing.T) {
	conform.Row(t, "5.8/mw-bind", "5.8/mw-type2")
	for _, x := range []struct {
		name string
		typ  MWType
		acc  Access
		base uint64 // by which peers know the first byte
		by1  bool   // the other QP's peer may use it as well
	}{
		{"type 1", MWType1, RemoteWrite | RemoteRead, labBase + 100, true},
		{"type 2", MWType2, RemoteWrite | RemoteRead, labBase + 100, false},
		{"type 2, zero-based", MWType2, RemoteWrite | RemoteRead | ZeroBased, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newWindowLab(t)
			w := l.alloc(x.typ)
			l.wantFound(false, w.Key(), 0, x.base, 1, RemoteRead)
			key := l.bind(w, 100, 50, x.acc)
			l.wantFound(true, key, 0, x.base, 50, RemoteWrite)
			l.wantFound(true, key, 0, x.base+50, 0, RemoteRead)
			l.wantFound(false, key, 0, x.base, 51, RemoteWrite)
			l.wantFound(false, key, 0, x.base-1, 2, RemoteWrite)
			l.wantFound(false, key, 0, x.base, 8, RemoteAtomic)
			l.wantFound(false, key^1, 0, x.base, 1, RemoteWrite)
			l.wantFound(x.by1, key, 1, x.base, 1, RemoteWrite)
			if l.tab.FindRemote(key, new(PD), l.qps[0], x.base, 1, RemoteWrite) != nil {
				t.Error("found with a foreign PD")
			}
			if l.tab.Find(key, l.pd, x.base, 1, 0) != nil {
				t.Error("a window has been used as an lkey")
			}
			m := l.tab.FindRemote(key, l.pd, l.qps[0], x.base+10, 4, RemoteWrite)
			add(t, l.b, nil, Scatter, m, x.base+10, []byte("abcd"))
			l.b.Run()
			if got := string(l.buf[110:114]); got != "abcd" {
				t.Errorf("the bytes went elsewhere: %q", got)
			}
		})
	}
}

// Whose window it was no longer matters when a QP is gone: an owner is an
// identity, not a number.
func TestWindowsOfType2AreBoundOnce(t *testing.T) {
	conform.Row(t, "5.8/mw-type2")
	l := newWindowLab(t)
	w := l.alloc(MWType2)
	key := l.bind(w, 0, 10, RemoteRead)
	again := Bind{RKey: key, Key: 77, LKey: l.mr.Key, Addr: labBase, Length: 10, Access: RemoteRead}
	if err := l.tab.Bind(&again, l.pd, l.qps[0]); err == nil || !strings.Contains(err.Error(), "invalidated first") {
		t.Fatalf("bound twice: %v", err)
	}
	if err := l.tab.InvalidateRemote(key, l.pd, l.qps[1]); err == nil {
		t.Fatal("the peer of another QP has invalidated it")
	}
	l.wantFound(true, key, 0, labBase, 10, RemoteRead)
	if err := l.tab.InvalidateRemote(key, l.pd, l.qps[0]); err != nil {
		t.Fatal(err)
	}
	l.wantFound(false, key, 0, labBase, 10, RemoteRead)
	if err := l.tab.InvalidateRemote(key, l.pd, l.qps[0]); err == nil {
		t.Fatal("a peer has invalidated what is free")
	}
	if err := l.tab.Invalidate(key, l.pd); err != nil {
		t.Fatalf("local invalidate of what is free: %v", err)
	}
	next := l.bind(w, 20, 10, RemoteRead)
	l.wantFound(false, key, 0, labBase+20, 10, RemoteRead)
	l.wantFound(true, next, 0, labBase+20, 10, RemoteRead)
	if err := l.tab.Invalidate(next, l.pd); err != nil {
		t.Fatal(err)
	}
	l.wantFound(false, next, 0, labBase+20, 10, RemoteRead)
}

func TestWindowsOfType1AreBoundAnew(t *testing.T) {
	conform.Row(t, "5.8/mw-type1")
	l := newWindowLab(t)
	w := l.alloc(MWType1)
	first := l.bind(w, 0, 10, RemoteRead)
	second := l.bind(w, 20, 10, RemoteRead)
	l.wantFound(false, first, 0, labBase, 10, RemoteRead)
	l.wantFound(true, second, 0, labBase+20, 10, RemoteRead)
	for _, invalidate := range []func() error{
		func() error { return l.tab.Invalidate(second, l.pd) },
		func() error { return l.tab.InvalidateRemote(second, l.pd, l.qps[0]) },
	} {
		if err := invalidate(); err == nil || !strings.Contains(err.Error(), "type 1") {
			t.Fatalf("invalidated: %v", err)
		}
	}
	l.wantFound(true, second, 0, labBase+20, 10, RemoteRead)
	l.bind(w, 0, 0, 0) // closes it
	l.wantFound(false, second, 0, labBase+20, 10, RemoteRead)
	l.wantFound(false, w.Key(), 0, labBase, 0, RemoteRead)
	if l.mr.windows != 0 {
		t.Errorf("%d windows are said to be bound", l.mr.windows)
	}
}

func TestRegionStaysWhileWindowsAreBound(t *testing.T) {
	l := newWindowLab(t)
	f, err := l.tab.AllocMR(l.pd, 4)
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	reg := Registration{MR: f, Key: 1, IOVA: 0x5000, Access: allAccess | MWBind, PageList: PageList{4096, [][]byte{page}}}
	if err := l.tab.FastRegister(&reg, l.pd); err != nil {
		t.Fatal(err)
	}
	w, onFast := l.alloc(MWType1), l.alloc(MWType2)
	key := l.bind(w, 0, 10, RemoteRead)
	if err := l.tab.Bind(&Bind{RKey: onFast.Key(), LKey: f.Key(), Addr: 0x5000, Length: 10, Access: RemoteRead}, l.pd, l.qps[0]); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"deregister": l.tab.Deregister(l.mr),
		"reregister": second(l.tab.Reregister(l.mr, l.pd, NewBytes(l.buf, 0), 0, 0, 10, 0)),
		"invalidate": l.tab.Invalidate(f.Key(), l.pd),
		"deallocate": f.Dealloc(),
	} {
		if !errors.Is(err, ErrBound) {
			t.Errorf("%s: %v, want ErrBound", name, err)
		}
	}
	l.wantFound(true, key, 0, labBase, 10, RemoteRead)
	for _, w := range []*MW{w, onFast} {
		if err := w.Dealloc(); err != nil {
			t.Error(err)
		}
		if err := w.Dealloc(); err == nil {
			t.Error("deallocated twice")
		}
	}
	l.wantFound(false, key, 0, labBase, 10, RemoteRead)
	if err := errors.Join(f.Dealloc(), l.tab.Deregister(l.mr)); err != nil {
		t.Error(err)
	}
	if l.tab.Len() != 0 {
		t.Errorf("%d keys are left", l.tab.Len())
	}
}

func second[T any](_ T, err error) error { return err }

func TestBindRefuses(t *testing.T) {
	conform.Row(t, "5.8/mw-bind")
	l := newWindowLab(t)
	plain := register(t, &l.tab, l.pd, NewBytes(l.buf, 0), 0, 0, 100, allAccess)
	readOnly := register(t, &l.tab, l.pd, NewBytes(l.buf, 0), 0, 0, 100, RemoteRead|MWBind)
	zero := register(t, &l.tab, l.pd, NewBytes(l.buf, 0), 0, 0, 100, MWBind|ZeroBased)
	foreign := register(t, &l.tab, new(PD), NewBytes(l.buf, 0), 0, 0, 100, MWBind)
	one, two := l.alloc(MWType1), l.alloc(MWType2)
	f, err := l.tab.AllocMR(l.pd, 1)
	if err != nil {
		t.Fatal(err)
	}
	gone := l.alloc(MWType1)
	if err := gone.Dealloc(); err != nil {
		t.Fatal(err)
	}
	good := Bind{RKey: two.Key(), LKey: l.mr.Key, Addr: labBase, Length: 10, Access: RemoteRead}
	for _, x := range []struct {
		complain string
		change   func(*Bind)
	}{
		{"nothing has it", func(b *Bind) { b.RKey = gone.Key() }},
		{"was deallocated", func(b *Bind) { b.MW = gone }},
		{"another protection domain", func(b *Bind) { b.MW, _ = l.tab.AllocMW(new(PD), MWType2) }},
		{"another device", func(b *Bind) { b.MW, _ = new(Table).AllocMW(l.pd, MWType2) }},
		{"the key of this window of type 2 is", func(b *Bind) { b.RKey ^= 1 }},
		{"no work request may change", func(b *Bind) { b.RKey = l.mr.Key }},
		{"no window", func(b *Bind) { b.RKey = f.Key() }},
		{"no region with key", func(b *Bind) { b.LKey ^= 0x100 }},
		{"no region with key", func(b *Bind) { b.LKey = one.Key() }},
		{"no region with key", func(b *Bind) { b.LKey = f.Key() }},
		{"MW_BIND", func(b *Bind) { b.LKey, b.Addr = plain.Key, 0 }},
		{"in this protection domain", func(b *Bind) { b.LKey, b.Addr = foreign.Key, 0 }},
		{"range", func(b *Bind) { b.Addr-- }},
		{"range", func(b *Bind) { b.Length = uint64(len(l.buf)) + 1 }},
		{"range", func(b *Bind) { b.Length = ^uint64(0) }},
		{"zero-based", func(b *Bind) { b.LKey, b.Addr = zero.Key, 0 }},
		{"LOCAL_WRITE", func(b *Bind) { b.LKey, b.Addr, b.Access = readOnly.Key, 0, RemoteWrite }},
		{"LOCAL_WRITE", func(b *Bind) { b.LKey, b.Addr, b.Access = readOnly.Key, 0, RemoteAtomic }},
		{"allowed: REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC|ZERO_BASED|FLUSH_GLOBAL", func(b *Bind) { b.Access = LocalWrite }},
		{"length 0", func(b *Bind) { b.Length = 0 }},
		{"type 2", func(b *Bind) { b.RKey, b.Access = one.Key(), ZeroBased }},
	} {
		b := good
		x.change(&b)
		if err := l.tab.Bind(&b, l.pd, l.qps[0]); err == nil || !strings.Contains(err.Error(), x.complain) {
			t.Errorf("%+v: error %v, want one with %q", b, err, x.complain)
		}
	}
	if err := l.tab.Bind(&good, new(PD), l.qps[0]); err == nil || !strings.Contains(err.Error(), "protection domain") {
		t.Errorf("by a QP of another PD: %v", err)
	}
	if _, err := l.tab.AllocMW(l.pd, 3); err == nil {
		t.Error("a window of type 3")
	}
	good.MW, good.RKey = two, 0
	if err := l.tab.Bind(&good, l.pd, l.qps[0]); err != nil {
		t.Errorf("the refusals left something behind: %v", err)
	}
}

// What has been checked and not run yet doesn't run when the window is closed.
func TestOpsOfAClosedWindowFault(t *testing.T) {
	for name, end := range map[string]func(*windowLab, *MW) error{
		"invalidate":        func(l *windowLab, w *MW) error { return l.tab.Invalidate(w.Key(), l.pd) },
		"remote invalidate": func(l *windowLab, w *MW) error { return l.tab.InvalidateRemote(w.Key(), l.pd, l.qps[0]) },
		"deallocate":        func(_ *windowLab, w *MW) error { return w.Dealloc() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newWindowLab(t)
			w := l.alloc(MWType2)
			m := l.wantFound(true, l.bind(w, 0, 100, RemoteWrite), 0, labBase, 100, RemoteWrite)
			op := add(t, l.b, l.qps[0], Scatter, m, labBase, []byte{1})
			if err := end(l, w); err != nil {
				t.Fatal(err)
			}
			l.b.Run()
			if op.Status != Fault || l.buf[0] != 0 {
				t.Errorf("status %d, memory %d", op.Status, l.buf[0])
			}
		})
	}
}

// A window on another process's memory.
func TestWindowOnAProcess(t *testing.T) {
	l, c := newWindowLab(t), startChild(t)
	defer l.b.Close()
	l.mr = register(t, &l.tab, l.pd, c.process(), c.addr, labBase, 2*uint64(pageSize), allAccess|MWBind)
	w := l.alloc(MWType2)
	key := l.bind(w, 100, 200, RemoteWrite|RemoteAtomic|ZeroBased)
	m := l.wantFound(true, key, 0, 0, 200, RemoteWrite)
	add(t, l.b, l.qps[0], Scatter, m, 4, []byte("abcd"))
	atomic := add(t, l.b, l.qps[0], FetchAdd, m, 4, nil)
	l.b.Run()
	if got := string(c.bytes(104, 4)); got != "abcd" || atomic.Status != OK {
		t.Errorf("%q at its place, atomic %d", got, atomic.Status)
	}
	late := add(t, l.b, l.qps[0], Scatter, m, 4, []byte("wxyz"))
	if err := l.tab.Invalidate(key, l.pd); err != nil {
		t.Fatal(err)
	}
	l.b.Run()
	if got := string(c.bytes(104, 4)); got != "abcd" || late.Status != Fault {
		t.Errorf("%q after the invalidate, status %d", got, late.Status)
	}
	if n := m.more.users.Load(); n != 0 {
		t.Errorf("%d ops are said to run", n)
	}
}

func TestReregister(t *testing.T) {
	l := newWindowLab(t)
	old, other := l.mr, make([]byte, 4096)
	add(t, l.b, l.qps[0], Scatter, old, labBase, []byte{1})
	if _, err := l.tab.Reregister(old, l.pd, NewBytes(other, 0), 0, 0x777, 5000, 0); err == nil {
		t.Fatal("more bytes than there are")
	}
	pd := new(PD)
	m, err := l.tab.Reregister(old, pd, NewBytes(other, 0), 0, 0x777, 4096, LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	l.b.Run()
	if l.buf[0] != 0 || !old.Dead() {
		t.Error("what was checked before has run")
	}
	if m.Key != old.Key || l.tab.Find(m.Key, pd, 0x777, 4096, LocalWrite) != m || l.tab.Find(m.Key, l.pd, labBase, 1, 0) != nil {
		t.Error("the key leads elsewhere")
	}
	if _, err := l.tab.Reregister(old, pd, NewBytes(other, 0), 0, 0, 1, 0); err == nil {
		t.Error("reregistered what was replaced")
	}
	if err := l.tab.Deregister(old); err != nil || l.tab.Len() != 1 {
		t.Errorf("deregistering what was replaced: %v, %d regions", err, l.tab.Len())
	}
}

// The windows of type 2 of a QP that is destroyed are free: their keys lead
// nowhere, their regions may go, and other QPs may bind them. No other window
// is touched.
func TestWindowsOfADestroyedQP(t *testing.T) {
	l := newWindowLab(t)
	own, shared, others := l.alloc(MWType2), l.alloc(MWType1), l.alloc(MWType2)
	key, open := l.bind(own, 0, 64, RemoteRead), l.bind(shared, 0, 64, RemoteRead)
	spent := l.alloc(MWType2) // bound by it once, and no more
	if err := l.tab.Invalidate(l.bind(spent, 0, 64, RemoteRead), l.pd); err != nil {
		t.Fatal(err)
	}
	l.qps[0], l.qps[1] = l.qps[1], l.qps[0]
	other := l.bind(others, 0, 64, RemoteRead)
	again := l.bind(spent, 64, 64, RemoteRead)
	l.qps[0], l.qps[1] = l.qps[1], l.qps[0]

	l.tab.FreeOwned(l.qps[0])
	l.wantFound(false, key, 0, labBase, 8, RemoteRead)
	l.wantFound(true, open, 0, labBase, 8, RemoteRead)
	l.wantFound(true, other, 1, labBase, 8, RemoteRead)
	l.wantFound(true, again, 1, labBase+64, 8, RemoteRead)
	l.bind(own, 0, 64, RemoteRead) // without an invalidation
	l.tab.FreeOwned(l.qps[0])
	l.tab.FreeOwned(l.qps[1])
	if err := shared.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if err := l.tab.Deregister(l.mr); err != nil {
		t.Errorf("no window is bound any more: %v", err)
	}
	if n := len(l.tab.owned); n != 0 {
		t.Errorf("%d QPs are remembered", n)
	}
}
