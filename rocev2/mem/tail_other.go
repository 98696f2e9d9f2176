//go:build !amd64 && (!arm64 || race)

package mem

import "sync/atomic"

// An atomic update orders the stores before it and the one after it. In race
// builds the last store must be an ordinary one, so that a program that reads
// it without a completion is reported.

func storeTail64(p *uint64, v uint64) { barrier(); *p = v }
func storeTail32(p *uint32, v uint32) { barrier(); *p = v }
func storeTail8(p *uint8, v uint8)    { barrier(); *p = v }

func barrier() {
	var x uint32
	atomic.AddUint32(&x, 1)
}
