package verbs

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/xdp"
)

// What went wrong, for errors.Is. Every error of this package that has one of these causes wraps it, and says beside it
// on which device and object, what was asked, and what is allowed.
var (
	// ErrInvalid: an argument that is never allowed (EINVAL of ibverbs).
	ErrInvalid = errors.New("invalid argument")
	// ErrState: not allowed in the present state of the QP.
	ErrState = errors.New("wrong state")
	// ErrQueueFull: a send or receive queue has no free slot (ENOMEM of ibv_post_send).
	ErrQueueFull = errors.New("queue full")
	// ErrLimit: more than DeviceAttr allows.
	ErrLimit = errors.New("beyond the device's limit")
	// ErrBusy: other objects still use this one (EBUSY of ibverbs).
	ErrBusy = errors.New("in use")
	// ErrClosed: the object or its device is gone.
	ErrClosed = errors.New("closed")
	// ErrHeld: another process, or this one, has opened the interface.
	ErrHeld = control.ErrHeld
	// ErrXDPInUse: an XDP program or AF_XDP socket that isn't ours has the interface, or the entry of a pinned XSKMAP.
	ErrXDPInUse = xdp.ErrInUse
	// ErrCQOverrun: completions were lost because a completion queue was full.
	ErrCQOverrun = errors.New("completion queue overrun")
)

// errorf makes an error of the device.
func (d *Device) errorf(format string, args ...any) error {
	return fmt.Errorf("verbs: "+d.name+": "+format, args...)
}

// errorf makes an error of the QP.
func (q *QP) errorf(format string, args ...any) error {
	return fmt.Errorf("verbs: "+q.dev.name+": QP "+q.num.String()+": "+format, args...)
}

// CompletionError is a work completion that isn't a success.
type CompletionError struct {
	WC WC
}

func (e *CompletionError) Error() string {
	return fmt.Sprintf("verbs: QP %v: work request %d: %v (status %d)", e.WC.QPN, e.WC.ID, e.WC.Status, uint8(e.WC.Status))
}
