package cm

import "fmt"

// Reason is why a connection was refused or ended (IBA 12.6.7.2).
type Reason uint16

// The reasons.
const (
	ReasonNone                  Reason = 0 // of an event that has none
	RejNoQP                     Reason = 1
	RejNoEEC                    Reason = 2
	RejNoResources              Reason = 3
	RejTimeout                  Reason = 4
	RejUnsupported              Reason = 5
	RejInvalidCommID            Reason = 6
	RejInvalidCommInstance      Reason = 7
	RejInvalidServiceID         Reason = 8
	RejInvalidTransport         Reason = 9
	RejStale                    Reason = 10
	RejNoRDC                    Reason = 11
	RejInvalidGID               Reason = 12
	RejInvalidLID               Reason = 13
	RejInvalidSL                Reason = 14
	RejInvalidTrafficClass      Reason = 15
	RejInvalidHopLimit          Reason = 16
	RejInvalidPacketRate        Reason = 17
	RejInvalidAltGID            Reason = 18
	RejInvalidAltLID            Reason = 19
	RejInvalidAltSL             Reason = 20
	RejInvalidAltTrafficClass   Reason = 21
	RejInvalidAltHopLimit       Reason = 22
	RejInvalidAltPacketRate     Reason = 23
	RejPortCMRedirect           Reason = 24
	RejPortRedirect             Reason = 25
	RejInvalidMTU               Reason = 26 // Info: the greatest MTU that is supported, 1 byte
	RejInsufficientResources    Reason = 27 // of the responder
	RejConsumer                 Reason = 28 // Private says more
	RejInvalidRNRRetry          Reason = 29
	RejDuplicateCommID          Reason = 30
	RejInvalidClassVersion      Reason = 31 // Info: the one that is supported, 1 byte
	RejInvalidFlowLabel         Reason = 32
	RejInvalidAltFlowLabel      Reason = 33
	RejVendorOptionNotSupported Reason = 35
)

var reasonNames = [...]string{
	"none", "no QP", "no EEC", "no resources", "timeout", "unsupported request", "invalid communication ID",
	"invalid communication instance", "invalid service ID", "invalid transport service type", "stale connection",
	"RDC does not exist", "primary port GID rejected", "primary port LID rejected", "invalid primary SL",
	"invalid primary traffic class", "invalid primary hop limit", "invalid primary packet rate", "alternate port GID rejected",
	"alternate port LID rejected", "invalid alternate SL", "invalid alternate traffic class", "invalid alternate hop limit",
	"invalid alternate packet rate", "port and CM redirection", "port redirection", "invalid path MTU",
	"insufficient responder resources", "consumer reject", "RNR retry count reject", "duplicate local communication ID",
	"unsupported class version", "invalid primary flow label", "invalid alternate flow label", "", "vendor option not supported",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint16(r))
}

// SIDRStatus is the answer to a SIDR request (IBA 12.11.2.1).
type SIDRStatus uint8

// The answers.
const (
	SIDRValid              SIDRStatus = 0
	SIDRUnsupportedService SIDRStatus = 1
	SIDRRejected           SIDRStatus = 2
	SIDRNoQP               SIDRStatus = 3
	SIDRRedirect           SIDRStatus = 4
	SIDRUnsupportedVersion SIDRStatus = 5
)

var sidrNames = [...]string{"QPN and Q_Key valid", "service ID not supported", "rejected by the service provider", "no QP available",
	"redirect to another port", "version not supported"}

func (s SIDRStatus) String() string {
	if int(s) < len(sidrNames) {
		return sidrNames[s]
	}
	return fmt.Sprintf("SIDR status %d", uint8(s))
}

// apStatus is the answer to a LAP (IBA 12.8.2.1).
type apStatus uint8

const (
	apInvalidCommID apStatus = 1
	apUnsupported   apStatus = 2 // there are no alternate paths here
)

// message says which message a REJ or an MRA is about (IBA 12.6.6, 12.6.7).
type message uint8

const (
	aboutREQ   message = 0
	aboutREP   message = 1
	aboutOther message = 2
)
