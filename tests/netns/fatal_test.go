package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// types are the transports that a flock is of.
var types = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD}

// newTyped is newSide for a QP of a type.
func newTyped(d *verbs.Device, typ verbs.QPType, addr netip.Addr) *side {
	s := newSide(d, 1<<16, addr)
	if err := s.qp.Destroy(); err != nil {
		panic(err)
	}
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq}))
	return s
}

const flockQKey = 0x4791

// pairOf makes connected sides of a type, the second of which receives for ever. RC waits for an answer without end, so
// that nothing but the port's end ends a request.
func pairOf(t testing.TB, p *nettest.Pair, devs [2]*verbs.Device, typ verbs.QPType) (a, b *side) {
	t.Helper()
	a, b = newTyped(devs[0], typ, p.Ends[0].V4), newTyped(devs[1], typ, p.Ends[1].V4)
	o := verbs.ConnectOptions{Timeout: verbs.Zero, QKey: flockQKey}
	if typ == verbs.UD {
		if err := errors.Join(a.qp.Start(o), b.qp.Start(o)); err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	connect(t, a, b, o)
	return a, b
}

// spew keeps a's send queue full of SENDs, WRITEs and READs, as its type has them, and b's receive queue of receives,
// until a request fails or a QP is gone. It returns how each of the QPs ended: the statuses of what didn't succeed.
func spew(a, b *side) (statuses map[verbs.WCStatus]int, err error) {
	var ah *verbs.AH
	if a.qp.Type() == verbs.UD {
		av := verbs.AV{DGID: ib.GIDFromAddr(b.addr), SGIDIndex: uint8(gidIndex(a.dev, a.addr))}
		if ah, err = a.pd.CreateAH(av); err != nil {
			return nil, err
		}
	}
	statuses = map[verbs.WCStatus]int{}
	wcs := make([]verbs.WC, 64)
	left := [2]int{} // work requests without a completion
	post := func(k int) {
		ops := map[verbs.QPType][]verbs.Opcode{verbs.RC: {verbs.OpSend, verbs.OpWrite, verbs.OpRead}, verbs.UC: {verbs.OpSend, verbs.OpWrite}, verbs.UD: {verbs.OpSend}}[a.qp.Type()]
		wr := verbs.SendWR{Opcode: ops[k%len(ops)], Flags: verbs.Signaled, SGEs: []verbs.SGE{a.mr.SGE(0, 900)},
			RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey(), AH: ah, RemoteQPN: b.qp.Number(), RemoteQKey: flockQKey}
		if _, err := a.qp.PostSend(wr); err == nil {
			left[0]++
		}
		if _, err := b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 1000)}}); err == nil {
			left[1]++
		}
	}
	end := time.Now().Add(2 * patience)
	for k := 0; len(statuses) == 0 || left != [2]int{}; k++ {
		if len(statuses) == 0 {
			post(k)
		}
		for i, s := range []*side{a, b} {
			for _, wc := range wcs[:s.cq.Poll(wcs)] {
				left[i]--
				if wc.Status != verbs.Success {
					statuses[wc.Status]++
				}
			}
		}
		if time.Now().After(end) {
			return statuses, fmt.Errorf("%v: %d sends and %d receives never complete; %v", a.qp.Type(), left[0], left[1], statuses)
		}
	}
	return statuses, nil
}

// An interface is removed while QPs of all types send and receive on several queues, and others sleep until something
// completes: each work request completes, also of connections whose timer never runs out; the device says that it is
// gone, and another interface by that name can be opened.
func TestRemovedUnderEverything(t *testing.T) {
	p := nettest.New(t, nettest.Config{Queues: 2})
	before := takeStock(t)
	devs := [2]*verbs.Device{open(t, p.Ends[0]), open(t, p.Ends[1])}
	type end struct {
		typ      verbs.QPType
		statuses map[verbs.WCStatus]int
		err      error
	}
	ends := make(chan end)
	for _, typ := range types {
		a, b := pairOf(t, p, devs, typ)
		go func() {
			statuses, err := spew(a, b)
			ends <- end{typ, statuses, err}
		}()
	}
	// Those who sleep: one has a receive that nothing comes for.
	idle, other := pairOf(t, p, devs, verbs.RC)
	must(idle.qp.PostRecv(verbs.RecvWR{ID: 5, SGEs: []verbs.SGE{idle.mr.SGE(0, 8)}}))
	slept := make(chan error, 1)
	go func() {
		wcs, err := idle.collect(1, 2*patience)
		if err == nil && wcs[0].Status != verbs.WRFlushErr {
			err = fmt.Errorf("the receive ended with %v", wcs[0].Status)
		}
		slept <- err
	}()
	eventually(t, "traffic", func() bool { return devs[1].Stats().Counters["rcvd_pkts"] > 1000 })

	onLink(t, p.Ends[0], netlink.LinkDel) // both ends: it is a veth
	for range types {
		e := <-ends
		if e.err != nil {
			t.Error(e.err)
		}
		for s := range e.statuses {
			if s != verbs.WRFlushErr && (s != verbs.RetryExcErr || e.typ != verbs.RC) {
				t.Errorf("%v: a work request ended with %v", e.typ, s)
			}
		}
		if e.typ == verbs.RC && e.statuses[verbs.RetryExcErr] != 1 {
			t.Errorf("RC: %v, want one %v", e.statuses, verbs.RetryExcErr)
		}
	}
	if err := <-slept; err != nil {
		t.Error(err)
	}
	for i, d := range devs {
		wantEvent(t, d, verbs.EventDeviceFatal)
		if _, err := [2]*side{idle, other}[i].pd.CreateQP(verbs.QPInitAttr{SendCQ: idle.cq, RecvCQ: idle.cq}); err == nil {
			t.Error("a QP was made on a device that is gone")
		}
	}
	if a := must(idle.qp.Query()); a.State != verbs.StateErr {
		t.Errorf("the idle QP is in %v", a.State)
	}
	for _, d := range devs {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	before.compare(t)
	again(t, p)
}

// again makes an interface by the name of the one that was removed, and opens it.
func again(t *testing.T, p *nettest.Pair) {
	t.Helper()
	q := nettest.New(t, nettest.Config{})
	for i, e := range q.Ends {
		err := e.NS.Do(func() error {
			l, err := netlink.LinkByName(e.Name)
			if err != nil {
				return err
			}
			return netlink.LinkSetNsFd(l, p.Ends[i].NS.FD())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var devs [2]*verbs.Device
	for i, e := range p.Ends {
		if err := e.NS.SetUp(e.Name, true); err != nil {
			t.Fatal(err)
		}
		addAddr(t, e, e.V4.String()+"/24")
		devs[i] = open(t, e)
	}
	a, b := newSides(t, p, devs, 1<<16, verbs.ConnectOptions{})
	everyOperation(t, a, b, 5001, 1, nil)
}

// Its name changes under load: the device keeps its own, and all goes on. Who asks for the new name is told that the
// interface is in use.
func TestRenamedUnderLoad(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, verbs.ConnectOptions{})
	e := p.Ends[0]
	onLink(t, e, func(k netlink.Link) error { return netlink.LinkSetName(k, "other0") })
	l.progresses(t, 50)
	if devs[0].Name() != e.Name || devs[0].QueryPort().State != ib.PortActive {
		t.Errorf("%s is %v", devs[0].Name(), devs[0].QueryPort().State)
	}
	err := e.NS.Do(func() error {
		d, err := verbs.Open("other0", verbs.Options{})
		if err == nil {
			d.Close()
		}
		return err
	})
	if !errors.Is(err, verbs.ErrHeld) {
		t.Errorf("opened by its new name: %v", err)
	}
	// Changes are followed as before.
	old := *e
	e.Name = "other0"
	addAddr(t, e, "10.77.0.60/24")
	eventually(t, "the new address a GID", func() bool { return gidIndex(devs[0], netip.MustParseAddr("10.77.0.60")) >= 0 })
	e.Name = old.Name
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// The MTU becomes less than a path MTU in use: what is too long is lost and counted, short messages pass; RC fails as
// for any loss, or goes on when the MTU is back in time.
func TestMTUShrinksUnderLoad(t *testing.T) {
	p, devs := openPair(t, nettest.Config{MTU: 4200})
	mtu := func(n int, active ib.MTU) {
		t.Helper()
		onLink(t, p.Ends[0], func(l netlink.Link) error { return netlink.LinkSetMTU(l, n) })
		eventually(t, active.String()+" active", func() bool { return devs[0].QueryPort().ActiveMTU == active })
	}
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, verbs.ConnectOptions{PathMTU: ib.MTU4096, Timeout: 16}) // 8 × 268 ms
	tooLong := func() uint64 { return devs[0].Stats().Counters["tx_too_long"] }
	mtu(1500, ib.MTU1024)
	eventually(t, "packets too long", func() bool { return tooLong() > 0 })
	mtu(4200, ib.MTU4096)
	l.progresses(t, 50)

	short, there := newSide(devs[0], 1<<16, p.Ends[0].V4), newSide(devs[1], 1<<16, p.Ends[1].V4)
	connect(t, short, there, verbs.ConnectOptions{PathMTU: ib.MTU4096})
	mtu(1500, ib.MTU1024)
	short.write(t, there, 1, 0, 1000)
	short.done(t, 1)
	if s := l.fails(t); s != verbs.RetryExcErr {
		t.Errorf("status %v, want %v", s, verbs.RetryExcErr)
	}
	if err := short.qp.Modify(verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState); err != nil {
		t.Fatal(err)
	}
	if err := short.qp.Connect(must(there.qp.Endpoint(1)), verbs.ConnectOptions{PathMTU: ib.MTU4096}); err == nil {
		t.Error("connected with a path MTU above the active one")
	}
}
