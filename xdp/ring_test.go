package xdp

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/urxe/urxe/internal/seeded"
)

// Every ring size, from indices around the wrap at 2^32, random batches: entries
// come out once and in order, and room and avail never promise too much.
func TestRingsAroundTheWrap(t *testing.T) {
	rng := seeded.Rand(t)
	for size := 1; size <= 4096; size *= 2 {
		for _, index := range []uint32{0, 1<<31 - 2, 1<<32 - 1, -uint32(size), -uint32(size) - 1} {
			t.Run(fmt.Sprintf("%d/%#x", size, index), func(t *testing.T) {
				up, down := newFakeRing[uint64](size, index), newFakeRing[uint64](size, index)
				p, c := up.producer(), down.consumer()
				var put, moved, taken uint64
				for taken < uint64(3*size+10) {
					room := p.room(uint32(size))
					if free := uint32(size) - (p.next - up.cons); room > free {
						t.Fatalf("room for %d, but %d are free", room, free)
					}
					for range rng.Uint32N(room + 1) {
						p.put(put)
						put++
					}
					if rng.IntN(3) > 0 {
						p.publish()
					}
					for range rng.IntN(size + 1) {
						if down.len() == size {
							break
						}
						v, ok := up.consume()
						if !ok {
							break
						}
						if v != moved {
							t.Fatalf("the kernel got entry %d, want %d", v, moved)
						}
						down.produce(v)
						moved++
					}
					for range rng.Uint32N(c.avail(uint32(size)) + 1) {
						if v := c.take(); v != taken {
							t.Fatalf("took entry %d, want %d", v, taken)
						}
						taken++
					}
					if rng.IntN(3) > 0 {
						c.release()
					}
				}
			})
		}
	}
}

// An entry is not visible to the kernel before publish, and publish without one
// does nothing (the kick must come after it).
func TestPublish(t *testing.T) {
	k := newFakeRing[uint64](8, 1<<32-1)
	p := k.producer()
	if p.publish() {
		t.Error("published nothing")
	}
	p.room(1)
	p.put(7)
	if _, ok := k.consume(); ok {
		t.Error("visible before publish")
	}
	if !p.publish() || p.pending() != 1 {
		t.Errorf("pending %d after publish, want 1", p.pending())
	}
	if v, ok := k.consume(); !ok || v != 7 || p.pending() != 0 {
		t.Errorf("the kernel got %d, %v; pending %d", v, ok, p.pending())
	}
}

// Both ends at once, for the race detector.
func TestRingsConcurrently(t *testing.T) {
	const total = 50000
	up, down := newFakeRing[uint64](64, 1<<32-1000), newFakeRing[uint64](16, 1<<32-1000)
	go func() {
		for n := 0; n < total; {
			if v, ok := up.consume(); ok {
				for !down.produce(v) {
					runtime.Gosched()
				}
				n++
			} else {
				runtime.Gosched()
			}
		}
	}()
	p, c := up.producer(), down.consumer()
	var put, taken uint64
	for taken < total {
		for range min(p.room(1), uint32(total-put), 5) {
			p.put(put)
			put++
		}
		p.publish()
		for range c.avail(1) {
			if v := c.take(); v != taken {
				t.Fatalf("took entry %d, want %d", v, taken)
			}
			taken++
		}
		c.release()
		runtime.Gosched()
	}
}
