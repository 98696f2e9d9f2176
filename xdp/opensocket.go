package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/steps"
)

type step struct {
	op string
	do func() error
}

// run takes the steps up to the first that fails.
func run(ifname string, queue int, list []step) error {
	for _, st := range list {
		if err := steps.Do(st.op, st.do); err != nil {
			return &Error{Op: st.op, Interface: ifname, Queue: queue, Err: err, Hint: hint(st.op, err)}
		}
	}
	return nil
}

// openSocket makes the socket of a queue, bound and with a full FILL ring. A
// step that fails undoes those before it.
func openSocket(dev *device, queue int, cfg socketConfig) (*Socket, error) {
	s := &Socket{ifname: dev.name, ifindex: dev.index, queue: queue, cfg: cfg, fd: -1, wakeFD: -1, stopFD: -1}
	err := run(dev.name, queue, []step{
		{"open socket", s.openFD},
		{"busy poll", s.setBusyPoll},
		{"open wake eventfd", func() error { return openEventFD(&s.wakeFD) }},
		{"open stop eventfd", func() error { return openEventFD(&s.stopFD) }},
		{"map UMEM", s.mapMemory},
		{"register UMEM", func() error { return umemReg(s.fd, s.frames.mem) }},
		{"size rings", s.sizeRings},
		{"map rings", s.mapRings},
		{"fill", s.fillFirst},
		{"bind", s.bind},
		{"read options", s.readOptions},
	})
	if err != nil {
		s.teardown()
		return nil, err
	}
	return s, nil
}

func (s *Socket) openFD() (err error) {
	s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err // Socket returns -1 with it
	}
	// In copy mode each frame on its way counts against the send buffer; the
	// default holds some 50 of them. Without privilege it stays as it is.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(s.cfg.txFrames)*2*frameSize)
	return nil
}

func (s *Socket) setBusyPoll() error {
	if s.cfg.busyPoll == 0 {
		return nil
	}
	for _, o := range [][2]int{
		{unix.SO_PREFER_BUSY_POLL, 1}, {unix.SO_BUSY_POLL, s.cfg.busyPoll}, {unix.SO_BUSY_POLL_BUDGET, s.cfg.busyBudget},
	} {
		if o[1] == 0 {
			continue
		}
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o[0], o[1]); err != nil {
			return err
		}
	}
	return nil
}

func openEventFD(fd *int) error {
	n, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		*fd = n
	}
	return err
}

func (s *Socket) mapMemory() (err error) {
	s.frames = newFrames(s.cfg.rxFrames, s.cfg.txFrames)
	s.frames.mem, err = mapUMEM(len(s.frames.owner) << frameShift)
	return err
}

// sizeRings makes each ring hold all frames that it can ever be given, so that
// no ring but RX can be full. FILL and completion are compulsory.
func (s *Socket) sizeRings() error {
	rx, tx := int(s.cfg.rxFrames), int(s.cfg.txFrames)
	sizes := [][2]int{
		{unix.XDP_UMEM_FILL_RING, rx}, {unix.XDP_UMEM_COMPLETION_RING, tx}, {unix.XDP_RX_RING, rx}, {unix.XDP_TX_RING, tx},
	}
	if !s.cfg.tx {
		sizes = sizes[:3]
	}
	for _, o := range sizes {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, o[0], o[1]); err != nil {
			return fmt.Errorf("option %d, size %d: %w", o[0], o[1], err)
		}
	}
	// Lets one kick send the whole ring. The kernels that have it (6.18) also show
	// how far a kick came.
	s.showsProgress = s.cfg.tx && unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, tx) == nil
	return nil
}

func (s *Socket) mapRings() error {
	var off unix.XDPMmapOffsets
	n, err := getsockopt(s.fd, unix.XDP_MMAP_OFFSETS, &off)
	if err != nil {
		return err
	}
	if n < int(sizeofMmapOffsets) {
		return fmt.Errorf("this kernel has no need-wakeup (Linux 5.4): %w", unix.EOPNOTSUPP)
	}
	rx, tx := s.cfg.rxFrames, s.cfg.txFrames
	if s.maps[0], err = mapRing[uint64](s.fd, unix.XDP_UMEM_PGOFF_FILL_RING, &off.Fr, rx); err != nil {
		return fmt.Errorf("FILL ring: %w", err)
	}
	if s.maps[1], err = mapRing[uint64](s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &off.Cr, tx); err != nil {
		return fmt.Errorf("completion ring: %w", err)
	}
	if s.maps[2], err = mapRing[unix.XDPDesc](s.fd, unix.XDP_PGOFF_RX_RING, &off.Rx, rx); err != nil {
		return fmt.Errorf("RX ring: %w", err)
	}
	s.fill.on(s.maps[0], &off.Fr, rx)
	s.comp.on(s.maps[1], &off.Cr, tx)
	s.rx.on(s.maps[2], &off.Rx, rx)
	if !s.cfg.tx {
		return nil
	}
	if s.maps[3], err = mapRing[unix.XDPDesc](s.fd, unix.XDP_PGOFF_TX_RING, &off.Tx, tx); err != nil {
		return fmt.Errorf("TX ring: %w", err)
	}
	s.tx.on(s.maps[3], &off.Tx, tx)
	return nil
}

// fillFirst gives the kernel RX frames before bind: zero-copy drivers that find
// none then leak or starve their own buffers. Such a driver wants all there are;
// the kernel's copying is quicker into fewer, which stay in the cache.
func (s *Socket) fillFirst() error {
	s.depth = min(s.cfg.rxFrames, firstDepth)
	if s.cfg.zerocopy {
		s.depth = s.cfg.rxFrames
	}
	s.fillUp()
	return nil
}

// releaseTime is how long the kernel may take to let go of a queue or an
// interface whose holder has just closed it: it does so in the background.
const releaseTime = 2 * time.Second

// bind always says which of copy and zero-copy it wants: without either, some
// drivers accept a bind that cannot send, and zero-copy fails over silently.
func (s *Socket) bind() error {
	flags := uint16(unix.XDP_USE_NEED_WAKEUP)
	if s.cfg.zerocopy {
		flags |= unix.XDP_ZEROCOPY
	} else {
		flags |= unix.XDP_COPY
	}
	if s.cfg.sg {
		flags |= unix.XDP_USE_SG
	}
	sa := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(s.ifindex), QueueID: uint32(s.queue)}
	err := retryBusy(func() error { return unix.Bind(s.fd, sa) }, func() bool { return len(socketHolders(s.ifindex, s.queue)) == 0 })
	if s.cfg.sg && errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("multi-buffer (Linux 6.6): %w", err)
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: the queue belongs to %s: %w", ErrInUse, queueHolder(s.ifindex, s.queue), err)
	}
	return err
}

// retryBusy repeats f while it says EBUSY and nobody seems to hold what it
// wants, for as long as the kernel may need to release it.
func retryBusy(f func() error, unheld func() bool) error {
	pause := time.Millisecond
	for end := clock.Now().Add(releaseTime); ; pause = min(2*pause, 50*time.Millisecond) {
		err := f()
		if !errors.Is(err, unix.EBUSY) || clock.Now() > end || !unheld() {
			return err
		}
		time.Sleep(pause)
	}
}

func (s *Socket) readOptions() error {
	var opts struct{ Flags uint32 } // struct xdp_options
	if _, err := getsockopt(s.fd, unix.XDP_OPTIONS, &opts); err != nil {
		return err
	}
	s.zc = opts.Flags&unix.XDP_OPTIONS_ZEROCOPY != 0
	if s.cfg.zerocopy && !s.zc {
		return fmt.Errorf("asked for zero-copy and got copy mode: %w", unix.EOPNOTSUPP)
	}
	return nil
}

// selfTest kicks the empty TX ring: drivers that cannot send although bind
// succeeded say so here, and not when the first packet is due.
func (s *Socket) selfTest() error {
	if !s.cfg.tx {
		return nil
	}
	if e := kickTX(s.fd); classify(e) >= kickGone {
		return fmt.Errorf("bound, but cannot send: %w", e)
	}
	return nil
}
