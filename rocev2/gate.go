package rocev2

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/urxe/urxe/rocev2/wire"
)

// allowList is the peers whose packets are taken.
type allowList struct{ prefixes []netip.Prefix }

// SetAllowPeers makes the port drop, from now on and before anything else is looked
// at, packets whose source address is in none of the prefixes; they are counted as
// wire.DropNotPeer. An empty list allows all. Traffic of the port with itself is not
// concerned. Requests to a peer that isn't allowed end by their timers. The error says
// which of the list is no prefix.
func (p *Port) SetAllowPeers(list []netip.Prefix) error {
	a, err := newAllowList(list)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	p.allow.Store(a)
	return nil
}

// newAllowList is nil for an empty list.
func newAllowList(list []netip.Prefix) (*allowList, error) {
	if len(list) == 0 {
		return nil, nil
	}
	a := &allowList{}
	for _, x := range list {
		if x.Addr().Is4In6() && x.Bits() >= 96 { // as GIDs have it
			x = netip.PrefixFrom(x.Addr().Unmap(), x.Bits()-96)
		}
		if !x.IsValid() {
			return nil, fmt.Errorf("allow peers: %v is no prefix, such as 10.0.0.0/8 or fd00::/16", x)
		}
		a.prefixes = append(a.prefixes, x.Masked())
	}
	return a, nil
}

// has reports whether a source address is in one of the prefixes.
func (a *allowList) has(addr []byte) bool {
	ip, _ := netip.AddrFromSlice(addr)
	for _, x := range a.prefixes {
		if x.Contains(ip) {
			return true
		}
	}
	return false
}

// gate judges packets of a worker by their addresses.
type gate struct {
	port   *Port
	list   *allowList // src is on it
	src    []byte     // packets come in runs
	admits func(*wire.Packet) wire.Verdict
}

func newGate(p *Port) gate { return gate{port: p, src: make([]byte, 0, 16)} }

// of returns what judges packets from a side, or nil if all may come.
func (g *gate) of(side uint8) func(*wire.Packet) wire.Verdict {
	if side == sideLoop || g.port.cfg.Takes == nil && g.port.allow.Load() == nil {
		return nil
	}
	if g.admits == nil {
		g.admits = g.judge
	}
	return g.admits
}

func (g *gate) judge(p *wire.Packet) wire.Verdict {
	if takes := g.port.cfg.Takes; takes != nil && !takes(p.DstGID()) {
		return wire.DropAddress
	}
	list := g.port.allow.Load()
	if list == nil || list == g.list && bytes.Equal(g.src, p.Src) {
		return wire.Accepted
	}
	if !list.has(p.Src) {
		return wire.DropNotPeer
	}
	g.list, g.src = list, append(g.src[:0], p.Src...)
	return wire.Accepted
}
