package xdp

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Port is an interface opened for AF_XDP: the attached program, or another's map
// (Options.XSKMap), and a Socket for each receive queue.
type Port struct {
	dev     *device
	from    redirector
	sockets []*Socket
	info    Info

	mu     sync.Mutex // guards closed and from against Close
	closed bool
}

// redirector gets packets to the sockets: our program, or the map of another one.
type redirector interface {
	register(*Socket) error
	addAddr([16]byte) error
	removeAddr([16]byte) error
	stats(*ProgramStats) error
	trouble() string
	detached() bool
	close() error
}

// Info says what Open got.
type Info struct {
	Interface   string
	Index       int
	MTU         int // when opened
	Speed       int // of the link, when opened, in Mb/s; 0: the driver doesn't know
	Mode        Mode
	ZeroCopy    bool
	MultiBuffer bool     // packets over 3840 bytes arrive
	Queues      int      // bound: one Socket each
	TXQueues    int      // of those, how many can send
	ProgramID   uint32   // of ours, or of the owner of XSKMap; 0: it had attached none
	XSKMap      string   `json:",omitempty"` // the map of another program that has our sockets; "": ours has them
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
	if i.XSKMap != "" {
		return fmt.Sprintf("%s: pinned XSKMAP %s of program %d in %s mode, %s, %d queues, MTU %d", i.Interface, i.XSKMap, i.ProgramID, i.Mode, how, i.Queues, i.MTU)
	}
	return fmt.Sprintf("%s: %s mode, %s, %d queues, MTU %d, program %d", i.Interface, i.Mode, how, i.Queues, i.MTU, i.ProgramID)
}

// rung is one way to open a port.
type rung struct {
	mode         Mode
	zerocopy, sg bool
	pinned       bool // in another's map; mode is where its program runs
}

func (r rung) String() string {
	s := r.mode.String() + " mode, "
	if r.pinned {
		s = "pinned XSKMAP, "
	}
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
//
// With another's map, a program of our own is not among them: it would keep the
// owner's out.
//
// missing says why there are no rungs of a mode that was asked for, if so.
func ladder(o Options, dev *device) (rungs []rung, missing error) {
	all := []rung{{mode: ModeDriver, zerocopy: true}, {mode: ModeDriver}, {mode: ModeGeneric}}
	if o.XSKMap != "" {
		all = pinnedRungs(dev)
	}
	for _, r := range all {
		if o.Mode != ModeAuto && o.Mode != r.mode || o.Copy == CopyOnly && r.zerocopy || o.Copy == ZeroCopy && !r.zerocopy {
			continue
		}
		if err := dev.reaches(r.mode); err != nil {
			missing = fmt.Errorf("%v mode: %w", r.mode, err)
			continue
		}
		if !o.SingleBuffer {
			more := r
			more.sg = true
			rungs = append(rungs, more)
		}
		if o.SingleBuffer || !r.zerocopy || dev.singleBuffer() {
			rungs = append(rungs, r)
		}
	}
	return rungs, missing
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
//
// With o.XSKMap it attaches nothing: see Options.
func Open(ifname string, o Options) (*Port, error) {
	dev, err := findDevice(ifname)
	if err != nil {
		return nil, &Error{Op: "open", Interface: ifname, Queue: -1, Err: err}
	}
	if o, err = o.sized(dev.rx); err != nil {
		return nil, err
	}
	rungs, missing := ladder(o, dev)
	if len(rungs) == 0 && missing == nil {
		return nil, &Error{Op: "open", Interface: ifname, Queue: -1, Err: fmt.Errorf(
			"the program that %s belongs to runs in generic mode %v, which is not what was asked for (mode %v, copy %v)", o.XSKMap, dev.generic, o.Mode, o.Copy)}
	}
	var failed []error
	var reasons []string
	if missing != nil {
		failed = append(failed, &Error{Op: "open", Interface: ifname, Queue: -1, Err: missing})
		reasons = append(reasons, missing.Error())
	}
	for _, r := range rungs {
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
	look := func() (err error) { p.dev, err = findDevice(ifname); return err }
	first := []step{{"look at the interface", look}}
	if r.pinned {
		first = append(first, p.openPinned(o)...)
	} else {
		first = append(first, p.openProgram(r)...)
		// Some drivers change their queues when a program is attached.
		first = append(first, step{"count queues", look})
	}
	err := run(ifname, -1, first)
	if err == nil {
		err = p.openSockets(o, r)
	}
	if err != nil {
		p.teardown()
		return nil, err
	}
	p.info = p.describe(o, r)
	if m, ok := p.from.(*pinnedMap); ok {
		m.watch(p.sockets, o.logf)
	}
	return p, nil
}

// openProgram are the steps to a program of our own.
func (p *Port) openProgram(r rung) []step {
	var prog *program
	return []step{
		{"load program", func() (err error) {
			if prog, err = loadProgram(p.dev.slots, r.sg); err == nil {
				p.from = prog
			}
			return err
		}},
		{"attach program", func() error { return prog.attach(p.dev, r.mode) }},
	}
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
			{"register socket", func() error { return p.from.register(s) }},
			{"test", s.selfTest},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Port) describe(o Options, r rung) Info {
	i := Info{
		Interface: p.dev.name, Index: p.dev.index, MTU: p.dev.mtu, Speed: p.dev.speed,
		Mode: r.mode, ZeroCopy: r.zerocopy, MultiBuffer: r.sg,
		Queues: len(p.sockets), TXQueues: min(len(p.sockets), p.dev.tx),
		RxFrames: o.RxFrames, TxFrames: o.TxFrames, XSKMap: o.XSKMap, ProgramID: p.dev.progID,
	}
	if prog, ok := p.from.(*program); ok {
		i.ProgramID = prog.id
	}
	return i
}

// Info says how the port was opened.
func (p *Port) Info() Info { return p.info }

// Sockets returns the sockets, by queue.
func (p *Port) Sockets() []*Socket { return p.sockets }

// AddAddr makes the program take RoCEv2 packets to an address: 16 bytes as in a
// GID, an IPv4 address mapped into ::ffff:0:0/96. A multicast group's address
// is one, too. Adding it again changes nothing. Where the program is another's it
// has no effect.
func (p *Port) AddAddr(addr [16]byte) error {
	return p.locked("add address", func(r redirector) error { return r.addAddr(addr) })
}

// RemoveAddr leaves packets to an address to the kernel again.
func (p *Port) RemoveAddr(addr [16]byte) error {
	return p.locked("remove address", func(r redirector) error { return r.removeAddr(addr) })
}

// Trouble says what keeps packets from coming although the Port is open, or is "": of
// another's map, that it was replaced or that it has other sockets now.
func (p *Port) Trouble() (s string) {
	_ = p.locked("look", func(r redirector) error { s = r.trouble(); return nil })
	return s
}

// Detached reports whether someone has forced our program off the interface. The kernel
// tells nobody when that happens. Another's program is its owner's business.
func (p *Port) Detached() (is bool) {
	_ = p.locked("look", func(r redirector) error { is = r.detached(); return nil })
	return is
}

// ProgramStats counts what the program did with packets that could be ours.
type ProgramStats struct {
	Redirected uint64 // to the socket of their queue
	NoSocket   uint64 // for our address, but their queue has no socket: passed to the kernel
	Foreign    uint64 // RoCEv2 for an address that isn't ours: passed to the kernel
	Options    uint64 // UDP for our address in fragments or with IP options: passed to the kernel
}

// ProgramStats reads the program's counters. They are 0 where it is another's.
func (p *Port) ProgramStats() (st ProgramStats, err error) {
	err = p.locked("read counters", func(r redirector) error { return r.stats(&st) })
	return st, err
}

// locked runs f with the redirector, which Close does not take away meanwhile.
func (p *Port) locked(op string, f func(redirector) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := f(p.from); err != nil {
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
	if p.from != nil {
		errs = append(errs, p.from.close())
		p.from = nil
	}
	for _, s := range p.sockets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
