package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// closeTime is how long Close waits for the socket's owner to leave it.
const closeTime = 2 * time.Second

// Close ends a Wait and frees everything: see the package's Lifetime. It may be
// called more than once and from any goroutine. It fails, and can be called again,
// if a goroutine stays between Reserve and Flush for two seconds.
func (s *Socket) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.fd < 0 {
		return nil
	}
	s.gate.shut()
	_, _ = unix.Write(s.stopFD, one[:])
	if !s.gate.drain(closeTime) {
		return &Error{Op: "close", Interface: s.ifname, Queue: s.queue,
			Err: errors.New("a goroutine is between Reserve and Flush"), Hint: "end it, then close again"}
	}
	for s.waiters.Load() > 0 {
		time.Sleep(20 * time.Microsecond)
	}
	return s.teardown()
}

// teardown frees what there is, also of a socket that is half open. The UMEM
// stays mapped while received packets are with the caller.
func (s *Socket) teardown() error {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	s.total() // the kernel's last counters
	var errs []error
	for _, fd := range []*int{&s.fd, &s.wakeFD, &s.stopFD} {
		errs = append(errs, closeFD(fd))
	}
	for i := range s.maps {
		errs = append(errs, unmap(&s.maps[i]))
	}
	s.dropPartial()
	if s.frames.rxHeld == 0 {
		errs = append(errs, unmap(&s.frames.mem))
	}
	return errors.Join(errs...)
}

// dropPartial forgets the packet under way: its frames are not with the caller.
func (s *Socket) dropPartial() {
	s.frames.rxHeld -= int(s.partial.n)
	s.partial = Packet{}
}

// releaseLate takes back packets after Close.
func (s *Socket) releaseLate(packets []Packet) {
	s.stats.mu.Lock() // Close may be at work
	defer s.stats.mu.Unlock()
	for k := range packets {
		p := &packets[k]
		for _, i := range p.frame[:p.n] {
			if s.frames.isRX(i) && s.frames.move(i, ownReceived, ownFree) {
				s.frames.rxHeld--
			}
		}
		*p = Packet{}
	}
	if s.frames.rxHeld == 0 && s.fd < 0 {
		_ = unmap(&s.frames.mem)
	}
}

func closeFD(fd *int) error {
	n := *fd
	if n < 0 {
		return nil
	}
	*fd = -1
	if err := unix.Close(n); err != nil {
		return fmt.Errorf("close descriptor %d: %w", n, err)
	}
	return nil
}

func unmap(mem *[]byte) error {
	m := *mem
	if m == nil {
		return nil
	}
	*mem = nil
	if err := unix.Munmap(m); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(m), err)
	}
	return nil
}
