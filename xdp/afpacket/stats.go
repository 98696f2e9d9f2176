package afpacket

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Stats counts the frames of a Socket since Open, and their bytes with Ethernet header
// and VLAN tag.
type Stats struct {
	RxPackets, RxBytes uint64 // delivered by Recv
	RxDropped          uint64 // the ring was full: Release was too slow
	RxBad              uint64 // shorter than an Ethernet header, or badly placed by the kernel

	TxPackets, TxBytes uint64 // that the kernel took
	TxBusy             uint64 // times that it took no more for now
	TxLost             uint64 // as the link was down, or the kernel refused the frame
}

// counters are written by the socket's owner and read by anyone.
type counters struct {
	rxPackets, rxBytes, rxBad          atomic.Uint64
	txPackets, txBytes, txBusy, txLost atomic.Uint64
	mu                                 sync.Mutex
	dropped                            uint64 // the kernel's, which reading sets to 0
}

// Stats returns the counters. After Close they stand still.
func (s *Socket) Stats() Stats {
	s.open.RLock()
	defer s.open.RUnlock()
	c := &s.stats
	return Stats{
		RxPackets: c.rxPackets.Load(), RxBytes: c.rxBytes.Load(), RxDropped: s.readDrops(), RxBad: c.rxBad.Load(),
		TxPackets: c.txPackets.Load(), TxBytes: c.txBytes.Load(), TxBusy: c.txBusy.Load(), TxLost: c.txLost.Load(),
	}
}

// readDrops adds what the kernel counted since the last time. The caller holds open.
func (s *Socket) readDrops() uint64 {
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.fd >= 0 {
		if st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			c.dropped += uint64(st.Drops)
		}
	}
	return c.dropped
}
