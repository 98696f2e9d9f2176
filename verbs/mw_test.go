package verbs

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

// window makes a region of n bytes of s, and a window that isn't bound.
func (s *side) window(t testing.TB, typ MWType, n int) (*MW, *MR) {
	t.Helper()
	return must(s.pd.AllocMW(typ)), must(s.pd.RegMR(make([]byte, n), allRights|MWBind))
}

// bind binds a window of type 2 to all of mr and returns its rkey.
func (s *side) bind(t testing.TB, w *MW, mr *MR, key uint8) uint32 {
	t.Helper()
	must(s.qp.PostSend(SendWR{Opcode: OpBindMW, Flags: Signaled, Bind: &BindAttr{
		MW: w, Key: key, MR: mr, Length: mr.Len(), Access: RemoteWrite | RemoteRead | ZeroBased,
	}}))
	if wc := s.done(t); wc.Opcode != WCBindMW || w.RKey() != w.WithKey(key) {
		t.Fatalf("%v; rkey %#x, want %#x", wc.Opcode, w.RKey(), w.WithKey(key))
	}
	return w.RKey()
}

// A window is bound, written by the peer, invalidated by the peer's SEND, and of no use then.
func TestWindowAndSendWithInvalidate(t *testing.T) {
	conform.Row(t, "5.11/23", "5.8/mw-type2")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	w, mr := b.window(t, MWType2, 100)
	key := b.bind(t, w, mr, 5)
	copy(a.buf, "by the window")
	wr := SendWR{Opcode: OpWrite, SGEs: []SGE{a.mr.SGE(0, 13)}, RemoteAddr: 0, RKey: key}
	must(b.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{b.mr.SGE(0, 8)}}))
	must(a.qp.PostSend(wr, SendWR{Opcode: OpSendInv, Flags: Signaled, InvKey: key, InlineData: []byte("done")}))
	a.done(t)
	if wc := b.done(t); wc.Flags != WCWithInv || wc.Imm != key || wc.ByteLen != 4 {
		t.Errorf("the receive has %+v, want the key %#x", wc, key)
	}
	if got := mr.Bytes()[:13]; !bytes.Equal(got, a.buf[:13]) {
		t.Errorf("the window's memory has %q", got)
	}
	next := b.bind(t, w, mr, 6)
	wr.RKey, wr.Flags = next, Signaled
	must(a.qp.PostSend(wr))
	a.done(t)
	wr.RKey = key
	must(a.qp.PostSend(wr))
	if wc := a.wait(t, 1)[0]; wc.Status != RemAccessErr {
		t.Errorf("by the old key: %v", wc.Status)
	}
}

func TestWindowOfType1(t *testing.T) {
	conform.Row(t, "5.8/mw-type1")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	w, mr := b.window(t, MWType1, 100)
	var keys []uint32
	for _, off := range []int{0, 50} { // bound anew while it is bound
		key := must(b.qp.BindMW(1, Signaled, BindAttr{MW: w, MR: mr, Offset: off, Length: 50, Access: RemoteWrite}))
		if wc := b.done(t); wc.Opcode != WCBindMW || wc.ID != 1 || key != w.RKey() {
			t.Fatalf("%+v, rkey %#x, want %#x", wc, w.RKey(), key)
		}
		must(a.qp.PostSend(SendWR{Opcode: OpWrite, Flags: Signaled, InlineData: []byte("x"), RemoteAddr: mr.IOVA() + uint64(off), RKey: key}))
		a.done(t)
		keys = append(keys, key)
	}
	// Each has a key of its own, also before the one before is done.
	if one, two := must(b.qp.BindMW(1, 0, BindAttr{MW: w})), must(b.qp.BindMW(1, Signaled, BindAttr{MW: w})); one == two { // to nothing
		t.Errorf("two have the key %#x", one)
	}
	b.done(t)
	must(a.qp.PostSend(SendWR{Opcode: OpWrite, InlineData: []byte("x"), RemoteAddr: mr.IOVA() + 50, RKey: keys[1]}))
	if wc := a.wait(t, 1)[0]; wc.Status != RemAccessErr {
		t.Errorf("by the key of a window that was closed: %v", wc.Status)
	}
}

func TestFastRegistration(t *testing.T) {
	a, b := newPair(t, 1<<14, Caps{}, ConnectOptions{})
	mr := must(b.pd.AllocMR(3))
	first, second, third := make([]byte, 100), make([]byte, 4096), make([]byte, 4000)
	for _, page := range [][]byte{first, second, third} {
		fill(page, uint64(len(page)))
	}
	all := bytes.Join([][]byte{first, second, third}, nil)
	for round := range uint8(3) {
		must(b.qp.PostSend(SendWR{Opcode: OpRegMR, Flags: Signaled, Reg: &RegAttr{
			MR: mr, Key: round, IOVA: 0x10000, Access: LocalWrite | RemoteWrite | RemoteRead, PageSize: 4096, Pages: [][]byte{first, second, third},
		}}))
		if wc := b.done(t); wc.Opcode != WCRegMR || uint8(mr.RKey()) != round || mr.IOVA() != 0x10000 {
			t.Fatalf("%v, key %#x, address %#x", wc.Opcode, mr.RKey(), mr.IOVA())
		}
		must(a.qp.PostSend(SendWR{Opcode: OpRead, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, len(all))}, RemoteAddr: mr.IOVA(), RKey: mr.RKey()}))
		a.done(t)
		if !bytes.Equal(a.buf[:len(all)], all) {
			t.Fatal("a READ of the pages brought something else")
		}
		// The region sends, too, and is given up behind that.
		must(a.qp.PostRecv(RecvWR{SGEs: []SGE{a.mr.SGE(0, 8192)}}))
		must(b.qp.PostSend(SendWR{Opcode: OpSend, SGEs: []SGE{mr.SGE(50, 200)}}, SendWR{Opcode: OpLocalInv, Flags: Signaled, InvKey: mr.LKey()}))
		if wc := b.done(t); wc.Opcode != WCLocalInv {
			t.Fatal(wc.Opcode)
		}
		a.done(t)
		if !bytes.Equal(a.buf[:200], all[50:250]) {
			t.Fatal("a SEND of the pages brought something else")
		}
	}
	must(a.qp.PostSend(SendWR{Opcode: OpRead, SGEs: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: mr.IOVA(), RKey: mr.RKey()}))
	if wc := a.wait(t, 1)[0]; wc.Status != RemAccessErr {
		t.Errorf("after the invalidate: %v", wc.Status)
	}
}

func TestAtomicWriteAndFlush(t *testing.T) {
	conform.Row(t, "5.8/atomic-write", "5.8/flush-order")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{Access: RemoteWrite | FlushGlobal})
	mr := must(b.pd.RegMR(make([]byte, 64), LocalWrite|RemoteWrite|FlushGlobal))
	must(a.qp.PostSend(
		SendWR{Opcode: OpAtomicWrite, InlineData: []byte("12345678"), RemoteAddr: mr.IOVA() + 8, RKey: mr.RKey()},
		SendWR{Opcode: OpFlush, Flags: Signaled, RemoteAddr: mr.IOVA(), RKey: mr.RKey(), Length: 64},
		SendWR{Opcode: OpFlush, Flags: Signaled, Flush: FlushRegion, RKey: mr.RKey()},
	))
	for range 2 {
		if wc := a.done(t); wc.Opcode != WCFlush {
			t.Errorf("completed %v", wc.Opcode)
		}
	}
	mr.Load8(0)
	if got := mr.Bytes()[8:16]; string(got) != "12345678" {
		t.Errorf("the word is %q", got)
	}
	must(a.qp.PostSend(SendWR{Opcode: OpFlush, RemoteAddr: mr.IOVA() + 60, RKey: mr.RKey(), Length: 8}))
	if wc := a.wait(t, 1)[0]; wc.Status != RemAccessErr {
		t.Errorf("out of range: %v", wc.Status)
	}
}

func TestReregMR(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	other := make([]byte, 4096)
	key := b.mr.RKey()
	if err := b.mr.Rereg(nil, other, allRights, MROptions{IOVA: 0x1000}); err != nil {
		t.Fatal(err)
	}
	must(a.qp.PostSend(SendWR{Opcode: OpWrite, Flags: Signaled, InlineData: []byte("new"), RemoteAddr: 0x1000, RKey: key}))
	a.done(t)
	b.mr.Load8(0)
	if string(other[:3]) != "new" || b.mr.RKey() != key || b.mr.IOVA() != 0x1000 {
		t.Errorf("memory %q, key %#x", other[:3], b.mr.RKey())
	}
	pd := must(b.dev.AllocPD())
	if err := b.mr.Rereg(pd, nil, allRights, MROptions{}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, pd.Dealloc(), ErrBusy, "1 MR")
	must(a.qp.PostSend(SendWR{Opcode: OpWrite, InlineData: []byte("x"), RemoteAddr: b.mr.IOVA(), RKey: key}))
	if wc := a.wait(t, 1)[0]; wc.Status != RemAccessErr {
		t.Errorf("a region of another PD than the QP: %v", wc.Status)
	}
	wantErr(t, b.mr.Rereg(nil, nil, RemoteWrite, MROptions{}), ErrInvalid, "LOCAL_WRITE")
	wantErr(t, must(b.pd.AllocMR(1)).Rereg(nil, other, 0, MROptions{}), ErrInvalid, "by work requests")
	if err := b.mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, b.mr.Rereg(nil, other, 0, MROptions{}), ErrClosed, "")
	if err := pd.Dealloc(); err != nil {
		t.Error(err)
	}
}

func TestWindowLifetimes(t *testing.T) {
	_, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	w, mr := b.window(t, MWType2, 100)
	b.bind(t, w, mr, 1)
	wantErr(t, mr.Dereg(), ErrBusy, "memory windows are bound")
	wantErr(t, mr.Rereg(nil, nil, allRights, MROptions{}), ErrBusy, "memory windows are bound")
	if err := errors.Join(w.Dealloc(), mr.Dereg(), b.mr.Dereg(), b.qp.Destroy()); err != nil {
		t.Error(err)
	}
	wantErr(t, w.Dealloc(), ErrClosed, "")
	w2 := must(b.pd.AllocMW(MWType1))
	wantErr(t, b.pd.Dealloc(), ErrBusy, "1 MW")
	_, err := b.pd.AllocMW(3)
	wantErr(t, err, ErrInvalid, "type 3")
	_, err = b.pd.AllocMR(100000)
	wantErr(t, err, ErrInvalid, "allowed: 1 to 512")
	if err := errors.Join(w2.Dealloc(), b.pd.Dealloc()); err != nil {
		t.Error(err)
	}
	_, err = b.pd.AllocMW(MWType1)
	wantErr(t, err, ErrClosed, "")
}

// A QP takes the windows that it has bound with it, so that their region may go.
func TestWindowsOfADestroyedQP(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	w, mr := b.window(t, MWType2, 100)
	key := b.bind(t, w, mr, 5)
	if err := mr.Dereg(); !errors.Is(err, ErrBusy) {
		t.Errorf("dereg with a window: %v", err)
	}
	mustDo(t, b.qp.Destroy)
	must(a.qp.PostSend(SendWR{Opcode: OpWrite, Flags: Signaled, InlineData: []byte("late"), RKey: key}))
	mustDo(t, mr.Dereg)
	mustDo(t, w.Dealloc)
}

func TestPostLocalRefuses(t *testing.T) {
	conform.Row(t, "5.8/mw-type1", "5.8/mw-bind")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	two, mr := a.window(t, MWType2, 100)
	one, foreign := must(a.pd.AllocMW(MWType1)), must(b.pd.AllocMW(MWType2))
	for _, x := range []struct {
		say string
		wr  SendWR
	}{
		{"without Bind or Reg", SendWR{Opcode: OpBindMW}},
		{"without Bind or Reg", SendWR{Opcode: OpRegMR, Bind: &BindAttr{}}},
		{"no window of this device", SendWR{Opcode: OpBindMW, Bind: &BindAttr{}}},
		{"no window of this device", SendWR{Opcode: OpBindMW, Bind: &BindAttr{MW: foreign}}},
		{"by QP.BindMW", SendWR{Opcode: OpBindMW, Bind: &BindAttr{MW: one}}},
		{"must not be negative", SendWR{Opcode: OpBindMW, Bind: &BindAttr{MW: two, MR: mr, Length: -1}}},
		{"no MR for 8 bytes", SendWR{Opcode: OpBindMW, Bind: &BindAttr{MW: two, Length: 8}}},
		{"that AllocMR", SendWR{Opcode: OpRegMR, Reg: &RegAttr{MR: mr}}},
		{"multiple of 8", SendWR{Opcode: OpAtomicWrite, RemoteAddr: 4, InlineData: make([]byte, 8)}},
		{"want 8", SendWR{Opcode: OpAtomicWrite, InlineData: make([]byte, 4)}},
		{"want 8", SendWR{Opcode: OpAtomicWrite, SGEs: []SGE{mr.SGE(0, 16)}}},
		{"it has no payload", SendWR{Opcode: OpFlush, SGEs: []SGE{mr.SGE(0, 16)}}},
	} {
		_, err := a.qp.PostSend(x.wr)
		wantErr(t, err, ErrInvalid, x.say)
	}
	_, err := a.qp.BindMW(0, 0, BindAttr{MW: two})
	wantErr(t, err, ErrInvalid, "type 1")
	// What is only known when its turn comes.
	must(a.qp.PostSend(SendWR{Opcode: OpBindMW, Bind: &BindAttr{MW: two, MR: a.mr, Length: 8, Access: RemoteRead}}))
	if wc := a.wait(t, 1)[0]; wc.Status != MWBindErr {
		t.Errorf("a region without MWBind: %v", wc.Status)
	}
}

// Peers write and read by keys that come and go, under load on both sides: whatever ends a key has ended all use of the
// memory when it returns or completes. The owner then uses it without a lock, which the race detector would not forgive.
func TestMemoryEndsInAFlood(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *side) (key uint32, base uint64, buf []byte, end func()){
		"deregister": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			mr := must(b.pd.RegMR(make([]byte, 1<<16), allRights|ZeroBased))
			return mr.RKey(), 0, mr.Bytes(), func() { mustDo(t, mr.Dereg) }
		},
		"reregister": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			mr := must(b.pd.RegMR(make([]byte, 1<<16), allRights|ZeroBased))
			return mr.RKey(), 0, mr.Bytes(), func() {
				mustDo(t, func() error { return mr.Rereg(nil, make([]byte, 8), allRights|ZeroBased, MROptions{}) })
			}
		},
		"invalidate": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			w, mr := b.window(t, MWType2, 1<<16)
			key := b.bind(t, w, mr, 9)
			return key, 0, mr.Bytes(), func() {
				must(b.qp.PostSend(SendWR{Opcode: OpLocalInv, Flags: Signaled, InvKey: key}))
				b.wait(t, 1)
			}
		},
		"invalidate a registration": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			mr, buf := must(b.pd.AllocMR(1)), make([]byte, 1<<16)
			must(b.qp.PostSend(SendWR{Opcode: OpRegMR, Flags: Signaled, Reg: &RegAttr{MR: mr, Key: 3, Access: allRights, PageSize: 1 << 16, Pages: [][]byte{buf}}}))
			b.done(t)
			return mr.RKey(), 0, buf, func() {
				must(b.qp.PostSend(SendWR{Opcode: OpLocalInv, Flags: Signaled, InvKey: mr.LKey()}))
				b.wait(t, 1)
			}
		},
		"deallocate the window": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			w, mr := b.window(t, MWType2, 1<<16)
			return b.bind(t, w, mr, 9), 0, mr.Bytes(), func() { mustDo(t, w.Dealloc) }
		},
		"destroy the QP": func(t *testing.T, b *side) (uint32, uint64, []byte, func()) {
			w, mr := b.window(t, MWType2, 1<<16)
			return b.bind(t, w, mr, 9), 0, mr.Bytes(), func() { mustDo(t, b.qp.Destroy) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				a, b := newPair(t, 1<<16, Caps{}, ConnectOptions{Timeout: 12})
				key, base, buf, end := end(t, b)
				started := make(chan bool, 1)
				var flood sync.WaitGroup
				flood.Go(func() { a.flood(key, base, started) })
				if !<-started {
					t.Fatal("the flood ended before it began")
				}
				end()
				for i := range buf {
					buf[i] = 0xee
				}
				flood.Wait()
				for i := range buf {
					if buf[i] != 0xee {
						t.Fatalf("byte %d was written after the end", i)
					}
				}
			}
		})
	}
}

func mustDo(t *testing.T, f func() error) {
	if err := f(); err != nil {
		t.Error(err)
	}
}

// flood writes by a key until that fails, and says when it is well under way.
func (s *side) flood(key uint32, base uint64, started chan<- bool) {
	sent := 0
	defer func() {
		if sent < 20 {
			started <- false
		}
	}()
	wr := SendWR{Opcode: OpWrite, Flags: Signaled, SGEs: []SGE{s.mr.SGE(0, 1<<16)}, RemoteAddr: base, RKey: key}
	wcs := make([]WC, 16)
	for {
		s.qp.PostSend(wr)
		n := s.cq.Poll(wcs)
		for _, wc := range wcs[:n] {
			if wc.Status != Success {
				return
			}
			if sent++; sent == 20 {
				started <- true
			}
		}
	}
}

// A FLUSH between ends of which each takes the other for Linux rxe, or not: who does takes both kinds of ICRC.
func TestFlushOfAnRxePeer(t *testing.T) {
	conform.Row(t, "5.5/rxe-flush")
	for _, x := range []struct{ here, there, arrives bool }{
		{false, false, true}, {false, true, true}, {true, true, true}, {true, false, false},
	} {
		da, db := must2(OpenPair(PairOptions{}))
		a, b := newSide(da, 64, Caps{}), newSide(db, 64, Caps{})
		o := ConnectOptions{Access: RemoteWrite | FlushGlobal, RxeFlush: x.here}
		if !x.arrives {
			o.Timeout, o.RetryCnt = 10, 1
		}
		must(0, a.qp.Connect(must(b.qp.Endpoint(0)), o))
		o.RxeFlush = x.there
		must(0, b.qp.Connect(must(a.qp.Endpoint(0)), o))
		mr := must(b.pd.RegMR(make([]byte, 64), LocalWrite|RemoteWrite|FlushGlobal))
		must(a.qp.PostSend(SendWR{Opcode: OpFlush, Flags: Signaled, Flush: FlushRegion, RKey: mr.RKey()}))
		if wc := a.wait(t, 1)[0]; x.arrives != (wc.Status == Success) || !x.arrives && wc.Status != RetryExcErr {
			t.Errorf("%+v: %v", x, wc.Status)
		}
		// Any other packet has the ICRC of the specification.
		if x.arrives {
			must(a.qp.PostSend(SendWR{Opcode: OpWrite, Flags: Signaled, InlineData: []byte("x"), RemoteAddr: mr.IOVA(), RKey: mr.RKey()}))
			a.done(t)
		}
		if err := errors.Join(da.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

func must2(a, b *Device, err error) (*Device, *Device) { return must(a, err), b }
