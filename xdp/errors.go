package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("xdp: closed")
	// ErrLinkDown is a condition, not an end: the interface is down, and what
	// was sent waits in the TX ring until it is up again.
	ErrLinkDown = errors.New("xdp: link is down")
	// ErrGone means that the interface no longer exists; the Port can only be closed.
	ErrGone = errors.New("xdp: interface is gone")
	// ErrDetached means that someone forced the program off the interface, so that no
	// packets come any more; the Port can only be closed.
	ErrDetached = errors.New("xdp: the program was detached from the interface by force")
	// ErrInUse means that another program or socket holds the interface or queue.
	ErrInUse = errors.New("xdp: in use")
)

// Error says which step failed, where, and what may help.
type Error struct {
	Op        string // the step: "bind", "attach program", …
	Interface string
	Queue     int // -1 if the step is not about a queue
	Err       error
	Hint      string // what to do about it, may be empty
}

func (e *Error) Error() string {
	where := e.Interface
	if e.Queue >= 0 {
		where = fmt.Sprintf("%s queue %d", e.Interface, e.Queue)
	}
	s := fmt.Sprintf("xdp: %s: %s: %v", where, e.Op, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// kickResult is what an errno of a TX kick means.
type kickResult uint8

const (
	kickOK    kickResult = iota
	kickSoft             // try again later
	kickDown             // the link is down
	kickGone             // the device is gone, or the socket was never bound
	kickFatal            // a bug, or a driver that cannot send
)

// classify sorts the errnos of sendto on an AF_XDP socket.
func classify(e unix.Errno) kickResult {
	switch e {
	case 0:
		return kickOK
	case unix.EAGAIN, // its budget of descriptors is used up, or the send buffer is
		unix.EBUSY,   // the driver dropped a packet; it completes all the same
		unix.ENOBUFS, // no memory for an skb
		unix.ENOMEM,
		unix.EINTR:
		return kickSoft
	case unix.ENETDOWN:
		return kickDown
	case unix.ENXIO, unix.ENODEV:
		return kickGone
	}
	return kickFatal
}
