// Package xdp sends and receives raw Ethernet frames through AF_XDP sockets,
// one per receive queue of an interface. It knows frames and queues and nothing
// of RoCE; the program in package bpf decides which packets arrive here.
//
// # Model
//
// Open attaches the program and gives a Port with one Socket per queue. Each
// Socket has a UMEM of its own, so that a frame has one owner at a time and no
// two queues share a free list, a lock or a cache line:
//
//	RX frames   FILL ring ─► kernel ─► RX ring ─► Recv ─► the caller ─► Release ─► FILL ring
//	TX frames   free list ─► Reserve ─► the caller ─► Send, Flush ─► TX ring ─► kernel ─► completion ring ─► free list
//
// The kernel's copying is a fifth quicker into memory that is in the cache. So
// the FILL ring gets 1024 frames at first, and more of those that the queue has
// when a backlog shows that a burst could use them up.
//
// Sharing one UMEM among the queues would save memory only if frames moved
// between them, and then they would need locks.
//
// A frame is 4096 bytes. A received frame holds 3840 bytes, since the kernel
// keeps 256 before them; a longer packet arrives as 3840 bytes and the rest.
//
// A VLAN tag is part of a packet only if no hardware took it off before the
// program ran: turn that off where VLANs matter (ethtool -K eth0 rxvlan off; for a
// veth, txvlan off at the sending end).
//
// # Concurrency
//
// Recv, Release, Reserve, Unreserve, Send, Flush, Reap and TXSpace of a Socket
// belong to one goroutine at a time. Wait, Wake, Stats, Info and Close may be
// called by any goroutine at any time.
//
// # Lifetime
//
// After Close every method fails and none faults. Close waits for a call in
// progress, and for a goroutine that is between Reserve and Flush. Packets that
// are with the caller then stay readable until they are released.
package xdp
