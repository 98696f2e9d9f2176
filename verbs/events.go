package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/qp"
)

// EventType is the type of an asynchronous event, numbered as ibv_event_type.
type EventType uint8

// The events that a device raises.
const (
	EventCQErr       EventType = 0  // the CQ overran; its QPs are in ERR
	EventQPFatal     EventType = 1  // an error that no completion tells, such as a CQ that overran: the QP is in ERR
	EventQPReqErr    EventType = 2  // the peer sent an invalid request
	EventQPAccessErr EventType = 3  // the peer sent a request that its rkey or range doesn't allow
	EventCommEst     EventType = 4  // the first packet came while the QP was in RTR
	EventSQDrained   EventType = 5  // a QP in SQD has nothing in flight any more
	EventDeviceFatal EventType = 8  // the link is gone; nothing works any more
	EventPortActive  EventType = 9  // the link came up
	EventPortErr     EventType = 10 // the link went down
	EventGIDChange   EventType = 18 // the GID table changed
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ_ERR", EventDeviceFatal: "DEVICE_FATAL", EventPortActive: "PORT_ACTIVE", EventPortErr: "PORT_ERR",
	EventGIDChange: "GID_CHANGE",
}

// String gives the name of ibverbs without its prefix.
func (t EventType) String() string {
	if n, ok := eventNames[t]; ok {
		return n
	}
	return qp.Event(t).String()
}

// Event is an asynchronous event.
type Event struct {
	Type EventType
	QP   *QP // of a QP event
	CQ   *CQ // of EventCQErr
}

func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v on QP %v", e.Type, e.QP.num)
	default:
		return e.Type.String()
	}
}

// How many events wait to be read: of a device, and of a QP.
const (
	eventRoom   = 256
	qpEventRoom = 16
)

// eventQueue holds events until they are read. Whoever raises one never waits: when the queue is full the event is
// dropped and counted.
type eventQueue struct {
	mu      sync.Mutex
	ch      chan Event
	closed  bool
	dropped atomic.Uint64
}

func (q *eventQueue) init(room int) { q.ch = make(chan Event, room) }

func (q *eventQueue) push(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	select {
	case q.ch <- e:
	default:
		q.dropped.Add(1)
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.ch)
	}
}

// Events returns the channel of the device's asynchronous events, those of its QPs and CQs included. It is closed with
// the device. It holds 256; when no one reads it, later ones are dropped and counted.
func (d *Device) Events() <-chan Event { return d.events.ch }

// EventsDropped returns how many events were lost because no one read the channel.
func (d *Device) EventsDropped() uint64 { return d.events.dropped.Load() }

// Events returns the channel of the QP's own asynchronous events, which Device.Events tells too. It is closed when the QP
// is destroyed. It holds 16; when no one reads it, later ones are dropped and counted.
func (q *QP) Events() <-chan Event { return q.events.ch }

// EventsDropped returns how many events were lost because no one read the channel.
func (q *QP) EventsDropped() uint64 { return q.events.dropped.Load() }
