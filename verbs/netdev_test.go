package verbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

// open opens the interface of an end of a veth pair.
func open(t *testing.T, e *nettest.End) *Device {
	t.Helper()
	var d *Device
	if err := e.NS.Do(func() (err error) { d, err = Open(e.Name, Options{}); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Everything over real AF_XDP sockets, and over all queues.
func TestOverAFXDP(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{MTU: 5000, Queues: 2})
	a, b := newSide(open(t, p.Ends[0]), 1<<17, Caps{}), newSide(open(t, p.Ends[1]), 1<<17, Caps{})
	if a.dev.QueryPort().ActiveMTU != ib.MTU4096 || a.dev.Name() != p.Ends[0].Name || a.dev.Query().NodeGUID != ib.GUIDFromMAC(p.Ends[0].MAC) {
		t.Errorf("%+v %+v", a.dev.QueryPort(), a.dev.Query())
	}
	for gid := range a.dev.GIDs() {
		o := ConnectOptions{GIDIndex: gid, PathMTU: ib.MTU4096}
		connect(t, a, b, o)
		for i, n := range []int{0, 1, 4096, 4097, 65537} {
			everyOperation(t, a, b, n, uint64(i))
			everyOperation(t, b, a, n, uint64(i)+100)
		}
		for _, s := range []*side{a, b} {
			if err := s.qp.Modify(QPAttr{State: StateReset}, AttrState); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDevicesAndHolder(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	e := p.Ends[0]
	d := open(t, e)
	var list []DeviceInfo
	var second error
	if err := e.NS.Do(func() (err error) {
		_, second = Open(e.Name, Options{})
		list, err = Devices()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(second, ErrHeld) || !strings.Contains(second.Error(), "held by process") || !strings.Contains(second.Error(), os.Args[0]) {
		t.Errorf("a second opener got: %v", second)
	}
	if len(list) != 1 || list[0].Name != e.Name || list[0].Port.State != ib.PortActive || list[0].Port.ActiveMTU != ib.MTU1024 ||
		list[0].NodeGUID != d.Query().NodeGUID || len(list[0].GIDs) != len(d.GIDs()) || list[0].GIDs[0] != d.GIDs()[0] {
		t.Errorf("%+v\nthe device's GIDs: %v", list, d.GIDs())
	}
}

// Who else has an XDP program on the interface is named when AF_XDP is asked for; else
// the device is over AF_PACKET and says why.
func TestInterfaceOfAnotherProgram(t *testing.T) {
	nettest.Require(t)
	e := nettest.New(t, nettest.Config{}).Ends[0]
	if err := e.NS.Do(func() error {
		other, err := xdp.Open(e.Name, xdp.Options{})
		if err != nil {
			return err
		}
		defer other.Close()
		_, err = Open(e.Name, Options{Link: LinkAFXDP})
		if !errors.Is(err, ErrXDPInUse) || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "urxe_roce") {
			t.Errorf("opened beside another program: %v", err)
		}
		d, err := Open(e.Name, Options{})
		if err != nil {
			return err
		}
		if s := d.Stats(); s.Link != "af_packet" || s.AFPacket == nil || s.XDP != nil || len(s.Reasons) != 1 || !strings.Contains(s.Reasons[0], "urxe_roce") {
			t.Errorf("%+v", s)
		}
		return d.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

func TestPortEventsOfAnInterface(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	d := open(t, p.Ends[0])
	if err := p.Ends[1].NS.SetUp(p.Ends[1].Name, false); err != nil {
		t.Fatal(err)
	}
	for e := wantFirst(t, d); e.Type != EventPortErr; e = wantFirst(t, d) {
	}
	if s := d.QueryPort().State; s != ib.PortDown {
		t.Errorf("the port is %v", s)
	}
	if err := p.Ends[1].NS.SetUp(p.Ends[1].Name, true); err != nil {
		t.Fatal(err)
	}
	for e := wantFirst(t, d); e.Type != EventPortActive; e = wantFirst(t, d) {
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open("no-such-dev0", Options{})
	if err == nil || !strings.Contains(err.Error(), "no-such-dev0") || errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
