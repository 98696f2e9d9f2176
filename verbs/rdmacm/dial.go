package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// DialOptions are how a connection is asked for. QP must be set; the other zero values work.
type DialOptions struct {
	Options
	LocalAddr netip.Addr // of this end; none: Device.SourceGID

	// How the peer is asked: see package rocev2/cm. The zero values give what Linux does, which waits up to 77 seconds
	// for a host that isn't there; a context may end that earlier.
	PacketLifetime  uint8 // the longest time of a packet on its way: 4.096 µs × 2^n, n up to 31; 0: 16, 268 ms
	ResponseTimeout uint8 // in which an answer is expected: 4.096 µs × 2^n, n up to 31; 0: 20, 4.3 s
	MaxRetries      uint8 // how often a message is sent again: up to 15; 0: 15
}

// Dial asks the program that listens at an address for a connection, and returns it when it is there: the QP is in RTS.
// A peer whose path MTU is less is asked again with that. After an error the QP is in INIT, or in ERR when it failed late.
// Errors are the context's, ErrUnreachable, a *RejectedError, or wrap verbs.ErrInvalid (options or an address that can't be, no
// address to ask from), verbs.ErrBusy (QP1 is someone else's), verbs.ErrState (the peer gave up meanwhile) or verbs.ErrClosed.
func Dial(ctx context.Context, d *verbs.Device, to netip.AddrPort, o DialOptions) (*Conn, error) {
	c, err := dial(ctx, d, to, &o)
	for m := smallerMTU(d, &o, err); m != 0; m = smallerMTU(d, &o, err) {
		o.Connect.PathMTU = m
		c, err = dial(ctx, d, to, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("rdmacm: %s: dial %v: %w", d.Name(), to, err)
	}
	return c, nil
}

// smallerMTU returns the path MTU that a refusal asks for, 0 if it asks for none that is less.
func smallerMTU(d *verbs.Device, o *DialOptions, err error) ib.MTU {
	var r *RejectedError
	if !errors.As(err, &r) || r.Reason != InvalidMTU || len(r.Info) != 1 {
		return 0
	}
	if m := ib.MTU(r.Info[0]); m.Valid() && m < o.Connect.WithDefaults(d).PathMTU {
		return m
	}
	return 0
}

// dial asks once.
func dial(ctx context.Context, d *verbs.Device, to netip.AddrPort, o *DialOptions) (*Conn, error) {
	p, err := o.prepare(d)
	if err != nil {
		return nil, err
	}
	r, err := request(d, to, o.LocalAddr, p.PKeyIndex, o.Private, cm.TCP, cm.MaxREQPrivate)
	if err != nil {
		return nil, err
	}
	end, err := o.QP.Endpoint(int(r.SGIDIndex))
	if err != nil {
		return nil, err
	}
	r.Transport, r.QPN, r.PSN, r.PathMTU, r.SRQ, r.FlowControl = transport(o.QP), end.QPN, end.PSN, p.PathMTU, hasSRQ(o.QP), givesCredits(o.QP)
	r.ResponderResources, r.InitiatorDepth, r.RetryCount, r.RNRRetry = p.MaxDestRdAtomic, p.MaxRdAtomic, p.RetryCnt, p.RNRRetry
	r.TrafficClass, r.FlowLabel = p.TClass, p.FlowLabel
	r.PacketLifetime, r.ResponseTimeout, r.MaxRetries = o.PacketLifetime, o.ResponseTimeout, o.MaxRetries
	a, err := use(d)
	if err != nil {
		return nil, err
	}
	c := newConn(a, &o.Options)
	c.local, c.remote = addrs(r)
	a.conns.Store(c, nil)
	if err := c.ask(ctx, r, o); err != nil {
		c.giveUp()
		return nil, err
	}
	return c, nil
}

// ask sends the request, and connects the QP when it is accepted.
func (c *Conn) ask(ctx context.Context, r *cm.Request, o *DialOptions) error {
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
	if err := o.connect(c.id.Path(), c.Peer(), r.PSN); err != nil {
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

// giveUp forgets a connection that didn't come about.
func (c *Conn) giveUp() {
	if c.id != nil {
		c.a.do(func(_ *cm.Manager, now clock.Time) error { c.id.Abandon(now); return nil })
	}
	c.end(nil)
	c.a.leave()
}

// request makes what all requests by IP address begin with, in the partition of a P_Key index.
func request(d *verbs.Device, to netip.AddrPort, local netip.Addr, pkeyIndex uint16, private []byte, space cm.PortSpace, room int) (*cm.Request, error) {
	if len(private) > room-cm.IPHeaderLen {
		return nil, fmt.Errorf("%w: %d bytes of private data (allowed: at most %d)", verbs.ErrInvalid, len(private), room-cm.IPHeaderLen)
	}
	if !reaches(to.Addr().Unmap()) {
		return nil, fmt.Errorf("%w: %v: no peer has such an address", verbs.ErrInvalid, to)
	}
	k, err := d.QueryPKey(int(pkeyIndex))
	if err != nil {
		return nil, err
	}
	index, err := localGID(d, local, to.Addr())
	if err != nil {
		return nil, err
	}
	g, err := d.QueryGID(index)
	if err != nil {
		return nil, err
	}
	h := cm.IPHeader{SourcePort: uint16(32768 + rand.IntN(28232)), Source: g.Addr().Unmap(), Destination: to.Addr().Unmap().WithZone("")}
	b := make([]byte, cm.IPHeaderLen, room)
	h.Put(b)
	return &cm.Request{Service: cm.IPService(space, to.Port()), Local: g, Remote: ib.GIDFromAddr(h.Destination), SGIDIndex: uint8(index), PKey: k,
		Private: append(b, private...)}, nil
}

// reaches reports whether a may be the address of one host.
func reaches(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
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

// localGID returns the index of the address that a request comes from: the one that was asked for, if one was.
func localGID(d *verbs.Device, local, to netip.Addr) (int, error) {
	if !local.IsValid() {
		return d.SourceGID(gidOf(to))
	}
	i := slices.Index(d.GIDs(), gidOf(local))
	switch {
	case gidOf(local).Is4() != gidOf(to).Is4():
		return 0, fmt.Errorf("%w: %v and %v are not of one IP version", verbs.ErrInvalid, local, to)
	case i < 0:
		return 0, fmt.Errorf("%w: %v is no address of the device (its GIDs: %v)", verbs.ErrInvalid, local, ib.GIDTable(d.GIDs()))
	}
	return i, nil
}

func gidOf(a netip.Addr) ib.GID { return ib.GIDFromAddr(a.WithZone("")) }
