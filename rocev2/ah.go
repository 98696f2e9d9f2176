package rocev2

import (
	"fmt"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// AH is an address handle: where datagrams go, which QPs of the Port name in
// their work requests. Its path follows changes of the network.
type AH struct {
	qp.AH
	port    *Port
	av      qp.AV
	ends    ends
	hop     hop        // under port.ahMu
	gone    clock.Time // when it was destroyed; 0: it wasn't. Under port.ahMu
	srcPort uint16     // UDP
}

// CreateAH makes an address handle, to a port or a multicast group. The source
// GID index must name an address, both GIDs be of one kind, and there must be a
// route. A destination whose MAC address isn't known yet is no error: it is asked
// for, and datagrams wait.
func (p *Port) CreateAH(av qp.AV) (*AH, error) {
	if av.HopLimit == 0 {
		av.HopLimit = ib.DefaultHopLimit
	}
	if err := p.checkAV(&av); err != nil {
		return nil, fmt.Errorf("%s: create AH: %w", p.Name(), err)
	}
	a := &AH{port: p, av: av, ends: p.endsOf(&av)}
	a.Multicast = av.DGID.IsMulticast()
	h := p.resolve(a.ends)
	if h.err != nil {
		return nil, fmt.Errorf("%s: create AH: %w", p.Name(), noWay(&av, h.err))
	}
	p.ahMu.Lock()
	defer p.ahMu.Unlock()
	p.ahSerial++
	a.srcPort = spread(av.FlowLabel, p.ahSerial)
	p.ahs[a] = struct{}{}
	a.use(h)
	return a, nil
}

func noWay(av *qp.AV, why error) error { return fmt.Errorf("no way to %v: %w", av.DGID, why) }

// NextHopKnown reports whether the MAC address is known that packets of an
// address vector go to; if it isn't, it is asked for when ask is set. An error
// says why there can be no such packets.
func (p *Port) NextHopKnown(av qp.AV, ask bool) (bool, error) {
	if err := p.checkAV(&av); err != nil {
		return false, fmt.Errorf("%s: %w", p.Name(), err)
	}
	k := p.endsOf(&av)
	if !ask {
		_, local := p.loops(k)
		return local || p.net.Known(k.sgid, k.vlan, k.dgid), nil
	}
	h := p.resolve(k)
	if h.err != nil {
		return false, fmt.Errorf("%s: %w", p.Name(), noWay(&av, h.err))
	}
	return h.known, nil
}

// spread returns the UDP source port of datagrams: that of the flow label, or,
// without one, a different one for each address handle, so that switches and
// queues on the way share their load (Annex A17.5.8).
func spread(flowLabel, serial uint32) uint16 {
	if flowLabel == 0 {
		flowLabel = serial * 0x9e3779b1 >> 12
	}
	return wire.SourcePort(flowLabel, 1, 1)
}

// Destroy makes the Port forget a. Datagrams that name it may still be sent:
// while they wait for the next hop, it is looked for.
func (a *AH) Destroy() {
	a.port.ahMu.Lock()
	defer a.port.ahMu.Unlock()
	a.gone = clock.Now()
	if a.hop.known {
		delete(a.port.ahs, a)
	}
}

// forgotten reports whether nothing waits any more for the way of an address
// handle that was destroyed. Under ahMu.
func (a *AH) forgotten() bool {
	const parked = 2 * time.Second // more than a datagram waits
	return a.gone != 0 && (a.hop.known || clock.Now().Sub(a.gone) > parked)
}

// AV returns the address vector, with its defaults filled in.
func (a *AH) AV() qp.AV { return a.av }

// use takes in what is known of the way. Under ahMu.
func (a *AH) use(h hop) {
	a.hop = h
	if !h.known {
		a.SetPath(nil)
		a.port.parked.Store(true)
		return
	}
	flow := flowOf(&a.av, a.ends, &h)
	flow.SrcPort = a.srcPort
	_, local := a.port.loops(a.ends)
	path := &qp.Path{Loop: local}
	path.Set(&flow)
	a.SetPath(path)
}

// followAHs takes in what is known of the ways of all address handles.
func (p *Port) followAHs(hops map[ends]hop) {
	p.ahMu.Lock()
	defer p.ahMu.Unlock()
	for a := range p.ahs {
		h, ok := hops[a.ends]
		switch {
		case !ok: // it is new
		case h.differs(&a.hop):
			a.use(h)
		case !a.hop.known:
			p.parked.Store(true)
		}
		if a.forgotten() {
			delete(p.ahs, a)
		}
	}
}

// endsOfAHs adds the ends of all address handles.
func (p *Port) endsOfAHs(hops map[ends]hop) {
	p.ahMu.Lock()
	defer p.ahMu.Unlock()
	for a := range p.ahs {
		hops[a.ends] = hop{}
	}
}

// Handle returns what send work requests name a by.
func (a *AH) Handle() *qp.AH { return &a.AH }
