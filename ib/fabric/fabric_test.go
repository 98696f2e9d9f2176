package fabric

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/ibsim"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
)

// caller asks through any mad.Port.
type caller struct {
	t   testing.TB
	p   mad.Port
	tid uint64
}

func (c *caller) get(attr mad.AttributeID, mod uint32, path []byte) mad.MAD {
	c.t.Helper()
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: 200 * time.Millisecond, Retries: 2}
	if err := pkt.MAD().InitSMP(mad.MethodGet, attr, mod, path); err != nil {
		c.t.Fatal(err)
	}
	c.tid++
	pkt.MAD().SetTID(c.tid)
	if err := c.p.Send(pkt); err != nil {
		c.t.Fatal(err)
	}
	var ps [1]mad.Packet
	for {
		if _, err := c.p.Recv(ps[:]); err != nil {
			c.t.Fatal(err)
		}
		if ps[0].Key() == uint32(c.tid) {
			return ps[0].MAD()
		}
	}
}

// The fabric in memory looks the same as stock ibsim does, for the same
// netfile, to one who walks over it: the same GUIDs, names, ports, states,
// links and limits.
func TestSameAsIbsim(t *testing.T) {
	for _, file := range []string{"ft32.net", "torus4x4.net"} {
		s := ibsimtest.Start(t, "testdata/"+file)
		theirs, err := ibsim.Open(ibsim.Options{SockName: s.Name, Node: "h3"})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		f := load(t, file)
		ours, err := f.Open("h3", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		a, b := &caller{t: t, p: theirs}, &caller{t: t, p: ours}
		seen := map[ib.GUID]bool{}
		compareFrom(t, a, b, nil, seen)
		if len(seen) != len(f.Nodes()) {
			t.Errorf("%s: walked over %d nodes of %d", file, len(seen), len(f.Nodes()))
		}
	}
}

func compareFrom(t *testing.T, a, b *caller, path []byte, seen map[ib.GUID]bool) {
	want := append(mad.MAD(nil), a.get(mad.AttrNodeInfo, 0, path)...)
	got := b.get(mad.AttrNodeInfo, 0, path)
	ni := mad.NodeInfo(want.Data())
	compareFields(t, path, mad.NodeInfo(got.Data()), ni, "PartitionCap")
	if string(got.ReturnPath()) != string(want.ReturnPath()) {
		t.Errorf("at %v: return path %v, ibsim's %v", path, got.ReturnPath(), want.ReturnPath())
	}
	if seen[ni.NodeGUID()] {
		return
	}
	seen[ni.NodeGUID()] = true
	want = append(mad.MAD(nil), a.get(mad.AttrNodeDescription, 0, path)...)
	compareFields(t, path, mad.NodeDescription(b.get(mad.AttrNodeDescription, 0, path).Data()), mad.NodeDescription(want.Data()))
	for i := 1; i <= int(ni.NumPorts()); i++ {
		theirs := mad.PortInfo(append([]byte(nil), a.get(mad.AttrPortInfo, uint32(i), path).Data()...))
		ours := mad.PortInfo(append([]byte(nil), b.get(mad.AttrPortInfo, uint32(i), path).Data()...))
		comparePorts(t, path, i, ours, theirs)
		if theirs.PortState() != ib.PortDown && (ni.NodeType() == mad.NodeSwitch || len(path) == 0) {
			compareFrom(t, a, b, append(append([]byte(nil), path...), byte(i)), seen)
		}
	}
}

func comparePorts(t *testing.T, path []byte, num int, ours, theirs mad.PortInfo) {
	for _, name := range []string{"LID", "LocalPortNum", "LinkWidthEnabled", "LinkWidthActive", "LinkSpeedActive", "LinkSpeedEnabled",
		"PortState", "PortPhysicalState", "NeighborMTU", "MTUCap", "VLCap", "OperationalVLs", "LMC", "VLArbitrationHighCap"} {
		if theirs.PortState() == ib.PortDown && strings.HasSuffix(name, "Active") {
			continue
		}
		for _, f := range ours.Layout().Fields {
			if f.Name == name && f.Get(ours, 0) != f.Get(theirs, 0) {
				t.Errorf("at %v port %d: %s is %d, ibsim's %d", path, num, name, f.Get(ours, 0), f.Get(theirs, 0))
			}
		}
	}
}

func compareFields[V interface {
	~[]byte
	mad.View
}](t *testing.T, path []byte, ours, theirs V, except ...string) {
	for _, f := range ours.Layout().Fields {
		if f.Name == "" || len(except) > 0 && f.Name == except[0] {
			continue
		}
		if a, b := ours[f.Bit/8:(f.Bit+f.Bits+7)/8], theirs[f.Bit/8:(f.Bit+f.Bits+7)/8]; string(a) != string(b) {
			t.Errorf("at %v: %s.%s is %x, ibsim's %x", path, ours.Layout().Name, f.Name, a, b)
		}
	}
}

func TestPortTimesOut(t *testing.T) {
	f := load(t, "ring8.net")
	p, err := f.Open("h0", 0)
	if err != nil {
		t.Fatal(err)
	}
	f.SetLosses(Loss{Node: f.Node("sw0"), Requests: 1})
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: 5 * time.Millisecond, Retries: 2}
	if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(pkt); err != nil {
		t.Fatal(err)
	}
	var ps [4]mad.Packet
	n, err := p.Recv(ps[:])
	if err != nil || n != 1 || !errors.Is(ps[0].Err, mad.ErrTimeout) {
		t.Errorf("got %d packets, %v, %v", n, ps[0].Err, err)
	}
	if s := f.Stats(); s.Injected != 3 || s.Lost != 3 {
		t.Errorf("%+v, want 3 injected and lost", s)
	}
	done := make(chan error)
	go func() {
		_, err := p.Recv(ps[:])
		done <- err
	}()
	p.Close()
	if err := <-done; !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Recv after Close: %v", err)
	}
	if err := p.Send(pkt); !errors.Is(err, mad.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	f := load(t, "ring8.net")
	if _, err := f.Open("nobody", 0); err == nil {
		t.Error("opened a node that is not there")
	}
	if _, err := f.Open("sw0", 1); err == nil {
		t.Error("opened an external port of a switch")
	}
	a := attach(t, f, "h0", 1)
	b := attach(t, f, "h0", 1)
	if err := a.end.SetSM(true); err != nil {
		t.Fatal(err)
	}
	if err := b.end.SetSM(true); err == nil {
		t.Error("two SMs at one port")
	}
}

func TestRoutesByLID(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	if _, err := a.to(5, mad.ClassSubnLID, mad.MethodGet, mad.AttrNodeInfo, 0, nil); err == nil {
		t.Error("a LID answers before any was given")
	}
	lids := bringUp(a)
	for n, lid := range lids {
		m, err := a.to(lid, mad.ClassSubnLID, mad.MethodGet, mad.AttrNodeInfo, 0, nil)
		if err != nil || mad.NodeInfo(m.Data()).NodeGUID() != n.GUID() {
			t.Errorf("SMP to %v at LID %d: %v", n, lid, err)
		}
		m, err = a.to(lid, mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0, nil)
		if err != nil || mad.ClassPortInfo(m.Data()).BaseVersion() != 1 {
			t.Errorf("PMA of %v at LID %d: %v", n, lid, err)
		}
	}
}

// A link that is armed passes management, and data only to become active.
func TestArmedPort(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	far := f.Node("h20")
	pi := far.Info(1)
	sw, num := far.Peer(1)
	path := a.paths()[far]
	pi.SetPortState(ib.PortDown)
	pi.SetPortPhysicalState(mad.PhysNop)
	a.set(mad.AttrPortInfo, 1, pi, path...)
	if s := far.Info(1).PortState(); s != ib.PortInit {
		t.Fatalf("after a bounce the port is %v", s)
	}
	if _, err := a.to(lids[far], mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0, nil); !errors.Is(err, errLost) {
		t.Errorf("data passed a port in INIT: %v", err)
	}
	if _, err := a.to(lids[far], mad.ClassSubnLID, mad.MethodGet, mad.AttrNodeInfo, 0, nil); err != nil {
		t.Errorf("an SMP did not pass a port in INIT: %v", err)
	}
	pi.SetPortState(ib.PortActive)
	pi.SetPortPhysicalState(mad.PhysNop)
	if _, err := a.direct(mad.MethodSet, mad.AttrPortInfo, 1, path, pi); err == nil {
		t.Error("a port went from INIT to ACTIVE")
	}
	a.activate(far, path, ib.PortArmed)
	a.activate(sw, path[:len(path)-1], ib.PortArmed)
	sp := sw.Info(num)
	sp.SetPortState(ib.PortActive)
	sp.SetPortPhysicalState(mad.PhysNop)
	a.set(mad.AttrPortInfo, uint32(num), sp, path[:len(path)-1]...)
	if _, err := a.to(lids[far], mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0, nil); err != nil {
		t.Errorf("data through an armed port: %v", err)
	}
	if s := far.Info(1).PortState(); s != ib.PortActive {
		t.Errorf("the armed port that data came by is %v", s)
	}
}

// Wrong lanes and wrong partitions drop data, and the latter sends a trap.
func TestLanesAndPartitions(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	far := f.Node("h20")
	ask := func(sl uint8) error {
		p := &mad.Packet{Addr: mad.Addr{LID: lids[far], QPN: 1, SL: sl}}
		p.MAD().Init(mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0)
		_, err := a.call(p)
		return err
	}
	if err := ask(3); err != nil {
		t.Fatal(err)
	}
	leaf := a.paths()[far][:1]
	for in := range 17 {
		row := mad.SLtoVLMappingTable(append([]byte(nil), identity[:]...))
		row.SetVL(3, 15)
		for out := 1; out <= 16; out++ {
			a.set(mad.AttrSLtoVL, uint32(in<<8|out), row, leaf...)
		}
	}
	if err := ask(3); !errors.Is(err, errLost) {
		t.Errorf("SL 3 maps to VL15 and got through: %v", err)
	}
	if err := ask(2); err != nil {
		t.Errorf("SL 2: %v", err)
	}
	keys := make(mad.PKeyTable, mad.PKeyTableSize)
	keys.SetPKey(0, 0x8001)
	a.set(mad.AttrPKeyTable, 0, keys, a.paths()[far]...)
	a.got = nil
	if err := ask(0); !errors.Is(err, errLost) {
		t.Errorf("partition 0x7fff reached one of 0x0001: %v", err)
	}
	if v := far.Info(1).PKeyViolations(); v != 1 {
		t.Errorf("%d P_Key violations, want 1", v)
	}
	if n := lastTrap(a); n == nil || n.TrapNumber() != mad.TrapBadPKey || n.Trap().(mad.DetailsKey).Key() != uint32(ib.PKeyDefault) {
		t.Errorf("no trap 257: %v", n)
	}
}

// A switch whose port enforces partitions drops what is of another, at the way
// in and at the way out, counts it and sends trap 259.
func TestSwitchEnforcesPartitions(t *testing.T) {
	for _, inbound := range []bool{true, false} {
		f := load(t, "ft32.net")
		a := attach(t, f, "h3", 1)
		lids := bringUp(a)
		leaf, far := f.Node("leaf0"), f.Node("h20")
		num := 4 // The way in: the SM's own port.
		if !inbound {
			num = int(leaf.sw.forward(lids[far]))
		}
		v := leaf.Info(num)
		v.SetPartitionEnforcementInbound(inbound)
		v.SetPartitionEnforcementOutbound(!inbound)
		v.SetPortState(ib.PortNop)
		v.SetPortPhysicalState(mad.PhysNop)
		a.set(mad.AttrPortInfo, uint32(num), v, 1)
		ask := func() error {
			_, err := a.to(lids[far], mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0, nil)
			return err
		}
		if err := ask(); err != nil {
			t.Fatalf("inbound %v: with the default partition: %v", inbound, err)
		}
		keys := make(mad.PKeyTable, mad.PKeyTableSize)
		keys.SetPKey(0, 0x8001)
		a.set(mad.AttrPKeyTable, uint32(num)<<16, keys, 1)
		a.got = nil
		if err := ask(); !errors.Is(err, errLost) {
			t.Errorf("inbound %v: it got through: %v", inbound, err)
		}
		counter := portXmitConstraintErrors
		if inbound {
			counter = portRcvConstraintErrors
		}
		if c := leaf.ports[num].counters.plain[counter]; c != 1 {
			t.Errorf("inbound %v: counted %d", inbound, c)
		}
		n := lastTrap(a)
		if n == nil || n.TrapNumber() != mad.TrapBadPKeySwitch {
			t.Fatalf("inbound %v: no trap 259", inbound)
		}
		if d := n.Trap().(mad.DetailsSwitchPKey); d.SwitchLID() != lids[leaf] || int(d.PortNumber()) != num || d.PKey() != ib.PKeyDefault {
			t.Errorf("inbound %v: trap 259 is about LID %d port %d, %v", inbound, d.SwitchLID(), d.PortNumber(), d.PKey())
		}
	}
}

func lastTrap(a *agent) mad.Notice {
	if len(a.got) == 0 {
		return nil
	}
	m := a.got[len(a.got)-1].MAD()
	if m.Method() != mad.MethodTrap {
		return nil
	}
	return mad.Notice(append([]byte(nil), m.Data()...))
}

func TestMKey(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	bringUp(a)
	far := f.Node("h20")
	path := a.paths()[far]
	for protect := range uint8(3) {
		pi := mad.PortInfo(append([]byte(nil), far.Info(1)...))
		pi.SetMKey(77)
		pi.SetMKeyProtectBits(protect)
		pi.SetPortState(ib.PortNop)
		pi.SetPortPhysicalState(mad.PhysNop)
		p := &mad.Packet{Addr: mad.Direct}
		if err := p.MAD().InitSMP(mad.MethodSet, mad.AttrPortInfo, 1, path); err != nil {
			t.Fatal(err)
		}
		p.MAD().SetMKey(77)
		copy(p.MAD().Data(), pi)
		if _, err := a.call(p); err != nil {
			t.Fatalf("with the key: %v", err)
		}
		a.got = nil
		if _, err := a.direct(mad.MethodSet, mad.AttrPortInfo, 1, path, pi); !errors.Is(err, errLost) {
			t.Errorf("protection %d: Set without key: %v", protect, err)
		}
		if n := lastTrap(a); n == nil || n.TrapNumber() != mad.TrapBadMKey {
			t.Errorf("protection %d: no trap 256", protect)
		}
		m, err := a.direct(mad.MethodGet, mad.AttrPortInfo, 1, path, nil)
		switch {
		case protect == 2 && !errors.Is(err, errLost), protect < 2 && err != nil:
			t.Errorf("protection %d: Get without key: %v", protect, err)
		case err == nil && (mad.PortInfo(m.Data()).MKey() == 77) != (protect == 0):
			t.Errorf("protection %d: the key is shown as %d", protect, mad.PortInfo(m.Data()).MKey())
		}
	}
}

// A link that goes makes both switches tell the SM, until it answers.
func TestLinkTraps(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	a.got = nil
	leaf := f.Node("leaf1")
	spine, _ := leaf.Peer(9)
	if err := leaf.Unlink(9); err != nil {
		t.Fatal(err)
	}
	from := map[ib.LID]mad.Packet{}
	for _, p := range a.got {
		if n := mad.Notice(p.MAD().Data()); n.TrapNumber() == mad.TrapLinkState {
			from[n.IssuerLID()] = p
		}
	}
	// leaf1's way to h3 may have gone with the link.
	if len(from) == 0 || from[lids[spine]].Addr.LID != lids[spine] {
		t.Fatalf("traps from %v", from)
	}
	if !mad.SwitchInfo(a.get(mad.AttrSwitchInfo, 0, a.paths()[leaf]...).Data()).PortStateChange() {
		t.Error("PortStateChange of the leaf is clear")
	}
	a.got = nil
	f.ResendTraps()
	if len(a.got) < len(from) {
		t.Errorf("%d traps came again, want at least %d", len(a.got), len(from))
	}
	p := from[lids[spine]]
	p.MAD().Respond(mad.StatusOK)
	if err := a.end.Inject(&p); err != nil {
		t.Fatal(err)
	}
	a.got = nil
	f.ResendTraps()
	for _, p := range a.got {
		if p.Addr.LID == lids[spine] {
			t.Error("a trap came after it was repressed")
		}
	}
	if err := leaf.Relink(9); err != nil || leaf.Info(9).PortState() != ib.PortInit {
		t.Errorf("after Relink the port is %v, %v", leaf.Info(9).PortState(), err)
	}
}

func TestOtherTraps(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	for _, number := range []mad.TrapNumber{129, 130, 131} {
		if err := f.Node("leaf1").RaiseTrap(4, number); err != nil {
			t.Fatal(err)
		}
		n := lastTrap(a)
		if n == nil || n.TrapNumber() != number {
			t.Fatalf("trap %d did not come", number)
		}
		if d := n.Trap().(mad.DetailsPort); d.LID() != lids[f.Node("leaf1")] || d.PortNumber() != 4 {
			t.Errorf("trap %d is about LID %d port %d", number, d.LID(), d.PortNumber())
		}
	}
	f.Node("h9").SetDescription("h9 renamed")
	if d, ok := lastTrap(a).Trap().(mad.DetailsCapability); !ok || !d.NodeDescriptionChange() || d.LID() != lids[f.Node("h9")] {
		t.Error("no trap 144 about a new description")
	}
	b := attach(t, f, "h10", 1)
	if err := b.end.SetSM(true); err != nil {
		t.Fatal(err)
	}
	if d, ok := lastTrap(a).Trap().(mad.DetailsCapability); !ok || mad.CapabilityMask(d.CapabilityMask())&mad.CapIsSM == 0 {
		t.Error("no trap 144 about an SM")
	}
	b.end.Detach()
	if f.Node("h10").Info(1).CapabilityMask()&mad.CapIsSM != 0 {
		t.Error("IsSM stays when the SM goes")
	}
	if err := f.Node("leaf1").RaiseTrap(4, 128); err == nil {
		t.Error("trap 128 about a port was raised")
	}
}

// A switch that fails takes its links along, and remembers nothing when it returns.
func TestNodeFailsAndReturns(t *testing.T) {
	f := load(t, "ft32.net")
	a := attach(t, f, "h3", 1)
	lids := bringUp(a)
	leaf := f.Node("leaf1")
	path := a.paths()[leaf]
	leaf.Fail()
	leaf.Fail()
	if _, err := a.direct(mad.MethodGet, mad.AttrNodeInfo, 0, path, nil); !errors.Is(err, errLost) {
		t.Errorf("a dark switch answers: %v", err)
	}
	h, _ := leaf.Peer(1)
	if s := h.Info(1).PortState(); s != ib.PortDown {
		t.Errorf("a host of the dark switch has a port that is %v", s)
	}
	leaf.Return()
	if s := h.Info(1).PortState(); s != ib.PortInit || h.Info(1).LID() != lids[h] {
		t.Errorf("after return the host's port is %v with LID %d", s, h.Info(1).LID())
	}
	if got := a.get(mad.AttrLinearFT, 0, path...).Data(); got[1] != noPort || leaf.Info(0).LID() != 0 {
		t.Errorf("the switch still knows what it was told: % x", got[:8])
	}
}

func TestLossIsSeeded(t *testing.T) {
	run := func(seed uint64) (lost []int) {
		f := load(t, "ring8.net")
		a := attach(t, f, "h0", 1)
		f.Seed(seed)
		f.SetLosses(Loss{Node: f.Node("sw0"), Attr: mad.AttrNodeInfo, Requests: 0.2, Answers: 0.2})
		for i := range 200 {
			if _, err := a.direct(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}, nil); err != nil {
				lost = append(lost, i)
			}
			a.get(mad.AttrNodeDescription, 0, 1)
		}
		return lost
	}
	a, b, c := run(5), run(5), run(6)
	if len(a) < 40 || len(a) > 110 {
		t.Errorf("lost %d of 200, want about 72", len(a))
	}
	if len(a) != len(b) || a[0] != b[0] {
		t.Error("the same seed loses differently")
	}
	if len(a) == len(c) && a[0] == c[0] && a[1] == c[1] && a[2] == c[2] {
		t.Error("another seed loses the same")
	}
}

// An answer that is lost is that of a Set that was done.
func TestLostAnswer(t *testing.T) {
	f := load(t, "ring8.net")
	a := attach(t, f, "h0", 1)
	f.SetLosses(Loss{Answers: 1})
	block := make([]byte, 64)
	block[5] = 3
	if _, err := a.direct(mad.MethodSet, mad.AttrLinearFT, 2, []byte{1}, block); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	f.SetLosses()
	if got := a.get(mad.AttrLinearFT, 2, 1).Data(); got[5] != 3 {
		t.Error("the Set was not done")
	}
}
