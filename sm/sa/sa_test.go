package sa

import (
	"bytes"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

// snapshot makes what a sweep of a fabric would leave.
func snapshot(t testing.TB, n *topotest.Net, lmc uint8) *subnet.Snapshot {
	t.Helper()
	f := n.Fabric(lmc)
	r, err := route.Compute(topo.NewGraph(f), nil, route.Options{Lanes: 8})
	if err != nil {
		t.Fatal(err)
	}
	s := &subnet.Snapshot{
		Fabric: f, Routing: r, Prefix: 0xfe80 << 48, SMLID: 1, SMPort: f.Port(0, 1), PacketLifeTime: 18,
		Desc: make([]string, len(f.Nodes)), NodeInfo: make([]mad.NodeInfo, len(f.Nodes)), SwitchInfo: make([]mad.SwitchInfo, len(f.Nodes)),
		PortInfo: make([]mad.PortInfo, len(f.Ports)), PKeys: make([][]ib.PKey, len(f.Ports)),
	}
	for i := range f.Nodes {
		s.Desc[i] = f.Nodes[i].Desc
		s.NodeInfo[i] = make(mad.NodeInfo, 40)
		s.NodeInfo[i].SetNodeGUID(f.Nodes[i].GUID)
		s.NodeInfo[i].SetNodeType(mad.NodeType(f.Nodes[i].Type))
	}
	for i := range f.Ports {
		f.Ports[i].Width, f.Ports[i].Speed = 2, 4
		s.PortInfo[i] = make(mad.PortInfo, 64)
		if f.Ports[i].Num == 1 {
			s.PortInfo[i].SetCapabilityMask(mad.CapIsSM | mad.CapNotice)
		}
	}
	s.Index()
	return s
}

// ask sends a query and returns the status and the data of the answer, put
// together by the other side of RMPP when it comes in segments.
func ask(t testing.TB, s *Server, q *mad.Packet) (mad.Status, []byte) {
	t.Helper()
	now := clock.Time(time.Second)
	s.Handle(q, now)
	var client mad.RMPP
	var p mad.Packet
	for range 100000 {
		moved := false
		for s.Next(&p) {
			moved = true
			if !client.Handle(&p, now) {
				return p.MAD().Status(), p.MAD().Data()
			}
		}
		if m, ok := client.Message(); ok {
			return m.MAD().Status(), m.Bytes
		}
		for client.Next(&p) {
			moved = true
			s.Handle(&p, now)
		}
		if !moved {
			t.Fatal("no answer")
		}
	}
	t.Fatal("the answer does not end")
	return 0, nil
}

var tid uint64

func query1(method mad.Method, attr mad.AttributeID, fields ...func(d []byte) string) *mad.Packet {
	p := &mad.Packet{Addr: mad.Addr{LID: 5, QPN: 1}}
	p.MAD().InitSA(method, attr, 0)
	tid++
	p.MAD().SetTID(tid)
	layout := attributes[attr].layout
	for _, f := range fields {
		name := f(p.MAD().Data())
		p.MAD().SetComponentMask(p.MAD().ComponentMask() | 1<<layout.Component(name))
	}
	return p
}

func slid(l ib.LID) func([]byte) string {
	return func(d []byte) string { mad.PathRecord(d).SetSLID(l); return "SLID" }
}
func dlid(l ib.LID) func([]byte) string {
	return func(d []byte) string { mad.PathRecord(d).SetDLID(l); return "DLID" }
}

func TestPathRecord(t *testing.T) {
	n, err := topotest.Load("../testdata/torus4x4.net")
	if err != nil {
		t.Fatal(err)
	}
	var s Server
	snap := snapshot(t, n, 0)
	s.SetSnapshot(snap)
	lanes := map[uint8]bool{}
	for a := ib.LID(1); a <= 32; a++ {
		for b := ib.LID(1); b <= 32; b++ {
			status, d := ask(t, &s, query1(mad.MethodGet, mad.AttrPathRecord, slid(a), dlid(b)))
			r := mad.PathRecord(d)
			if status != mad.StatusOK || r.SLID() != a || r.DLID() != b || !r.Reversible() || r.PKey() != 0xffff || r.MTU() != ib.MTU2048 || r.Rate() != ib.Rate40Gbps {
				t.Fatalf("%d to %d: %v, %x", a, b, status, d[:64])
			}
			if want := snap.SL(snap.ByLID[a], snap.ByLID[b]); r.SL() != want {
				t.Fatalf("%d to %d: SL %d, want %d", a, b, r.SL(), want)
			}
			lanes[r.SL()] = true
		}
	}
	if len(lanes) != snap.Routing.Lanes {
		t.Errorf("%d SLs seen of %d lanes", len(lanes), snap.Routing.Lanes)
	}
}

func TestPathsByGID(t *testing.T) {
	var s Server
	snap := snapshot(t, topotest.FatTree2(2, 2, 2, 1), 1)
	s.SetSnapshot(snap)
	f := snap.Fabric
	gid := gidOf(snap.Prefix, f.Ports[f.Port(0, 1)].GUID)
	sgid := func(d []byte) string { mad.PathRecord(d).SetSGID(gid); return "SGID" }
	status, d := ask(t, &s, query1(mad.MethodGetTable, mad.AttrPathRecord, sgid))
	// To 4 hosts over 2 LIDs each (one of them itself), and to 4 switches.
	if status != mad.StatusOK || len(d)/64 != 4*2+4 {
		t.Errorf("%v, %d paths", status, len(d)/64)
	}
	if status, _ := ask(t, &s, query1(mad.MethodGet, mad.AttrPathRecord, sgid)); status != mad.StatusSATooManyRecords {
		t.Errorf("Get of many paths: %v", status)
	}
	nobody := func(d []byte) string { mad.PathRecord(d).SetDGID(gidOf(snap.Prefix, 99)); return "DGID" }
	if status, _ := ask(t, &s, query1(mad.MethodGet, mad.AttrPathRecord, sgid, nobody)); status != mad.StatusSANoRecords {
		t.Errorf("Get of no path: %v", status)
	}
}

func TestSelectors(t *testing.T) {
	var s Server
	s.SetSnapshot(snapshot(t, topotest.FatTree2(2, 2, 2, 1), 0))
	mtu := func(sel uint8, m ib.MTU) mad.Status {
		q := query1(mad.MethodGet, mad.AttrPathRecord, slid(1), dlid(2),
			func(d []byte) string { mad.PathRecord(d).SetMTUSelector(sel); return "MTUSelector" },
			func(d []byte) string { mad.PathRecord(d).SetMTU(m); return "MTU" })
		status, _ := ask(t, &s, q)
		return status
	}
	for _, c := range []struct {
		sel  uint8
		mtu  ib.MTU
		want mad.Status
	}{
		{greater, ib.MTU1024, mad.StatusOK}, {greater, ib.MTU2048, mad.StatusSANoRecords},
		{less, ib.MTU4096, mad.StatusOK}, {less, ib.MTU2048, mad.StatusSANoRecords},
		{exactly, ib.MTU2048, mad.StatusOK}, {exactly, ib.MTU4096, mad.StatusSANoRecords}, {largest, 0, mad.StatusOK},
	} {
		if got := mtu(c.sel, c.mtu); got != c.want {
			t.Errorf("selector %d MTU %v: %v, want %v", c.sel, c.mtu, got, c.want)
		}
	}
}

func TestPartitionsKeepPathsApart(t *testing.T) {
	var s Server
	snap := snapshot(t, topotest.FatTree2(1, 1, 3, 1), 0)
	f := snap.Fabric
	snap.PKeys[f.Port(0, 1)] = []ib.PKey{0x7fff, 0x8010}
	snap.PKeys[f.Port(1, 1)] = []ib.PKey{0x7fff, 0x0010}
	snap.PKeys[f.Port(2, 1)] = []ib.PKey{0x7fff}
	s.SetSnapshot(snap)
	if status, d := ask(t, &s, query1(mad.MethodGet, mad.AttrPathRecord, slid(1), dlid(2))); status != mad.StatusOK || mad.PathRecord(d).PKey() != 0x8010 {
		t.Errorf("full with limited member: %v, %v", status, mad.PathRecord(d).PKey())
	}
	if status, _ := ask(t, &s, query1(mad.MethodGet, mad.AttrPathRecord, slid(1), dlid(3))); status != mad.StatusSANoRecords {
		t.Errorf("two limited members: %v", status)
	}
}

func TestTables(t *testing.T) {
	var s Server
	snap := snapshot(t, topotest.KFat(4), 0)
	s.SetSnapshot(snap)
	for attr, want := range map[mad.AttributeID]int{
		mad.AttrNodeRecord: 36, mad.AttrPortInfoRecord: len(snap.Fabric.Ports), mad.AttrLinkRecord: 2 * (16 + 16 + 16),
		mad.AttrSMInfoRecord: 1, mad.AttrLinearFTRecord: 20,
	} {
		q := query1(mad.MethodGetTable, attr)
		status, d := ask(t, &s, q)
		stride := (attributes[attr].layout.Size + 7) &^ 7
		if status != mad.StatusOK || len(d) != want*stride {
			t.Errorf("attribute %#x: %v, %d records of %d bytes in %d: want %d", attr, status, len(d)/stride, stride, len(d), want)
		}
	}
	// By capability, as saquery -s asks: all ports with at least IsSM.
	q := query1(mad.MethodGetTable, mad.AttrPortInfoRecord, func(d []byte) string {
		mad.PortInfoRecord(d).PortInfo().SetCapabilityMask(mad.CapIsSM)
		return "CapabilityMask"
	})
	if _, d := ask(t, &s, q); len(d) != 0 {
		t.Errorf("%d bytes of ports with exactly IsSM: want none", len(d))
	}
	q.MAD().SetModifier(matchCapabilities)
	q.MAD().SetTID(1 << 20)
	if _, d := ask(t, &s, q); len(d)/72 != 36 {
		t.Errorf("%d ports with at least IsSM: want 36", len(d)/72)
	}
}

// TestMKeyIsSecret: no query shows the M_Key, or tells whether a guess is right.
func TestMKeyIsSecret(t *testing.T) {
	var s Server
	snap := snapshot(t, topotest.KFat(4), 0)
	for _, i := range snap.PortInfo {
		if i != nil {
			i.SetMKey(0x1234567890abcdef)
		}
	}
	s.SetSnapshot(snap)
	_, d := ask(t, &s, query1(mad.MethodGetTable, mad.AttrPortInfoRecord))
	if len(d) == 0 || bytes.Contains(d, []byte{0x12, 0x34, 0x56, 0x78, 0x90, 0xab, 0xcd, 0xef}) {
		t.Errorf("%d bytes of PortInfoRecords show the M_Key", len(d))
	}
	q := query1(mad.MethodGetTable, mad.AttrPortInfoRecord, func(d []byte) string {
		mad.PortInfoRecord(d).PortInfo().SetMKey(0x1234567890abcdef)
		return "MKey"
	})
	q.MAD().SetTID(1 << 20)
	if _, d := ask(t, &s, q); len(d) != 0 {
		t.Errorf("%d bytes of ports with the M_Key that was guessed", len(d))
	}
}

func TestRefusals(t *testing.T) {
	var s Server
	status := func(m mad.Method, a mad.AttributeID) mad.Status {
		p := &mad.Packet{}
		p.MAD().InitSA(m, a, 0)
		st, _ := ask(t, &s, p)
		return st
	}
	if got := status(mad.MethodGet, mad.AttrNodeRecord); got != mad.StatusBusy {
		t.Errorf("before the first sweep: %v", got)
	}
	s.SetSnapshot(snapshot(t, topotest.KFat(4), 0))
	for _, c := range []struct {
		m mad.Method
		a mad.AttributeID
	}{{mad.MethodSet, mad.AttrSMInfoRecord}, {mad.MethodGet, 0x7777}, {mad.MethodGetTable, mad.AttrClassPortInfo}, {mad.MethodSet, mad.AttrMCMemberRecord}, {mad.MethodGetMulti, mad.AttrMultiPathRecord}} {
		if got := status(c.m, c.a); got != mad.StatusUnsupportedAttribute {
			t.Errorf("method %#x attribute %#x: %v", c.m, c.a, got)
		}
	}
}

func FuzzServer(f *testing.F) {
	q := query1(mad.MethodGetTable, mad.AttrPathRecord, slid(1))
	f.Add(q.Data[:])
	var s Server
	s.SetSnapshot(snapshot(f, topotest.KFat(4), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p mad.Packet
		copy(p.Data[:], b)
		now := clock.Time(time.Second)
		s.Handle(&p, now)
		for n := 0; s.Next(&p) && n < 10000; n++ {
		}
		s.Expire(now.Add(time.Hour))
		for s.Next(&p) {
			_ = bytes.Clone(p.Data[:])
		}
	})
}
