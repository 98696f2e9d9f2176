package xdp

import (
	"errors"
	"fmt"
	"sync"
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

// Info says how the port was opened.
func (p *Port) Info() Info { return p.info }

// Sockets returns the sockets, by queue.
func (p *Port) Sockets() []*Socket { return p.sockets }

// AddAddr makes the program take RoCEv2 packets to an address: 16 bytes as in a
// GID, an IPv4 address mapped into ::ffff:0:0/96. A multicast group's address
// is one, too. Adding it again changes nothing. Where the program is another's it
// has no effect. Errors are ErrClosed, or an *Error.
func (p *Port) AddAddr(addr [16]byte) error {
	return p.locked("add address", func(r redirector) error { return r.addAddr(addr) })
}

// RemoveAddr leaves packets to an address to the kernel again. Errors are those of
// AddAddr.
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

// ProgramStats reads the program's counters. They are 0 where it is another's. Errors
// are those of AddAddr.
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
