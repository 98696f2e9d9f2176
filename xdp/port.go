package xdp

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/bpf"
)

// Port is an interface opened for AF_XDP: the attached program and a Socket for
// each receive queue.
type Port struct {
	dev     *device
	prog    *program
	sockets []*Socket
	info    Info

	mu     sync.Mutex // guards closed and the program's maps against Close
	closed bool
}

// Info says what Open got.
type Info struct {
	Interface   string
	Index       int
	MTU         int // when opened
	Speed       int // of the link, when opened, in Mb/s; 0: the driver doesn't know
	Mode        Mode
	ZeroCopy    bool
	MultiBuffer bool // packets over 3840 bytes arrive
	Queues      int  // bound: one Socket each
	TXQueues    int  // of those, how many can send
	ProgramID   uint32
	RxFrames    int      // a queue
	TxFrames    int      // a queue
	Reasons     []string // one for each rung of the ladder that failed before: what and why
}

func (i Info) String() string {
	how := "copy"
	if i.ZeroCopy {
		how = "zero-copy"
	}
	if !i.MultiBuffer {
		how += ", single buffer"
	}
	return fmt.Sprintf("%s: %s mode, %s, %d queues, MTU %d, program %d", i.Interface, i.Mode, how, i.Queues, i.MTU, i.ProgramID)
}

// rung is one way to open a port.
type rung struct {
	mode         Mode
	zerocopy, sg bool
}

func (r rung) String() string {
	s := r.mode.String() + " mode, "
	if r.zerocopy {
		s += "zero-copy"
	} else {
		s += "copy"
	}
	if r.sg {
		s += ", multi-buffer"
	}
	return s
}

// ladder lists the ways to try, best first. Multi-buffer needs Linux 6.6; without
// it only devices with a small MTU come with all their packets, which is still
// better than nothing.
func ladder(o Options, dev *device) (rungs []rung) {
	for _, r := range []rung{{ModeDriver, true, false}, {ModeDriver, false, false}, {ModeGeneric, false, false}} {
		if o.Mode != ModeAuto && o.Mode != r.mode || o.Copy == CopyOnly && r.zerocopy || o.Copy == ZeroCopy && !r.zerocopy {
			continue
		}
		if !o.SingleBuffer {
			rungs = append(rungs, rung{r.mode, r.zerocopy, true})
		}
		if o.SingleBuffer || !r.zerocopy || dev.singleBuffer() {
			rungs = append(rungs, r)
		}
	}
	return rungs
}

// Open attaches the program to ifname, in the network namespace of the calling
// thread, and opens a socket for each of its receive queues. It tries driver
// mode with zero-copy, driver mode with copy, and generic mode, as far as o
// allows; Info tells which it was and why the others failed.
//
// By default a queue has 4096 RX and 2048 TX frames (24 MiB), and fewer on a
// device with more than 4 queues. Open changes nothing of the interface's settings.
//
// It does not displace another XDP program: the error wraps ErrInUse and names
// it. When no rung holds, the error says why for each. Close the Port to detach.
func Open(ifname string, o Options) (*Port, error) {
	dev, err := findDevice(ifname)
	if err != nil {
		return nil, &Error{Op: "open", Interface: ifname, Queue: -1, Err: err}
	}
	if o, err = o.sized(dev.rx); err != nil {
		return nil, err
	}
	var failed []error
	var reasons []string
	for _, r := range ladder(o, dev) {
		p, err := openRung(ifname, o, r)
		if err == nil {
			p.info.Reasons = reasons
			o.logf("%v", p.info)
			return p, nil
		}
		failed = append(failed, fmt.Errorf("%v: %w", r, err))
		reasons = append(reasons, fmt.Sprintf("%v: %v", r, err))
		o.logf("%s: not in %v: %v", ifname, r, err)
		if sameOnEveryRung(err) {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// sameOnEveryRung reports whether another rung would meet the same error: a
// holder, missing privilege, the limit of locked memory, no interface.
func sameOnEveryRung(err error) bool {
	for _, e := range []error{ErrInUse, unix.EPERM, unix.EACCES, unix.ENOBUFS, unix.ENODEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}

// openRung tries one way, and undoes what it did if that fails.
func openRung(ifname string, o Options, r rung) (*Port, error) {
	p := &Port{}
	err := run(ifname, -1, []step{
		{"look at the interface", func() (err error) { p.dev, err = findDevice(ifname); return err }},
		{"load program", func() (err error) { p.prog, err = loadProgram(p.dev.slots, r.sg); return err }},
		{"attach program", func() error { return p.prog.attach(p.dev, r.mode) }},
		// Some drivers change their queues when a program is attached.
		{"count queues", func() (err error) { p.dev, err = findDevice(ifname); return err }},
	})
	if err == nil {
		err = p.openSockets(o, r)
	}
	if err != nil {
		p.teardown()
		return nil, err
	}
	p.info = p.describe(o, r)
	return p, nil
}

func (p *Port) openSockets(o Options, r rung) error {
	for q := range p.dev.rx {
		cfg := socketConfig{
			zerocopy: r.zerocopy, sg: r.sg, tx: q < p.dev.tx,
			rxFrames: uint32(o.RxFrames), txFrames: uint32(o.TxFrames),
			busyPoll: o.BusyPoll, busyBudget: o.BusyPollBudget,
		}
		s, err := openSocket(p.dev, q, cfg)
		if err != nil {
			return err
		}
		p.sockets = append(p.sockets, s)
		err = run(p.dev.name, q, []step{
			{"register socket", func() error { return p.prog.register(s) }},
			{"test", s.selfTest},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Port) describe(o Options, r rung) Info {
	return Info{
		Interface: p.dev.name, Index: p.dev.index, MTU: p.dev.mtu, Speed: p.dev.speed,
		Mode: r.mode, ZeroCopy: r.zerocopy, MultiBuffer: r.sg,
		Queues: len(p.sockets), TXQueues: min(len(p.sockets), p.dev.tx),
		ProgramID: p.prog.id, RxFrames: o.RxFrames, TxFrames: o.TxFrames,
	}
}

// Info says how the port was opened.
func (p *Port) Info() Info { return p.info }

// Sockets returns the sockets, by queue.
func (p *Port) Sockets() []*Socket { return p.sockets }

// AddAddr makes the program take RoCEv2 packets to an address: 16 bytes as in a
// GID, an IPv4 address mapped into ::ffff:0:0/96. A multicast group's address
// is one, too. Adding it again changes nothing.
func (p *Port) AddAddr(addr [16]byte) error {
	return p.locked("add address", func(prog *program) error {
		return prog.maps.Addrs.Update(addr, uint8(1), ebpf.UpdateAny)
	})
}

// RemoveAddr leaves packets to an address to the kernel again.
func (p *Port) RemoveAddr(addr [16]byte) error {
	return p.locked("remove address", func(prog *program) error {
		err := prog.maps.Addrs.Delete(addr)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	})
}

// ProgramStats counts what the program did with packets that could be ours.
type ProgramStats struct {
	Redirected uint64 // to the socket of their queue
	NoSocket   uint64 // for our address, but their queue has no socket: passed to the kernel
	Foreign    uint64 // RoCEv2 for an address that isn't ours: passed to the kernel
	Options    uint64 // UDP for our address in fragments or with IP options: passed to the kernel
}

// ProgramStats reads the program's counters.
func (p *Port) ProgramStats() (st ProgramStats, err error) {
	err = p.locked("read counters", func(prog *program) error {
		for i, n := range map[bpf.Count]*uint64{
			bpf.CountRedirected: &st.Redirected, bpf.CountNoSocket: &st.NoSocket,
			bpf.CountForeign: &st.Foreign, bpf.CountOptions: &st.Options,
		} {
			var cpus []uint64
			if err := prog.maps.Counts.Lookup(uint32(i), &cpus); err != nil {
				return err
			}
			for _, c := range cpus {
				*n += c
			}
		}
		return nil
	})
	return st, err
}

// locked runs f with the program, which Close does not take away meanwhile.
func (p *Port) locked(op string, f func(*program) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := f(p.prog); err != nil {
		return &Error{Op: op, Interface: p.dev.name, Queue: -1, Err: err}
	}
	return nil
}

// Stats adds up the counters of all sockets.
func (p *Port) Stats() (st Stats) {
	for _, s := range p.sockets {
		st.Add(s.Stats())
	}
	return st
}

// Close detaches the program and closes all sockets: see Socket.Close. It may be
// called more than once and from any goroutine. If a socket's owner does not let
// go of it, the error says so and Close can be called again.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.teardown()
}

func (p *Port) teardown() error {
	var errs []error
	if p.prog != nil {
		errs = append(errs, p.prog.close())
		p.prog = nil
	}
	for _, s := range p.sockets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Holder names the program on an interface and who holds it, or is empty if it
// has none.
func Holder(ifname string) string {
	dev, err := findDevice(ifname)
	if err != nil || !dev.attached {
		return ""
	}
	return strings.TrimSpace(describeProgram(dev.index, dev.progID))
}
