package cm

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// Timeout returns the time that a code stands for: 4.096 µs × 2^code (IBA 12.7). Codes have five bits.
func Timeout(code uint8) time.Duration { return 4096 * time.Nanosecond << (code & 31) }

// TimeoutCode returns the smallest code whose time is d or more.
func TimeoutCode(d time.Duration) (code uint8) {
	for code < 31 && Timeout(code) < d {
		code++
	}
	return code
}

// ackTimeout is the code of how long a QP waits for an acknowledgement: twice the packet lifetime, and the time in which
// the peer answers (IBA 12.7.34).
func ackTimeout(packetLifetime, ackDelay uint8) uint8 {
	return TimeoutCode(2*Timeout(packetLifetime) + Timeout(ackDelay))
}

// What a peer may ask for. A REQ with a response timeout of nothing would have its REP sent in a burst; one of hours
// would be kept for as long. Who sends again earlier than the peer needs does no harm.
const (
	minResponse = 16 * time.Millisecond
	maxResponse = 10 * time.Second
	maxService  = 24 // code of the longest extension by an MRA, 69 s; also what our own MRAs ask for, as those of Linux do
)

// responseTime bounds the time to wait for an answer.
func responseTime(d time.Duration) time.Duration { return min(max(d, minResponse), maxResponse) }

// timers is a heap of the connections that have a deadline, earliest first; it is a heap.Interface.
type timers []*Conn

const noTimer = -1 // Conn.timer of one that isn't in the heap

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].deadline < t[j].deadline }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	c := x.(*Conn)
	c.timer = len(*t)
	*t = append(*t, c)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	c.timer = noTimer
	return c
}

// next returns the earliest deadline.
func (t timers) next() clock.Time {
	if len(t) == 0 {
		return clock.Never
	}
	return t[0].deadline
}
