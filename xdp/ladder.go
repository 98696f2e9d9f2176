package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
		if err := dev.reaches(r.mode, o); err != nil {
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
