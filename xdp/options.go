package xdp

import (
	"fmt"
	"math/bits"
)

// Mode is where the XDP program runs.
type Mode uint8

const (
	ModeAuto    Mode = iota // the driver if it can, else generic
	ModeDriver              // in the driver, before an skb is made ("native")
	ModeGeneric             // in the stack ("skb"): any device
)

func (m Mode) String() string { return [...]string{"auto", "driver", "generic"}[min(m, 2)] }

// Copy is how frames cross between driver and UMEM.
type Copy uint8

const (
	CopyAuto Copy = iota // zero-copy if the driver can
	CopyOnly             // always copy: the way around a driver's zero-copy bugs
	ZeroCopy             // zero-copy or fail
)

func (c Copy) String() string { return [...]string{"auto", "copy", "zerocopy"}[min(c, 2)] }

// Options of Open. The zero value is right for most uses.
type Options struct {
	Mode Mode
	Copy Copy

	// RxFrames and TxFrames are 4096-byte frames per queue, rounded up to a
	// power of two; 0 takes a default that falls as queues grow (see Open).
	RxFrames, TxFrames int

	// XSKMap, if set, is the path of a pinned map of type XSKMAP, which the owner of
	// the interface's XDP program provides: Open attaches no program, but puts the
	// socket of each queue at the queue's index of the map. What comes is what that
	// program redirects; docs/xskmap.md says what it should.
	XSKMap string

	// SingleBuffer gives up packets over 3840 bytes, for kernels and drivers
	// whose multi-buffer support is broken.
	SingleBuffer bool

	// BusyPoll > 0 lets system calls poll the driver for so many microseconds
	// (SO_PREFER_BUSY_POLL, SO_BUSY_POLL), at most BusyPollBudget packets at once.
	BusyPoll, BusyPollBudget int

	// Logf, if set, is told once about each rung of the ladder that failed and
	// about what was got.
	Logf func(format string, args ...any)
}

// Sizes of the frame pools.
const (
	minFrames     = 64
	maxFrames     = 1 << 16
	defaultRx     = 4096
	defaultTx     = 2048
	defaultBudget = 16384 // RX frames of all queues by default: 64 MiB
)

// sized returns o with its frame counts filled in for a device with so many
// queues.
func (o Options) sized(queues int) (Options, error) {
	if o.RxFrames == 0 {
		o.RxFrames = min(defaultRx, max(512, defaultBudget/max(queues, 1)))
	}
	if o.TxFrames == 0 {
		o.TxFrames = min(defaultTx, max(256, defaultBudget/2/max(queues, 1)))
	}
	for _, n := range []*int{&o.RxFrames, &o.TxFrames} {
		if *n < minFrames || *n > maxFrames {
			return o, fmt.Errorf("xdp: %d frames asked for: allowed are %d to %d a direction", *n, minFrames, maxFrames)
		}
		// Ring sizes must be powers of two, whatever the NIC's own depth is.
		*n = 1 << bits.Len(uint(*n-1))
	}
	return o, o.check()
}

func (o Options) check() error {
	switch {
	case o.Mode > ModeGeneric:
		return fmt.Errorf("xdp: mode %d is none of auto, driver, generic", o.Mode)
	case o.Copy > ZeroCopy:
		return fmt.Errorf("xdp: copy %d is none of auto, copy, zerocopy", o.Copy)
	case o.Mode == ModeGeneric && o.Copy == ZeroCopy:
		return fmt.Errorf("xdp: generic mode always copies: ask for driver mode to have zero-copy")
	case o.BusyPoll < 0 || o.BusyPollBudget < 0:
		return fmt.Errorf("xdp: negative busy poll time or budget")
	}
	return nil
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}
