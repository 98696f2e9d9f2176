// Package rocev2 is the transport: a Port with its addresses, queue pairs and
// workers, over Links that move frames.
//
// # Who runs what
//
// Each queue of an interface is a Link with a Worker. A QP has one home worker,
// which alone touches its state: whoever holds that worker's token. A packet
// that arrives on another worker's Link is lent to the home worker, frame and
// all. Control-plane calls (CreateQP, Modify, Query, Destroy, Barrier,
// Counters) wait for the token; Poll and Kick try it; the worker's own goroutine
// takes it for each Step, and stands by while someone polls.
//
// # Where to look
//
//	what programs hold   port.go, qp.go, ah.go, srq.go
//	a worker's round     worker.go, step.go; whose turn it is and when: ready.go, timers.go, ackwait.go, warm.go
//	whom a packet is for demux.go, gate.go, handover.go, multicast.go
//	what comes of it     completions.go, congestion.go
//	Links                link.go, memlink.go, xdplink.go, packetlink.go, fallen.go; how they wait: alarm.go
//	the interface below  net.go, netdev.go, carrier.go; ways to peers, and their changes: path.go, follow.go
//	what can be seen     counters.go, stats.go, capture.go, recorder.go
//
// # Same-host traffic
//
// Packets for one of the Port's own GIDs go through a bounded ring that the
// same worker's next Step reads, and through the whole protocol.
package rocev2
