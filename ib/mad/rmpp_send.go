package mad

import (
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// Sender carries one long message to its receiver (IBA 13.6.3.2).
//
//	          ACK of the last segment
//	sending ───────────────────────────► done
//	   │ ▲
//	   │ └ ACK: the window moves; timeout, or an ACK that grants nothing more
//	   │   while more was sent: back to the first unconfirmed segment
//	   └─ STOP, ABORT, a wrong ACK, too many timeouts ──► done, with an error
//
// It is pulled: after each event, Next returns the packets that are due.
type Sender struct {
	head     Packet // Address and headers of every segment.
	data     []byte
	per      int    // Bytes of data in a segment.
	segments uint32 // In all.
	sent     uint32 // The last one sent since the last timeout.
	highest  uint32 // The last one ever sent.
	acked    uint32 // The last one confirmed.
	window   uint32 // The last one allowed.
	missed   uint32 // The last one that was sent again without a timeout.
	retries  int    // Since the last progress.
	begun    clock.Time
	timeout  time.Duration
	deadline clock.Time
	total    clock.Time
	abort    bool // An ABORT is due.
	done     bool
	err      *RMPPError
}

// NewSender begins to send data, the records one after the other, under the
// address and headers of head.
func NewSender(head *Packet, data []byte, now clock.Time) *Sender {
	s := &Sender{head: *head, data: data, window: 1, begun: now, timeout: rmppTimeout}
	s.head.Timeout, s.head.Err = 0, nil
	s.per = segmentSize - s.head.MAD().headerSize()
	s.segments = uint32(max(1, (len(data)+s.per-1)/s.per))
	s.deadline = now.Add(rmppTimeout)
	s.total = now.Add(rmppTotal + rmppTimeout*time.Duration(s.segments/rmppWindow))
	return s
}

// Next fills p with the packet that is to be sent now; it reports false when none is.
func (s *Sender) Next(p *Packet) bool {
	switch {
	case s.abort:
		s.abort = false
		*p = s.head
		p.MAD().setRMPP(RMPPAbort, 0, s.err.Status, 0, 0)
		return true
	case s.done || s.sent >= min(s.window, s.segments):
		return false
	}
	s.sent++
	s.highest = max(s.highest, s.sent)
	*p = s.head
	s.fill(p.MAD(), s.sent)
	return true
}

// fill writes segment n. The first has the length of the whole message, which
// counts every segment's class header, and the last that of its own part (IBA 13.6.2.4).
func (s *Sender) fill(m MAD, n uint32) {
	begin := int(n-1) * s.per
	end := min(begin+s.per, len(s.data))
	header := m.headerSize()
	var flags byte
	length := 0
	if n == 1 {
		flags |= rmppFirst
		length = int(s.segments)*header + len(s.data)
	}
	if n == s.segments {
		flags |= rmppLast
		length = header + end - begin
	}
	m.setRMPP(RMPPData, flags, RMPPNormal, n, uint32(length))
	at := offSMKey + header
	clear(m[at:])
	copy(m[at:], s.data[begin:end])
}

// Handle takes an ACK, STOP or ABORT of the receiver.
func (s *Sender) Handle(m MAD, now clock.Time) {
	switch {
	case s.done:
	case m[offRMPPVersion] != 1:
		s.fail(RMPPBadVersion, true)
	case m.RMPPType() == RMPPAck:
		s.ack(m, now)
	case m.RMPPType() == RMPPStop || m.RMPPType() == RMPPAbort:
		s.done, s.err = true, &RMPPError{Status: m.RMPPStatus(), Remote: true}
	default:
		s.fail(RMPPBadType, true)
	}
}

func (s *Sender) ack(m MAD, now clock.Time) {
	segment, window := m.Segment(), m.Window()
	switch {
	case segment > s.highest: // IBA 13.6.3.2: S2B.
		s.fail(RMPPSegmentTooBig, true)
		return
	case window < segment: // IBA 13.6.3.2: W2S.
		s.fail(RMPPWindowTooSmall, true)
		return
	case segment < s.acked || window < s.window:
		return // It was overtaken.
	}
	if s.acked == 0 && s.retries == 0 {
		s.timeout = min(max(rmppTimeoutMin, rttTimeouts*now.Sub(s.begun)), rmppTimeout)
	}
	if segment > s.acked {
		s.retries = 0
		s.acked = segment
		s.sent = max(s.sent, segment)
	}
	if window == s.window && segment < s.sent && segment+1 > s.missed {
		// It waits for the next one, and has seen a later one.
		s.missed = segment + 1
		s.sent = segment
	}
	s.window = window
	s.deadline = now.Add(s.timeout)
	s.done = s.acked == s.segments
}

func (s *Sender) fail(status RMPPStatus, tell bool) {
	s.done, s.abort = true, tell
	s.err = &RMPPError{Status: status}
}

// Deadline returns when Expire has work.
func (s *Sender) Deadline() clock.Time {
	if s.done {
		return clock.Never
	}
	return min(s.deadline, s.total)
}

// Expire sends from the first unconfirmed segment again, or gives up.
func (s *Sender) Expire(now clock.Time) {
	switch {
	case s.done || now < s.Deadline():
	case now >= s.total:
		s.fail(RMPPTooLong, true)
	case s.retries == rmppRetries:
		s.fail(RMPPTooManyRetries, true)
	default:
		s.retries++
		s.sent = s.acked
		s.deadline = now.Add(min(s.timeout<<s.retries, rmppTimeoutMax))
	}
}

// Done reports whether the transfer has ended, and how.
func (s *Sender) Done() (bool, error) {
	if s.err != nil {
		return s.done, s.err
	}
	return s.done, nil
}
