package xdp

import (
	"sync/atomic"
	"time"
)

// gate keeps Close out while the socket's owner touches mapped memory, and the
// owner out after Close. It costs the owner two atomic operations a batch.
type gate struct{ state atomic.Uint32 }

const (
	gateOpen uint32 = iota
	gateBusy
	gateClosed
)

// enter reports false if the socket is closed.
func (g *gate) enter() bool { return g.state.CompareAndSwap(gateOpen, gateBusy) }

func (g *gate) leave() { g.state.Store(gateOpen) }

func (g *gate) closed() bool { return g.state.Load() == gateClosed }

// close waits until the owner is outside, at most for d, and shuts the gate. It
// returns the state that it found: gateOpen if it is this call that shut it.
func (g *gate) close(d time.Duration) uint32 {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Microsecond) {
		if g.state.CompareAndSwap(gateOpen, gateClosed) {
			return gateOpen
		}
		if g.closed() {
			return gateClosed
		}
		if time.Now().After(end) {
			return gateBusy
		}
	}
}
