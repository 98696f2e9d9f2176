package sm

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/route"
)

// node is a node as its answers describe it.
type node struct {
	info  mad.NodeInfo
	desc  string         // its own description
	alias string         // the operator's name for it; empty if none
	sw    mad.SwitchInfo // of switches; nil until read
	path  []byte         // directed route to it

	ports []port // from 0
	lft   lftCopy

	gone   bool       // not reached by this sweep
	silent string     // why it is given up; empty while it answers
	asked  bool       // what it is has been asked for
	order  int        // in which it was found
	seen   clock.Time // when a way to it was last found by reroute
}

// port is a port as its answers describe it.
type port struct {
	n    *node
	num  uint8
	guid ib.GUID      // of an end port that packets came in by; 0 until then
	info mad.PortInfo // nil until read
	peer *port
	key  uint64  // its M_Key, as far as known
	took setting // what came of the last Set of its PortInfo

	probing bool // NodeInfo behind it is under way
	dead    bool // the link is up, and nobody answers there

	lanes uint8 // number of lanes that SLtoVL and VL arbitration were set for; 0 is never
	pkeys []ib.PKey
}

// lftCopy is what a switch's forwarding table is known to hold.
type lftCopy struct {
	port  []uint8
	known []bool // by block
}

// differs reports whether block b of the switch's table is unlike want's.
func (l *lftCopy) differs(b int, want []uint8) bool {
	if b >= len(l.known) || !l.known[b] {
		return true
	}
	at := b * route.BlockSize
	return string(l.port[at:at+route.BlockSize]) != string(want[at:at+route.BlockSize])
}

func (l *lftCopy) learn(b int, block []byte) {
	for b >= len(l.known) {
		l.known = append(l.known, false)
		l.port = append(l.port, make([]uint8, route.BlockSize)...)
	}
	copy(l.port[b*route.BlockSize:], block)
	l.known[b] = true
}

func newNode(info mad.NodeInfo, path []byte) *node {
	n := &node{info: append(mad.NodeInfo(nil), info...), path: path}
	n.ports = make([]port, int(info.NumPorts())+1)
	for i := range n.ports {
		n.ports[i].n, n.ports[i].num = n, uint8(i)
	}
	return n
}

func (n *node) isSwitch() bool { return n.info.NodeType() == mad.NodeSwitch }
func (n *node) guid() ib.GUID  { return n.info.NodeGUID() }

// name gives the node for messages.
func (n *node) name() string {
	if n.title() == "" {
		return fmt.Sprintf("node 0x%016x", uint64(n.guid()))
	}
	return fmt.Sprintf("%q (0x%016x)", n.title(), uint64(n.guid()))
}

// title is the name that people know the node by.
func (n *node) title() string {
	if n.alias != "" {
		return n.alias
	}
	return n.desc
}

func (p *port) name() string { return fmt.Sprintf("%s port %d", p.n.name(), p.num) }

// port returns a port by number, or nil.
func (n *node) port(num uint8) *port {
	if int(num) >= len(n.ports) {
		return nil
	}
	return &n.ports[num]
}

// end reports whether p holds LIDs.
func (p *port) end() bool { return p.n.isSwitch() == (p.num == 0) }

// caps returns the capabilities that hold for p: those of port 0 in a switch.
func (p *port) caps() mad.CapabilityMask {
	if p.n.isSwitch() {
		p = &p.n.ports[0]
	}
	if p.info == nil {
		return 0
	}
	return p.info.CapabilityMask()
}

// up reports whether the link of p carries packets, management at least.
func (p *port) up() bool {
	return p.info != nil && p.info.PortState() >= ib.PortInit
}

// disconnect forgets the link of p at both ends.
func (p *port) disconnect() {
	if p.peer != nil {
		p.peer.peer = nil
		p.peer = nil
	}
}
