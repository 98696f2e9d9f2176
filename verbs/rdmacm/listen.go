package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// ListenOptions are how requests are taken. The zero value works.
type ListenOptions struct {
	Backlog     int     // requests that wait for Accept; more are rejected with "no resources", those of datagrams lost; accepted ones that wait for their peers may be as many, or 4096 if that is more, the oldest gives way; up to 65536; 0: 128
	MinRNRRetry uint8   // the least RNRRetry that a peer may ask for, 0 to 7; less is rejected with reason 29
	PKey        ib.PKey // the partition that requests are taken of, an entry of PortAttr.PKeyTable; 0: all of them
}

// Listener takes requests for a port. All methods may be called by any goroutine.
type Listener struct {
	a        *agent
	l        *cm.Listener
	addr     netip.AddrPort
	requests chan *Request
	closed   chan struct{}
}

// Listen takes requests for connections to a port of the device: at one address, or at all when the address is
// unspecified. Port 0 chooses one that is free, of 32768 to 60999. Errors wrap verbs.ErrBusy (the port is listened at, or QP1
// is someone else's), verbs.ErrInvalid (an address or a P_Key that isn't the device's, options that can't be) or verbs.ErrClosed.
func Listen(d *verbs.Device, at netip.AddrPort, o ListenOptions) (*Listener, error) {
	return listen(d, at, cm.TCP, o)
}

// ListenUD takes requests for the datagram QP of a port, as Listen does those for connections.
func ListenUD(d *verbs.Device, at netip.AddrPort, o ListenOptions) (*Listener, error) {
	return listen(d, at, cm.UDP, o)
}

func listen(d *verbs.Device, at netip.AddrPort, space cm.PortSpace, o ListenOptions) (*Listener, error) {
	if o.Backlog == 0 {
		o.Backlog = cm.DefaultBacklog
	}
	if ip := at.Addr(); ip.IsValid() && !ip.IsUnspecified() && !slices.Contains(d.GIDs(), gidOf(ip)) {
		return nil, fmt.Errorf("rdmacm: %s: listen: %w: %v is no address of the device (its GIDs: %v)", d.Name(), verbs.ErrInvalid, ip, ib.GIDTable(d.GIDs()))
	}
	a, err := use(d)
	if err != nil {
		return nil, err
	}
	l := &Listener{a: a, closed: make(chan struct{})}
	err = a.do(func(m *cm.Manager, _ clock.Time) error { return l.offer(m, at, space, o) })
	if err != nil {
		a.leave()
		return nil, fmt.Errorf("rdmacm: %s: listen at %v: %w", d.Name(), at, err)
	}
	return l, nil
}

// The ports that are chosen from, as by Linux.
const firstPort, lastPort = 32768, 60999

func (l *Listener) offer(m *cm.Manager, at netip.AddrPort, space cm.PortSpace, o ListenOptions) (err error) {
	co := cm.ListenOptions{Backlog: o.Backlog, MinRNRRetry: o.MinRNRRetry, PKey: o.PKey}
	first, last := int(at.Port()), int(at.Port())
	if first == 0 {
		first, last = firstPort, lastPort
	}
	for port := first; port <= last; port++ {
		l.addr = netip.AddrPortFrom(at.Addr(), uint16(port))
		if l.l, err = m.Listen(cm.IPService(space, uint16(port)), co); !errors.Is(err, cm.ErrInUse) {
			break
		}
	}
	if err == nil {
		l.l.User, l.requests = l, make(chan *Request, o.Backlog)
	}
	return err
}

// Addr returns the address that is listened at, with the port that was chosen.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close rejects the requests that wait, and those to come. The error is verbs.ErrClosed, when it was closed before.
func (l *Listener) Close() error {
	err := l.a.do(func(*cm.Manager, clock.Time) error {
		select {
		case <-l.closed:
			return fmt.Errorf("rdmacm: %s: close listener: %w", l.a.dev.Name(), verbs.ErrClosed)
		default:
		}
		close(l.closed)
		l.l.Close()
		return nil
	})
	if err != nil {
		return err
	}
	for {
		select {
		case r := <-l.requests:
			r.Reject(InvalidServiceID, nil)
		default:
			l.a.leave()
			return nil
		}
	}
}

// Accept returns the next request whose peer hasn't given up. Errors are verbs.ErrClosed, or the context's.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	for {
		select {
		case <-l.closed:
		case <-l.a.stopped:
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-l.requests:
			if !r.waits() {
				continue
			}
			return r, nil
		}
		return nil, fmt.Errorf("rdmacm: %s: accept: %w", l.a.dev.Name(), verbs.ErrClosed)
	}
}

// take takes a request, on the agent's goroutine.
func (l *Listener) take(e cm.Event) {
	r := &Request{conn: newConn(l.a, &Options{}), req: e.Request}
	c := r.conn
	c.id = e.Conn
	c.id.User = c
	c.remote, c.local = addrs(e.Request)
	if reason := l.refuses(c); reason != cm.ReasonNone {
		r.refuse(reason, nil, clock.Now())
		return
	}
	c.private = e.Private[cm.IPHeaderLen:]
	select {
	case l.requests <- r:
	default: // those that wait have been given up by their peers
		r.refuse(cm.RejNoResources, nil, clock.Now())
	}
}

// refuses says why a request isn't for this listener.
func (l *Listener) refuses(c *Conn) cm.Reason {
	at := l.addr.Addr()
	switch {
	case !c.local.IsValid(): // no header of the IP CM service that is understood
		return cm.RejUnsupported
	case at.IsValid() && !at.IsUnspecified() && at.Unmap().WithZone("") != c.local.Addr():
		return cm.RejInvalidServiceID
	}
	return cm.ReasonNone
}

// Request is a peer's wish for a connection, or for a datagram QP.
type Request struct {
	conn *Conn
	req  *cm.Request
}

// waits reports whether the peer waits for an answer still.
func (r *Request) waits() bool {
	r.conn.a.mu.Lock()
	defer r.conn.a.mu.Unlock()
	return r.conn.id.Waits()
}

// Private returns what the peer's program says: 56 bytes, or 180 for a datagram QP, 0 where it said nothing.
func (r *Request) Private() []byte { return r.conn.private }

// RemoteAddr returns the address of the peer.
func (r *Request) RemoteAddr() netip.AddrPort { return r.conn.remote }

// LocalAddr returns the address that the peer asks.
func (r *Request) LocalAddr() netip.AddrPort { return r.conn.local }

// Type returns the type of QP that the peer has: RC or UC, or UD when it asks for a datagram QP.
func (r *Request) Type() verbs.QPType {
	switch space, _, _ := r.req.Service.IP(); {
	case space == cm.UDP:
		return verbs.UD
	case r.req.Transport == cm.UC:
		return verbs.UC
	}
	return verbs.RC
}

// Peer returns what the peer says of its QP; of a datagram QP nothing.
func (r *Request) Peer() Peer { return r.conn.Peer() }

// PKeyIndex returns the index of the P_Key, in PortAttr.PKeyTable, of the partition that the peer asks in: Accept takes the
// QP there, and a datagram QP has to be there.
func (r *Request) PKeyIndex() uint16 { return r.conn.id.Path().PKeyIndex }

// Accept connects a QP with the peer, and returns when the connection is there. A QP that can't be connected is an error,
// and the request is rejected. Until then the QP's own events (QP.Events) are read here. The peer waits for a minute or more;
// who needs longer calls Extend. Errors are those of Dial, and of QP.Modify; or wrap verbs.ErrState when the peer gave up. Of
// requests that were accepted, and whose peers then say nothing, as with forged ones, a device has 4096 at most: the oldest of
// more ends with ErrUnreachable.
func (r *Request) Accept(ctx context.Context, o Options) (*Conn, error) {
	c := r.conn
	d := c.a.dev
	c.a.share()
	c.a.conns.Store(c, nil)
	if err := r.accept(ctx, &o); err != nil {
		c.giveUp()
		return nil, fmt.Errorf("rdmacm: %s: accept %v: %w", d.Name(), c.remote, err)
	}
	return c, nil
}

func (r *Request) accept(ctx context.Context, o *Options) error {
	c := r.conn
	if err := r.ready(o); err != nil {
		r.Reject(NoQP, nil)
		return err
	}
	_, err := c.wait(ctx, cm.EventEstablished)
	if err != nil {
		return errors.Join(err, c.fail())
	}
	return nil
}

// ready connects the QP, and sends the answer.
func (r *Request) ready(o *Options) error {
	c := r.conn
	if r.Type() == verbs.UD {
		return fmt.Errorf("%w: the peer asks for a datagram QP: AcceptUD", verbs.ErrInvalid)
	}
	path := c.id.Path()
	o.Connect.PKeyIndex = path.PKeyIndex
	p, err := o.prepare(c.a.dev)
	if err != nil {
		return err
	}
	if o.QP.Type() != r.Type() {
		return fmt.Errorf("%w: a QP of type %v, and the peer's is %v", verbs.ErrInvalid, o.QP.Type(), r.Type())
	}
	end, err := o.QP.Endpoint(int(path.SGIDIndex))
	if err != nil {
		return err
	}
	answer := cm.Reply{QPN: end.QPN, PSN: end.PSN, SRQ: hasSRQ(o.QP), FlowControl: givesCredits(o.QP),
		ResponderResources: p.MaxDestRdAtomic, InitiatorDepth: p.MaxRdAtomic, RNRRetry: p.RNRRetry, Private: o.Private}
	c.id.Agree(&answer)
	peer := c.Peer()
	peer.ResponderResources, peer.InitiatorDepth = answer.ResponderResources, answer.InitiatorDepth
	if err := o.connect(path, peer, end.PSN); err != nil {
		return err
	}
	return c.a.do(func(_ *cm.Manager, now clock.Time) error {
		c.qp = o.QP
		return c.id.Accept(answer, now)
	})
}

// AcceptUD tells the peer the datagram QP and its Q_Key, with at most 136 bytes of private data. The error wraps
// verbs.ErrInvalid, also for a QP with another PKeyIndex than the request; verbs.ErrState when the request was answered; or
// verbs.ErrClosed.
func (r *Request) AcceptUD(q *verbs.QP, qkey ib.QKey, private []byte) error {
	if r.Type() != verbs.UD || q.Type() != verbs.UD {
		return fmt.Errorf("rdmacm: accept %v: %w: a QP of type %v, and the peer asks for %v", r.conn.remote, verbs.ErrInvalid, q.Type(), r.Type())
	}
	a, err := q.Query()
	switch {
	case err != nil:
		return err
	case a.PKeyIndex != r.PKeyIndex():
		return fmt.Errorf("rdmacm: accept %v: %w: a QP with P_Key index %d, and the peer asks in the partition of %d",
			r.conn.remote, verbs.ErrInvalid, a.PKeyIndex, r.PKeyIndex())
	}
	return r.conn.a.do(func(_ *cm.Manager, now clock.Time) error {
		return r.conn.id.ReplySIDR(cm.SIDRValid, q.Number(), qkey, private, now)
	})
}

// Extend tells the peer that the answer takes longer: by 4.096 µs × 2^code, code up to 31. Not for datagram QPs. The error
// wraps verbs.ErrInvalid, verbs.ErrState or verbs.ErrClosed.
func (r *Request) Extend(code uint8) error {
	return r.conn.a.do(func(_ *cm.Manager, now clock.Time) error { return r.conn.id.Extend(code, nil, now) })
}

// Reject refuses the request, for ConsumerReject or another reason, with at most 148 bytes of private data (136 for a
// datagram QP, to whose peer any reason is the same). The error wraps verbs.ErrInvalid, verbs.ErrState when the request was
// answered or the peer gave up, or verbs.ErrClosed.
func (r *Request) Reject(reason Reason, private []byte) error {
	return r.conn.a.do(func(_ *cm.Manager, now clock.Time) error { return r.refuse(reason, private, now) })
}

func (r *Request) refuse(reason Reason, private []byte, now clock.Time) error {
	if r.Type() == verbs.UD {
		return r.conn.id.ReplySIDR(cm.SIDRRejected, 0, 0, private, now)
	}
	return r.conn.id.Reject(reason, nil, private, now)
}
