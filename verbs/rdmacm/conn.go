package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// Options are how a connection is made, at either end. QP must be set; the other zero values work.
type Options struct {
	QP      *verbs.QP // RC or UC, in RESET or INIT
	Private []byte    // for the peer's program: at most 56 bytes from Dial, 196 from Accept

	// Connect has the QP's attributes. GIDIndex is chosen by the address. PKeyIndex, PathMTU, RetryCnt, RNRRetry, TClass and
	// FlowLabel are Dial's for both ends (RNRRetry: each for the other's); Accept takes what the peer asks for. PKeyIndex
	// is that of the partition, whichever the QP has in INIT. MaxRdAtomic and MaxDestRdAtomic are the most that this end
	// has; less is agreed on when the peer has less. Timeout 0: what the CM finds, about a second. Access is for a QP in
	// RESET.
	Connect verbs.ConnectOptions
}

// Conn is a connection. All methods may be called by any goroutine.
type Conn struct {
	a             *agent
	id            *cm.Conn
	qp            *verbs.QP
	private       []byte
	local, remote netip.AddrPort

	events chan cm.Event // until the connection is there
	done   chan struct{}

	mu      sync.Mutex
	err     error // why it ended
	ended   bool
	closing sync.Once
}

// eventRoom is room for all events of a Conn: there are no more.
const eventRoom = 8

// Peer is what an end of a connection knows of the other; librdmacm has it in struct rdma_conn_param.
type Peer = cm.Peer

func newConn(a *agent, o *Options) *Conn {
	return &Conn{a: a, qp: o.QP, events: make(chan cm.Event, eventRoom), done: make(chan struct{})}
}

// QP returns the connection's QP.
func (c *Conn) QP() *verbs.QP { return c.qp }

// Private returns what the peer said when it asked (56 bytes) or accepted (196 bytes), 0 where it said nothing.
func (c *Conn) Private() []byte { return c.private }

// Peer returns what is known of the peer's QP, and what was agreed on with it.
func (c *Conn) Peer() Peer {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return c.id.Peer()
}

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the address of the other end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Done returns a channel that is closed when the connection has ended, by either side: the QP is in ERR then.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended: a *RejectedError when the peer knew it no more, or gave no answer (RejTimeout), or
// verbs.ErrClosed; nil while it hasn't ended, and when either side asked for that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Disconnect ends the connection: the QP goes to ERR, which flushes its work requests, and the peer is told, with at most
// 220 bytes of private data. It returns when the peer has answered, or ctx ends: then the peer is told all the same. Errors
// are the context's, or wrap verbs.ErrInvalid or verbs.ErrClosed.
func (c *Conn) Disconnect(ctx context.Context, private []byte) error {
	if err := c.a.do(func(_ *cm.Manager, now clock.Time) error { return c.id.Disconnect(private, now) }); err != nil {
		return err
	}
	if err := c.fail(); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-c.a.stopped:
		return c.a.closed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail takes the QP to ERR.
func (c *Conn) fail() error { return c.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState) }

// Close ends the connection without waiting for the peer, and must be called of every Conn. The QP is in ERR then, and the
// caller's to destroy. Closing again does nothing.
func (c *Conn) Close() error {
	var err error
	c.closing.Do(func() {
		c.a.do(func(_ *cm.Manager, now clock.Time) error { c.id.Abandon(now); return nil })
		c.a.leave()
		if err = c.fail(); errors.Is(err, verbs.ErrClosed) {
			err = nil // the QP was destroyed first
		}
		c.end(nil)
	})
	return err
}

// take takes an event, on the agent's goroutine.
func (c *Conn) take(e cm.Event) {
	if e.Type == cm.EventDisconnected {
		c.fail() // the QP may be gone
		var why error
		if e.Reason != cm.ReasonNone {
			why = rejection(&e)
		}
		c.end(why)
	}
	select {
	case c.events <- e:
	default: // no one waits for it
	}
}

func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended, c.err = true, err
		c.a.conns.Delete(c)
		close(c.done)
	}
}

// wait waits for an event of the connection, and has data at a QP in RTR count as the peer's last word.
func (c *Conn) wait(ctx context.Context, want cm.EventType) (e cm.Event, err error) {
	for {
		select {
		case e = <-c.events:
		case q, open := <-c.established(want):
			if open && q.Type == verbs.EventCommEst {
				c.a.do(func(_ *cm.Manager, now clock.Time) error { return c.id.Established(now) })
			} else if !open {
				return e, fmt.Errorf("the QP: %w", verbs.ErrClosed)
			}
			continue
		case <-c.a.stopped:
			return e, c.a.closed
		case <-ctx.Done():
			return e, ctx.Err()
		}
		switch e.Type {
		case want:
			return e, nil
		case cm.EventUnreachable:
			return e, ErrUnreachable
		case cm.EventRejected, cm.EventDisconnected, cm.EventSIDRReply:
			return e, rejection(&e)
		}
	}
}

// established returns the QP's events while they may say that data came.
func (c *Conn) established(want cm.EventType) <-chan verbs.Event {
	if want != cm.EventEstablished || c.qp == nil {
		return nil
	}
	return c.qp.Events()
}
