package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// DialOptions are how a connection is asked for. QP must be set; the other zero values work.
type DialOptions struct {
	Options
	LocalAddr netip.Addr // of this end; none: the device's first address of the peer's kind

	// How the peer is asked: see package rocev2/cm. The zero values give what Linux does, which waits up to 77 seconds
	// for a host that isn't there; a context may end that earlier.
	PacketLifetime  uint8 // 4.096 µs × 2^n; 0: 16
	ResponseTimeout uint8 // 4.096 µs × 2^n; 0: 20
	MaxRetries      uint8 // 0: 15
}

// Dial asks the program that listens at an address for a connection, and returns it when it is there: the QP is in RTS.
// A peer whose path MTU is less is asked again with that. After an error the QP is in INIT, or in ERR when it failed late.
func Dial(ctx context.Context, d *verbs.Device, to netip.AddrPort, o DialOptions) (*Conn, error) {
	asked := o
	c, err := dial(ctx, d, to, &asked)
	var r *RejectedError
	for errors.As(err, &r) && r.Reason == cm.RejInvalidMTU && len(r.Info) == 1 && ib.MTU(r.Info[0]).Valid() && ib.MTU(r.Info[0]) < asked.Connect.PathMTU {
		o.Connect.PathMTU = ib.MTU(r.Info[0])
		asked = o
		c, err = dial(ctx, d, to, &asked)
	}
	if err != nil {
		return nil, fmt.Errorf("rdmacm: %s: dial %v: %w", d.Name(), to, err)
	}
	return c, nil
}

// dial asks once.
func dial(ctx context.Context, d *verbs.Device, to netip.AddrPort, o *DialOptions) (*Conn, error) {
	if err := o.prepare(d); err != nil {
		return nil, err
	}
	r, index, err := request(d, to, o.LocalAddr, o.Private, cm.TCP, cm.MaxREQPrivate)
	if err != nil {
		return nil, err
	}
	end, err := o.QP.Endpoint(index)
	if err != nil {
		return nil, err
	}
	p := &o.Connect
	r.Transport, r.QPN, r.PSN, r.PathMTU = transport(o.QP), end.QPN, end.PSN, p.PathMTU
	r.ResponderResources, r.InitiatorDepth, r.RetryCount, r.RNRRetry = p.MaxDestRdAtomic, p.MaxRdAtomic, p.RetryCnt, p.RNRRetry
	r.TrafficClass, r.FlowLabel = p.TClass, p.FlowLabel
	r.PacketLifetime, r.ResponseTimeout, r.MaxRetries = o.PacketLifetime, o.ResponseTimeout, o.MaxRetries
	a, err := use(d)
	if err != nil {
		return nil, err
	}
	c := newConn(a, &o.Options)
	c.local, c.remote = addrs(r)
	if err := c.ask(ctx, r, o, index); err != nil {
		c.giveUp()
		return nil, err
	}
	return c, nil
}

// ask sends the request, and connects the QP when it is accepted.
func (c *Conn) ask(ctx context.Context, r *cm.Request, o *DialOptions, index int) error {
	err := c.a.do(func(m *cm.Manager, now clock.Time) (err error) {
		if c.id, err = m.Connect(*r, now); err == nil {
			c.id.User = c
		}
		return err
	})
	if err != nil {
		return err
	}
	e, err := c.wait(ctx, cm.EventReply)
	if err != nil {
		return err
	}
	c.private = e.Private
	if err := o.connect(index, r.Remote, c.peer(), r.PSN); err != nil {
		c.a.do(func(_ *cm.Manager, now clock.Time) error { return c.id.Reject(cm.RejNoQP, nil, nil, now) })
		c.fail()
		return err
	}
	err = c.a.do(func(_ *cm.Manager, now clock.Time) error { return c.id.Ready(nil, now) })
	if err == nil {
		_, err = c.wait(ctx, cm.EventEstablished)
	}
	if err != nil {
		c.fail()
	}
	return err
}

func (c *Conn) peer() (p cm.Peer) {
	c.a.do(func(*cm.Manager, clock.Time) error { p = c.id.Peer(); return nil })
	return p
}

// giveUp forgets a connection that didn't come about.
func (c *Conn) giveUp() {
	if c.id != nil {
		c.a.do(func(_ *cm.Manager, now clock.Time) error { c.id.Abandon(now); return nil })
	}
	c.end(nil)
	c.a.leave()
}

// request makes what all requests by IP address begin with. It returns the index of the local GID.
func request(d *verbs.Device, to netip.AddrPort, local netip.Addr, private []byte, space cm.PortSpace, room int) (*cm.Request, int, error) {
	if len(private) > room-cm.IPHeaderLen {
		return nil, 0, fmt.Errorf("%w: %d bytes of private data (allowed: at most %d)", verbs.ErrInvalid, len(private), room-cm.IPHeaderLen)
	}
	index, err := localGID(d, local, to.Addr())
	if err != nil {
		return nil, 0, err
	}
	g, err := d.QueryGID(index)
	if err != nil {
		return nil, 0, err
	}
	h := cm.IPHeader{SourcePort: uint16(32768 + rand.IntN(28232)), Source: g.Addr().Unmap(), Destination: to.Addr().Unmap().WithZone("")}
	b := make([]byte, cm.IPHeaderLen, room)
	h.Put(b)
	return &cm.Request{Service: cm.IPService(space, to.Port()), Local: g, Remote: ib.GIDFromAddr(h.Destination), Private: append(b, private...)}, index, nil
}

// addrs returns the addresses of both ends of a request, as its sender sees them.
func addrs(r *cm.Request) (local, remote netip.AddrPort) {
	h, err := cm.ParseIPHeader(r.Private)
	if err != nil {
		return
	}
	_, port, _ := r.Service.IP()
	return netip.AddrPortFrom(h.Source, h.SourcePort), netip.AddrPortFrom(h.Destination, port)
}

// localGID returns the index of the address that a request comes from: the one that was asked for, or the first of the
// peer's kind; of link-local and other IPv6 addresses, each to its own.
func localGID(d *verbs.Device, local, to netip.Addr) (int, error) {
	to = to.Unmap()
	for i, g := range d.GIDs() {
		a := g.Addr().Unmap()
		switch {
		case g.IsZero() || i > 255:
		case local.IsValid():
			if a == local.Unmap().WithZone("") {
				return i, nil
			}
		case a.Is4() == to.Is4() && a.IsLinkLocalUnicast() == to.IsLinkLocalUnicast():
			return i, nil
		}
	}
	if local.IsValid() {
		return 0, fmt.Errorf("%w: %v is no address of the device (its GIDs: %v)", verbs.ErrInvalid, local, d.GIDs())
	}
	return 0, fmt.Errorf("%w: no address of the device is of the kind of %v (its GIDs: %v)", verbs.ErrInvalid, to, d.GIDs())
}
