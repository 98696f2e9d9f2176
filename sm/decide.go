package sm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/lid"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/topo"
)

// discovered ends the search: what was found is turned into a fabric, gets its
// LIDs and its routing, and the requests that bring it there are queued.
func (m *Manager) discovered(now clock.Time) {
	if m.self == nil || m.self.info == nil || m.self.n.silent != "" {
		m.lost(now)
		return
	}
	if len(m.dirty) > 0 {
		m.refreshDirty() // reported since this sweep began
		return
	}
	reached := m.prune()
	if m.askSilent(reached) {
		return
	}
	if !m.heavy && !m.changed && m.snapshot != nil && len(m.snapshot.Missing) == 0 {
		m.phase = idle
		m.retryAt(now)
		return
	}
	if m.outranked(now) {
		return
	}
	if m.state != mad.SMMaster {
		m.state = mad.SMMaster
		m.report(LevelSys, "state", "Entering MASTER state")
	}
	m.missing(reached)
	m.assignLIDs(reached)
	m.build(reached)
	m.avoid(m.fabric)
	m.routeAll()
	m.phase = configuring
	m.lftBlocks = 0
	m.configure(reached)
}

// lost ends a sweep in which not even our own port answered.
func (m *Manager) lost(now clock.Time) {
	m.phase = idle
	m.retryAt(now)
}

// prune returns the nodes that are connected to us, nearest first, gives each
// the best route there is, and marks the others as gone.
func (m *Manager) prune() (order []*node) {
	seen := map[*node]bool{}
	path := map[*node][]byte{}
	m.ways(func(n *node, by *port) {
		seen[n] = true
		path[n] = extend(path, by)
		n.path = path[n]
		order = append(order, n)
	})
	m.leave(seen)
	return order
}

// leave marks nodes that are connected no more, and says which.
func (m *Manager) leave(seen map[*node]bool) {
	var left []string
	for _, g := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[g]
		if seen[n] {
			continue
		}
		if !n.gone && n.asked && !m.heavy || n.gone && m.snapshot != nil && m.snapshot.Fabric.Node(g) != topo.None {
			m.infof("discover", "%s left the subnet", n.name())
			m.changed = true
			left = append(left, n.name())
		}
		n.gone, n.asked = true, false
		for i := range n.ports {
			n.ports[i].disconnect()
		}
	}
	if more := len(left) - namedProblems; more > 0 {
		left = append(left[:namedProblems], fmt.Sprintf("and %d more", more))
	}
	if len(left) > 0 {
		m.errorf("6008", "discover", "cut off: %s", strings.Join(left, ", "))
	}
}

// missing notes who is there and can't be managed.
func (m *Manager) missing(reached []*node) {
	for _, n := range reached {
		if n.silent != "" {
			m.problem(n.name() + " " + n.silent)
			continue
		}
		for i := range n.ports {
			p := &n.ports[i]
			switch {
			case p.dead && p.up():
				m.problem("a node behind " + p.name() + " does not answer")
				m.probes = append(m.probes, p)
			case p.peer != nil && p.info == nil:
				m.problem(p.name() + " does not tell its state")
			}
		}
	}
}

// managed reports whether a node takes part: it was read in full.
func managed(n *node) bool {
	if n.silent != "" || n.gone {
		return false
	}
	if n.isSwitch() {
		return n.sw != nil && n.ports[0].info != nil
	}
	return true
}

// assignLIDs gives every end port its LIDs.
func (m *Manager) assignLIDs(reached []*node) {
	var wants []lid.Want
	owner := make(map[ib.GUID]*port)
	for _, p := range endPorts(reached) {
		if p.guid == 0 {
			m.problem(p.name() + " has no GUID, and so gets no LID")
			continue
		}
		if first := owner[p.guid]; first != nil {
			m.portClash(first, p)
			continue
		}
		owner[p.guid] = p
		w := lid.Want{GUID: p.guid, Have: p.info.LID()}
		if !p.n.isSwitch() {
			w.LMC = m.cfg.LMC
		}
		if m.cfg.ReassignLIDs && !m.master || p.info.LMC() != w.LMC {
			w.Have = 0
		}
		wants = append(wants, w)
	}
	notes, err := m.cfg.LIDs.Assign(wants)
	for _, n := range notes {
		m.infof("lid", "%s", n)
	}
	if err != nil {
		m.errorf("6007", "lid", "%v", err)
		m.problem(err.Error())
	}
}

// portClash tells of two ports that would share their LIDs, as these go by GUID.
func (m *Manager) portClash(a, b *port) {
	text := fmt.Sprintf("port GUID 0x%016x is in the subnet twice: %s and %s", uint64(b.guid), a.name(), b.name())
	m.errorf("6005", "lid", "%s", text)
	m.problem(text)
}

// endPorts lists the end ports that are managed, in the order of nodes.
func endPorts(nodes []*node) (ports []*port) {
	for _, n := range nodes {
		if !managed(n) {
			continue
		}
		for i := range n.ports {
			if p := &n.ports[i]; p.end() && p.info != nil && (p.num == 0 || p.peer != nil || p.up()) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// build makes the fabric of what was found.
func (m *Manager) build(reached []*node) {
	f := &topo.Fabric{}
	id := make(map[*node]int32, len(reached))
	for _, n := range reached {
		if !managed(n) {
			continue
		}
		i, err := f.AddNode(topo.Node{
			GUID: n.guid(), SystemGUID: n.info.SystemImageGUID(), Type: topo.NodeType(n.info.NodeType()), NumPorts: n.info.NumPorts(),
			Desc: n.title(), VendorID: n.info.VendorID(), DeviceID: n.info.DeviceID(), Revision: n.info.Revision(),
		})
		if err != nil {
			m.problem(err.Error())
			continue
		}
		id[n] = i
		m.buildPorts(f, n, i)
	}
	for n, i := range id {
		for j := range n.ports {
			p := &n.ports[j]
			if p.peer == nil || p.info == nil || p.peer.info == nil {
				continue
			}
			if k, ok := id[p.peer.n]; ok {
				a, b := f.Port(i, p.num), f.Port(k, p.peer.num)
				if f.Ports[a].Peer == topo.None && f.Ports[b].Peer == topo.None {
					_ = f.Connect(a, b) // cannot fail: neither has a link, and no port is its own peer
				}
			}
		}
	}
	m.fabric = f
}

func (m *Manager) buildPorts(f *topo.Fabric, n *node, i int32) {
	ports := f.NodePorts(i)
	for j := range n.ports {
		p, q := &n.ports[j], &ports[j]
		q.GUID = p.guid
		if n.isSwitch() {
			q.GUID = n.ports[0].guid
		}
		if p.info == nil {
			continue
		}
		q.State = p.info.PortState()
		q.Width, q.Speed, q.SpeedExt = p.info.LinkWidthActive(), p.info.LinkSpeedActive(), p.info.LinkSpeedExtActive()
		q.CapMask = uint32(p.info.CapabilityMask())
		q.MTU, q.VLs = m.linkMTU(p), vlCount(m.linkVLs(p))
		if !p.end() {
			continue
		}
		if r, ok := m.cfg.LIDs.Get(p.guid); ok && p.guid != 0 {
			q.LID = r.Min
			q.LMC = uint8(log2(r.Size()))
		}
	}
}

func log2(n int) (k int) {
	for n > 1 {
		n >>= 1
		k++
	}
	return k
}

// linkMTU returns the MTU that both ends of p's link can take.
func (m *Manager) linkMTU(p *port) ib.MTU {
	mtu := p.info.MTUCap()
	if p.peer != nil && p.peer.info != nil {
		mtu = min(mtu, p.peer.info.MTUCap())
	}
	return mtu
}

// linkVLs returns the OperationalVLs of p's link, in their encoding.
func (m *Manager) linkVLs(p *port) uint8 {
	vls := min(max(1, p.info.VLCap()), m.cfg.MaxOpVLs)
	if p.peer != nil && p.peer.info != nil {
		vls = min(vls, max(1, p.peer.info.VLCap()))
	}
	return vls
}

// vlCount decodes OperationalVLs (IBA 14.2.5.6).
func vlCount(enc uint8) uint8 {
	if enc == 0 || enc > 5 {
		return 1
	}
	return [...]uint8{1, 2, 4, 8, 15}[enc-1]
}

// routeAll routes the fabric: it repairs the routing there is, or else makes
// another.
func (m *Manager) routeAll() {
	g := topo.NewGraph(m.fabric)
	if g.Switches() == 0 {
		m.routing = nil
		return
	}
	o := m.cfg.Routing
	o.Lanes = laneLimit(g)
	if m.routing != nil && m.repair(o.Lanes) {
		return
	}
	r, err := route.Compute(g, m.cfg.Engines, o)
	if err != nil {
		m.errorf("6010", "route", "%v", err)
		m.problem(err.Error())
		return
	}
	m.tellRouting(r)
	m.routing = r
}

// repair adapts the routing to what came and went, and reports whether it could.
func (m *Manager) repair(lanes int) bool {
	if m.routing.Lanes > lanes {
		m.infof("route", "all is routed anew: links have %d lanes now, and %d are in use", lanes, m.routing.Lanes)
		return false
	}
	r, err := route.Repair(m.routing, m.fabric)
	if err != nil {
		m.infof("route", "all is routed anew: %v", err)
		return false
	}
	if m.routing = r; r.Rerouted > 0 {
		m.infof("route", "%s tables repaired: ways to %d of %d LIDs looked at, %d LFT blocks changed: %v",
			r.Engine, r.Rerouted, len(r.Graph.Dests), r.Blocks, r.Report)
	}
	return true
}

func (m *Manager) tellRouting(r *route.Result) {
	if len(m.cfg.Engines) > 0 {
		for _, why := range r.Refused {
			m.errorf("6011", "route", "%v", why)
		}
		if len(r.Refused) > 0 {
			m.errorf("6012", "route", "the subnet is routed by %s instead", r.Engine)
		}
	}
	if err := r.Report.Err(); err != nil {
		m.errorf("6013", "route", "%v", err)
		m.problem(err.Error())
	}
	for _, n := range r.Notes {
		m.infof("route", "%s: %s", r.Engine, n)
	}
	m.infof("route", "%s tables configured on all switches: %v", r.Engine, r.Report)
}

// laneLimit returns the number of VLs that every link between switches has.
func laneLimit(g *topo.Graph) int {
	least := uint8(route.MaxLanes)
	for e := range g.To {
		p := g.Fabric.Port(g.Node[g.From[e]], g.Port[e])
		least = min(least, max(1, g.Fabric.Ports[p].VLs))
	}
	return int(least)
}
