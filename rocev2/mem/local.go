package mem

// This file uses unsafe: the memory's alignment decides how bytes are stored.

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"
)

// execute runs an op on memory of this process and reports whether it could.
func (op *Op) execute() bool {
	if op.Kind == Nop {
		return true
	}
	m, n := op.MR, op.size()
	if m == nil {
		return n == 0
	}
	if m.more != nil {
		return op.executeHeld(n)
	}
	if m.Dead() || !m.contains(op.VA, uint64(n)) {
		return false
	}
	off := op.VA - m.IOVA
	raceLock()
	ok := op.access(m.local[off : off+uint64(n)])
	raceUnlock()
	return ok
}

// executeHeld is execute for what may be invalidated by another worker.
func (op *Op) executeHeld(n int) bool {
	m := op.MR
	if !m.hold() {
		return false
	}
	defer m.release()
	if !m.contains(op.VA, uint64(n)) {
		return false
	}
	off := op.VA - m.IOVA
	raceLock()
	defer raceUnlock()
	if m.more.pages != nil {
		return op.accessPages(m.more.pages, off, n)
	}
	return op.access(m.local[off : off+uint64(n)])
}

// access does what the op says to the memory that it names.
func (op *Op) access(m []byte) bool {
	a, b := op.Frag[0], op.Frag[1]
	switch op.Kind {
	case Scatter:
		if op.Tail && len(m) > 0 {
			op.scatterTail(m)
			return true
		}
		copy(m, a)
		if len(b) > 0 {
			copy(m[len(a):], b)
		}
	case Gather:
		gather(m, &op.Frag)
	case CompareSwap, FetchAdd, Store:
		op.Orig = op.rmw(m)
	default:
		return false
	}
	return true
}

func gather(m []byte, frag *[2][]byte) {
	n := copy(frag[0], m)
	if len(m) > n {
		copy(frag[1], m[n:])
	}
}

// scatterTail stores the last unit of bytes by one store, after the others.
func (op *Op) scatterTail(m []byte) {
	var joined [8]byte
	unit := tailUnit(uint64(uintptr(unsafe.Pointer(&m[0]))), len(m))
	a, b, last := cutTail(op.Frag[0], op.Frag[1], unit, &joined)
	copy(m, a)
	if len(b) > 0 {
		copy(m[len(a):], b)
	}
	p := unsafe.Pointer(&m[len(m)-unit])
	switch unit {
	case 8:
		storeTail64((*uint64)(p), binary.NativeEndian.Uint64(last))
	case 4:
		storeTail32((*uint32)(p), binary.NativeEndian.Uint32(last))
	default:
		storeTail8((*uint8)(p), last[0])
	}
}

// cutTail cuts the last n bytes off two fragments. Where they come from both,
// they are joined in buf.
func cutTail(a, b []byte, n int, buf *[8]byte) (head, head2, tail []byte) {
	switch {
	case len(b) == 0:
		return a[:len(a)-n], nil, a[len(a)-n:]
	case len(b) >= n:
		return a, b[:len(b)-n], b[len(b)-n:]
	}
	cut := len(a) - (n - len(b))
	copy(buf[copy(buf[:], a[cut:]):], b)
	return a[:cut], nil, buf[:n]
}

// tailUnit is how many of the n bytes at addr land last and as one. Programs
// poll the last byte of a message, or the word that it ends with.
func tailUnit(addr uint64, n int) int {
	end := addr + uint64(n)
	switch {
	case n >= 8 && end%8 == 0:
		return 8
	case n >= 4 && end%4 == 0:
		return 4
	}
	return min(n, 1)
}

// unaligned serialises the atomics on words that no instruction can update.
var unaligned sync.Mutex

// rmw updates the word m and returns its former value. Where the word is
// aligned in memory, it is atomic to this process's own atomics too.
func (op *Op) rmw(m []byte) uint64 {
	p := unsafe.Pointer(&m[0])
	if uintptr(p)%8 != 0 {
		return op.rmwUnaligned(m)
	}
	word := (*uint64)(p)
	switch op.Kind {
	case FetchAdd:
		return atomic.AddUint64(word, op.Swap) - op.Swap
	case Store:
		return atomic.SwapUint64(word, op.Swap)
	}
	for {
		old := atomic.LoadUint64(word)
		if old != op.Compare || atomic.CompareAndSwapUint64(word, old, op.Swap) {
			return old
		}
	}
}

func (op *Op) rmwUnaligned(m []byte) uint64 {
	unaligned.Lock()
	defer unaligned.Unlock()
	old := binary.NativeEndian.Uint64(m)
	if v, changed := op.apply(old); changed {
		binary.NativeEndian.PutUint64(m, v)
	}
	return old
}

// apply returns what an atomic makes of old, and whether it stores it.
func (op *Op) apply(old uint64) (v uint64, store bool) {
	switch op.Kind {
	case FetchAdd:
		return old + op.Swap, true
	case Store:
		return op.Swap, true
	}
	return op.Swap, old == op.Compare
}
