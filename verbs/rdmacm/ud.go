package rdmacm

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// QKeyUDP is the Q_Key of datagram QPs in the UDP port space, as librdmacm has it.
const QKeyUDP ib.QKey = 0x01234567

// ResolveOptions are how a datagram QP is asked for. The zero value works.
type ResolveOptions struct {
	LocalAddr netip.Addr // of this end; none: Device.SourceGID
	PKeyIndex uint16     // of the partition, in PortAttr.PKeyTable: that of the QP that the datagrams are to go by
	Private   []byte     // for the peer's program: at most 180 bytes

	// See DialOptions.
	PacketLifetime, ResponseTimeout, MaxRetries uint8
}

// Destination is where a datagram service is.
type Destination struct {
	AV      verbs.AV // for an AH
	QPN     ib.QPN   // 24 bits
	QKey    ib.QKey  // of the QP there
	Private []byte   // what the peer's program says: 136 bytes, 0 where it said nothing
}

// ResolveUD asks the program that listens at an address (ListenUD) for its datagram QP. Errors are those of Dial; a refusal
// has a Status and no Reason.
func ResolveUD(ctx context.Context, d *verbs.Device, to netip.AddrPort, o ResolveOptions) (Destination, error) {
	r, err := request(d, to, o.LocalAddr, o.PKeyIndex, o.Private, cm.UDP, cm.MaxSIDRREQPrivate)
	if err == nil {
		r.PacketLifetime, r.ResponseTimeout, r.MaxRetries = o.PacketLifetime, o.ResponseTimeout, o.MaxRetries
		var dest Destination
		if dest, err = resolve(ctx, d, r); err == nil {
			dest.AV = verbs.AV{DGID: r.Remote, SGIDIndex: r.SGIDIndex, Port: 1}
			return dest, nil
		}
	}
	return Destination{}, fmt.Errorf("rdmacm: %s: resolve %v: %w", d.Name(), to, err)
}

func resolve(ctx context.Context, d *verbs.Device, r *cm.Request) (Destination, error) {
	a, err := use(d)
	if err != nil {
		return Destination{}, err
	}
	c := newConn(a, &Options{})
	a.conns.Store(c, nil)
	defer c.giveUp()
	err = a.do(func(m *cm.Manager, now clock.Time) (err error) {
		if c.id, err = m.Resolve(*r, now); err == nil {
			c.id.User = c
		}
		return err
	})
	if err != nil {
		return Destination{}, err
	}
	e, err := c.wait(ctx, cm.EventSIDRReply)
	if err == nil && e.Status != cm.SIDRValid {
		err = rejection(&e)
	}
	p := c.Peer()
	return Destination{QPN: p.QPN, QKey: p.QKey, Private: e.Private}, err
}
