package fabric

import (
	"fmt"
	"math/bits"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// Link connects two ports and brings the link up.
func (f *Fabric) Link(a *Node, aPort int, b *Node, bPort int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := a.checkPort(aPort)
	if err != nil {
		return err
	}
	q, err := b.checkPort(bPort)
	if err != nil {
		return err
	}
	switch {
	case p == q:
		return fmt.Errorf("fabric: port %v is linked to itself", p)
	case p.peer != nil:
		return fmt.Errorf("fabric: port %v is linked to %v already", p, p.peer)
	case q.peer != nil:
		return fmt.Errorf("fabric: port %v is linked to %v already", q, q.peer)
	}
	p.peer, q.peer = q, p
	p.train()
	f.sendChanges()
	return nil
}

// Unlink takes the link of a port down until Relink.
func (n *Node) Unlink(num int) error { return n.setCut(num, true) }

// Relink brings a link up that Unlink took down.
func (n *Node) Relink(num int) error { return n.setCut(num, false) }

func (n *Node) setCut(num int, cut bool) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	p, err := n.checkPort(num)
	if err != nil {
		return err
	}
	if p.peer == nil {
		return fmt.Errorf("fabric: port %v has no link", p)
	}
	p.cut, p.peer.cut = cut, cut
	p.train()
	n.f.sendChanges()
	return nil
}

// Fail makes a node go dark: its links go down, and it answers nothing.
func (n *Node) Fail() {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.down = true
	n.trainAll()
}

// Return powers a node up after Fail. It remembers nothing of what it was told.
func (n *Node) Return() {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.down {
		n.down = false
		n.reset()
		n.markSM()
		n.trainAll()
	}
}

// Failed reports whether the node is dark.
func (n *Node) Failed() bool {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.down
}

func (n *Node) trainAll() {
	for i := range n.ports {
		if i > 0 {
			n.ports[i].train()
		}
	}
	n.f.sendChanges()
}

// train brings both ends of a link to the state that the link can have.
func (p *port) train() {
	q := p.peer
	if q == nil {
		return
	}
	width, speed, ext, up := negotiate(p, q)
	for _, e := range [2]*port{p, q} {
		pi := e.pi()
		was := pi.PortState() != ib.PortDown
		switch {
		case up && !was:
			pi.SetPortState(ib.PortInit)
			pi.SetPortPhysicalState(mad.PhysLinkUp)
			pi.SetLinkWidthActive(width)
			pi.SetLinkSpeedActive(speed)
			pi.SetLinkSpeedExtActive(ext)
			e.count(linkErrorRecoveryCounter, 0)
		case !up && was:
			pi.SetPortState(ib.PortDown)
			e.count(linkDownedCounter, 1)
		}
		if !up && pi.PortPhysicalState() != mad.PhysDisabled {
			pi.SetPortPhysicalState(mad.PhysPolling)
		}
		if up != was {
			e.node.stateChanged()
		}
	}
}

// bounce takes a link down and lets it train anew, as an SM's Set of PortState
// to Down does.
func (p *port) bounce() {
	if p.peer == nil || p.pi().PortState() == ib.PortDown {
		return
	}
	for _, e := range [2]*port{p, p.peer} {
		e.pi().SetPortState(ib.PortDown)
		e.count(linkDownedCounter, 1)
	}
	p.train()
}

// negotiate returns what two ports have in common, and whether a link can be.
func negotiate(p, q *port) (width, speed, ext uint8, up bool) {
	a, b := p.pi(), q.pi()
	up = !p.cut && !q.cut && !p.node.down && !q.node.down &&
		a.PortPhysicalState() != mad.PhysDisabled && b.PortPhysicalState() != mad.PhysDisabled
	width = highest(a.LinkWidthEnabled() & b.LinkWidthEnabled())
	speed = highest(a.LinkSpeedEnabled() & b.LinkSpeedEnabled())
	ext = highest(a.LinkSpeedExtEnabled() & b.LinkSpeedExtEnabled())
	return width, speed, ext, up && width != 0 && speed != 0
}

func highest(mask uint8) uint8 {
	if mask == 0 {
		return 0
	}
	return 1 << (bits.Len8(mask) - 1)
}

// carries reports whether a port's link takes packets at all: those of subnet
// management pass in every state but down (IBA 7.2.7).
func (p *port) carries() bool {
	return p.peer != nil && p.pi().PortState() >= ib.PortInit && p.peer.pi().PortState() >= ib.PortInit
}

// stateChanged notes that a link of a switch came or went by itself (IBA
// 14.2.5.4: PortStateChange).
func (n *Node) stateChanged() {
	if !n.isSwitch() || n.down {
		return
	}
	n.sw.si().SetPortStateChange(true)
	for _, c := range n.f.changed {
		if c == n {
			return
		}
	}
	n.f.changed = append(n.f.changed, n)
}

// sendChanges sends trap 128 of each switch whose links changed.
func (f *Fabric) sendChanges() {
	for len(f.changed) > 0 {
		n := f.changed[0]
		f.changed = f.changed[1:]
		n.trapLinkState()
	}
	f.changed = nil
}
