package fabric

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/seeded"
)

// Whatever is sent, by whatever address, the fabric stands, and its links agree
// at both ends.
func FuzzInject(f *testing.F) {
	seed := func(class mad.Class, method mad.Method, attr mad.AttributeID, mod uint32, path ...byte) {
		m := make(mad.MAD, mad.Size)
		_ = m.InitSMP(method, attr, mod, path)
		m[1] = byte(class)
		f.Add(uint16(0xffff), uint8(0), []byte(m))
		f.Add(uint16(5), uint8(3), []byte(m))
	}
	seed(mad.ClassSubnDirect, mad.MethodSet, mad.AttrPortInfo, 1, 1)
	seed(mad.ClassSubnDirect, mad.MethodSet, mad.AttrMulticastFT, 1<<28, 1, 3)
	seed(mad.ClassSubnDirect, mad.MethodGetResp, mad.AttrSMInfo, 0, 1, 3)
	seed(mad.ClassSubnLID, mad.MethodSet, mad.AttrSLtoVL, 3<<16|1<<8)
	seed(mad.ClassSubnLID, mad.MethodTrapRepress, mad.AttrNotice, 0)
	seed(mad.ClassPerf, mad.MethodSet, mad.AttrPortCountersExtended, 0)
	seed(mad.ClassSubnAdm, mad.MethodGet, mad.AttrPathRecord, 0)
	f.Fuzz(func(t *testing.T, lid uint16, sl uint8, b []byte) {
		fab := New(Defaults{OptSLtoVL: true})
		if err := fab.BuildTorus(2, 3); err != nil {
			t.Fatal(err)
		}
		a := attach(t, fab, "h0", 1)
		bringUp(a)
		for len(b) > 0 {
			p := &mad.Packet{Addr: mad.Addr{LID: ib.LID(lid), SL: sl, PKeyIndex: uint16(sl)}}
			n := copy(p.Data[:], b)
			b = b[n:]
			if err := a.end.Inject(p); err != nil {
				t.Fatal(err)
			}
		}
		checkLinks(t, fab)
	})
}

func checkLinks(t *testing.T, f *Fabric) {
	t.Helper()
	for _, n := range f.Nodes() {
		for i := 1; i <= n.NumPorts(); i++ {
			peer, num := n.Peer(i)
			if peer == nil {
				continue
			}
			a, b := n.Info(i).PortState(), peer.Info(num).PortState()
			if (a == ib.PortDown) != (b == ib.PortDown) {
				t.Errorf("%v port %d is %v, its peer %v port %d is %v", n, i, a, peer, num, b)
			}
		}
	}
}

// A thousand failures and returns: links agree, switches tell of each change,
// and what is whole again is reached again.
func TestChurn(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	bringUp(a)
	r := seeded.Rand(t)
	f.Seed(r.Uint64())
	nodes := f.Nodes()
	for range 1000 {
		n := nodes[r.IntN(len(nodes))]
		if n == a.end.at.node || n == f.Node("leaf0") {
			continue
		}
		i := 1 + r.IntN(n.NumPorts())
		switch r.IntN(4) {
		case 0:
			n.Fail()
		case 1:
			n.Return()
		case 2:
			_ = n.Unlink(i)
		case 3:
			_ = n.Relink(i)
		}
		checkLinks(t, f)
	}
	for _, n := range nodes {
		n.Return()
		for i := 1; i <= n.NumPorts(); i++ {
			_ = n.Relink(i)
		}
	}
	if got := len(a.paths()); got != len(nodes) {
		t.Errorf("%d of %d nodes are reached after all returned", got, len(nodes))
	}
	bringUp(a)
}

// A route that begins by LID, goes on along a path, and ends by LID.
func TestMixedRoute(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	leaf1 := f.Node("leaf1")
	for _, c := range []struct {
		path []byte
		to   ib.LID
		want string
	}{
		{[]byte{2}, ib.LIDPermissive, "h9"},
		{nil, ib.LIDPermissive, "leaf1"},
		{[]byte{9}, lids[f.Node("h20")], "h20"},
		{[]byte{99}, ib.LIDPermissive, ""},
	} {
		p := &mad.Packet{Addr: mad.Addr{LID: lids[leaf1]}}
		if err := p.MAD().InitSMP(mad.MethodGet, mad.AttrNodeDescription, 0, c.path); err != nil {
			t.Fatal(err)
		}
		p.MAD().SetDrSLID(lids[f.Node("h3")])
		p.MAD().SetDrDLID(c.to)
		m, err := a.call(p)
		got := ""
		if err == nil {
			got = mad.NodeDescription(m.Data()).Description()
		}
		if got != c.want {
			t.Errorf("from leaf1 along %v to LID %d: %q, %v, want %q", c.path, c.to, got, err, c.want)
		}
	}
}

// Both ports of an adapter are endports of their own.
func TestTwoPorts(t *testing.T) {
	f, err := read(t, `Switch 4 "a"
[1] "h"[1]
[2] "b"[2]
Switch 4 "b"
[1] "h"[2]
[2] "a"[2]
Hca 2 "h"
[1] "a"[1]
[2] "b"[1]
Rt 1 "r"
`)
	if err != nil {
		t.Fatal(err)
	}
	one, two := attach(t, f, "h", 1), attach(t, f, "h", 2)
	for _, c := range []struct {
		a    *agent
		port uint8
		next string
	}{{one, 1, "a"}, {two, 2, "b"}} {
		v := mad.NodeInfo(c.a.get(mad.AttrNodeInfo, 0).Data())
		if v.LocalPortNum() != c.port || v.PortGUID() != f.Node("h").PortGUID(int(c.port)) {
			t.Errorf("port %d: NodeInfo says port %d, %v", c.port, v.LocalPortNum(), v.PortGUID())
		}
		if pi := mad.PortInfo(c.a.get(mad.AttrPortInfo, 0).Data()); pi.LocalPortNum() != c.port {
			t.Errorf("port %d: PortInfo 0 is that of port %d", c.port, pi.LocalPortNum())
		}
		if got := mad.NodeDescription(c.a.get(mad.AttrNodeDescription, 0, c.port).Data()).Description(); got != c.next {
			t.Errorf("behind port %d is %q, want %q", c.port, got, c.next)
		}
	}
	// Around through both switches, and in by the other port.
	m := one.get(mad.AttrNodeInfo, 0, 1, 2, 1)
	if v := mad.NodeInfo(m.Data()); v.LocalPortNum() != 2 || v.NodeGUID() != f.Node("h").GUID() {
		t.Errorf("around: port %d of %v", v.LocalPortNum(), v.NodeGUID())
	}
	// Adapters pass no directed route on.
	if _, err := one.direct(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1, 1, 2}, nil); err == nil {
		t.Error("a route through an adapter was taken")
	}
}

// Half-right MADs by the ten thousand: known classes, methods and attributes
// with modifiers, paths and data of chance.
func TestHalfRightMADs(t *testing.T) {
	r := seeded.Rand(t)
	f := New(Defaults{OptSLtoVL: true, SpeedExt: 7})
	if err := f.BuildTorus(2, 3, 3); err != nil {
		t.Fatal(err)
	}
	a := attach(t, f, "h0", 1)
	bringUp(a)
	classes := []mad.Class{mad.ClassSubnDirect, mad.ClassSubnDirect, mad.ClassSubnLID, mad.ClassPerf, mad.ClassSubnAdm, 0x32}
	methods := []mad.Method{mad.MethodGet, mad.MethodSet, mad.MethodTrap, mad.MethodTrapRepress, mad.MethodGetResp, mad.MethodGetTable}
	for range 50000 {
		p := &mad.Packet{Addr: mad.Addr{LID: ib.LID(r.IntN(40)), SL: uint8(r.IntN(16)), PKeyIndex: uint16(r.IntN(3))}}
		path := make([]byte, r.IntN(4))
		for i := range path {
			path[i] = byte(r.IntN(9))
		}
		attr := mad.AttributeID(0x10 + r.IntN(0x22))
		if r.IntN(10) == 0 {
			attr = []mad.AttributeID{1, 2, mad.AttrMlnxExtPortInfo, mad.AttrLedInfo}[r.IntN(4)]
		}
		if err := p.MAD().InitSMP(methods[r.IntN(len(methods))], attr, 0, path); err != nil {
			t.Fatal(err)
		}
		p.Data[1] = byte(classes[r.IntN(len(classes))])
		p.MAD().SetModifier([]uint32{0, uint32(r.IntN(9)), uint32(r.IntN(9)) << 16, r.Uint32(), uint32(r.IntN(1 << 18))}[r.IntN(5)])
		for i := range p.MAD().Data() {
			if r.IntN(3) == 0 {
				p.MAD().Data()[i] = byte(r.IntN(256))
			}
		}
		p.MAD().SetTID(r.Uint64())
		if err := a.end.Inject(p); err != nil {
			t.Fatal(err)
		}
		a.got = a.got[:0]
	}
	checkLinks(t, f)
}
