//go:build !race

package mem

import "sync/atomic"

// Atomic stores are releases here (STLR).

func storeTail64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
func storeTail32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// storeTail8 is STLRB, which sync/atomic doesn't offer.
//
//go:noescape
func storeTail8(p *uint8, v uint8)
