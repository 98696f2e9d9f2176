package rocev2

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/internal/netif"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/xdp"
)

// NetdevOptions are the options of OpenNetdev. The zero value is right for most uses.
type NetdevOptions struct {
	Name string        // of the device; "" is the interface's
	Link LinkKind      // what frames go by
	XDP  xdp.Options   // mode, copy or zero-copy, frames, another program's map
	Spin time.Duration // see Config

	PKeys      ib.PKeyTable   // see Config
	AllowPeers []netip.Prefix // see Config

	NoCongestionControl bool      // see Config
	Congestion          cc.Params // see Config; the line's rate is the link's when it isn't given
}

// OpenNetdev opens a network interface, of the calling thread's network
// namespace, as a RoCEv2 port over AF_XDP: all its queues, its addresses and
// what follows from them. It needs root, or CAP_NET_RAW, CAP_NET_ADMIN and
// CAP_BPF. Where AF_XDP can't be had it is a port over AF_PACKET, unless o.Link
// forbids it: that needs CAP_NET_RAW. Stats tells what was got, and why.
//
// The port holds the interface for itself: a second opener, in this process or
// another one, gets an error that wraps control.ErrHeld and names the holder. So does
// who opens an interface that has packets in common with it: a bond and its slaves, or
// a VLAN and what it is above.
func OpenNetdev(ifname string, o NetdevOptions) (*Port, error) {
	d := &netdev{}
	p, err := d.open(ifname, &o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", ifname, errors.Join(err, d.Close()))
	}
	p.netdev = d
	d.watchCarrier(p.noteChange)
	d.hold.Serve(p.commands())
	return p, nil
}

// netdev is the Net over an interface, with what moves its frames.
type netdev struct {
	*netif.Interface
	hold    *control.Holder
	carrier carrier
	reasons []string // why it is no better one

	unsynced atomic.Pointer[error] // of the last sync: packets to some address don't come
	lost     atomic.Bool           // the carrier was detached
	stop     chan struct{}
	watching sync.WaitGroup

	mu     sync.Mutex
	taken  []ib.GID                            // addresses whose packets come to us
	groups []ib.GID                            // and groups, each as often as it is joined, in VLANs
	set    atomic.Pointer[map[ib.GID]struct{}] // both, for Takes
}

// open takes the interface and makes a port of it. What there is of d after an error,
// Close lets go of.
func (d *netdev) open(ifname string, o *NetdevOptions) (_ *Port, err error) {
	if d.hold, err = control.Hold(ifname); err != nil {
		return nil, err
	}
	if d.Interface, err = netif.Open(ifname); err != nil {
		return nil, err
	}
	if !d.Ethernet() {
		return nil, errors.New("it is no Ethernet interface, and its packets have no frames: open the interface that they leave by")
	}
	if err := d.checkSharers(); err != nil {
		return nil, err
	}
	if d.carrier, d.reasons, err = climb(ifname, o); err != nil {
		return nil, err
	}
	if err := d.sync(); err != nil {
		return nil, err
	}
	links, err := d.carrier.links()
	if err != nil {
		return nil, err
	}
	p, err := NewPort(d.config(links, ifname, o))
	if err != nil {
		closeLinks(links)
		return nil, err
	}
	return p, nil
}

// config is that of a port over d.
func (d *netdev) config(links []Link, ifname string, o *NetdevOptions) Config {
	c := Config{Name: cmp.Or(o.Name, ifname), Links: links, Net: d, Spin: o.Spin, PKeys: o.PKeys, AllowPeers: o.AllowPeers,
		NoCongestionControl: o.NoCongestionControl, Congestion: o.Congestion}
	if c.Congestion.LineRate == 0 {
		c.Congestion.LineRate = cc.Rate(d.carrier.speed()) * cc.Mbps
	}
	if !d.carrier.selects() {
		c.Takes = d.takes
	}
	return c
}

// checkSharers says who holds an interface that this one shares packets with: its device
// would take them from this one's, or the other way round, and no one would tell. Of two
// that are opened at once each has its hold already, so that not both are.
func (d *netdev) checkSharers() error {
	names, err := d.Sharers()
	for _, name := range names {
		who, err := control.HeldBy(name)
		if err != nil {
			return fmt.Errorf("it has packets in common with %s: %w", name, err)
		}
		if who != "" {
			return fmt.Errorf("%w: it has packets in common with %s, which is held by %s; end that, or use %s", control.ErrHeld, name, who, name)
		}
	}
	return err
}

// lookEvery is how often it is looked whether frames can come at all.
const lookEvery = 500 * time.Millisecond

// watchCarrier calls f when the carrier was detached, until Close. That is the end: the
// program is not attached again, as who forces it off wants the interface for
// something else, and would have to do so for ever.
func (d *netdev) watchCarrier(f func()) {
	d.stop = make(chan struct{})
	d.watching.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for !d.carrier.detached() {
			select {
			case <-d.stop:
				return
			case <-tick.C:
			}
		}
		d.lost.Store(true)
		f()
	})
}

// failure returns why no frames can come or go any more, or nil.
func (d *netdev) failure() error {
	switch {
	case d.Gone():
		return xdp.ErrGone
	case d.lost.Load():
		return xdp.ErrDetached
	}
	return nil
}

// takes reports whether packets to an address come to us.
func (d *netdev) takes(g ib.GID) bool {
	_, ok := (*d.set.Load())[g]
	return ok
}

// publish shows takes what is taken. Under mu.
func (d *netdev) publish() {
	set := make(map[ib.GID]struct{}, len(d.taken))
	for _, g := range slices.Concat(d.taken, d.groups) {
		set[g] = struct{}{}
	}
	d.set.Store(&set)
}

// sync makes the kernel give us packets to the present addresses, and no others.
func (d *netdev) sync() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.publish()
	gids := d.Interface.GIDs()
	for _, g := range gids {
		if !g.IsZero() && !slices.Contains(d.taken, g) {
			if e := d.carrier.AddAddr(g); e != nil {
				err = errors.Join(err, e)
				continue
			}
			d.taken = append(d.taken, g)
		}
	}
	d.taken = slices.DeleteFunc(d.taken, func(g ib.GID) bool {
		if slices.Contains(gids, g) {
			return false
		}
		e := d.carrier.RemoveAddr(g)
		err = errors.Join(err, e)
		return e == nil
	})
	return err
}

// Notify sees first that the kernel gives us packets to the addresses.
func (d *netdev) Notify(f func()) {
	d.Interface.Notify(func() {
		var failed *error
		if err := d.sync(); err != nil { // it is tried again with the next change
			failed = &err
		}
		d.unsynced.Store(failed)
		f()
	})
}

// Resolve gives the flow between two GIDs.
func (d *netdev) Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (f wire.Flow, known bool, err error) {
	if dgid.IsMulticast() {
		mac, err := d.SourceMAC(sgid.Addr(), vlan)
		return wire.Flow{SrcMAC: mac, DstMAC: wire.MulticastMAC(dgid), Src: sgid, Dst: dgid}, err == nil, err
	}
	h, known, err := d.NextHop(sgid.Addr(), vlan, dgid.Addr())
	return wire.Flow{SrcMAC: h.SrcMAC, DstMAC: h.DstMAC, Src: sgid, Dst: dgid}, known, err
}

// Known reports whether Resolve would, and asks for nothing.
func (d *netdev) Known(sgid ib.GID, vlan uint16, dgid ib.GID) bool {
	return dgid.IsMulticast() || d.NextHopKnown(sgid.Addr(), vlan, dgid.Addr())
}

// Join has the kernel join a multicast group on the interface or a VLAN above it, so
// that it speaks IGMP or MLD and lets the frames in, and has it give us the packets.
func (d *netdev) Join(group ib.GID, vlan uint16) error {
	if err := d.takeGroup(group); err != nil {
		return errors.Join(err, d.leaveGroup(group))
	}
	if err := d.Interface.Join(group.Addr(), vlan); err != nil {
		return errors.Join(err, d.leaveGroup(group))
	}
	return nil
}

// Leave undoes Join.
func (d *netdev) Leave(group ib.GID, vlan uint16) error {
	return errors.Join(d.Interface.Leave(group.Addr(), vlan), d.leaveGroup(group))
}

func (d *netdev) takeGroup(group ib.GID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.publish()
	d.groups = append(d.groups, group)
	return d.carrier.AddAddr(group)
}

func (d *netdev) leaveGroup(group ib.GID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.publish()
	if i := slices.Index(d.groups, group); i >= 0 {
		d.groups = slices.Delete(d.groups, i, i+1)
	}
	if slices.Contains(d.groups, group) {
		return nil
	}
	return d.carrier.RemoveAddr(group)
}

// MTU returns the longest IP packet that can be sent and received.
func (d *netdev) MTU() int {
	const ethernet = wire.EthernetLen + wire.VLANLen
	return min(d.Interface.MTU(), d.carrier.maxFrame()-ethernet)
}

// Close lets go of everything, also of what is half open.
func (d *netdev) Close() (err error) {
	if d.hold != nil {
		err = errors.Join(err, d.hold.Quiesce())
	}
	if d.stop != nil {
		close(d.stop)
		d.watching.Wait()
	}
	if d.Interface != nil {
		err = errors.Join(err, d.Interface.Close())
	}
	if d.carrier != nil {
		err = errors.Join(err, d.carrier.Close())
	}
	if d.hold != nil { // last: the next holder may open right away
		err = errors.Join(err, d.hold.Close())
	}
	return err
}
