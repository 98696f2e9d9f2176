package mem

import (
	"bytes"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBatchIsBoundedAndEmptiesItself(t *testing.T) {
	_, _, mr := regionOf(t, make([]byte, 8))
	b := NewBatch(3)
	var r recorder
	for round := range 3 {
		for i := range 3 {
			if b.Free() != 3-i {
				t.Fatalf("Free = %d, want %d", b.Free(), 3-i)
			}
			op := b.Add()
			if op.MR != nil || op.Kind != Nop || op.Owner != nil || op.Frag[0] != nil || op.Status != OK {
				t.Fatalf("round %d: Add returned a used op: %+v", round, op)
			}
			op.Kind, op.MR, op.VA, op.Owner, op.Frag[0] = Scatter, mr, uint64(6+i), &r, []byte{1}
		}
		if b.Add() != nil {
			t.Fatal("Add to a full batch")
		}
		if !b.Immediate() {
			t.Fatal("bytes aren't immediate")
		}
		b.Run()
	}
	want := []Status{OK, OK, Fault, OK, OK, Fault, OK, OK, Fault} // failures end with the run
	if d := cmp.Diff(want, r.statuses()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestImmediate(t *testing.T) {
	var tab Table
	pd := new(PD)
	here := register(t, &tab, pd, NewBytes(make([]byte, 8), 0), 0, 0, 8, 0)
	c := startChild(t)
	there := register(t, &tab, pd, c.process(), c.addr, 0, 8, 0)
	b := NewBatch(4)
	if !b.Immediate() {
		t.Error("an empty batch has to wait")
	}
	add(t, b, nil, Nop, nil, 0, nil)
	add(t, b, nil, Gather, here, 0, nil)
	if !b.Immediate() {
		t.Error("bytes have to wait")
	}
	add(t, b, nil, Gather, there, 0, make([]byte, 1))
	if b.Immediate() {
		t.Error("another process's memory needn't wait")
	}
	b.Run()
	b.Close()
	if !b.Immediate() {
		t.Error("a batch that has run has to wait")
	}
}

func TestOpsWithoutOwnerAreIndependent(t *testing.T) {
	buf := make([]byte, 8)
	_, _, mr := regionOf(t, buf)
	b := NewBatch(4)
	add(t, b, nil, Scatter, mr, 100, []byte{1})
	add(t, b, nil, Scatter, mr, 0, []byte{2})
	b.Run()
	if buf[0] != 2 {
		t.Error("an op without owner was discarded for the failure of another")
	}
}

// Nothing to move needs no memory, but takes part in ordering.
func TestEmptyOps(t *testing.T) {
	_, _, mr := regionOf(t, make([]byte, 8))
	b := NewBatch(8)
	var r recorder
	add(t, b, &r, Scatter, nil, 5, nil).Tail = true
	add(t, b, &r, Gather, nil, 5, nil)
	add(t, b, &r, Scatter, mr, 8, nil).Tail = true
	add(t, b, &r, Scatter, nil, 0, []byte{1})
	add(t, b, &r, Nop, nil, 0, nil)
	b.Run()
	if d := cmp.Diff([]Status{OK, OK, OK, Fault, Discarded}, r.statuses()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	add(t, b, &r, Kind(77), mr, 0, nil)
	b.Run()
	if r.ops[5].Status != Fault {
		t.Error("an unknown kind is no fault")
	}
}

// A tail of any length at any place stores just its range.
func TestTailStoresItsRangeOnly(t *testing.T) {
	for off := range 9 {
		for n := range 24 {
			for cut := range n + 1 {
				buf := bytes.Repeat([]byte{0xa5}, 48)
				mr8 := aligned(48)
				copy(mr8, buf)
				_, _, mr := regionOf(t, mr8)
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(i + 1)
				}
				copy(buf[8+off:], data)
				b := NewBatch(1)
				op := add(t, b, nil, Scatter, mr, uint64(8+off), data[:cut])
				op.Frag[1], op.Tail = data[cut:], true
				b.Run()
				if !bytes.Equal(mr8, buf) {
					t.Fatalf("offset %d, length %d, cut at %d: memory is %x, want %x", off, n, cut, mr8, buf)
				}
			}
		}
	}
}

// A program that polls the last byte of a message, or the word it ends with,
// finds the message whole. Under the race detector this also says that the
// accessors keep such a program clean.
func TestTailLandsLast(t *testing.T) {
	for _, n := range []int{5, 8, 12, 64, 1000, 4096} {
		buf := aligned(8192)
		_, _, mr := regionOf(t, buf)
		const messages = 100
		var seen sync.WaitGroup
		ack := aligned(8)
		seen.Go(func() {
			for k := 1; k <= messages; k++ {
				for i := 0; Load8(buf, n-1) != byte(k); i++ {
					if i%1000 == 999 {
						yield()
					}
				}
				for i, v := range buf[:n] {
					if v != byte(k) {
						t.Errorf("length %d, message %d: the last byte is there, byte %d is %d", n, k, i, v)
						break
					}
				}
				Store64(ack, 0, uint64(k))
			}
		})
		b := NewBatch(2)
		for k := 1; k <= messages; k++ {
			msg := bytes.Repeat([]byte{byte(k)}, n)
			add(t, b, nil, Scatter, mr, 0, msg[:n/3])
			add(t, b, nil, Scatter, mr, uint64(n/3), msg[n/3:]).Tail = true
			b.Run()
			for Load64(ack, 0) != uint64(k) {
				yield()
			}
		}
		seen.Wait()
	}
}

// An aligned word that is a message of its own isn't torn.
func TestTailWordsAreWhole(t *testing.T) {
	buf := aligned(8)
	_, _, mr := regionOf(t, buf)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := NewBatch(1)
		for i := range 50000 {
			add(t, b, nil, Scatter, mr, 0, bytes.Repeat([]byte{byte(i)}, 8)).Tail = true
			b.Run()
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		if v := Load64(buf, 0); v != v&0xff*0x0101010101010101 {
			t.Fatalf("saw %#x", v)
		}
	}
}

func TestBytesOpsDoNotAllocate(t *testing.T) {
	_, _, mr := regionOf(t, make([]byte, 4096))
	b, o, frag := NewBatch(8), new(silent), make([]byte, 1024)
	if n := testing.AllocsPerRun(100, func() {
		add(t, b, o, Scatter, mr, 0, frag).Tail = true
		add(t, b, o, Gather, mr, 5, frag)
		add(t, b, o, FetchAdd, mr, 8, nil)
		add(t, b, o, Gather, mr, 4095, frag)
		add(t, b, o, Gather, mr, 0, frag)
		b.Run()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
