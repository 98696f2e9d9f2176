package rocev2

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/clock"
)

// alarm is a timerfd for Links that sleep in ppoll: unlike a timeout, it isn't late
// by the thread's timer slack.
type alarm struct{ fd int }

// txPause is how long a sleep lasts at most while there is no room to send: not
// every driver tells when there is.
const txPause = 100 * time.Microsecond

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return alarm{-1}, fmt.Errorf("make a timerfd: %w", err)
	}
	return alarm{fd}, nil
}

// set returns what a sleep up to the deadline watches, and its timeout, which is
// negative if it needs none; or that the deadline has passed. Who is starved waits
// for room to send.
func (a *alarm) set(deadline clock.Time, starved bool) (bell unix.PollFd, timeout time.Duration, passed bool) {
	bell, timeout = unix.PollFd{Fd: -1}, -1
	if starved {
		timeout = txPause
	}
	if deadline == clock.Never {
		return bell, timeout, false
	}
	d := deadline.Sub(clock.Now())
	if d <= 0 {
		return bell, 0, true
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if unix.TimerfdSettime(a.fd, 0, &at, nil) != nil {
		return bell, d, false
	}
	return unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN}, timeout, false
}

// close may be called more than once.
func (a *alarm) close() error {
	if a.fd < 0 {
		return nil
	}
	fd := a.fd
	a.fd = -1
	return unix.Close(fd)
}

// nap is a wait for a signal without a system call of one's own. It makes its
// timer once.
type nap struct{ timer *time.Timer }

// until waits for the signal, at most to the deadline.
func (n *nap) until(deadline clock.Time, wake <-chan struct{}) {
	if deadline == clock.Never {
		<-wake
		return
	}
	d := deadline.Sub(clock.Now())
	if d <= 0 {
		return
	}
	if n.timer == nil {
		n.timer = time.NewTimer(d)
	} else {
		n.timer.Reset(d)
	}
	select {
	case <-wake:
		n.timer.Stop()
	case <-n.timer.C:
	}
}

// yield lets other threads of the machine run first.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
