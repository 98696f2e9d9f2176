package rocev2

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// path is how a QP's packets reach its peer, and what that was made of.
type path struct {
	set        bool // the QP has an address vector
	known      bool // the next hop is known
	sgid, dgid ib.GID
	flow       wire.Flow
}

// checkAttr says what of a the Port can't do, and returns the address vector
// with its defaults filled in.
func (p *Port) checkAttr(a *qp.Attr, mask qp.AttrMask) (qp.AV, error) {
	if active := p.ActiveMTU(); mask&qp.AttrPathMTU != 0 && a.PathMTU.Valid() && a.PathMTU > active {
		return a.AV, fmt.Errorf("path MTU %v is above the active MTU %v: the interface's MTU is %d bytes, and a path MTU of %v needs %d",
			a.PathMTU, active, p.net.MTU(), a.PathMTU, a.PathMTU.Bytes()+ib.RoCEOverhead)
	}
	av := a.AV
	if mask&qp.AttrAV == 0 {
		return av, nil
	}
	if av.HopLimit == 0 {
		av.HopLimit = 64
	}
	return av, p.checkAV(&av)
}

func (p *Port) checkAV(av *qp.AV) error {
	gids := p.net.GIDs()
	switch {
	case int(av.SGIDIndex) >= len(gids) || gids[av.SGIDIndex].IsZero():
		return fmt.Errorf("SGID index %d has no GID: the port has %s", av.SGIDIndex, describeGIDs(gids))
	case av.DGID.IsZero():
		return fmt.Errorf("the address vector has no DGID: RoCE needs one (is_global)")
	case av.DGID.IsMulticast():
		return fmt.Errorf("DGID %v is a multicast group: a connection has one peer", av.DGID)
	case av.DGID.Is4() != gids[av.SGIDIndex].Is4():
		return fmt.Errorf("DGID %v and source GID %v (index %d) are not of one IP version: choose another SGID index of %s",
			av.DGID, gids[av.SGIDIndex], av.SGIDIndex, describeGIDs(gids))
	case av.FlowLabel > 0xfffff:
		return fmt.Errorf("flow label 0x%x: it has 20 bits", av.FlowLabel)
	case av.Port > 1:
		return fmt.Errorf("port %d in the address vector: the device has port 1 only", av.Port)
	}
	return nil
}

// describeGIDs lists the indices that are in use.
func describeGIDs(gids []ib.GID) string {
	var s string
	for i, g := range gids {
		if !g.IsZero() {
			s += fmt.Sprintf(", %d: %v", i, g)
		}
	}
	if s == "" {
		return "no GIDs (has the interface an address, and is it up?)"
	}
	return "GIDs " + s[2:]
}

// findPath resolves the QP's address vector. The caller holds the token.
func (q *QP) findPath() {
	a := q.core.Query()
	gids := q.worker.port.net.GIDs()
	q.path = path{set: true, dgid: a.AV.DGID}
	if int(a.AV.SGIDIndex) < len(gids) {
		q.path.sgid = gids[a.AV.SGIDIndex]
	}
	flow, known, _ := q.worker.port.resolve(q.path.sgid, q.path.dgid)
	q.usePath(&a, flow, known)
}

// usePath makes the headers of q's packets of flow, which has only addresses
// when the next hop isn't known.
func (q *QP) usePath(a *qp.Attr, flow wire.Flow, known bool) {
	flow.Src, flow.Dst = q.path.sgid, q.path.dgid
	flow.TClass, flow.FlowLabel, flow.HopLimit = a.AV.TClass, a.AV.FlowLabel, a.AV.HopLimit
	flow.SrcPort = wire.SourcePort(flow.FlowLabel, q.number, a.DestQPN)
	q.path.flow, q.path.known = flow, known
	q.template.Set(&flow)
	side := sideWire
	if q.worker.port.owns(q.path.dgid) {
		side = sideLoop
	}
	if side != q.side {
		q.worker.deactivate(q)
		q.side = side
	}
	if known {
		q.core.SetPath(&q.template)
	} else {
		q.core.SetPath(nil)
		q.worker.port.parked.Store(true)
	}
	q.worker.activate(q)
}

func (q *QP) forgetPath() {
	q.path = path{}
	q.template = wire.Template{}
	q.core.SetPath(nil)
}

// refreshPath follows a change of addresses, routes or neighbours. A next hop
// that is no longer confirmed stays in use: it may well be there.
func (q *QP) refreshPath() {
	if !q.path.set {
		return
	}
	flow, known, err := q.worker.port.resolve(q.path.sgid, q.path.dgid)
	old := &q.path.flow
	switch {
	case err != nil && q.path.known: // the address is gone, or there is no route
		a := q.core.Query()
		q.usePath(&a, wire.Flow{}, false)
	case known && (!q.path.known || flow.SrcMAC != old.SrcMAC || flow.DstMAC != old.DstMAC || flow.VLAN != old.VLAN):
		a := q.core.Query()
		q.usePath(&a, flow, true)
	case !q.path.known:
		q.worker.port.parked.Store(true)
	}
}

// resolve finds the flow between two GIDs. Between the Port's own there is no
// next hop to be known.
func (p *Port) resolve(sgid, dgid ib.GID) (wire.Flow, bool, error) {
	if p.owns(dgid) && p.owns(sgid) {
		return wire.Flow{Src: sgid, Dst: dgid}, true, nil
	}
	return p.net.Resolve(sgid, dgid)
}

// owns reports whether g is one of the Port's addresses.
func (p *Port) owns(g ib.GID) bool {
	if g.IsZero() {
		return false
	}
	for _, own := range p.net.GIDs() {
		if own == g {
			return true
		}
	}
	return false
}

// refresh follows changes of the network, for each QP under its worker's token.
func (p *Port) refresh() {
	p.parked.Store(false)
	for _, w := range p.workers {
		w.control(func() {
			for q := range w.qps {
				q.refreshPath()
			}
		})
	}
}
