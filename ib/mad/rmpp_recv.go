package mad

import "github.com/urxe/urxe/internal/clock"

// Receiver puts one long message together (IBA 13.6.3.1). Segments that
// overtake others wait. An ACK goes out at the end of each window, for the
// last segment, for one that comes again, since its ACK was lost, and when one
// is missing.
type Receiver struct {
	head     Packet // The first segment: address and headers.
	data     []byte
	expected uint32            // The next segment.
	window   uint32            // The last one that may come before the next ACK.
	early    map[uint32][]byte // Segments that came before one that is missing.
	missing  uint32            // The last one whose absence was told.
	ack      bool              // An ACK is due.
	abort    bool              // An ABORT is due.
	deadline clock.Time
	total    clock.Time
	done     bool
	err      *RMPPError
}

// NewReceiver begins with the first segment that came; hand it to Handle next.
func NewReceiver(first *Packet, now clock.Time) *Receiver {
	r := &Receiver{head: *first, expected: 1, window: 1}
	r.deadline = now.Add(rmppSilence)
	r.total = now.Add(2 * rmppTotal)
	return r
}

// Handle takes a packet of the sender.
func (r *Receiver) Handle(m MAD, now clock.Time) {
	switch {
	case m[offRMPPVersion] != 1:
		r.fail(RMPPBadVersion)
	case m.RMPPType() == RMPPData:
		r.segment(m, now)
	case m.RMPPType() == RMPPAck && m.Segment() == 0:
		// The sender of a long request grants the answer's first window. One
		// segment is always granted, which is what is used.
	case m.RMPPType() == RMPPStop || m.RMPPType() == RMPPAbort:
		if !r.done {
			r.done, r.err = true, &RMPPError{Status: m.RMPPStatus(), Remote: true}
		}
	default:
		r.fail(RMPPBadType)
	}
}

func (r *Receiver) segment(m MAD, now clock.Time) {
	n := m.Segment()
	switch {
	case n == 0 || m.first() != (n == 1):
		r.fail(RMPPBadFirst)
		return
	case n > r.window && !r.done:
		r.fail(RMPPSegmentTooBig)
		return
	case n < r.expected:
		r.ack = r.ack || n == r.expected-1 || r.done
		return
	case r.done:
		return
	case n > r.expected: // There is room: it is inside the window.
		if r.early == nil {
			r.early = map[uint32][]byte{}
		}
		r.early[n] = append([]byte(nil), m...)
		if r.missing < r.expected {
			r.missing, r.ack = r.expected, true
		}
		return
	}
	r.take(m, now)
	for next := r.early[r.expected]; next != nil && !r.done; next = r.early[r.expected] {
		delete(r.early, r.expected)
		r.take(next, now)
	}
}

// take adds the segment that was expected.
func (r *Receiver) take(m MAD, now clock.Time) {
	header := m.headerSize()
	part := []byte(m[offSMKey+header:])
	length := int(m.Window())
	if m.first() {
		copy(r.head.Data[:], m)
	}
	if m.last() {
		// IBA 13.6.2.4: the last one's length is its own.
		if length < header || length > len(part)+header {
			r.fail(RMPPBadLast)
			return
		}
		part = part[:length-header]
	}
	if len(r.data)+len(part) > rmppMaxBytes {
		r.fail(RMPPResourcesExhausted)
		return
	}
	r.data = append(r.data, part...)
	r.deadline = now.Add(rmppSilence)
	r.expected++
	if m.last() {
		r.done, r.ack = true, true
		return
	}
	if r.expected > r.window {
		r.window = r.expected - 1 + rmppWindow
		r.ack = true
	}
}

func (r *Receiver) fail(status RMPPStatus) {
	if !r.done {
		r.done, r.abort, r.ack = true, true, false
		r.err = &RMPPError{Status: status}
	}
}

// Next fills p with the packet that is to be sent now; it reports false when none is.
func (r *Receiver) Next(p *Packet) bool {
	if !r.ack && !r.abort {
		return false
	}
	*p = r.head
	p.Timeout, p.Err = 0, nil
	m := p.MAD()
	m.SetMethod(m.Method() ^ Response)
	clear(m[offSMKey+m.headerSize():])
	switch {
	case !r.abort:
		m.setRMPP(RMPPAck, 0, RMPPNormal, r.expected-1, max(r.window, r.expected-1))
	case r.err.Status == RMPPResourcesExhausted:
		m.setRMPP(RMPPStop, 0, r.err.Status, 0, 0)
	default:
		m.setRMPP(RMPPAbort, 0, r.err.Status, 0, 0)
	}
	r.ack, r.abort = false, false
	return true
}

// Deadline returns when Expire has work.
func (r *Receiver) Deadline() clock.Time {
	if r.done {
		return clock.Never
	}
	return min(r.deadline, r.total)
}

// Expire gives up when the sender has been silent for too long.
func (r *Receiver) Expire(now clock.Time) {
	if !r.done && now >= r.Deadline() {
		r.fail(RMPPTooLong)
	}
}

// Done reports whether the transfer has ended, and how.
func (r *Receiver) Done() (bool, error) {
	if r.err != nil {
		return r.done, r.err
	}
	return r.done, nil
}
