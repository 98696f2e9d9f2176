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
// # Same-host traffic
//
// Packets for one of the Port's own GIDs go through a bounded ring that the
// same worker's next Step reads, and through the whole protocol.
package rocev2
