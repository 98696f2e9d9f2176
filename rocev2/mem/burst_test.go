package mem

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func repeat[T any](n int, v T) (s []T) {
	for range n {
		s = append(s, v)
	}
	return s
}

func concat[T any](lists ...[]T) (s []T) {
	for _, l := range lists {
		s = append(s, l...)
	}
	return s
}

// Pages of one owner's message vanish when its packets have been accepted but
// not yet written. That owner learns which packet failed; its later ones aren't
// written; its neighbours, who share the system calls, notice nothing.
func TestUnmappedInTheMiddleOfABurst(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		const size, each = 1000, 20 // bytes of a packet, packets of an owner
		c := startChild(t)
		var tab Table
		pd := new(PD)
		mr := register(t, &tab, pd, c.process(), c.addr, 0x1000, uint64(childPages*pageSize), allAccess)
		c.Tell("fill 0 %d 170", childPages*pageSize)

		owners := []*recorder{{}, {}, {}}
		start := []int{0, 5 * pageSize, 10 * pageSize} // of each owner's message
		for i := range each {
			for o, r := range owners {
				va := mr.IOVA + uint64(start[o]+i*size)
				if tab.Find(mr.Key, pd, va, size, RemoteWrite) != mr {
					t.Fatal("the region isn't found")
				}
				add(t, b, r, Scatter, mr, va, bytes.Repeat([]byte{byte(i + 1)}, size))
			}
		}
		c.Tell("unmap %d %d", 7*pageSize, pageSize) // the third page of the second
		b.Run()

		bad := 2 * pageSize / size // the packet that enters it
		want := [][]Status{
			repeat(each, OK),
			concat(repeat(bad, OK), repeat(1, Fault), repeat(each-bad-1, Discarded)),
			repeat(each, OK),
		}
		for o, r := range owners {
			if d := cmp.Diff(want[o], r.statuses()); d != "" {
				t.Errorf("owner %d (-want +got):\n%s", o, d)
			}
		}
		checkMessage := func(o, packets int) {
			t.Helper()
			for i, v := range c.bytes(start[o], packets*size) {
				if v != byte(i/size+1) {
					t.Fatalf("owner %d: byte %d is %d", o, i, v)
				}
			}
		}
		checkMessage(0, each)
		checkMessage(1, bad)
		checkMessage(2, each)
		after := c.bytes(8*pageSize, 2*pageSize)
		if !bytes.Equal(after, bytes.Repeat([]byte{170}, len(after))) {
			t.Error("what follows the unmapped page was written")
		}
	})
}

func TestGatherStopsAtUnreadablePage(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(childPages*pageSize), allAccess)
		c.Tell("fill 0 %d 7", 4*pageSize)
		c.Tell("protect %d %d %d", pageSize, pageSize, unix.PROT_NONE)
		frags := make([][]byte, 4)
		var first, second recorder
		for i := range frags {
			frags[i] = make([]byte, pageSize)
			add(t, b, &first, Gather, mr, uint64(i*pageSize), frags[i])
		}
		other := make([]byte, 10)
		add(t, b, &second, Gather, mr, uint64(3*pageSize-5), other[:5]).Frag[1] = other[5:]
		b.Run()
		if d := cmp.Diff([]Status{OK, Fault, Discarded, Discarded}, first.statuses()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff([]Status{OK}, second.statuses()); d != "" {
			t.Errorf("neighbour (-want +got):\n%s", d)
		}
		for i, want := range []byte{7, 0, 0, 0} {
			if !bytes.Equal(frags[i], bytes.Repeat([]byte{want}, pageSize)) {
				t.Errorf("fragment %d isn't all %d", i, want)
			}
		}
		if !bytes.Equal(other, bytes.Repeat([]byte{7}, 10)) {
			t.Errorf("neighbour read %v", other)
		}
	})
}

func TestReadOnlyPagesCantBeWritten(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		pd, p := new(PD), c.process()
		mr := register(t, &tab, pd, p, c.addr, 0, uint64(2*pageSize), allAccess)
		c.Tell("protect 0 %d %d", pageSize, unix.PROT_READ)
		var r recorder
		add(t, b, &r, Gather, mr, 0, make([]byte, 8))
		add(t, b, &r, Scatter, mr, 0, []byte{1})
		b.Run()
		if d := cmp.Diff([]Status{OK, Fault}, r.statuses()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if v := c.bytes(0, 1); v[0] != 0 {
			t.Error("a read-only page was written")
		}
	})
}

// More iovecs than one call takes.
func TestProcessManyScatteredOps(t *testing.T) {
	for name, limit := range modes {
		t.Run(name, func(t *testing.T) {
			c := startChild(t)
			var tab Table
			mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(childPages*pageSize), allAccess)
			b := NewBatch(3000)
			b.Guard(limit)
			defer b.Close()
			var r recorder
			want := make([]byte, 16*3000)
			for i := range 3000 {
				v := []byte{byte(i), byte(i >> 8), 1, 2, 3, 4, 5, 6}
				copy(want[16*i:], v)
				op := add(t, b, &r, Scatter, mr, uint64(16*i), v[:3])
				op.Frag[1], op.Tail = v[3:], true
			}
			b.Run()
			if d := cmp.Diff(repeat(3000, OK), r.statuses()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if !bytes.Equal(c.bytes(0, len(want)), want) {
				t.Error("memory differs")
			}
		})
	}
}

// One op bigger than what a guarded call moves otherwise.
func TestProcessBigOp(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		size := childPages * pageSize
		mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(size), allAccess)
		in, out := make([]byte, size), make([]byte, size)
		for i := range in {
			in[i] = byte(i * 7 >> 3)
		}
		var r recorder
		add(t, b, &r, Scatter, mr, 0, in[:1])
		add(t, b, &r, Scatter, mr, 1, in[1:])
		add(t, b, &r, Gather, mr, 0, out[:size-1])
		add(t, b, &r, Gather, mr, uint64(size-1), out[size-1:])
		b.Run()
		if d := cmp.Diff(repeat(4, OK), r.statuses()); d != "" || !bytes.Equal(in, out) {
			t.Errorf("equal: %v (-want +got):\n%s", bytes.Equal(in, out), d)
		}
	})
}

func TestProcessTailLandsLast(t *testing.T) {
	const messages = 100
	for _, n := range []int{7, 8, 4096} {
		eachMode(t, func(t *testing.T, b *Batch) {
			c := startChild(t)
			var tab Table
			mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(2*pageSize), allAccess)
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				c.Tell("watch 0 %d %d", n, messages)
			}()
			for k := 1; k <= messages; k++ {
				var r recorder
				msg := bytes.Repeat([]byte{byte(k)}, n)
				add(t, b, &r, Scatter, mr, 0, msg[:n/2])
				add(t, b, &r, Scatter, mr, uint64(n/2), msg[n/2:]).Tail = true
				b.Run()
				for ack := []byte{0}; ack[0] != byte(k); yield() {
					add(t, b, &r, Gather, mr, uint64(pageSize), ack)
					b.Run()
					select {
					case <-watched:
						if k < messages {
							t.Fatal("the child gave up")
						}
						return
					default:
					}
				}
			}
			<-watched
		})
	}
}

// yield lets another process have the processor.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

func TestProcessOpsDoNotAllocate(t *testing.T) {
	eachMode(t, func(t *testing.T, b *Batch) {
		c := startChild(t)
		var tab Table
		mr := register(t, &tab, new(PD), c.process(), c.addr, 0, uint64(childPages*pageSize), allAccess)
		frag, o := make([]byte, 1024), new(silent)
		n := testing.AllocsPerRun(200, func() {
			for i := range uint64(64) {
				add(t, b, o, Scatter, mr, i*1024, frag).Tail = i%8 == 7
			}
			for i := range uint64(64) {
				add(t, b, o, Gather, mr, i*1500, frag)
			}
			op := add(t, b, o, FetchAdd, mr, 0, nil)
			op.Swap = 1
			b.Run()
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
