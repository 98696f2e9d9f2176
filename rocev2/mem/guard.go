package mem

import (
	"sync/atomic"
	"time"
)

// DefaultLimit is how long a batch waits for another process's memory unless
// Guard says otherwise. It is meant to outlast what honest programs do to their
// memory (a page comes from swap, a big process forks), and to end before the
// peers of others lose patience: 8 timeouts of 67 ms, as many programs ask for.
const DefaultLimit = 250 * time.Millisecond

// Guard sets how long (up to a quarter more) the batch waits for one access to
// another process's memory. Such memory can make the kernel wait without end,
// past any signal: userfaultfd and FUSE pages do. After the limit the ops of
// the access fault, the Process is dead, and the batch goes on; the thread that
// is stuck is left behind until the kernel lets it go. It holds buffers of its
// own, so the ops' frames are free. What a stuck Scatter carried may still
// land in that process's memory, nowhere else.
//
// The price is a copy and a switch to a goroutine and back. The latter is
// cheap (0.5 µs) where the worker's goroutine isn't locked to its thread, and
// dear (13 µs) where it is.
//
// 0 means to wait for ever, on the worker's own thread: for processes that are
// trusted. It must be called between runs.
func (b *Batch) Guard(limit time.Duration) {
	b.Close()
	b.limit = limit
}

// Close ends the batch's helper goroutine, if it has one. A later Run starts a
// new one.
func (b *Batch) Close() {
	if b.helper != nil {
		b.helper.close()
		b.helper = nil
	}
}

// newCall returns a call to be filled in.
func (b *Batch) newCall(p *Process, write bool) *vmCall {
	switch {
	case b.limit == 0 && b.direct == nil:
		b.direct = newVMCall(len(b.ops), false)
	case b.limit != 0 && b.helper == nil:
		b.helper = newHelper(len(b.ops), b.limit)
	}
	c := b.direct
	if b.limit != 0 {
		c = b.helper.call
	}
	c.begin(p, write)
	return c
}

// do makes the call and reports whether it returned within the limit.
func (b *Batch) do(p *Process, c *vmCall) bool {
	if b.limit == 0 {
		c.do()
		return true
	}
	if !b.helper.do() {
		b.helper = nil // it keeps the call and its buffers
		p.Abandon()
		return false
	}
	return true
}

// helper makes the calls of a batch on a goroutine of its own, which can be
// left behind.
//
//	idle (even) ──worker──► busy (odd) ──helper──► idle (even, next)
//	                             └──────watchdog──► gone
type helper struct {
	call  *vmCall // the helper's while busy, and for good when gone
	state atomic.Uint64
	start chan struct{}
	done  chan bool // false: gone

	tick    time.Duration
	timer   *time.Timer
	ticking atomic.Bool
	seen    uint64 // the watchdog's: state at its last look
	strikes int    // the watchdog's: looks since then
}

const (
	gone       = ^uint64(0)
	maxStrikes = 4
)

func newHelper(ops int, limit time.Duration) *helper {
	h := &helper{
		call:  newVMCall(ops, true),
		start: make(chan struct{}),
		done:  make(chan bool, 1),
		tick:  max(limit/maxStrikes, time.Microsecond),
	}
	h.ticking.Store(true) // first: the watchdog may look, and rest, before AfterFunc returns
	h.timer = time.AfterFunc(h.tick, h.watch)
	go h.serve()
	return h
}

func (h *helper) close() {
	close(h.start)
	h.timer.Stop()
}

func (h *helper) do() bool {
	h.state.Add(1)
	if !h.ticking.Load() {
		h.ticking.Store(true)
		h.timer.Reset(h.tick)
	}
	h.start <- struct{}{}
	return <-h.done
}

func (h *helper) serve() {
	for range h.start {
		busy := h.state.Load()
		h.call.do()
		if !h.state.CompareAndSwap(busy, busy+1) {
			return // gone: nobody waits, and the call's result is nobody's
		}
		h.done <- true
	}
}

// watch looks at the state once a tick, for as long as it changes. It reads no
// clock: a call that it sees at maxStrikes looks after the first has lasted
// longer than the limit.
func (h *helper) watch() {
	s := h.state.Load()
	switch busy := s&1 != 0; {
	case s != h.seen:
		h.seen, h.strikes = s, 0
	case !busy:
		if h.rest(s) {
			return
		}
	default:
		h.strikes++
		if h.strikes == maxStrikes && h.state.CompareAndSwap(s, gone) {
			h.done <- false
			return
		}
	}
	h.timer.Reset(h.tick)
}

// rest stops the watchdog of an idle helper, unless a call has just begun that
// relies on it.
func (h *helper) rest(s uint64) bool {
	h.ticking.Store(false)
	return h.state.Load() == s || !h.ticking.CompareAndSwap(false, true)
}
