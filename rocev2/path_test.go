package rocev2

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// changingNet is a Net that a test changes.
type changingNet struct {
	FixedNet
	mu     sync.Mutex
	notify func()
	mac    [6]byte // of every peer
	known  bool
	err    error
}

func (n *changingNet) Notify(f func()) { n.notify = f }

func (n *changingNet) Resolve(sgid ib.GID, vlan uint16, dgid ib.GID) (wire.Flow, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return wire.Flow{SrcMAC: macOf(sgid), DstMAC: n.mac, Src: sgid, Dst: dgid}, n.known, n.err
}

func (n *changingNet) set(mac byte, known bool, err error) {
	n.mu.Lock()
	n.mac, n.known, n.err = [6]byte{2, 0, 0, 0, 0, mac}, known, err
	n.mu.Unlock()
	n.notify()
}

func TestPathsFollowTheNetwork(t *testing.T) {
	l, far, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	net := &changingNet{FixedNet: FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}}}
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: net, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	q := newFakes(t, p, 1, gid("10.0.0.2"))[0]
	w := p.Workers()[0]
	now := clock.Time(1)
	// sent lets q send a packet and returns where it went; 0 when it was parked.
	sent := func() byte {
		q.owed.Store(1)
		q.Doorbell()
		for w.Step(now) {
			now++
		}
		var f [1]RxFrame
		if far.Recv(f[:]) == 0 {
			return 0
		}
		mac := f[0].Frag[0][5]
		far.Release(f[:])
		return mac
	}
	for _, c := range []struct {
		what string
		do   func()
		want byte
	}{
		{"the neighbour is not known", func() {}, 0},
		{"it becomes known", func() { net.set(7, true, nil) }, 7},
		{"it moves", func() { net.set(8, true, nil) }, 8},
		{"it is not confirmed any more", func() { net.set(0, false, nil) }, 8},
		{"our address is gone", func() { net.set(0, false, fmt.Errorf("gone")) }, 0},
		{"it is back, the neighbour unknown", func() { net.set(0, false, nil) }, 0},
		{"all is well again", func() { net.set(9, true, nil) }, 9},
	} {
		c.do()
		if got := sent(); got != c.want {
			t.Errorf("%s: the packet went to %d, want %d", c.what, got, c.want)
		}
	}
}

func TestModifyErrors(t *testing.T) {
	conform.Row(t, "bug/40")
	a, _ := newPorts(t, true, 1, PairOptions{})
	x, _, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	small, err := NewPort(Config{Name: "small", Links: []Link{x}, Manual: true, Net: &FixedNet{
		Addresses: []ib.GID{gid("fe80::1"), {}, gid("10.0.0.1")}, LinkMTU: 1500}})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	for _, c := range []struct {
		port *Port
		av   qp.AV
		mtu  ib.MTU
		want []string
	}{
		{small, qp.AV{DGID: gid("fe80::2")}, ib.MTU2048, []string{"path MTU 2048", "active MTU 1024", "1500"}},
		{small, qp.AV{DGID: gid("fe80::2"), SGIDIndex: 1}, ib.MTU1024, []string{"SGID index 1", "0: fe80::1", "2: ::ffff:10.0.0.1"}},
		{small, qp.AV{DGID: gid("fe80::2"), SGIDIndex: 9}, ib.MTU1024, []string{"SGID index 9"}},
		{small, qp.AV{DGID: gid("10.0.0.2")}, ib.MTU1024, []string{"IP version", "10.0.0.2", "fe80::1"}},
		{small, qp.AV{}, ib.MTU1024, []string{"no DGID"}},
		{small, qp.AV{DGID: gid("ff02::1")}, ib.MTU1024, []string{"multicast"}},
		{small, qp.AV{DGID: gid("fe80::2"), FlowLabel: 1 << 20}, ib.MTU1024, []string{"flow label 0x100000"}},
		{small, qp.AV{DGID: gid("fe80::2"), Port: 2}, ib.MTU1024, []string{"port 2"}},
		{a, qp.AV{DGID: gid("10.0.0.2")}, 9, []string{"PATH_MTU"}},
	} {
		e := newEndpoint(t, c.port, 100, 4)
		steps := []struct {
			a    qp.Attr
			mask qp.AttrMask
		}{
			{qp.Attr{State: qp.Init, Port: 1}, qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess},
			{qp.Attr{State: qp.RTR, AV: c.av, PathMTU: c.mtu, DestQPN: 5},
				qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		}
		if err := e.Modify(&steps[0].a, steps[0].mask); err != nil {
			t.Fatal(err)
		}
		err := e.Modify(&steps[1].a, steps[1].mask)
		if err == nil {
			t.Errorf("%+v, MTU %v: no error", c.av, c.mtu)
			continue
		}
		for _, w := range append(c.want, c.port.Name(), e.Number().String()) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q doesn't say %q", err, w)
			}
		}
		if s := e.Query().State; s != qp.Init {
			t.Errorf("after an error the state is %v, want INIT", s)
		}
	}
}

func TestHeadersOfAPath(t *testing.T) {
	conform.Row(t, "5.6/hops", "5.6/sport-3")
	l, far, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(t, "a", true, "fe80::1", l)
	e := newEndpoint(t, p, 100, 4)
	e.Modify(&qp.Attr{State: qp.Init, Port: 1}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess)
	if err := e.Modify(&qp.Attr{State: qp.RTR, PathMTU: ib.MTU1024, DestQPN: 0x1234,
		AV: qp.AV{DGID: gid("fe80::2"), TClass: 0x6a, FlowLabel: 0x12345, HopLimit: 3}},
		qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer); err != nil {
		t.Fatal(err)
	}
	if err := e.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrSQPSN|qp.AttrMaxRdAtomic); err != nil {
		t.Fatal(err)
	}
	e.send(1, 0, 10)
	p.Workers()[0].Step(1)
	var f [1]RxFrame
	if far.Recv(f[:]) != 1 {
		t.Fatal("nothing was sent")
	}
	var pkt wire.Packet
	if v := wire.Parse(&pkt, &f[0].Frame); v != wire.Accepted {
		t.Fatal(v)
	}
	got := wire.FlowOf(&pkt)
	want := wire.Flow{SrcMAC: macOf(gid("fe80::1")), DstMAC: macOf(gid("fe80::2")), Src: gid("fe80::1"), Dst: gid("fe80::2"),
		TClass: 0x6a, FlowLabel: 0x12345, HopLimit: 3, SrcPort: 0xe341}
	if got != want {
		t.Errorf("flow %+v, want %+v", got, want)
	}
	if pkt.DestQP != 0x1234 {
		t.Errorf("destination QP %v", pkt.DestQP)
	}
}
