package mem

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/internal/nettest"
)

// testLimit is short for memory that blocks for ever, and long for a call that is not scheduled at once.
const testLimit = 250 * time.Millisecond

// blocked returns a child whose first page blocks whoever touches it.
func blocked(t *testing.T) *child {
	if os.Getuid() != 0 {
		nettest.SkipOrFail(t, "root, for userfaultfd in kernel mode")
	}
	c := startChild(t)
	c.Tell("block 0 %d", pageSize)
	return c
}

// The kernel doesn't return from an access to a page that userfaultfd guards.
// The batch must, with a Fault for the ops of that call and no harm to others';
// and what the stuck call does once it goes on must not concern us.
func TestBlockingMemoryIsAbandoned(t *testing.T) {
	for _, kind := range []Kind{Scatter, Gather, FetchAdd} {
		t.Run([]string{Gather: "gather", Scatter: "scatter", FetchAdd: "atomic"}[kind], func(t *testing.T) {
			bad, good := blocked(t), startChild(t)
			var tab Table
			pd, p := new(PD), bad.process()
			badMR := register(t, &tab, pd, p, bad.addr, 0, uint64(childPages*pageSize), allAccess)
			goodMR := register(t, &tab, pd, good.process(), good.addr, 0, uint64(pageSize), allAccess)
			here := register(t, &tab, pd, NewBytes(make([]byte, 64), 0), 0, 0, 64, allAccess)
			b := NewBatch(64)
			b.Guard(testLimit)
			defer b.Close()

			before := runtime.NumGoroutine()
			frame := bytes.Repeat([]byte{1}, 8)
			var r1, r2, r3, r4 recorder
			add(t, b, &r1, kind, badMR, 0, frame).Swap = 0x0101010101010101
			add(t, b, &r2, Scatter, goodMR, 0, []byte{9})
			add(t, b, &r1, Scatter, badMR, uint64(pageSize), frame)
			add(t, b, &r3, Scatter, badMR, uint64(2*pageSize), frame)
			add(t, b, &r4, Scatter, here, 0, []byte{9})
			start := time.Now()
			b.Run()
			took := time.Since(start)

			if took < testLimit {
				t.Errorf("the batch took %v with a limit of %v", took, testLimit)
			}
			if !p.Dead() {
				t.Error("the process isn't dead to us")
			}
			for i, x := range []struct {
				r    *recorder
				want []Status
			}{{&r1, []Status{Fault, Discarded}}, {&r2, []Status{OK}}, {&r3, []Status{Fault}}, {&r4, []Status{OK}}} {
				if d := cmp.Diff(x.want, x.r.statuses()); d != "" {
					t.Errorf("owner %d (-want +got):\n%s", i+1, d)
				}
			}
			if v := good.bytes(0, 1)[0]; v != 9 || here.Bytes()[0] != 9 {
				t.Errorf("the others' memory holds %d and %d, want 9", v, here.Bytes()[0])
			}

			// The frame has another use when the stuck call goes on.
			copy(frame, "reused!!")
			bad.Tell("unblock 0 %d", pageSize)
			awaitGoroutines(t, before+1) // the good process's helper
			if string(frame) != "reused!!" {
				t.Errorf("the abandoned call wrote %q into a frame", frame)
			}
			if got := bad.bytes(0, 8); !bytes.Equal(got, make([]byte, 8)) && !bytes.Equal(got, bytes.Repeat([]byte{1}, 8)) {
				t.Errorf("the abandoned call wrote %q, which was never its", got)
			}
		})
	}
}

func awaitGoroutines(t *testing.T, n int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, want %d", runtime.NumGoroutine(), n)
}

// Calls that are slow, but within the limit, are waited for.
func TestSlowMemoryIsWaitedFor(t *testing.T) {
	c := blocked(t)
	var tab Table
	p := c.process()
	mr := register(t, &tab, new(PD), p, c.addr, 0, uint64(pageSize), allAccess)
	b := NewBatch(4)
	b.Guard(10 * time.Second)
	defer b.Close()
	released := make(chan struct{})
	go func() {
		defer close(released)
		time.Sleep(100 * time.Millisecond)
		c.Tell("unblock 0 %d", pageSize)
	}()
	var r recorder
	add(t, b, &r, Scatter, mr, 0, []byte{1})
	b.Run()
	<-released
	if d := cmp.Diff([]Status{OK}, r.statuses()); d != "" || p.Dead() {
		t.Errorf("dead: %v (-want +got):\n%s", p.Dead(), d)
	}
}

// The watchdog must not take many short calls, nor idle time between calls,
// for a long one.
func TestGuardSparesShortCalls(t *testing.T) {
	c := startChild(t)
	var tab Table
	p := c.process()
	mr := register(t, &tab, new(PD), p, c.addr, 0, uint64(pageSize), allAccess)
	b := NewBatch(4)
	const limit = 500 * time.Millisecond // scheduling delays count
	b.Guard(limit)
	defer b.Close()
	var r silent
	for i := 0; i < 100 && !p.Dead(); i++ {
		for range 200 {
			add(t, b, &r, Scatter, mr, 0, []byte{1})
			b.Run()
		}
		if i%50 == 49 {
			time.Sleep(limit * 5 / 4)
		}
	}
	if p.Dead() {
		t.Error("a process was abandoned that never blocked")
	}
}

func TestCloseEndsTheHelper(t *testing.T) {
	c := startChild(t)
	var tab Table
	mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(pageSize), allAccess)
	before := runtime.NumGoroutine()
	for range 3 {
		b := NewBatch(4)
		var r recorder
		add(t, b, &r, Scatter, mr, 0, []byte{1})
		b.Run()
		b.Close()
		add(t, b, &r, Scatter, mr, 0, []byte{1})
		b.Run() // starts another
		b.Close()
		if d := cmp.Diff([]Status{OK, OK}, r.statuses()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	awaitGoroutines(t, before)
}

// A call that begins when the watchdog is about to rest either sees that it
// rests and wakes it, or is seen.
func TestWatchdogRestsOnlyWhenIdle(t *testing.T) {
	h := &helper{}
	h.state.Store(2)
	h.ticking.Store(true)
	if !h.rest(2) || h.ticking.Load() {
		t.Error("the watchdog of an idle helper doesn't rest")
	}
	h.state.Store(3)
	h.ticking.Store(true) // as the worker saw it
	if h.rest(2) || !h.ticking.Load() {
		t.Error("the watchdog rests though a call has begun")
	}
}
