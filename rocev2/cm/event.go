package cm

import "fmt"

// EventType is what a Manager tells its consumer.
type EventType uint8

// The events.
const (
	EventRequest      EventType = iota + 1 // a peer asks a listener for a connection: Accept, Reject or Extend
	EventReply                             // a peer accepts: Ready, Reject or Extend
	EventEstablished                       // the connection is there
	EventRejected                          // the peer refused, or gave up, or this CM refused the REP: Reason says why
	EventUnreachable                       // no answer came
	EventDisconnected                      // the connection ended, by either side
	EventTimewaitExit                      // no packet of the connection can be under way any more: the Conn is done
	EventSIDRRequest                       // a peer asks for the QP of a service: ReplySIDR
	EventSIDRReply                         // the answer to Resolve: Status says which, and the Conn is done
)

var eventNames = [...]string{
	EventRequest:      "Request",
	EventReply:        "Reply",
	EventEstablished:  "Established",
	EventRejected:     "Rejected",
	EventUnreachable:  "Unreachable",
	EventDisconnected: "Disconnected",
	EventTimewaitExit: "TimewaitExit",
	EventSIDRRequest:  "SIDRRequest",
	EventSIDRReply:    "SIDRReply",
}

func (t EventType) String() string {
	if int(t) < len(eventNames) && eventNames[t] != "" {
		return eventNames[t]
	}
	return fmt.Sprintf("invalid event (%d)", uint8(t))
}

// Event tells of a Conn. Rejected and Unreachable end it; when they come after Accept, TimewaitExit follows, as its QP may
// have had packets.
type Event struct {
	Type     EventType
	Conn     *Conn
	Listener *Listener  // of Request and SIDRRequest: whose
	Request  *Request   // of Request and SIDRRequest
	Reason   Reason     // of Rejected, Unreachable, and of Disconnected when no peer asked for it
	Status   SIDRStatus // of SIDRReply
	Info     []byte     // what the reason or the status adds: up to MaxREJInfo bytes
	Private  []byte     // private data: all that the message has room for, 0 where the peer said nothing
}

// Event takes the next event; false when there is none.
func (m *Manager) Event() (e Event, ok bool) {
	if len(m.events) == 0 {
		m.events = nil
		return e, false
	}
	e = m.events[0]
	m.events[0] = Event{}
	m.events = m.events[1:]
	return e, true
}
