package xdp

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxExtra is how many descriptors of the caller's Wait can watch.
const maxExtra = 8

const (
	// stuckPause is how long Wait sleeps at most while packets wait in the TX
	// ring for a device that was full: nothing else would send them.
	stuckPause = 100 * time.Microsecond
	// downPause is the same while the link is down.
	downPause = 10 * time.Millisecond
	// gonePause is how often a sleeping Wait checks that its interface still
	// exists: the kernel does not report its removal by poll.
	gonePause = 250 * time.Millisecond
)

// Wait sleeps until a packet has come (if frames is set), Wake was called, one
// of the caller's descriptors is ready, or timeout passed; a negative timeout is
// none. It sets Revents of extra, at most 8 descriptors of which those below 0
// are ignored. It may return early. Its errors are ErrClosed, ErrGone and those of ppoll.
//
// Wait touches no ring: it may run while another goroutine drives the socket.
func (s *Socket) Wait(timeout time.Duration, frames bool, extra []unix.PollFd) error {
	s.waiters.Add(1)
	defer s.waiters.Add(-1)
	if s.gate.closed() {
		return ErrClosed
	}
	if s.gone.Load() {
		return ErrGone
	}
	var fds [3 + maxExtra]unix.PollFd
	n := s.watch(&fds, frames, extra)
	for {
		pause := s.pause(timeout)
		ready, err := poll(fds[:n], pause)
		if err != nil {
			return &Error{Op: "wait", Interface: s.ifname, Queue: s.queue, Err: err}
		}
		if ready > 0 || timeout >= 0 && timeout <= pause || s.stuck.Load() {
			return s.woken(&fds, extra)
		}
		if timeout >= 0 {
			timeout -= pause
		}
		if s.removed() {
			return ErrGone
		}
	}
}

// watch fills fds: Close, Wake, the socket, and the caller's.
func (s *Socket) watch(fds *[3 + maxExtra]unix.PollFd, frames bool, extra []unix.PollFd) int {
	fds[0] = unix.PollFd{Fd: int32(s.stopFD), Events: unix.POLLIN}
	fds[1] = unix.PollFd{Fd: int32(s.wakeFD), Events: unix.POLLIN}
	fds[2] = unix.PollFd{Fd: -1}
	if frames || s.stuck.Load() { // poll sends, too, in copy mode
		fds[2] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
	}
	return 3 + copy(fds[3:], extra)
}

// pause is how long one ppoll may sleep.
func (s *Socket) pause(timeout time.Duration) time.Duration {
	longest := gonePause
	if s.down.Load() {
		longest = downPause
	} else if s.stuck.Load() {
		longest = stuckPause
	}
	if timeout < 0 || timeout > longest {
		return longest
	}
	return timeout
}

// poll is ppoll, begun again when a signal (the Go scheduler's, too) ends it.
func poll(fds []unix.PollFd, d time.Duration) (int, error) {
	ts := unix.NsecToTimespec(int64(d))
	for {
		n, err := unix.Ppoll(fds, &ts, nil)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// woken sorts out what ended the sleep.
func (s *Socket) woken(fds *[3 + maxExtra]unix.PollFd, extra []unix.PollFd) error {
	for i := range min(len(extra), maxExtra) {
		extra[i].Revents = fds[3+i].Revents
	}
	if fds[0].Revents != 0 {
		return ErrClosed
	}
	if fds[1].Revents != 0 {
		var buf [8]byte
		_, _ = unix.Read(s.wakeFD, buf[:]) // drains it; EAGAIN if another Wait did
	}
	if fds[2].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 && s.removed() {
		return ErrGone
	}
	return nil
}

// removed reports whether the interface is gone: the kernel then leaves
// ENETDOWN as the socket's error.
func (s *Socket) removed() bool {
	e, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && unix.Errno(e) == unix.ENETDOWN {
		s.gone.Store(true)
	}
	return s.gone.Load()
}

var one = [8]byte{1, 0, 0, 0, 0, 0, 0, 1} // not zero in either byte order

// Wake ends a Wait, or the next one.
func (s *Socket) Wake() {
	s.waiters.Add(1) // keeps Close from closing the descriptor under us
	defer s.waiters.Add(-1)
	if !s.gate.closed() {
		_, _ = unix.Write(s.wakeFD, one[:]) // EAGAIN: it is set already
	}
}
