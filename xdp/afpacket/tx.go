package afpacket

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/xdp"
)

// sendQueue is frames to be sent, and room for more.
type sendQueue struct {
	mem    []byte
	free   []uint32
	queued int // so many of msgs wait for Flush
	msgs   []mmsghdr
	iovs   []unix.Iovec
	frames []uint32 // by the message: whose room it is in
}

func (q *sendQueue) init(n int) {
	*q = sendQueue{
		mem: make([]byte, n*MaxFrame), free: make([]uint32, n), msgs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n), frames: make([]uint32, n),
	}
	for i := range n {
		q.free[i] = uint32(n - 1 - i)
		q.msgs[i].hdr.Iov = &q.iovs[i]
		q.msgs[i].hdr.SetIovlen(1)
	}
}

// Reserve gives room for a frame of n bytes; false when there is none now, or n is
// more than MaxFrame. Send or Cancel follows, once.
func (s *Socket) Reserve(n int) (room []byte, frame uint32, ok bool) {
	q := &s.tx
	if len(q.free) == 0 || n > MaxFrame {
		return nil, 0, false
	}
	frame = q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	at := int(frame) * MaxFrame
	return q.mem[at : at+n : at+n], frame, true
}

// Cancel gives back what Reserve gave, unsent.
func (s *Socket) Cancel(frame uint32) { s.tx.free = append(s.tx.free, frame) }

// Send queues the first n bytes, which Reserve gave room for, for Flush; the room is
// free again when they were sent or lost.
func (s *Socket) Send(frame uint32, n int) {
	q := &s.tx
	q.iovs[q.queued].Base = &q.mem[int(frame)*MaxFrame]
	q.iovs[q.queued].SetLen(n)
	q.frames[q.queued] = frame
	q.queued++
}

// shift takes the first n messages off, as they were sent or lost.
func (q *sendQueue) shift(n int) {
	q.free = append(q.free, q.frames[:n]...)
	copy(q.frames, q.frames[n:q.queued])
	copy(q.iovs, q.iovs[n:q.queued])
	q.queued -= n
}

// Flush has the kernel send what was queued. What the device doesn't take now waits
// for the next Flush, without an error. xdp.ErrLinkDown is a passing condition, in
// which frames are lost; other errors, of which xdp.ErrGone is one, are the end of the
// socket.
func (s *Socket) Flush() error {
	q := &s.tx
	if q.queued == 0 {
		return nil
	}
	stuck := false
	for q.queued > 0 && !stuck {
		n, e := sendmmsg(s.fd, q.msgs[:q.queued])
		if e == 0 {
			s.sent(n)
			continue
		}
		switch classify(e) {
		case sendBusy:
			s.stats.txBusy.Add(1)
			stuck = true
		case sendRefused: // this frame, by a filter, or as the MTU fell
			s.lost(1)
		case sendDown:
			s.lost(q.queued)
			s.setStuck(false)
			return xdp.ErrLinkDown
		case sendGone:
			return xdp.ErrGone
		default:
			return fmt.Errorf("afpacket: %s: send: %w", s.ifname, e)
		}
	}
	s.setStuck(stuck)
	return nil
}

func (s *Socket) setStuck(is bool) {
	if s.stuck.Load() != is {
		s.stuck.Store(is)
	}
}

// Stuck reports whether frames wait that the device did not take, or all room is
// taken: only another Flush goes on.
func (s *Socket) Stuck() bool { return s.stuck.Load() }

func (s *Socket) sent(n int) {
	bytes := uint64(0)
	for i := range n {
		bytes += uint64(s.tx.iovs[i].Len)
	}
	s.stats.txPackets.Add(uint64(n))
	s.stats.txBytes.Add(bytes)
	s.tx.shift(n)
}

func (s *Socket) lost(n int) {
	s.stats.txLost.Add(uint64(n))
	s.tx.shift(n)
}

// sendResult is what an errno of sending means.
type sendResult uint8

const (
	sendBusy    sendResult = iota // try again later
	sendRefused                   // this frame can't be sent
	sendDown                      // the link is down
	sendGone                      // the interface is gone
	sendFatal                     // a bug
)

// classify sorts the errnos of sendmmsg on a packet socket.
func classify(e unix.Errno) sendResult {
	switch e {
	case unix.EAGAIN, // the send buffer is full
		unix.ENOBUFS, // the device's queue is, or there is no memory
		unix.ENOMEM,
		unix.EBUSY,
		unix.EINTR:
		return sendBusy
	case unix.EMSGSIZE, unix.EPERM, unix.EACCES, unix.EINVAL:
		return sendRefused
	case unix.ENETDOWN:
		return sendDown
	case unix.ENXIO, unix.ENODEV:
		return sendGone
	}
	return sendFatal
}
