package verbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urxe/urxe/rocev2/qp"
)

func (c *CQ) push(cs ...qp.Completion) bool { return (*sink)(c).Push(cs) }

func TestPollOrderAndFields(t *testing.T) {
	b := newBench(t)
	cq := must(b.dev.CreateCQ(5, nil))
	in := qp.Completion{ID: 1, ByteLen: 2, Imm: 3, QPN: 4, SrcQP: 5, Status: 0, Opcode: WCRecv, Flags: WCWithImm, Solicited: true}
	want := WC{ID: 1, ByteLen: 2, Imm: 3, QPN: 4, SrcQP: 5, Opcode: WCRecv, Flags: WCWithImm, Solicited: true}
	wcs := make([]WC, 3)
	for round := range uint64(10) { // around the ring
		in.ID, want.ID = round, round
		cq.push(in, completion(100), completion(101), completion(102))
		if n := cq.Poll(wcs); n != 3 || wcs[0] != want || wcs[1].ID != 100 || wcs[2].ID != 101 {
			t.Fatalf("round %d: %d %+v", round, n, wcs)
		}
		if n := cq.Poll(wcs); n != 1 || wcs[0].ID != 102 {
			t.Fatalf("round %d: %d %+v", round, n, wcs)
		}
	}
	if cq.Poll(wcs) != 0 || cq.Poll(nil) != 0 {
		t.Error("an empty CQ gave something")
	}
}

func TestPollRunsTheWorkers(t *testing.T) {
	b := newBench(t)
	q1, _ := b.qp(DefaultCaps, StateRTS)
	q2, _ := b.qp(DefaultCaps, StateRTS)
	b.engine.worker.step = func() { b.cq.push(completion(1)) }
	wcs := make([]WC, 4)
	if n := b.cq.Poll(wcs); n != 1 || b.engine.worker.polls.Load() != 1 {
		t.Errorf("%d completions after %d runs of the one worker", n, b.engine.worker.polls.Load())
	}
	q1.Destroy()
	b.cq.Poll(wcs)
	q2.Destroy()
	if b.cq.Poll(wcs); b.engine.worker.polls.Load() != 2 {
		t.Errorf("the worker ran %d times, want 2: the CQ has no QPs any more", b.engine.worker.polls.Load())
	}
}

func TestOverrun(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(3, ch))
	cq.ReqNotify(true)
	if !cq.push(completion(1), completion(2), completion(3)) || cq.Err() != nil {
		t.Fatal("a CQ of depth 3 takes 3")
	}
	if cq.push(completion(4)) || cq.push(completion(5)) {
		t.Fatal("and no more")
	}
	if err := cq.Err(); !errors.Is(err, ErrCQOverrun) {
		t.Error(err)
	}
	if e := <-b.dev.Events(); e.Type != EventCQErr || e.CQ != cq {
		t.Errorf("event %v", e)
	}
	if got, err := ch.TryWait(); got != cq || err != nil {
		t.Errorf("who waits for completions must learn of the overrun: %v, %v", got, err)
	}
	wcs := make([]WC, 9)
	if n := cq.Poll(wcs); n != 3 || wcs[2].ID != 3 {
		t.Errorf("polled %d, want what was there before", n)
	}
	if cq.push(completion(6)) {
		t.Error("an overrun CQ takes nothing any more")
	}
	wantEvents(t, b.dev)
}

func TestArm(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(1024, ch))
	plain, solicited, failed := completion(1), completion(2), completion(3)
	solicited.Solicited = true
	failed.Status, failed.Solicited = RetryExcErr, true
	fires := func() bool {
		got, err := ch.TryWait()
		if err != nil {
			t.Fatal(err)
		}
		return got == cq
	}
	for _, c := range []struct {
		name string
		arm  []bool // ReqNotify's argument
		push qp.Completion
		want bool
	}{
		{"not armed", nil, solicited, false},
		{"armed", []bool{false}, plain, true},
		{"one event only", nil, plain, false},
		{"solicited only, plain", []bool{true}, plain, false},
		{"still armed", nil, solicited, true},
		{"solicited only, error", []bool{true}, failed, true},
		{"all wins over solicited", []bool{true, false}, plain, true},
		{"solicited doesn't weaken all", []bool{false, true}, plain, true},
	} {
		for _, s := range c.arm {
			if err := cq.ReqNotify(s); err != nil {
				t.Fatal(err)
			}
		}
		if cq.push(c.push); fires() != c.want {
			t.Errorf("%s: event %v, want %v", c.name, !c.want, c.want)
		}
	}
	cq.push(plain)
	if cq.ReqNotify(false); fires() {
		t.Error("completions that are there already raise no event")
	}
	none := must(b.dev.CreateCQ(1, nil))
	if err := none.ReqNotify(false); !errors.Is(err, ErrInvalid) {
		t.Errorf("a CQ without channel: %v", err)
	}
}

func TestEventsOfOneCQMerge(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cqs := []*CQ{must(b.dev.CreateCQ(99, ch)), must(b.dev.CreateCQ(99, ch)), must(b.dev.CreateCQ(99, ch))}
	for range 5 {
		for _, c := range cqs {
			c.ReqNotify(false)
			c.push(completion(0))
		}
	}
	for i, want := range cqs {
		if got, _ := ch.TryWait(); got != want {
			t.Errorf("event %d is of another CQ", i)
		}
	}
	if got, _ := ch.TryWait(); got != nil {
		t.Error("an event too many")
	}
	cqs[0].ReqNotify(false)
	cqs[0].push(completion(0))
	if err := cqs[0].Destroy(); err != nil {
		t.Fatal(err)
	}
	if got, _ := ch.TryWait(); got != nil {
		t.Error("an event of a CQ that was destroyed")
	}
}

// No wake-up is lost between arming, the last poll and waiting, whatever the timing.
func TestNoLostWakeups(t *testing.T) {
	const total = 20000
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(total, ch))
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		for i := 0; i < total; {
			n := min(1+r.IntN(3), total-i)
			for range n {
				cq.push(completion(uint64(i)))
				i++
			}
			for range r.IntN(3) {
				runtime.Gosched()
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	wcs := make([]WC, 7)
	next := uint64(0)
	for next < total {
		cq.ReqNotify(false)
		got := 0
		for n := cq.Poll(wcs); n > 0; n = cq.Poll(wcs) {
			for _, wc := range wcs[:n] {
				if wc.ID != next {
					t.Fatalf("completion %d, want %d", wc.ID, next)
				}
				next++
			}
			got += n
		}
		if got == 0 && next < total {
			if _, err := ch.Wait(ctx); err != nil {
				t.Fatalf("after %d of %d: %v", next, total, err)
			}
		}
	}
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ch := must(b.dev.CreateCompChannel())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ch.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := ch.Wait(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("close: %v", err)
				}
			})
		}
		synctest.Wait()
		b.dev.Close()
		wg.Wait()
		<-ch.Ready()
	})
}

// Who goes to sleep gives the workers their Links back.
func TestWaitEndsTheLease(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	b.cq = must(b.dev.CreateCQ(4, ch))
	b.qp(DefaultCaps, StateRTS)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ch.Wait(ctx); !errors.Is(err, context.Canceled) || b.engine.worker.ends.Load() != 1 {
		t.Errorf("%v; the lease was ended %d times", err, b.engine.worker.ends.Load())
	}
	b.cq.ReqNotify(false)
	b.cq.push(completion(1))
	if _, err := ch.Wait(t.Context()); err != nil || b.engine.worker.ends.Load() != 1 {
		t.Errorf("%v; who needn't sleep doesn't end the lease", err)
	}
}

func TestPollAllocatesNothing(t *testing.T) {
	b := newBench(t)
	b.qp(DefaultCaps, StateRTS)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(16, ch))
	cs := []qp.Completion{completion(1), completion(2)}
	wcs := make([]WC, 4)
	if n := testing.AllocsPerRun(1000, func() {
		cq.ReqNotify(false)
		(*sink)(cq).Push(cs)
		ch.TryWait()
		cq.Poll(wcs)
		cq.Poll(wcs)
		b.cq.Poll(wcs)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A resize keeps what is in the queue, in its order; what can't be refuses and changes nothing.
func TestResize(t *testing.T) {
	b := newBench(t)
	cq := must(b.dev.CreateCQ(4, nil))
	wcs := make([]WC, 64)
	next, want := uint64(0), uint64(0)
	push := func(n int) {
		t.Helper()
		for range n {
			if !cq.push(completion(next)) {
				t.Fatalf("no room in a queue of %d", cq.Depth())
			}
			next++
		}
	}
	poll := func(n int) {
		t.Helper()
		if got := cq.Poll(wcs[:n]); got != n {
			t.Fatalf("%d completions, want %d", got, n)
		}
		for _, wc := range wcs[:n] {
			if wc.ID != want {
				t.Fatalf("completion %d, want %d", wc.ID, want)
			}
			want++
		}
	}
	push(3)
	poll(2)
	for _, depth := range []int{9, 5, 33, 7, 7, 64, 4} { // around the ring's end, too
		push(3)
		if err := cq.Resize(depth); err != nil || cq.Depth() != depth {
			t.Fatalf("to %d: %v, depth %d", depth, err, cq.Depth())
		}
		poll(3)
	}
	push(3)
	wantErr(t, cq.Resize(3), ErrInvalid, "resize CQ of depth 4: invalid argument: depth 3, and 4 completions wait in it")
	for _, depth := range []int{0, -1, b.dev.Query().MaxCQE + 1} {
		wantErr(t, cq.Resize(depth), ErrInvalid, "(allowed: 1 to 4194304, MaxCQE)")
	}
	poll(2)
	if err := cq.Resize(2); err != nil {
		t.Fatal(err)
	}
	if cq.push(completion(99)) {
		t.Error("a queue of 2 took 3")
	}
	wantErr(t, cq.Resize(10), ErrCQOverrun, "resize CQ of depth 2")
	poll(2)
	if err := cq.Destroy(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, cq.Resize(10), ErrClosed, "resize CQ")
}

// A resize loses and reorders nothing while workers add and others poll; who is
// armed stays so.
func TestResizeConcurrently(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(64, ch))
	const workers, each = 3, 4000
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; i < each; {
				if int(cq.ready.Load()) > 32 { // polled no slower than added, as the QPs' depths see to
					runtime.Gosched()
					continue
				}
				cq.push(completion(uint64(w*each+i)), completion(uint64(w*each+i+1)))
				i += 2
			}
		})
	}
	var seen [workers * each]bool
	var mu sync.Mutex
	total := 0
	for range 3 {
		wg.Go(func() {
			last := [workers]int{-1, -1, -1}
			for wcs := make([]WC, 7); ; {
				n := cq.Poll(wcs)
				mu.Lock()
				for _, wc := range wcs[:n] {
					if w := int(wc.ID) / each; int(wc.ID) <= last[w] || seen[wc.ID] {
						t.Errorf("completion %d came again, or after %d", wc.ID, last[w])
					} else {
						last[w], seen[wc.ID] = int(wc.ID), true
					}
				}
				total += n
				done := total == workers*each || t.Failed()
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	var stop atomic.Bool
	var resizer sync.WaitGroup
	resizer.Go(func() {
		for r := rand.New(rand.NewPCG(1, 2)); !stop.Load(); runtime.Gosched() {
			if err := cq.Resize(64 + r.IntN(1000)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	stop.Store(true)
	resizer.Wait()
	if err := cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	if err := cq.Resize(64); err != nil {
		t.Fatal(err)
	}
	cq.push(completion(0))
	if got, err := ch.TryWait(); got != cq || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
