package afpacket

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/xdp"
)

// Wait sleeps until a frame has come (if frames is set), Wake was called, the caller's
// descriptor extra is ready (below 0 it is ignored), or timeout passed; a negative
// timeout is none. It may return early. Its errors are xdp.ErrClosed and those of ppoll.
func (s *Socket) Wait(timeout time.Duration, frames bool, extra unix.PollFd) error {
	s.open.RLock()
	defer s.open.RUnlock()
	if s.closed.Load() {
		return xdp.ErrClosed
	}
	fds := [3]unix.PollFd{{Fd: int32(s.wakeFD), Events: unix.POLLIN}, {Fd: -1}, extra}
	if frames {
		fds[1] = unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN}
	}
	var limit *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		limit = &t
	}
	for {
		_, err := unix.Ppoll(fds[:], limit, nil)
		if err == unix.EINTR { // a signal of the Go scheduler's
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if fds[0].Revents != 0 {
		var buf [8]byte
		_, _ = unix.Read(s.wakeFD, buf[:]) // EAGAIN if another Wait did
	}
	if fds[1].Revents&unix.POLLERR != 0 {
		// The link went down. The error is there until it is read.
		_, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	return nil
}

var one = [8]byte{1, 0, 0, 0, 0, 0, 0, 1} // not zero in either byte order

// Wake ends a Wait, or the next one.
func (s *Socket) Wake() {
	s.open.RLock()
	defer s.open.RUnlock()
	if !s.closed.Load() {
		_, _ = unix.Write(s.wakeFD, one[:]) // EAGAIN: it is set already
	}
}
