package ibsim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
)

func open(t testing.TB, o Options) *Port {
	t.Helper()
	p, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// get sends a directed Get and returns what comes back for it.
func get(t testing.TB, p *Port, tid uint64, attr mad.AttributeID, path ...byte) *mad.Packet {
	t.Helper()
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: 100 * time.Millisecond, Retries: 3}
	if err := pkt.MAD().InitSMP(mad.MethodGet, attr, 0, path); err != nil {
		t.Fatal(err)
	}
	pkt.MAD().SetTID(tid)
	if err := p.Send(pkt); err != nil {
		t.Fatal(err)
	}
	return recvKey(t, p, uint32(tid))
}

func recvKey(t testing.TB, p *Port, key uint32) *mad.Packet {
	t.Helper()
	var ps [1]mad.Packet
	for {
		if _, err := p.Recv(ps[:]); err != nil {
			t.Fatal(err)
		}
		if ps[0].Key() == key {
			return &ps[0]
		}
	}
}

func testGets(t *testing.T, o Options) {
	o.Node = "h3"
	p := open(t, o)
	l, err := p.Local()
	if err != nil {
		t.Fatal(err)
	}
	if l.Device != "h3" || l.GUID != 0x100007 || l.NodeGUID != 0x100006 || l.Port != 1 || len(l.PKeys) != 1 {
		t.Errorf("local port is %+v", l)
	}
	r := get(t, p, 0x1234, mad.AttrNodeInfo)
	ni := mad.NodeInfo(r.MAD().Data())
	if r.Err != nil || ni.NodeType() != mad.NodeCA || ni.NodeGUID() != 0x100006 || ni.LocalPortNum() != 1 {
		t.Errorf("own NodeInfo: %v, %v", r, r.Err)
	}
	r = get(t, p, 0x1235, mad.AttrNodeInfo, 1)
	ni = mad.NodeInfo(r.MAD().Data())
	if ni.NodeType() != mad.NodeSwitch || ni.NodeGUID() != 0x200000 || ni.NumPorts() != 16 || ni.LocalPortNum() != 4 {
		t.Errorf("NodeInfo of the switch: %v, %v", r, r.Err)
	}
	if got := r.MAD().ReturnPath(); len(got) != 1 || got[0] != 4 {
		t.Errorf("return path is %v, want [4]", got)
	}
	r = get(t, p, 0x1236, mad.AttrNodeDescription, 1, 2)
	if got := mad.NodeDescription(r.MAD().Data()).Description(); got != "h1" {
		t.Errorf("the host at port 2 is %q, want h1", got)
	}
}

func TestGetsOverUnix(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	testGets(t, Options{SockName: s.Name})
}

func TestGetsOverUDP(t *testing.T) {
	s := ibsimtest.StartRemote(t, "testdata/ft32.net")
	testGets(t, Options{Server: s.Addr})
}

// A port that leads nowhere makes ibsim say "lost"; the request is repeated and
// comes back in its own time.
func TestLostIsTimedOut(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	p := open(t, Options{SockName: s.Name, Node: "h3"})
	begin := time.Now()
	r := get(t, p, 7, mad.AttrNodeInfo, 1, 99)
	if !errors.Is(r.Err, mad.ErrTimeout) {
		t.Fatalf("a Get to nowhere came back as %v", r)
	}
	if took := time.Since(begin); took < 400*time.Millisecond {
		t.Errorf("it came back after %v: it was not sent four times", took)
	}
	lost, bad := p.Lost()
	for end := time.Now().Add(5 * time.Second); lost < 4 && time.Now().Before(end); lost, bad = p.Lost() {
		time.Sleep(time.Millisecond) // The last one may still be on its way back.
	}
	if lost != 4 || bad != 0 {
		t.Errorf("%d lost and %d bad packets, want 4 and 0", lost, bad)
	}
}

// With half the MADs to a switch dropped, its answers still come.
func TestRetriesOverLoss(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	p := open(t, Options{SockName: s.Name, Node: "h3"})
	get(t, p, 1, mad.AttrNodeInfo)
	s.Console(`Error "leaf0" 50`)
	awaitLoss(t, p)
	for i := range uint64(30) {
		pkt := &mad.Packet{Addr: mad.Direct, Timeout: 10 * time.Millisecond, Retries: 300}
		if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}); err != nil {
			t.Fatal(err)
		}
		pkt.MAD().SetTID(1000 + i)
		if err := p.Send(pkt); err != nil {
			t.Fatal(err)
		}
		if r := recvKey(t, p, uint32(1000+i)); r.Err != nil {
			t.Fatalf("Get %d: %v", i, r.Err)
		}
	}
}

// awaitLoss asks until the simulator has heard its console.
func awaitLoss(t *testing.T, p *Port) {
	t.Helper()
	for i := range uint64(200) {
		get(t, p, 5000+i, mad.AttrNodeInfo, 1)
		if lost, _ := p.Lost(); lost > 0 {
			return
		}
	}
	t.Fatal("nothing was lost")
}

func TestTenClients(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	for range maxClients {
		open(t, Options{SockName: s.Name, Node: "h3"})
	}
	if p, err := Open(Options{SockName: s.Name}); err == nil {
		p.Close()
		t.Fatal("an eleventh client was taken")
	} else if !strings.Contains(err.Error(), "10 clients") {
		t.Errorf("the error does not say why: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{SockName: s.Name + "x"}, "no simulator of that name"},
		{Options{SockName: s.Name, Node: "nobody"}, "no such node"},
		{Options{SockName: s.Name, Node: strings.Repeat("h", 32)}, "at most 31 bytes"},
		{Options{Server: "no.such.host.invalid"}, "no.such.host.invalid"},
	} {
		p, err := Open(c.o)
		if err == nil {
			p.Close()
			t.Errorf("%+v: opened", c.o)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %q does not say %q", c.o, err, c.want)
		}
	}
}

// IsSM is set and cleared, by SetSM and by Close, and leaves others' alone.
func TestIsSM(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	watch := open(t, Options{SockName: s.Name, Node: "h3"})
	isSM := func(tid uint64) bool {
		r := get(t, watch, tid, mad.AttrPortInfo, 1, 2)
		return mad.PortInfo(r.MAD().Data()).CapabilityMask()&mad.CapIsSM != 0
	}
	p := open(t, Options{SockName: s.Name, Node: "h1"})
	if isSM(1) {
		t.Fatal("IsSM is set from the start")
	}
	if err := p.SetSM(true); err != nil || !isSM(2) {
		t.Fatalf("after SetSM(true): %v", err)
	}
	other := open(t, Options{SockName: s.Name, Node: "h1"})
	if err := other.Close(); err != nil || !isSM(3) {
		t.Error("a client that is no SM cleared another's IsSM")
	}
	if err := p.Close(); err != nil || isSM(4) {
		t.Errorf("after Close IsSM is still set (%v)", err)
	}
}

// What the SM's port is told: a link that goes makes both switches send trap 128.
func TestTraps(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	if out, err := s.Tool("h9", "opensm", "-o", "-f", "osm.log"); err != nil {
		t.Fatalf("opensm: %v\n%s", err, out)
	}
	p := open(t, Options{SockName: s.Name, Node: "h9"})
	if err := p.SetSM(true); err != nil {
		t.Fatal(err)
	}
	s.Console(`Unlink "leaf0"[9]`)
	var ps [1]mad.Packet
	for range 10 {
		if _, err := p.Recv(ps[:]); err != nil {
			t.Fatal(err)
		}
		m := ps[0].MAD()
		if n := mad.Notice(m.Data()); m.Method() == mad.MethodTrap && n.TrapNumber() == mad.TrapLinkState {
			if n.Trap() == nil || ps[0].Addr.LID != n.IssuerLID() {
				t.Errorf("trap 128 of LID %d came from LID %d", n.IssuerLID(), ps[0].Addr.LID)
			}
			return
		}
	}
	t.Error("no trap 128 came")
}

// A client that does not call Recv does not hold up the simulator.
func TestSlowConsumer(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	slow := open(t, Options{SockName: s.Name, Node: "h3"})
	for i := range 20000 {
		pkt := &mad.Packet{Addr: mad.Direct, Timeout: time.Minute}
		if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}); err != nil {
			t.Fatal(err)
		}
		pkt.MAD().SetTID(uint64(i + 1))
		if err := slow.Send(pkt); err != nil {
			t.Fatal(err)
		}
	}
	fast := open(t, Options{SockName: s.Name, Node: "h4"})
	if r := get(t, fast, 1, mad.AttrNodeInfo, 1); r.Err != nil {
		t.Error("another client gets no answers")
	}
	ps := make([]mad.Packet, 256)
	for got := 0; got < 20000; {
		n, err := slow.Recv(ps)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
}

// The stock tools work beside ours, which is under way all the time.
func TestToolsBeside(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	p := open(t, Options{SockName: s.Name, Node: "h3"})
	get(t, p, 1, mad.AttrNodeInfo, 1)
	out, err := s.Tool("h5", "ibnetdiscover")
	if err != nil || strings.Count(out, "\nSwitch") != 8 || strings.Count(out, "\nCa") != 32 {
		t.Errorf("ibnetdiscover: %v\n%s", err, out)
	}
	get(t, p, 2, mad.AttrNodeInfo, 1)
}

func TestSimulatorDies(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	p := open(t, Options{SockName: s.Name, Node: "h3"})
	s.Kill()
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: time.Second}
	if err := pkt.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, nil); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := p.Send(pkt); err != nil {
			return
		}
		pkt.MAD().SetTID(pkt.MAD().TID() + 1)
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("sending to a dead simulator never fails")
}
