package verbs

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/qp"
)

// EventType is the type of an asynchronous event, numbered as ibv_event_type.
type EventType uint8

// The events that a device raises. Others of ibverbs can't occur: there is no path migration, LID or subnet
// manager; and a receive in an SRQ that is no good is an error of the QP that takes it.
const (
	EventCQErr       EventType = 0  // the CQ overran; its QPs are in ERR
	EventQPFatal     EventType = 1  // an error that no completion tells, such as a CQ that overran: the QP is in ERR
	EventQPReqErr    EventType = 2  // the peer sent an invalid request: the QP is in ERR
	EventQPAccessErr EventType = 3  // the peer sent a request that its rkey or range doesn't allow: the QP is in ERR
	EventCommEst     EventType = 4  // the first packet came while the QP was in RTR
	EventSQDrained   EventType = 5  // a QP in SQD has nothing in flight any more
	EventDeviceFatal EventType = 8  // the interface or its XDP program was removed, or can't send any more: all QPs are in ERR, the device can only be closed
	EventPortActive  EventType = 9  // the link came up
	EventPortErr     EventType = 10 // the link went down
	EventGIDChange   EventType = 18 // the GID table changed

	// Of SRQs.
	EventSRQLimitReached EventType = 15 // fewer receives wait in the SRQ than its limit, which is off now
	EventLastWQEReached  EventType = 16 // the QP, which has an SRQ, is in ERR, and all its receives have completed
)

// lastEvent is the greatest EventType.
const lastEvent = EventGIDChange

var eventNames = map[EventType]string{
	EventCQErr: "CQ_ERR", EventDeviceFatal: "DEVICE_FATAL", EventPortActive: "PORT_ACTIVE", EventPortErr: "PORT_ERR",
	EventGIDChange: "GID_CHANGE", EventSRQLimitReached: "SRQ_LIMIT_REACHED",
}

// String gives the name of ibverbs without its prefix.
func (t EventType) String() string {
	if n, ok := eventNames[t]; ok {
		return n
	}
	return qp.Event(t).String()
}

// Event is an asynchronous event, with what it is about.
type Event struct {
	Type EventType
	QP   *QP   // of a QP event
	CQ   *CQ   // of EventCQErr
	SRQ  *SRQ  // of EventSRQLimitReached
	Port uint8 // of a port event: 1
}

func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v on QP %v", e.Type, e.QP.num)
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	default:
		return e.Type.String()
	}
}

// eventQueue holds events until they are read, oldest first. An event that is raised again before it was read takes the
// place of the earlier one: so the queue holds at most one of each type for each object, whoever raises an event never
// waits, and the last event about an object tells how it is.
type eventQueue struct {
	ch        chan Event    // unbuffered: what is offered can still be withdrawn
	raised    chan struct{} // holds a token when the list may have a new head
	withdrawn chan struct{} // unbuffered: the offer doesn't stand any more
	stop      chan struct{}

	mu     sync.Mutex
	list   list.List
	at     map[Event]*list.Element
	closed bool
}

func (q *eventQueue) init() {
	q.ch, q.raised, q.withdrawn, q.stop = make(chan Event), make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	q.at = make(map[Event]*list.Element)
	go q.offer()
}

func (q *eventQueue) push(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.remove(e)
	q.at[e] = q.list.PushBack(e)
	select {
	case q.raised <- struct{}{}:
	default:
	}
}

// remove takes out an event. Under mu.
func (q *eventQueue) remove(e Event) {
	if x, ok := q.at[e]; ok {
		q.list.Remove(x)
		delete(q.at, e)
	}
}

// offer hands events out until close.
func (q *eventQueue) offer() {
	defer close(q.ch)
	for {
		head, out := q.head()
		var e Event
		if head != nil {
			e = head.Value.(Event)
		}
		select {
		case out <- e:
			q.taken(head, e)
		case <-q.raised:
		case <-q.withdrawn:
		case <-q.stop:
			return
		}
	}
}

// head returns the oldest event and the channel to offer it by; nil while there is none.
func (q *eventQueue) head() (*list.Element, chan Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if head := q.list.Front(); head != nil {
		return head, q.ch
	}
	return nil, nil
}

// taken takes out the event that was read, unless it was raised again meanwhile.
func (q *eventQueue) taken(x *list.Element, e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at[e] == x {
		q.remove(e)
	}
}

// withdraw forgets the events about an object that is destroyed. When it returns, none of them is handed out any more.
func (q *eventQueue) withdraw(about Event) {
	q.mu.Lock()
	for about.Type = 0; about.Type <= lastEvent; about.Type++ {
		q.remove(about)
	}
	q.mu.Unlock()
	select {
	case q.withdrawn <- struct{}{}:
	case <-q.stop:
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.stop)
	}
}

// Events returns the channel of the device's asynchronous events, those of its QPs, CQs and SRQs included, oldest first. It is
// closed with the device.
//
// Events are not lost when no one reads them: one that is raised again before it was read takes the earlier one's place,
// and comes once. They need no acknowledgement. Destroying a QP, CQ or SRQ withdraws its events that were not read (as
// ibv_destroy_qp does for those that no one got yet); one that was read may name an object that is gone meanwhile, whose
// methods return ErrClosed.
func (d *Device) Events() <-chan Event { return d.events.ch }

// qpEventRoom is how many events of a QP wait to be read in its own channel.
const qpEventRoom = 16

// qpEvents is a QP's own channel of events. Whoever raises one never waits: when it is full the event is dropped and
// counted.
type qpEvents struct {
	mu      sync.Mutex
	ch      chan Event
	closed  bool
	dropped atomic.Uint64
}

func (q *qpEvents) push(e Event) {
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

func (q *qpEvents) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.ch)
	}
}

// Events returns the channel of the QP's own asynchronous events, which Device.Events tells too. It is closed when the QP
// is destroyed. It holds 16; when no one reads it, later ones are dropped and counted.
func (q *QP) Events() <-chan Event { return q.events.ch }

// EventsDropped returns how many events were lost because no one read the QP's own channel.
func (q *QP) EventsDropped() uint64 { return q.events.dropped.Load() }
