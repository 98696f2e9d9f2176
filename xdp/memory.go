package xdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ringNeedWakeup    = unix.XDP_RING_NEED_WAKEUP
	sizeofMmapOffsets = unsafe.Sizeof(unix.XDPMmapOffsets{})
)

// What is unsafe here is the view of mapped memory, which the kernel shares, as
// ring indices and entries. It lives until teardown unmaps it.

// mapUMEM maps anonymous memory for a UMEM. Registration pins and so populates
// it. Huge pages spare TLB misses where they are to be had.
func mapUMEM(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d KiB for a UMEM: %w", size>>10, err)
	}
	// Advice only: the kernel may lack transparent huge pages.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP)
	return mem, nil
}

// mapRing maps a ring of n entries of fd at the page offset pgoff.
func mapRing[T any](fd int, pgoff int64, off *unix.XDPRingOffset, n uint32) ([]byte, error) {
	var entry T
	size := off.Desc + uint64(n)*uint64(unsafe.Sizeof(entry))
	return unix.Mmap(fd, pgoff, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}

// word returns the ring index at off in mem.
func word(mem []byte, off uint64) *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off))
}

// entries returns the n ring entries at off in mem.
func entries[T any](mem []byte, off uint64, n uint32) []T {
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)), n)
}

// on places our end of a ring over its mapped memory.
func (r *producer[T]) on(mem []byte, off *unix.XDPRingOffset, n uint32) {
	r.shared.prod, r.shared.cons, r.shared.flags = word(mem, off.Producer), word(mem, off.Consumer), word(mem, off.Flags)
	r.ring, r.mask = entries[T](mem, off.Desc, n), n-1
	r.start(*r.shared.prod)
}

// start presets the index, as the kernel has it when the ring is new.
func (r *producer[T]) start(index uint32) {
	r.next, r.pub, r.limit = index, index, index
}

// on places our end of a ring over its mapped memory.
func (r *consumer[T]) on(mem []byte, off *unix.XDPRingOffset, n uint32) {
	r.shared.prod, r.shared.cons = word(mem, off.Producer), word(mem, off.Consumer)
	r.ring, r.mask = entries[T](mem, off.Desc, n), n-1
	r.start(*r.shared.cons)
}

// start presets the index, as the kernel has it when the ring is new.
func (r *consumer[T]) start(index uint32) {
	r.next, r.pub, r.end = index, index, index
}
