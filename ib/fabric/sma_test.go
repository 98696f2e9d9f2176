package fabric

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// Every table: what is set is read back, at its own place only.
func TestTables(t *testing.T) {
	f := New(Defaults{OptSLtoVL: true, VLArbCap: 64})
	if err := f.BuildTree(2, 2, 2, 1); err != nil {
		t.Fatal(err)
	}
	a := attach(t, f, "h0", 1)
	block := make([]byte, 64)
	for i := range block {
		block[i] = byte(i + 1)
	}
	for _, c := range []struct {
		name       string
		attr       mad.AttributeID
		mod, other uint32
		path       []byte
		n          int
	}{
		{"LFT", mad.AttrLinearFT, 3, 4, []byte{1}, 64},
		{"MFT", mad.AttrMulticastFT, 2, 3, []byte{1}, 64},
		{"P_Keys of a switch's port", mad.AttrPKeyTable, 2 << 16, 3 << 16, []byte{1}, 16},
		{"P_Keys of a switch", mad.AttrPKeyTable, 0, 1 << 16, []byte{1}, 16},
		{"P_Keys of a CA", mad.AttrPKeyTable, 1, 0, nil, 64},
		{"SLtoVL", mad.AttrSLtoVL, 1<<8 | 2, 2<<8 | 1, []byte{1}, 8},
		{"SLtoVL of a CA", mad.AttrSLtoVL, 0, 0, nil, 8},
		{"VLArb", mad.AttrVLArbitration, 1<<16 | 2, 3<<16 | 2, []byte{1}, 64},
		{"VLArb, second half", mad.AttrVLArbitration, 2<<16 | 2, 1<<16 | 2, []byte{1}, 64},
		{"VLArb of a CA", mad.AttrVLArbitration, 4 << 16, 3 << 16, nil, 64},
	} {
		other := append([]byte(nil), a.get(c.attr, c.other, c.path...).Data()...)
		got := a.set(c.attr, c.mod, block, c.path...).Data()
		if !bytes.Equal(got[:c.n], block[:c.n]) || !bytes.Equal(got[c.n:], make([]byte, 64-c.n)) {
			t.Errorf("%s: Set answers % x", c.name, got)
		}
		if got := a.get(c.attr, c.mod, c.path...).Data(); !bytes.Equal(got[:c.n], block[:c.n]) {
			t.Errorf("%s: Get answers % x", c.name, got)
		}
		if c.other != c.mod && !bytes.Equal(other, a.get(c.attr, c.other, c.path...).Data()) {
			t.Errorf("%s: the Set changed modifier 0x%x too", c.name, c.other)
		}
	}
	if s := f.Stats().Sets; s[mad.AttrLinearFT] != 1 || s[mad.AttrVLArbitration] != 3 {
		t.Errorf("Sets are counted as %v", s)
	}
}

func TestOptimizedSLtoVL(t *testing.T) {
	row := bytes.Repeat([]byte{0x21}, 8)
	for _, opt := range []bool{false, true} {
		f := New(Defaults{OptSLtoVL: opt})
		if err := f.BuildTree(1, 1, 2, 1); err != nil {
			t.Fatal(err)
		}
		a := attach(t, f, "h0", 1)
		_, err := a.direct(mad.MethodSet, mad.AttrSLtoVL, 3<<16, []byte{1}, row)
		if (err == nil) != opt {
			t.Errorf("optimized programming %v: %v", opt, err)
		}
		if got := a.get(mad.AttrSLtoVL, 2<<8|3, 1).Data()[:8]; bytes.Equal(got, row) != opt {
			t.Errorf("optimized programming %v: row 2 to 3 is % x", opt, got)
		}
	}
}

func TestGUIDs(t *testing.T) {
	f := load(t, "ring8.net")
	a := attach(t, f, "h0", 1)
	v := mad.GUIDInfo(a.get(mad.AttrGUIDInfo, 0).Data())
	if v.GUID(0) != 0x100001 || v.GUID(1) != 0 {
		t.Errorf("GUIDs are %v, %v", v.GUID(0), v.GUID(1))
	}
	v.SetGUID(0, 1)
	v.SetGUID(7, 0xabc)
	if v = mad.GUIDInfo(a.set(mad.AttrGUIDInfo, 0, v).Data()); v.GUID(0) != 0x100001 || v.GUID(7) != 0xabc {
		t.Errorf("after a Set GUIDs are %v, %v", v.GUID(0), v.GUID(7))
	}
}

func TestPortInfoRefuses(t *testing.T) {
	f := load(t, "ring8.net")
	a := attach(t, f, "h0", 1)
	for name, bad := range map[string]func(mad.PortInfo){
		"MTU":        func(v mad.PortInfo) { v.SetNeighborMTU(ib.MTU4096) },
		"VLs":        func(v mad.PortInfo) { v.SetOperationalVLs(5) },
		"LID":        func(v mad.PortInfo) { v.SetLID(0xc000) },
		"SM LID":     func(v mad.PortInfo) { v.SetMasterSMLID(0xffff) },
		"width":      func(v mad.PortInfo) { v.SetLinkWidthEnabled(8) },
		"state":      func(v mad.PortInfo) { v.SetPortState(ib.PortActive) },
		"INIT":       func(v mad.PortInfo) { v.SetPortState(ib.PortInit) },
		"phys state": func(v mad.PortInfo) { v.SetPortPhysicalState(mad.PhysLinkUp) },
	} {
		before := f.Node("h0").Info(1)
		v := append(mad.PortInfo(nil), before...)
		v.SetPortState(ib.PortNop)
		v.SetPortPhysicalState(mad.PhysNop)
		v.SetSubnetTimeOut(3)
		bad(v)
		if _, err := a.direct(mad.MethodSet, mad.AttrPortInfo, 1, nil, v); err == nil || err.Error() != "invalid field" {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(before, f.Node("h0").Info(1)) {
			t.Errorf("%s: what was refused changed the port", name)
		}
	}
}

func TestDisabledPort(t *testing.T) {
	f := load(t, "ring8.net")
	a := attach(t, f, "h0", 1)
	sw := f.Node("sw0")
	v := sw.Info(1)
	v.SetPortState(ib.PortNop)
	v.SetPortPhysicalState(mad.PhysDisabled)
	a.set(mad.AttrPortInfo, 1, v, 1)
	far, num := sw.Peer(1)
	if s, q := sw.Info(1), far.Info(num); s.PortPhysicalState() != mad.PhysDisabled || q.PortState() != ib.PortDown || q.PortPhysicalState() != mad.PhysPolling {
		t.Errorf("the port is %v, its peer %v, %v", s.PortPhysicalState(), q.PortState(), q.PortPhysicalState())
	}
	v.SetPortPhysicalState(mad.PhysPolling)
	a.set(mad.AttrPortInfo, 1, v, 1)
	if s := far.Info(num); s.PortState() != ib.PortInit || s.PortPhysicalState() != mad.PhysLinkUp {
		t.Errorf("enabled again, the peer is %v, %v", s.PortState(), s.PortPhysicalState())
	}
}

// Link speeds are what both ends enable.
func TestNegotiation(t *testing.T) {
	f := New(Defaults{Width: 3, Speed: 7, SpeedExt: 7})
	if err := f.BuildTree(1, 1, 1, 1); err != nil {
		t.Fatal(err)
	}
	a := attach(t, f, "h0", 1)
	pi := f.Node("h0").Info(1)
	if pi.LinkWidthActive() != 2 || pi.LinkSpeedActive() != 4 || pi.LinkSpeedExtActive() != 4 || pi.CapabilityMask()&mad.CapExtendedSpeeds == 0 {
		t.Errorf("width %d speed %d ext %d", pi.LinkWidthActive(), pi.LinkSpeedActive(), pi.LinkSpeedExtActive())
	}
	pi.SetPortState(ib.PortDown)
	pi.SetPortPhysicalState(mad.PhysNop)
	pi.SetLinkWidthEnabled(1)
	pi.SetLinkSpeedExtEnabled(30)
	a.set(mad.AttrPortInfo, mad.PortInfoExtendedSpeeds|1, pi)
	pi = f.Node("leaf0").Info(1)
	if pi.LinkWidthActive() != 1 || pi.LinkSpeedExtActive() != 0 {
		t.Errorf("the other end has width %d ext %d", pi.LinkWidthActive(), pi.LinkSpeedExtActive())
	}
}

func TestStatuses(t *testing.T) {
	f := load(t, "ring8.net")
	a := attach(t, f, "h0", 1)
	for _, c := range []struct {
		name   string
		method mad.Method
		attr   mad.AttributeID
		mod    uint32
		path   []byte
		want   mad.Status
	}{
		{"unknown attribute", mad.MethodGet, 0x77, 0, nil, mad.StatusUnsupportedAttribute},
		{"switch attribute at a CA", mad.MethodGet, mad.AttrLinearFT, 0, nil, mad.StatusUnsupportedAttribute},
		{"Set of NodeInfo", mad.MethodSet, mad.AttrNodeInfo, 0, nil, mad.StatusUnsupportedAttribute},
		{"method", mad.MethodGetTable, mad.AttrNodeInfo, 0, nil, mad.StatusUnsupportedMethod},
		{"port that is not there", mad.MethodGet, mad.AttrPortInfo, 2, nil, mad.StatusInvalidField},
		{"LFT block", mad.MethodGet, mad.AttrLinearFT, 768, []byte{1}, mad.StatusInvalidField},
		{"MFT position", mad.MethodGet, mad.AttrMulticastFT, 5 << 28, []byte{1}, mad.StatusInvalidField},
		{"MFT block", mad.MethodGet, mad.AttrMulticastFT, 32, []byte{1}, mad.StatusInvalidField},
		{"arbitration table", mad.MethodGet, mad.AttrVLArbitration, 5 << 16, []byte{1}, mad.StatusInvalidField},
		{"SLtoVL port", mad.MethodGet, mad.AttrSLtoVL, 99, []byte{1}, mad.StatusInvalidField},
		{"P_Key block", mad.MethodGet, mad.AttrPKeyTable, 9, nil, mad.StatusInvalidField},
		{"GUID block", mad.MethodGet, mad.AttrGUIDInfo, 9, nil, mad.StatusInvalidField},
	} {
		m, _ := a.direct(c.method, c.attr, c.mod, c.path, nil)
		if m == nil || m.Status() != c.want {
			t.Errorf("%s: %v, want %v", c.name, m, c.want)
		}
	}
	p := &mad.Packet{Addr: mad.Direct}
	if err := p.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, nil); err != nil {
		t.Fatal(err)
	}
	p.Data[2] = 9
	if m, _ := a.call(p); m == nil || m.Status() != mad.StatusBadVersion {
		t.Errorf("class version 9: %v", m)
	}
}

func TestCounters(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	leaf := f.Node("leaf0")
	if err := leaf.SetCounter(3, mad.AttrPortCounters, "SymbolErrorCounter", 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := leaf.SetCounter(3, mad.AttrPortVLXmitWaitCounters, "Wait", 5, 9); err != nil {
		t.Fatal(err)
	}
	if err := leaf.SetCounter(3, mad.AttrPortCounters, "PortSelect", 0, 1); err == nil {
		t.Error("PortSelect is no counter")
	}
	perf := func(method mad.Method, attr mad.AttributeID, data []byte) []byte {
		m, err := a.to(lids[leaf], mad.ClassPerf, method, attr, 0, data)
		if err != nil {
			t.Fatal(err)
		}
		return m.Data()
	}
	q := make([]byte, 192)
	q[1] = 3
	v := mad.PortCounters(perf(mad.MethodGet, mad.AttrPortCounters, q))
	if v.SymbolErrorCounter() != 0xffff || v.PortSelect() != 3 {
		t.Errorf("%d symbol errors at port %d", v.SymbolErrorCounter(), v.PortSelect())
	}
	q[1] = 4
	if v = mad.PortCounters(perf(mad.MethodGet, mad.AttrPortCounters, q)); v.PortXmitPkts() == 0 || v.PortXmitData() != 72*v.PortXmitPkts() {
		t.Errorf("%d packets and %d words went to the SM", v.PortXmitPkts(), v.PortXmitData())
	}
	q[1] = 3
	x := mad.PortCountersExtended(perf(mad.MethodGet, mad.AttrPortCountersExtended, q))
	if x.SymbolErrorCounter() != 1<<20 {
		t.Errorf("%d symbol errors in the extended counter", x.SymbolErrorCounter())
	}
	if w := mad.PortVLXmitWaitCounters(perf(mad.MethodGet, mad.AttrPortVLXmitWaitCounters, q)); w.Wait(5) != 9 || w.Wait(4) != 0 {
		t.Errorf("waits are %d, %d", w.Wait(4), w.Wait(5))
	}
	v = make(mad.PortCounters, 192)
	v.SetPortSelect(255)
	v.SetCounterSelect(1)
	perf(mad.MethodSet, mad.AttrPortCounters, v)
	v = mad.PortCounters(perf(mad.MethodGet, mad.AttrPortCounters, v))
	if v.SymbolErrorCounter() != 0 || v.PortXmitPkts() == 0 {
		t.Errorf("after clearing symbol errors: %d, and %d packets", v.SymbolErrorCounter(), v.PortXmitPkts())
	}
	q[1] = 99
	if m, _ := a.to(lids[leaf], mad.ClassPerf, mad.MethodGet, mad.AttrPortCounters, 0, q); m == nil || m.Status() != mad.StatusInvalidField {
		t.Errorf("port 99: %v", m)
	}
}
