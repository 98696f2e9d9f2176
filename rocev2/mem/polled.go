package mem

// This file uses unsafe: to name bytes by their address, and to access words of
// a byte slice atomically.

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// The functions below access memory that a peer may write or update at the
// same time. They are ordered with the last bytes of messages, which land last
// (Op.Tail), and with the peer's atomics. Like an index out of range, an offset
// out of range panics; so does a word whose address isn't a multiple of its size.

// Address returns the address of the first byte of b, 0 when b has none.
func Address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Load8 returns the byte at off.
func Load8(b []byte, off int) uint8 {
	raceLock()
	defer raceUnlock()
	p := unsafe.Pointer(&b[off])
	shift := uintptr(p) % 4
	// There is no atomic load of a byte; the aligned word around it belongs to
	// the same allocation.
	word := atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(shift))))
	return (*[4]byte)(unsafe.Pointer(&word))[shift]
}

// Load32 returns the word at off.
func Load32(b []byte, off int) uint32 {
	raceLock()
	defer raceUnlock()
	return atomic.LoadUint32((*uint32)(word(b, off, 4)))
}

// Load64 returns the word at off.
func Load64(b []byte, off int) uint64 {
	raceLock()
	defer raceUnlock()
	return atomic.LoadUint64((*uint64)(word(b, off, 8)))
}

// Store32 sets the word at off.
func Store32(b []byte, off int, v uint32) {
	raceLock()
	defer raceUnlock()
	atomic.StoreUint32((*uint32)(word(b, off, 4)), v)
}

// Store64 sets the word at off.
func Store64(b []byte, off int, v uint64) {
	raceLock()
	defer raceUnlock()
	atomic.StoreUint64((*uint64)(word(b, off, 8)), v)
}

// Add64 adds delta to the word at off and returns the sum.
func Add64(b []byte, off int, delta uint64) uint64 {
	raceLock()
	defer raceUnlock()
	return atomic.AddUint64((*uint64)(word(b, off, 8)), delta)
}

// CompareAndSwap64 sets the word at off to new if it is old, and reports whether it did.
func CompareAndSwap64(b []byte, off int, old, new uint64) bool {
	raceLock()
	defer raceUnlock()
	return atomic.CompareAndSwapUint64((*uint64)(word(b, off, 8)), old, new)
}

// word returns the address of the size bytes at off.
func word(b []byte, off, size int) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(b[off : off+size]))
	if uintptr(p)%uintptr(size) != 0 {
		panic(fmt.Sprintf("mem: the word of %d bytes at offset %d isn't aligned: its address is %p", size, off, p))
	}
	return p
}
