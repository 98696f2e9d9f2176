// Package afpacket sends and receives the RoCEv2 frames of an interface through a
// packet socket, for interfaces where AF_XDP can't be had. It needs CAP_NET_RAW and
// nothing else, and works on any Ethernet interface.
//
// # Receiving
//
// Frames come through a ring in memory that is shared with the kernel (TPACKET_V2:
// unlike V3 it shows each frame at once, and not when a block is full or a timer has
// run out). A classic BPF filter lets only those in that are ours: untagged or with
// one 802.1Q tag, IPv4 without options that is no fragment, or IPv6 without extension
// headers, UDP to port 4791, to an address that AddAddr named. Each frame is in one
// piece. The kernel takes VLAN tags off; they are put back where they were.
//
// # Sending
//
// Frames are copied to the kernel by sendmmsg, past the queueing discipline. A ring
// would spare the copy, but the kernel takes a frame of one for sent as soon as no
// socket is charged for it any more; over a veth the receiver may not have read it by then.
//
// # The kernel
//
// A packet socket sees copies. The kernel's own stack gets each frame as well and
// would tell peers that the port is unreachable (ICMP), so an open Socket holds the
// UDP port 4791 of its network namespace, with a filter that drops all. Where someone
// else has the port, which on most machines is rdma_rxe, Open fails: he would answer
// the same packets. tcpdump sees what is received and not what is sent.
//
// # Concurrency
//
// Recv, Release, Reserve, Cancel, Send and Flush of a Socket belong to one goroutine
// at a time. Wait, Wake, AddAddr, RemoveAddr and Stats may be called by any goroutine
// at any time, Close when the first six aren't called any more; frames that were
// received are unmapped by it.
package afpacket
