package sa

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/topo"
)

// respTime is how long an answer takes at most: 4.096 µs * 2^16 (IBA 13.4.8.1).
const respTime = 16

func classPortInfo(q *query) mad.Status {
	c := make(mad.ClassPortInfo, q.layout.Size)
	c.SetBaseVersion(1)
	c.SetClassVersion(2)
	c.SetRespTimeValue(respTime)
	q.append(c)
	return mad.StatusOK
}

// eachEnd calls f for the end ports that have a LID.
func (q *query) eachEnd(f func(port int32)) {
	for i := range q.snap.Fabric.Ports {
		if p := &q.snap.Fabric.Ports[i]; q.snap.Fabric.EndPort(int32(i)) && p.LID != 0 && !q.full() {
			f(int32(i))
		}
	}
}

func nodeRecords(q *query) mad.Status {
	q.eachEnd(func(port int32) {
		p := &q.snap.Fabric.Ports[port]
		r := make(mad.NodeRecord, q.layout.Size)
		r.SetLID(p.LID)
		info := r.NodeInfo()
		copy(info, q.snap.NodeInfo[p.Node])
		info.SetPortGUID(p.GUID)
		info.SetLocalPortNum(p.Num)
		r.SetDescription(q.snap.Desc[p.Node])
		q.add(r)
	})
	return q.done()
}

// matchCapabilities, in the modifier of PortInfoRecord, asks for ports that
// have at least the capabilities named rather than exactly them (IBA 15.2.5.3).
const matchCapabilities = 1 << 31

func portInfoRecords(q *query) mad.Status {
	var caps mad.CapabilityMask
	if q.m.Modifier()&matchCapabilities != 0 && q.has("CapabilityMask") {
		caps = mad.PortInfoRecord(q.m.Data()).PortInfo().CapabilityMask()
		q.mask &^= 1 << q.layout.Component("CapabilityMask")
	}
	f := q.snap.Fabric
	for i := range f.Ports {
		info := q.snap.PortInfo[i]
		if info == nil || q.full() || caps&^info.CapabilityMask() != 0 {
			continue
		}
		r := make(mad.PortInfoRecord, q.layout.Size)
		r.SetEndportLID(lidOf(f, int32(i)))
		r.SetPortNum(f.Ports[i].Num)
		copy(r.PortInfo(), info)
		r.PortInfo().SetMKey(0) // IBA 15.2.5.3: only for who may know it.
		q.add(r)
	}
	return q.done()
}

// lidOf returns the LID by which a port is reached: a switch's are at port 0.
func lidOf(f *topo.Fabric, port int32) ib.LID {
	if n := f.Ports[port].Node; f.Nodes[n].Type == topo.Switch {
		return f.NodePorts(n)[0].LID
	}
	return f.Ports[port].LID
}

func switchInfoRecords(q *query) mad.Status {
	for i, info := range q.snap.SwitchInfo {
		if info == nil || q.full() {
			continue
		}
		r := make(mad.SwitchInfoRecord, q.layout.Size)
		r.SetLID(q.snap.Fabric.NodePorts(int32(i))[0].LID)
		copy(r.SwitchInfo(), info)
		q.add(r)
	}
	return q.done()
}

func linkRecords(q *query) mad.Status {
	f := q.snap.Fabric
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == topo.None || q.full() {
			continue
		}
		r := make(mad.LinkRecord, q.layout.Size)
		r.SetFromLID(lidOf(f, int32(i)))
		r.SetFromPort(p.Num)
		r.SetToLID(lidOf(f, p.Peer))
		r.SetToPort(f.Ports[p.Peer].Num)
		q.add(r)
	}
	return q.done()
}

func smInfoRecords(q *query) mad.Status {
	s := q.snap
	r := make(mad.SMInfoRecord, (q.layout.Size+7)&^7)
	r.SetLID(s.SMLID)
	info := r.SMInfo()
	info.SetGUID(s.Fabric.Ports[s.SMPort].GUID)
	info.SetPriority(s.SMPriority)
	info.SetSMState(s.SMState)
	q.add(r)
	return q.done()
}

func linearFTRecords(q *query) mad.Status {
	if q.snap.Routing == nil {
		return q.done()
	}
	g := q.snap.Routing.Graph
	for sw, table := range q.snap.Routing.LFT {
		node := q.snap.Fabric.Node(g.GUID[sw])
		if node == topo.None {
			continue
		}
		for b := 0; b*route.BlockSize < len(table) && !q.full(); b++ {
			r := make(mad.LinearForwardingTableRecord, q.layout.Size)
			r.SetLID(q.snap.Fabric.NodePorts(node)[0].LID)
			r.SetBlockNum(uint16(b))
			copy(r.Table(), table[b*route.BlockSize:(b+1)*route.BlockSize])
			q.add(r)
		}
	}
	return q.done()
}
