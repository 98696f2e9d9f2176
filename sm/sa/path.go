package sa

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

// end is one side of a path: a LID and the port that has it.
type end struct {
	port int32
	lid  ib.LID
}

// pathRecords finds the paths between the ends that a query names; an end that
// it does not name is every end port. All paths are reversible: the SL is the
// same both ways.
func pathRecords(q *query) mad.Status {
	want := mad.PathRecord(q.m.Data())
	src, status := q.ends("SGID", want.SGID(), "SLID", want.SLID())
	if status != mad.StatusOK {
		return status
	}
	dst, status := q.ends("DGID", want.DGID(), "DLID", want.DLID())
	if status != mad.StatusOK {
		return status
	}
	limit := 1 << 30
	if q.has("NumbPath") && want.NumbPath() > 0 {
		limit = int(want.NumbPath()) // of each pair (IBA 15.2.5.16)
	}
	if q.single {
		limit = 1
	}
	w := &walker{s: q.snap}
	for _, a := range src {
		for _, b := range dst {
			q.pair(w, a, b, want, limit)
			if q.full() {
				return q.done()
			}
		}
	}
	return q.done()
}

// ends returns the end ports that a GID or a LID names.
func (q *query) ends(gidField string, gid ib.GID, lidField string, lid ib.LID) (ends []end, status mad.Status) {
	byGID, byLID := q.has(gidField), q.has(lidField)
	s := q.snap
	switch {
	case byGID:
		port, ok := s.ByGUID[guidOf(gid)]
		if !ok || prefixOf(gid) != s.Prefix && prefixOf(gid) != 0xfe80<<48 {
			return nil, mad.StatusOK // nobody: no records
		}
		if byLID && s.ByLID[lid] != port {
			return nil, mad.StatusOK
		}
		e := end{port, s.Fabric.Ports[port].LID}
		if byLID {
			e.lid = lid
		}
		return []end{e}, mad.StatusOK
	case byLID:
		port, ok := s.ByLID[lid]
		if !ok {
			return nil, mad.StatusOK
		}
		return []end{{port, lid}}, mad.StatusOK
	}
	q.eachEnd(func(port int32) { ends = append(ends, end{port, s.Fabric.Ports[port].LID}) })
	return ends, mad.StatusOK
}

func guidOf(g ib.GID) (guid ib.GUID) {
	for _, b := range g[8:] {
		guid = guid<<8 | ib.GUID(b)
	}
	return guid
}

func prefixOf(g ib.GID) (prefix uint64) {
	for _, b := range g[:8] {
		prefix = prefix<<8 | uint64(b)
	}
	return prefix
}

func gidOf(prefix uint64, guid ib.GUID) (g ib.GID) {
	for i := range 8 {
		g[i] = byte(prefix >> (56 - 8*i))
		g[8+i] = byte(guid >> (56 - 8*i))
	}
	return g
}

// pair adds the paths between two ports: from LID to LID when the query names
// one, else from each of the LIDs that LMC gives to the one at the same place.
func (q *query) pair(w *walker, a, b end, want mad.PathRecord, limit int) {
	f := q.snap.Fabric
	n := min(1<<f.Ports[a.port].LMC, 1<<f.Ports[b.port].LMC, limit)
	if q.has("SLID") || q.has("DLID") {
		n = 1
	}
	for i := range ib.LID(n) {
		if r := q.path(w, end{a.port, a.lid + i}, end{b.port, b.lid + i}, want); r != nil {
			q.append(r)
		}
	}
}

// path returns the record of a path if there is one that suits the query.
func (q *query) path(w *walker, a, b end, want mad.PathRecord) mad.PathRecord {
	if !w.walk(a, b) {
		return nil
	}
	mtu, rate := w.mtu, w.rate
	key := q.sharedKey(a.port, b.port, want)
	sl := q.snap.SL(a.port, b.port)
	life := q.snap.PacketLifeTime
	if a.port == b.port {
		life = 0
	}
	switch {
	case key == 0:
		return nil
	case q.has("SL") && want.SL() != sl:
		return nil
	case q.has("MTUSelector") && q.has("MTU") && !selects(want.MTUSelector(), int(mtu), int(want.MTU())):
		return nil
	case q.has("RateSelector") && q.has("Rate") && !selects(want.RateSelector(), rate.Mbps(), want.Rate().Mbps()):
		return nil
	case q.has("PacketLifeTimeSelector") && q.has("PacketLifeTime") && !selects(want.PacketLifeTimeSelector(), int(life), int(want.PacketLifeTime())):
		return nil
	}
	r := make(mad.PathRecord, q.layout.Size)
	s := q.snap
	r.SetSGID(gidOf(s.Prefix, s.Fabric.Ports[a.port].GUID))
	r.SetDGID(gidOf(s.Prefix, s.Fabric.Ports[b.port].GUID))
	r.SetSLID(a.lid)
	r.SetDLID(b.lid)
	r.SetReversible(true)
	r.SetNumbPath(1)
	r.SetPKey(key)
	r.SetSL(sl)
	r.SetMTUSelector(exactly)
	r.SetMTU(mtu)
	r.SetRateSelector(exactly)
	r.SetRate(rate)
	r.SetPacketLifeTimeSelector(exactly)
	r.SetPacketLifeTime(life)
	return r
}

// What a selector asks of the value beside it (IBA 15.2.5.16).
const (
	greater = 0
	less    = 1
	exactly = 2
	largest = 3
)

func selects(selector uint8, is, want int) bool {
	switch selector {
	case greater:
		return is > want
	case less:
		return is < want
	case exactly:
		return is == want
	}
	return true
}

// sharedKey returns the first P_Key of both ports that lets them talk, or the
// one the query names if that is one; 0 is none.
func (q *query) sharedKey(a, b int32, want mad.PathRecord) ib.PKey {
	ka, kb := q.keys(a), q.keys(b)
	for _, k := range ka {
		if q.has("PKey") && (want.PKey()^k)&0x7fff != 0 {
			continue
		}
		for _, l := range kb {
			if k.Matches(l) {
				return k | l&0x8000
			}
		}
	}
	return 0
}

// keys returns the P_Keys of a port; one that was not set has the default.
func (q *query) keys(port int32) []ib.PKey {
	if k := q.snap.PKeys[port]; k != nil {
		return k
	}
	return []ib.PKey{ib.PKeyDefault}
}

// walker follows paths through the forwarding tables, and keeps the least MTU
// and rate of the links on the way.
type walker struct {
	s    *subnet.Snapshot
	mtu  ib.MTU
	rate ib.Rate
}

// maxHops ends a walk that goes round.
const maxHops = 64

// walk goes from a to b and reports whether it arrives.
func (w *walker) walk(a, b end) bool {
	f := w.s.Fabric
	w.mtu, w.rate = ib.MTU4096, ib.Rate600Gbps
	at := a.port
	w.cross(at)
	if a.port == b.port {
		return true
	}
	if f.Nodes[f.Ports[at].Node].Type != topo.Switch {
		at = f.Ports[at].Peer
	}
	for range maxHops {
		if at == b.port {
			return true
		}
		if at == topo.None || f.Nodes[f.Ports[at].Node].Type != topo.Switch {
			return false
		}
		node := f.Ports[at].Node
		port := f.Port(node, w.out(node, b.lid))
		if port == topo.None || f.Ports[port].Num == 0 {
			return port == b.port
		}
		w.cross(port)
		at = f.Ports[port].Peer
	}
	return false
}

// out returns the port by which a switch forwards a LID, 0xff when it doesn't.
func (w *walker) out(node int32, lid ib.LID) uint8 {
	r := w.s.Routing
	if r == nil {
		return 0xff
	}
	sw := r.Graph.Switch(w.s.Fabric.Nodes[node].GUID)
	if sw == topo.None || int(lid) >= len(r.LFT[sw]) {
		return 0xff
	}
	return r.LFT[sw][lid]
}

// cross takes the MTU and rate of a port's link into account.
func (w *walker) cross(port int32) {
	p := &w.s.Fabric.Ports[port]
	if p.MTU.Valid() {
		w.mtu = min(w.mtu, p.MTU)
	}
	if r := rateOf(p); r != 0 && r.Mbps() < w.rate.Mbps() {
		w.rate = r
	}
}
