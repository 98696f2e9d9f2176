package xdp

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Socket is the AF_XDP socket of one queue, with its UMEM and rings.
type Socket struct {
	ifname  string
	ifindex int
	queue   int
	cfg     socketConfig
	zc      bool // as read back from the kernel

	fd     int // the AF_XDP socket
	wakeFD int // eventfd: Wake
	stopFD int // eventfd: Close; written once, never read

	frames frames
	maps   [4][]byte // the mapped rings: FILL, completion, RX, TX
	fill   producer[uint64]
	comp   consumer[uint64]
	rx     consumer[unix.XDPDesc]
	tx     producer[unix.XDPDesc]

	showsProgress bool // the kernel moves the TX ring's consumer index with each call

	depth  uint32 // how many RX frames the kernel is to have
	posted uint32 // how many it has: on the FILL ring, in its hands, on the RX ring

	partial Packet // a packet whose first frames came, and its last not yet
	skip    bool   // dropping the rest of a packet of too many frames
	sending bool   // the owner is between Reserve and Flush, and holds the gate

	closing sync.Mutex // one Close at a time
	gate    gate
	waiters atomic.Int32
	stuck   atomic.Bool // the TX ring holds what the last kick could not send
	down    atomic.Bool // the last kick found the link down
	gone    atomic.Bool // the interface no longer exists
	stats   counters
}

// socketConfig is what a rung of the ladder asks for.
type socketConfig struct {
	zerocopy, sg bool
	tx           bool // the queue can send
	rxFrames     uint32
	txFrames     uint32
	busyPoll     int
	busyBudget   int
}

// Queue returns the index of the socket's queue.
func (s *Socket) Queue() int { return s.queue }

// CanSend reports whether the queue has a TX side: a device with more RX than
// TX queues has some that only receive.
func (s *Socket) CanSend() bool { return s.cfg.tx }

// MaxSend returns the longest packet in bytes that Reserve gives room for.
func (s *Socket) MaxSend() int {
	if s.cfg.sg {
		return maxFrags * frameSize
	}
	return frameSize
}

// MaxReceive returns the longest packet in bytes that Recv delivers.
func (s *Socket) MaxReceive() int {
	if s.cfg.sg {
		return maxFrags * rxFrameRoom
	}
	return rxFrameRoom
}
