package spsc

import (
	"runtime"
	"testing"
)

func mustRing[T any](t testing.TB, n int) *Ring[T] {
	r, err := New[T](n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNewRefusesBadSizes(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 1000, 1<<30 + 1} {
		if _, err := New[int](n); err == nil {
			t.Errorf("a ring of %d slots was made", n)
		}
	}
}

func TestFullEmptyAndPublish(t *testing.T) {
	r := mustRing[int](t, 4)
	// Start near the wrap of the indices: nothing may compare them with <.
	for _, p := range []*uint32{&r.next, &r.read, &r.end} {
		*p = ^uint32(0) - 1
	}
	r.prod.Store(r.next)
	r.cons.Store(r.next)
	r.limit = r.next + 4
	for i := range 4 {
		*r.Slot() = i
		r.Push()
	}
	if r.Slot() != nil {
		t.Fatal("a full ring gave a slot")
	}
	if r.Front() != nil {
		t.Fatal("the consumer saw what was not published")
	}
	if !r.Publish() || r.Publish() {
		t.Fatal("Publish: want true once")
	}
	for i := range 4 {
		if p := r.Front(); p == nil || *p != i {
			t.Fatalf("slot %d: got %v", i, p)
		}
		r.Pop()
	}
	if r.Front() != nil || r.Slot() != nil {
		t.Fatal("popped slots must stay the consumer's until Free")
	}
	r.Free()
	if r.Slot() == nil || !r.Empty() {
		t.Fatal("freed slots were not given back")
	}
}

func TestTwoGoroutines(t *testing.T) {
	const total = 200_000
	r := mustRing[int](t, 64)
	go func() {
		for i := 0; i < total; {
			for p := r.Slot(); p != nil && i < total; p = r.Slot() {
				*p = i
				i++
				r.Push()
				if i%7 == 0 {
					break
				}
			}
			r.Publish()
			runtime.Gosched()
		}
	}()
	for want := 0; want < total; {
		for p := r.Front(); p != nil; p = r.Front() {
			if *p != want {
				t.Fatalf("got %d, want %d", *p, want)
			}
			*p = -1
			want++
			r.Pop()
		}
		r.Free()
		runtime.Gosched()
	}
}

func TestNoAllocation(t *testing.T) {
	r := mustRing[[8]uint64](t, 8)
	if n := testing.AllocsPerRun(100, func() {
		for p := r.Slot(); p != nil; p = r.Slot() {
			p[0]++
			r.Push()
		}
		r.Publish()
		for r.Front() != nil {
			r.Pop()
		}
		r.Free()
	}); n != 0 {
		t.Fatalf("%v allocations a run", n)
	}
}
