package xdp

import (
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// gate keeps Close out while the socket's owner touches mapped memory, and the
// owner out from the moment that Close begins. It costs the owner two atomic
// operations a batch.
type gate struct{ state atomic.Uint32 }

const (
	gateBusy uint32 = 1 << iota // the owner is inside
	gateShut                    // nobody enters any more
)

// enter reports false once the gate is shut.
func (g *gate) enter() bool { return g.state.CompareAndSwap(0, gateBusy) }

func (g *gate) leave() { g.state.Add(^uint32(0)) }

func (g *gate) closed() bool { return g.state.Load()&gateShut != 0 }

// shut lets nobody enter any more, not even an owner that comes without pause.
func (g *gate) shut() { g.state.Or(gateShut) }

// drain waits until the owner is outside of a shut gate, at most for d, and
// reports whether it is.
func (g *gate) drain(d time.Duration) bool {
	for end := clock.Now().Add(d); g.state.Load()&gateBusy != 0; time.Sleep(20 * time.Microsecond) {
		if clock.Now() > end {
			return false
		}
	}
	return true
}
