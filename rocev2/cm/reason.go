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
	RejInvalidGID               Reason = 12 // of the path, or its partition isn't the port's; Info: the GID, 16 bytes, or nothing
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
	ReasonNone:                  "none",
	RejNoQP:                     "no QP",
	RejNoEEC:                    "no EEC",
	RejNoResources:              "no resources",
	RejTimeout:                  "timeout",
	RejUnsupported:              "unsupported request",
	RejInvalidCommID:            "invalid communication ID",
	RejInvalidCommInstance:      "invalid communication instance",
	RejInvalidServiceID:         "invalid service ID",
	RejInvalidTransport:         "invalid transport service type",
	RejStale:                    "stale connection",
	RejNoRDC:                    "RDC does not exist",
	RejInvalidGID:               "primary port GID rejected",
	RejInvalidLID:               "primary port LID rejected",
	RejInvalidSL:                "invalid primary SL",
	RejInvalidTrafficClass:      "invalid primary traffic class",
	RejInvalidHopLimit:          "invalid primary hop limit",
	RejInvalidPacketRate:        "invalid primary packet rate",
	RejInvalidAltGID:            "alternate port GID rejected",
	RejInvalidAltLID:            "alternate port LID rejected",
	RejInvalidAltSL:             "invalid alternate SL",
	RejInvalidAltTrafficClass:   "invalid alternate traffic class",
	RejInvalidAltHopLimit:       "invalid alternate hop limit",
	RejInvalidAltPacketRate:     "invalid alternate packet rate",
	RejPortCMRedirect:           "port and CM redirection",
	RejPortRedirect:             "port redirection",
	RejInvalidMTU:               "invalid path MTU",
	RejInsufficientResources:    "insufficient responder resources",
	RejConsumer:                 "consumer reject",
	RejInvalidRNRRetry:          "RNR retry count reject",
	RejDuplicateCommID:          "duplicate local communication ID",
	RejInvalidClassVersion:      "unsupported class version",
	RejInvalidFlowLabel:         "invalid primary flow label",
	RejInvalidAltFlowLabel:      "invalid alternate flow label",
	RejVendorOptionNotSupported: "vendor option not supported",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("invalid reason (%d)", uint16(r))
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

var sidrNames = [...]string{
	SIDRValid:              "QPN and Q_Key valid",
	SIDRUnsupportedService: "service ID not supported",
	SIDRRejected:           "rejected by the service provider",
	SIDRNoQP:               "no QP available",
	SIDRRedirect:           "redirect to another port",
	SIDRUnsupportedVersion: "version not supported",
}

func (s SIDRStatus) String() string {
	if int(s) < len(sidrNames) {
		return sidrNames[s]
	}
	return fmt.Sprintf("invalid SIDR status (%d)", uint8(s))
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
