package cm

import "time"

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
