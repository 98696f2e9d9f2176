package xdp

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Stats counts packets of a socket since Open, one counter per reason. All are 64
// bits wide.
type Stats struct {
	RxPackets, RxBytes uint64 // delivered by Recv
	RxTooLong          uint64 // dropped: more than two frames
	RxBadDesc          uint64 // dropped: a descriptor outside the UMEM or of a frame not the kernel's

	TxPackets, TxBytes uint64 // put on the TX ring by Flush
	TxBadComp          uint64 // completions of frames that were not being sent
	Kicks              uint64 // system calls to send
	LinkDown           uint64 // kicks refused because the link was down

	Misuse uint64 // packets that the caller released, sent or unreserved without owning them

	// From the kernel (XDP_STATISTICS).
	RxDropped       uint64 // for other reasons than these: too long for a single buffer, no memory
	RxRingFull      uint64 // dropped: Recv was too slow
	RxFillEmpty     uint64 // dropped, or waited: Release was too slow
	RxInvalidDescs  uint64 // FILL entries that the kernel refused
	TxInvalidDescs  uint64 // TX entries that the kernel refused
	TxRingEmptyPoll uint64 // times that a driver found nothing to send
}

// counters are written by the socket's owner and read by anyone.
type counters struct {
	rxPackets, rxBytes, rxTooLong, rxBadDesc atomic.Uint64
	txPackets, txBytes, txBadComp            atomic.Uint64
	kicks, linkDown, misuse                  atomic.Uint64

	txStaged, txStagedBytes uint64 // since the last Flush; the owner's

	mu   sync.Mutex
	last Stats // the kernel's, as last read; what is left after Close
}

func (c *counters) own() Stats {
	return Stats{
		RxPackets: c.rxPackets.Load(), RxBytes: c.rxBytes.Load(),
		RxTooLong: c.rxTooLong.Load(), RxBadDesc: c.rxBadDesc.Load(),
		TxPackets: c.txPackets.Load(), TxBytes: c.txBytes.Load(),
		TxBadComp: c.txBadComp.Load(), Kicks: c.kicks.Load(),
		LinkDown: c.linkDown.Load(), Misuse: c.misuse.Load(),
	}
}

// addKernel reads the kernel's counters of fd into s. Kernels before 5.9 write
// the first three only.
func (s *Stats) addKernel(fd int) error {
	var k unix.XDPStatistics
	if _, err := getsockopt(fd, unix.XDP_STATISTICS, &k); err != nil {
		return err
	}
	s.RxDropped, s.RxInvalidDescs, s.TxInvalidDescs = k.Rx_dropped, k.Rx_invalid_descs, k.Tx_invalid_descs
	s.RxRingFull, s.RxFillEmpty, s.TxRingEmptyPoll = k.Rx_ring_full, k.Rx_fill_ring_empty_descs, k.Tx_ring_empty_descs
	return nil
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	a, b := s.fields(), o.fields()
	for i := range a {
		*a[i] += *b[i]
	}
}

func (s *Stats) fields() []*uint64 {
	return []*uint64{
		&s.RxPackets, &s.RxBytes, &s.RxTooLong, &s.RxBadDesc,
		&s.TxPackets, &s.TxBytes, &s.TxBadComp, &s.Kicks, &s.LinkDown, &s.Misuse,
		&s.RxDropped, &s.RxRingFull, &s.RxFillEmpty, &s.RxInvalidDescs, &s.TxInvalidDescs, &s.TxRingEmptyPoll,
	}
}

// Stats returns the socket's counters. After Close they stand still.
func (s *Socket) Stats() Stats {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	return s.total()
}

// total needs stats.mu, which Close takes too before it closes the socket.
func (s *Socket) total() Stats {
	if s.fd >= 0 {
		_ = s.stats.last.addKernel(s.fd) // an error leaves the last reading
	}
	st := s.stats.last
	st.Add(s.stats.own())
	return st
}
