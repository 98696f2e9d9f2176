package rdmacm

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// ErrUnreachable: nobody answered, or not in time.
var ErrUnreachable = errors.New("unreachable")

// verbsError makes an error of the manager one of package verbs.
func verbsError(err error) error {
	for _, e := range []struct{ of, is error }{
		{cm.ErrInUse, verbs.ErrBusy}, {cm.ErrInvalid, verbs.ErrInvalid}, {cm.ErrState, verbs.ErrState}, {cm.ErrLimit, verbs.ErrLimit},
	} {
		if errors.Is(err, e.of) {
			return fmt.Errorf("%w: %w", e.is, err)
		}
	}
	return err
}

// Reason is why a connection was refused (IBA 12.6.7.2).
type Reason = cm.Reason

// The reasons that a program may give; package rocev2/cm has all.
const (
	ConsumerReject    = cm.RejConsumer
	NoQP              = cm.RejNoQP
	NoResources       = cm.RejNoResources
	InvalidServiceID  = cm.RejInvalidServiceID
	InvalidMTU        = cm.RejInvalidMTU
	VendorUnsupported = cm.RejVendorOptionNotSupported
)

// RejectedError is a refusal: of a request, or of its acceptance.
type RejectedError struct {
	Reason  Reason        // 0 of a datagram service: see Status
	Status  cm.SIDRStatus // of a datagram service
	Info    []byte        // what the reason adds: up to 72 bytes
	Private []byte        // what the peer's program says: 148 bytes, of a datagram service 136, 0 where it said nothing
}

func (e *RejectedError) Error() string {
	if e.Reason == 0 {
		return "rejected: " + e.Status.String()
	}
	return fmt.Sprintf("rejected: %v (reason %d)", e.Reason, uint16(e.Reason))
}

func rejection(e *cm.Event) error {
	return &RejectedError{Reason: e.Reason, Status: e.Status, Info: e.Info, Private: e.Private}
}
