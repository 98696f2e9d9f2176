// Package rocev2 is the transport: a Port with its addresses, queue pairs and
// workers, over Links that move frames.
//
// # Who runs what
//
// Each queue of an interface is a Link with a Worker. A QP has one home worker,
// which alone touches its state: whoever holds that worker's token. A packet
// that arrives on another worker's Link is lent to the home worker, frame and
// all. Control-plane calls (CreateQP, Modify, Query, Destroy, Barrier,
// Counters) wait for the token; Poll tries it; the worker's own goroutine holds
// it while no one polls.
//
// # Same-host traffic
//
// Packets for one of the Port's own GIDs go through a bounded ring that the
// same worker's next Step reads, and through the whole protocol.
package rocev2

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// RxFrame is a frame that a Link received. It belongs to the worker until it is released.
type RxFrame struct {
	wire.Frame
	Token   uint64       // the Link's own
	Verdict wire.Verdict // what became of it; set before Release
}

// TxFrame is a frame to be filled and sent: Frag come with the room asked for,
// and are cut to what is to be sent.
type TxFrame struct {
	wire.Frame
	Token uint64 // the Link's own
}

// Link moves frames between a worker and a network. All methods but Wake and
// Wait are called by one goroutine at a time, the one that holds the worker's
// token, and none allocates.
type Link interface {
	// Recv fills batch with received frames and returns how many. It doesn't wait.
	Recv(batch []RxFrame) int
	// Release gives received frames back.
	Release(batch []RxFrame)
	// Reserve gets a frame with room for n bytes; false when there is none now.
	Reserve(f *TxFrame, n int) bool
	// Cancel gives a reserved frame back unsent.
	Cancel(f *TxFrame)
	// Send queues a reserved frame that was filled and cut. It always succeeds.
	Send(f *TxFrame)
	// Flush sees all queued frames on their way. An error is final: the link
	// is gone. A link that is down loses frames, as a cable does.
	Flush() error
	// Wait blocks until a frame arrives, room to send appears after Reserve
	// failed, Wake is called, or the deadline passes. With rx false, arriving
	// frames don't end it. The worker's goroutine calls it, without the token:
	// a poller may call the other methods meanwhile. It may end early.
	Wait(deadline clock.Time, rx bool)
	// Wake ends the present or the next Wait. Any goroutine may call it.
	Wake()
	// Close frees everything. The worker has stopped; frames that were received
	// have been released.
	Close() error
}
