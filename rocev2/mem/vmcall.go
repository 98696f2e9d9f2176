package mem

// This file uses unsafe.SliceData for the kernel's view of a buffer.

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxIov = 1024 // UIO_MAXIOV: iovecs of one side of a call

	// maxBounce is how many bytes a guarded call moves at most, unless one op
	// alone is bigger.
	maxBounce = 256 << 10
)

// vmCall is one call of process_vm_readv or process_vm_writev in the making,
// and its result.
//
// Its cost is in the remote side: 0.3 µs for each iovec, against 1.2 µs for the
// call; so ranges that touch become one. The kernel works through the iovecs in
// order, and its count ends at the first byte that it couldn't reach, even
// inside an iovec: up to there all was moved, and nothing after it.
type vmCall struct {
	pid    int
	write  bool
	local  []unix.Iovec
	remote []unix.RemoteIovec
	size   int

	// bounce is the local side of a guarded call: if the call is abandoned, the
	// kernel may still touch it, but no frame. nil: the frames are.
	bounce []byte

	moved int
	err   error
}

func newVMCall(ops int, bounce bool) *vmCall {
	n := min(2*ops+2, maxIov)
	c := &vmCall{local: make([]unix.Iovec, 0, n), remote: make([]unix.RemoteIovec, 0, n)}
	if bounce {
		c.bounce = make([]byte, 0, 16<<10)
	}
	return c
}

func (c *vmCall) begin(p *Process, write bool) {
	c.pid, c.write, c.size = p.pid, write, 0
	c.local, c.remote = c.local[:0], c.remote[:0]
	if c.bounce != nil {
		c.bounce = c.bounce[:0]
	}
}

// fits reports whether an op of n bytes, in two fragments and with a tail, can
// join.
func (c *vmCall) fits(n int) bool {
	if len(c.remote)+2 > cap(c.remote) || len(c.local)+2 > cap(c.local) {
		return c.size == 0
	}
	return c.bounce == nil || c.size == 0 || c.size+n <= maxBounce
}

// add appends an op.
func (c *vmCall) add(op *Op) {
	n := op.size()
	if n == 0 {
		return
	}
	c.addRemote(op.MR.Addr(op.VA), n, c.write && op.Tail)
	c.addLocal(op.Frag[0])
	c.addLocal(op.Frag[1])
	c.size += n
}

// addBytes appends a transfer between b and addr.
func (c *vmCall) addBytes(addr uint64, b []byte) {
	c.addRemote(addr, len(b), false)
	c.addLocal(b)
	c.size += len(b)
}

// addRemote appends the process's side. A tail is an iovec of its own: between
// two, the kernel drops its references to the pages of the first by an update
// that is a full memory barrier.
func (c *vmCall) addRemote(addr uint64, n int, tail bool) {
	unit := 0
	if tail {
		unit = tailUnit(addr, n)
	}
	if head := n - unit; head > 0 && !c.extendRemote(addr, head) {
		c.remote = append(c.remote, unix.RemoteIovec{Base: uintptr(addr), Len: head})
	}
	if unit > 0 {
		c.remote = append(c.remote, unix.RemoteIovec{Base: uintptr(addr) + uintptr(n-unit), Len: unit})
	}
}

func (c *vmCall) extendRemote(addr uint64, n int) bool {
	if len(c.remote) == 0 {
		return false
	}
	last := &c.remote[len(c.remote)-1]
	if last.Base+uintptr(last.Len) != uintptr(addr) {
		return false
	}
	last.Len += n
	return true
}

func (c *vmCall) addLocal(b []byte) {
	switch {
	case len(b) == 0:
	case c.bounce == nil:
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		c.local = append(c.local, v)
	case c.write:
		c.bounce = append(c.bounce, b...)
	default:
		n := len(c.bounce) + len(b)
		c.bounce = slices.Grow(c.bounce, len(b))[:n]
	}
}

// do makes the call. It may block for as long as the process likes.
func (c *vmCall) do() {
	if c.bounce != nil {
		v := unix.Iovec{Base: unsafe.SliceData(c.bounce)}
		v.SetLen(len(c.bounce))
		c.local = append(c.local[:0], v)
	}
	transfer := unix.ProcessVMReadv
	if c.write {
		transfer = unix.ProcessVMWritev
	}
	c.moved, c.err = transfer(c.pid, c.local, c.remote, 0)
	for c.err == unix.EINTR {
		c.moved, c.err = transfer(c.pid, c.local, c.remote, 0)
	}
}

// deliver copies to b what a guarded read brought for it; at is b's place in
// the call.
func (c *vmCall) deliver(b []byte, at int) {
	if c.bounce != nil && !c.write {
		copy(b, c.bounce[at:])
	}
}
