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
