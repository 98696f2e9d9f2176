package verbs

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/tests/conform"
)

func TestPostSendTranslates(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 4, MaxSendSGE: 2, MaxInline: 16}, StateRTS)
	wr := SendWR{ID: 7, Opcode: OpWriteImm, Flags: Signaled | Fence, SGEs: []SGE{b.mr.SGE(10, 20), b.mr.SGE(100, 5)},
		Imm: 9, RemoteAddr: 0x1000, RKey: 0x42}
	if n, err := q.PostSend(wr); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	got := f.init.SQ.Next()
	if got == nil || f.init.SQ.Next() != nil || f.bells.Load() != 1 {
		t.Fatalf("one work request and one doorbell; got %v, %d doorbells", got, f.bells.Load())
	}
	if got.ID != 7 || got.Opcode != qp.WRWriteImm || got.Flags != Signaled|Fence || got.Imm != 9 ||
		got.RemoteAddr != 0x1000 || got.RKey != 0x42 {
		t.Errorf("%+v", got)
	}
	want := []qp.SGE{{Addr: b.mr.IOVA() + 10, Length: 20, LKey: b.mr.LKey()}, {Addr: b.mr.IOVA() + 100, Length: 5, LKey: b.mr.LKey()}}
	if len(got.SGEs) != 2 || got.SGEs[0] != want[0] || got.SGEs[1] != want[1] {
		t.Errorf("SGEs %+v, want %+v", got.SGEs, want)
	}
}

func TestInlineIsCopiedAtPost(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 4, MaxSendSGE: 2, MaxInline: 16}, StateRTS)
	data := []byte("hello")
	copy(b.buf[8:], "worldly")
	n, err := q.PostSend(
		SendWR{Opcode: OpSend, InlineData: data},
		SendWR{Opcode: OpSend, Flags: Inline, SGEs: []SGE{b.mr.SGE(8, 3), {}, b.mr.SGE(11, 2)}[:1]},
		SendWR{Opcode: OpSend, Flags: Inline, SGEs: []SGE{b.mr.SGE(8, 3), b.mr.SGE(11, 2)}},
		SendWR{Opcode: OpSend, Flags: Inline}) // an empty message
	if n != 4 || err != nil {
		t.Fatal(n, err)
	}
	clear(data)
	clear(b.buf)
	for i, want := range []string{"hello", "wor", "world", ""} {
		w := f.init.SQ.Next()
		if string(w.Inline) != want || w.Flags&Inline == 0 || len(w.SGEs) != 0 {
			t.Errorf("%d: %q, flags %x, want %q", i, w.Inline, w.Flags, want)
		}
	}
}

func TestPostSendRefuses(t *testing.T) {
	b, other := newBench(t), newBench(t)
	caps := Caps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: 16}
	q, f := b.qp(caps, StateRTS)
	one := []SGE{b.mr.SGE(0, 8)}
	const gib = 1 << 30
	for _, c := range []struct {
		name, says string
		wr         SendWR
	}{
		{"opcode", "opcode 99: there is no such operation", SendWR{Opcode: 99}},
		{"flags", "send flags 0x80 (allowed: Fence, Signaled, Solicited, Inline", SendWR{Opcode: OpSend, Flags: 0x80}},
		{"too many SGEs", "3 scatter-gather elements: the queue takes 2", SendWR{Opcode: OpSend, SGEs: []SGE{{}, {}, {}}}},
		{"no MR", "no MR for 8 bytes", SendWR{Opcode: OpSend, SGEs: []SGE{{Length: 8}}}},
		{"other device", "its MR is of device fake0", SendWR{Opcode: OpSend, SGEs: []SGE{other.mr.SGE(0, 8)}}},
		{"negative offset", "must not be negative", SendWR{Opcode: OpSend, SGEs: []SGE{b.mr.SGE(-1, 8)}}},
		{"negative length", "must not be negative", SendWR{Opcode: OpSend, SGEs: []SGE{b.mr.SGE(0, -8)}}},
		{"too long", "the most is 2147483648", SendWR{Opcode: OpSend, SGEs: []SGE{b.mr.SGE(0, gib), b.mr.SGE(0, gib+1)}}},
		{"one too long", "the most is 2147483648", SendWR{Opcode: OpSend, SGEs: []SGE{b.mr.SGE(0, 2*gib+1)}}},
		{"atomic length", "with 4 bytes of local memory", SendWR{Opcode: OpFetchAdd, SGEs: []SGE{b.mr.SGE(0, 4)}}},
		{"atomic alignment", "must be a multiple of 8", SendWR{Opcode: OpCompareSwap, RemoteAddr: 12, SGEs: one}},
		{"inline READ", "can't be inline", SendWR{Opcode: OpRead, Flags: Inline, SGEs: one}},
		{"inline atomic", "can't be inline", SendWR{Opcode: OpFetchAdd, InlineData: make([]byte, 8)}},
		{"inline and SGEs", "want one of them", SendWR{Opcode: OpSend, InlineData: []byte{1}, SGEs: one}},
		{"inline data too long", "the QP takes 16", SendWR{Opcode: OpSend, InlineData: make([]byte, 17)}},
		{"inline SGEs too long", "16 bytes (MaxInline)", SendWR{Opcode: OpSend, Flags: Inline, SGEs: []SGE{b.mr.SGE(0, 9), b.mr.SGE(0, 8)}}},
		{"inline out of the MR", "bytes 4090 to 4098 of an MR of 4096", SendWR{Opcode: OpSend, Flags: Inline, SGEs: []SGE{b.mr.SGE(4090, 8)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := q.PostSend(c.wr)
			if n != 0 || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d, %v\nwant invalid argument, saying %q", n, err, c.says)
			}
			if err != nil && !strings.Contains(err.Error(), "fake0: QP 0x000001") {
				t.Errorf("the error doesn't say where: %v", err)
			}
		})
	}
	if f.init.SQ.Next() != nil || f.bells.Load() != 0 {
		t.Error("a refused work request was posted")
	}
	if n, err := q.PostRecv(RecvWR{SGEs: []SGE{{}, {}}}); n != 0 || !errors.Is(err, ErrInvalid) {
		t.Errorf("receive with too many SGEs: %d, %v", n, err)
	}
}

func TestLongestMessageIsAccepted(t *testing.T) {
	conform.Row(t, "bug/38")
	b := newBench(t)
	q, _ := b.qp(Caps{MaxSendWR: 8, MaxSendSGE: 2}, StateRTS)
	const gib = 1 << 30
	if n, err := q.PostSend(SendWR{Opcode: OpRead, SGEs: []SGE{b.mr.SGE(0, gib), b.mr.SGE(0, gib)}}); n != 1 {
		t.Error(err)
	}
}

func TestBatchStopsAtTheFirstBad(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 8, MaxSendSGE: 1}, StateRTS)
	n, err := q.PostSend(SendWR{ID: 1, Opcode: OpSend}, SendWR{ID: 2, Opcode: OpSend}, SendWR{ID: 3, Opcode: 50}, SendWR{ID: 4, Opcode: OpSend})
	if n != 2 || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "work request 3 of 4 (wr_id 3)") {
		t.Fatal(n, err)
	}
	for want := uint64(1); want <= 2; want++ {
		if w := f.init.SQ.Next(); w == nil || w.ID != want {
			t.Fatalf("%v, want %d", w, want)
		}
	}
	if f.init.SQ.Next() != nil {
		t.Error("the work request after the bad one was posted")
	}
}

func TestQueueFull(t *testing.T) {
	b := newBench(t)
	for _, size := range []int{0, 1, 3, 8} {
		q, f := b.qp(Caps{MaxSendWR: size, MaxRecvWR: size, MaxSendSGE: 1, MaxRecvSGE: 1}, StateRTS)
		n, err := q.PostSend(make([]SendWR, size+1)...)
		if n != size || !errors.Is(err, ErrQueueFull) {
			t.Errorf("send queue of %d took %d: %v", size, n, err)
		}
		n, err = q.PostRecv(make([]RecvWR, size+1)...)
		if n != size || !errors.Is(err, ErrQueueFull) {
			t.Errorf("receive queue of %d took %d: %v", size, n, err)
		}
		if size == 0 {
			continue
		}
		f.init.SQ.Next()
		f.init.SQ.Retire()
		if n, err := q.PostSend(SendWR{}, SendWR{}); n != 1 || !errors.Is(err, ErrQueueFull) {
			t.Errorf("after one was retired: %d, %v", n, err)
		}
	}
}

// A slot whose work request got a completion is free when that is polled, so that a CQ as deep as the queues suffices.
func TestSlotIsFreeWhenPolled(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}, StateRTS)
	must(q.PostSend(SendWR{}, SendWR{}))
	must(q.PostRecv(RecvWR{}, RecvWR{}))
	f.init.SQ.Next().Completed = true
	f.init.SQ.Retire()
	f.init.RQ.Next()
	f.init.RQ.Retire(nil)
	full := func(when string, want bool) {
		t.Helper()
		_, err1 := q.PostSend(SendWR{})
		_, err2 := q.PostRecv(RecvWR{})
		if errors.Is(err1, ErrQueueFull) != want || errors.Is(err2, ErrQueueFull) != want {
			t.Errorf("%s: %v; %v", when, err1, err2)
		}
	}
	b.cq.push(qp.Completion{QPN: q.Number(), Opcode: WCWrite}, qp.Completion{QPN: q.Number(), Opcode: WCRecv, Status: WRFlushErr})
	full("before the poll", true)
	if n := b.cq.Poll(make([]WC, 9)); n != 2 {
		t.Fatal(n)
	}
	full("after the poll", false)
	full("again", true)
}

func TestResetAndDestroyDropCompletions(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 2, MaxSendSGE: 1}, StateRTS)
	must(q.PostSend(SendWR{}))
	f.init.SQ.Next().Completed = true
	f.init.SQ.Retire()
	mine, other := qp.Completion{QPN: q.Number()}, qp.Completion{QPN: 99, ID: 99}
	b.cq.push(mine, other, mine)
	if err := q.Modify(QPAttr{State: StateReset}, AttrState); err != nil {
		t.Fatal(err)
	}
	wcs := make([]WC, 9)
	if n := b.cq.Poll(wcs); n != 1 || wcs[0].ID != 99 {
		t.Errorf("%d completions left by RESET, want the other QP's", n)
	}
	q.Modify(QPAttr{State: StateRTS}, AttrState)
	if n, err := q.PostSend(SendWR{}, SendWR{}); n != 2 {
		t.Errorf("after RESET: %d, %v", n, err)
	}
	b.cq.push(other, mine)
	q.Destroy()
	if n := b.cq.Poll(wcs); n != 1 || wcs[0].ID != 99 {
		t.Errorf("%d completions left by Destroy, want the other QP's", n)
	}
}

func TestPostByState(t *testing.T) {
	for _, c := range []struct {
		s          QPState
		send, recv bool
	}{
		{StateReset, false, false}, {StateInit, false, true}, {StateRTR, false, true},
		{StateRTS, true, true}, {StateSQD, true, true}, {StateErr, true, true},
	} {
		b := newBench(t)
		q, _ := b.qp(DefaultCaps, c.s)
		if _, err := q.PostSend(SendWR{Opcode: OpSend}); (err == nil) != c.send || err != nil && !errors.Is(err, ErrState) {
			t.Errorf("send in %v: %v", c.s, err)
		}
		if _, err := q.PostRecv(RecvWR{}); (err == nil) != c.recv || err != nil && !errors.Is(err, ErrState) {
			t.Errorf("receive in %v: %v", c.s, err)
		}
	}
}

// A QP that an error moved from RTR to ERR takes sends, which are then flushed.
func TestPostAfterFailureInRTR(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(DefaultCaps, StateRTR)
	f.attr.State = StateErr
	if _, err := q.PostSend(SendWR{Opcode: OpSend}); err != nil {
		t.Error(err)
	}
}

func TestResetForgetsWork(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}, StateRTS)
	must(q.PostSend(SendWR{ID: 1}, SendWR{ID: 2}, SendWR{ID: 3}))
	must(q.PostRecv(RecvWR{ID: 1}, RecvWR{ID: 2}))
	f.init.SQ.Next()
	f.init.RQ.Next()
	for _, s := range []QPState{StateReset, StateRTS} {
		if err := q.Modify(QPAttr{State: s}, AttrState); err != nil {
			t.Fatal(err)
		}
	}
	if f.init.SQ.Next() != nil || f.init.RQ.Next() != nil {
		t.Error("work survived RESET")
	}
	if n, err := q.PostSend(make([]SendWR, 4)...); n != 4 {
		t.Errorf("the queue isn't empty after RESET: %d, %v", n, err)
	}
}

// Who has polled a completion can post in its place, whatever else completes meanwhile.
func TestPollThenPost(t *testing.T) {
	const size, total = 8, 50000
	b := newBench(t)
	q, f := b.qp(Caps{MaxRecvWR: size, MaxRecvSGE: 1}, StateRTS)
	must(q.PostRecv(make([]RecvWR, size)...))
	go func() {
		for done := 0; done < total; {
			if f.init.RQ.Next() != nil {
				f.init.RQ.Retire(nil)
				b.cq.push(qp.Completion{QPN: q.Number(), Opcode: WCRecv})
				done++
			}
		}
	}()
	wcs := make([]WC, 3)
	for got := 0; got < total-size; {
		n := b.cq.Poll(wcs)
		if _, err := q.PostRecv(make([]RecvWR, n)...); err != nil {
			t.Fatalf("after %d: %v", got, err)
		}
		got += n
	}
}

// Many posters, one worker: every work request arrives once, and each poster's in its order.
func TestPostersAndWorker(t *testing.T) {
	const posters, each = 4, 2000
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 13, MaxSendSGE: 2, MaxInline: 16}, StateRTS)
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := 0; i < each; {
				id := uint64(p)<<32 | uint64(i)
				n, _ := q.PostSend(SendWR{ID: id, Opcode: OpSend, InlineData: bytes.Repeat([]byte{byte(i)}, 3)})
				i += n
			}
		})
	}
	var next [posters]uint64
	for got := 0; got < posters*each; {
		w := f.init.SQ.Next()
		if w == nil {
			continue
		}
		p, i := w.ID>>32, w.ID&0xffffffff
		if i != next[p] || !bytes.Equal(w.Inline, bytes.Repeat([]byte{byte(i)}, 3)) {
			t.Fatalf("poster %d: got %d %x, want %d", p, i, w.Inline, next[p])
		}
		next[p]++
		got++
		f.init.SQ.Retire()
	}
	wg.Wait()
}

func TestPostAllocatesNothing(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}, StateRTS)
	data := make([]byte, 32)
	n := testing.AllocsPerRun(1000, func() {
		_, err1 := q.PostSend(SendWR{ID: 1, Opcode: OpWrite, SGEs: []SGE{{b.mr, 0, 64}, {b.mr, 64, 64}}, RemoteAddr: 1, RKey: 2},
			SendWR{Opcode: OpSend, InlineData: data})
		_, err2 := q.PostRecv(RecvWR{ID: 2, SGEs: []SGE{{b.mr, 0, 64}}})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for range 2 {
			f.init.SQ.Next()
			f.init.SQ.Retire()
		}
		f.init.RQ.Next()
		f.init.RQ.Retire(nil)
		q.rq.free(1)
	})
	if n != 0 {
		t.Errorf("%v allocations a post", n)
	}
	must(q.PostSend(make([]SendWR, 64)...))
	if n := testing.AllocsPerRun(100, func() { q.PostSend(SendWR{}) }); n != 0 {
		t.Errorf("%v allocations when the queue is full", n)
	}
}
