package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

const patience = time.Minute

// side is a device with what a QP needs.
type side struct {
	t   *testing.T
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newPair opens two devices in memory, and sees that the agents of both end.
func newPair(t *testing.T, o verbs.PairOptions) (a, b *side) {
	t.Helper()
	da, db, err := verbs.OpenPair(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		da.Close()
		db.Close()
		ended(t, da)
		ended(t, db)
	})
	return newSide(t, da), newSide(t, db)
}

func ended(t *testing.T, d *verbs.Device) {
	t.Helper()
	agents.Lock()
	a := agents.of[d]
	agents.Unlock()
	if a == nil {
		return
	}
	select {
	case <-a.stopped:
	case <-time.After(patience):
		t.Error("the agent goes on")
	}
}

func newSide(t *testing.T, d *verbs.Device) *side {
	s := &side{t: t, dev: d, pd: must(d.AllocPD())}
	s.cq = must(d.CreateCQ(256, nil))
	s.mr = must(s.pd.RegMR(make([]byte, 4096), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead))
	return s
}

// qp makes a QP with a receive posted.
func (s *side) qp(typ verbs.QPType) *verbs.QP {
	s.t.Helper()
	q := must(s.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq}))
	if err := q.ToInit(verbs.ConnectOptions{QKey: QKeyUDP, Access: verbs.RemoteWrite | verbs.RemoteRead}); err != nil {
		s.t.Fatal(err)
	}
	must(q.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{s.mr.SGE(0, 1024)}}))
	return q
}

// wait polls for a completion.
func (s *side) wait() verbs.WC {
	s.t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(patience); s.cq.Poll(wc[:]) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			s.t.Fatal("no completion")
		}
	}
	return wc[0]
}

// addr is the side's first address, IPv4 or IPv6.
func (s *side) addr(v4 bool, port uint16) netip.AddrPort {
	for _, g := range s.dev.GIDs() {
		if a := g.Addr().Unmap(); a.Is4() == v4 {
			return netip.AddrPortFrom(a, port)
		}
	}
	panic("no such address")
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return c
}

// serve accepts the next request with q.
func serve(t *testing.T, l *Listener, o Options) <-chan *Conn {
	done := make(chan *Conn, 1)
	go func() {
		defer close(done)
		r, err := l.Accept(ctx(t))
		if err != nil {
			t.Error(err)
			return
		}
		c, err := r.Accept(ctx(t), o)
		if err != nil {
			t.Error(err)
			return
		}
		done <- c
	}()
	return done
}

func TestDialAndListen(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		for _, v4 := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, IPv4 %v", typ, v4), func(t *testing.T) { dialAndListen(t, typ, v4) })
		}
	}
	conform.Row(t, "5.10/mad", "5.10/handshake", "5.10/disconnect", "5.10/ip-service", "5.10/ip-private")
}

func dialAndListen(t *testing.T, typ verbs.QPType, v4 bool) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(v4, 0), ListenOptions{}))
	if l.Addr().Port() < firstPort {
		t.Errorf("listens at %v", l.Addr())
	}
	qa, qb := a.qp(typ), b.qp(typ)
	accepted := serve(t, l, Options{QP: qb, Private: []byte("welcome"), Connect: verbs.ConnectOptions{MaxRdAtomic: 3, MaxDestRdAtomic: 5}})
	ca, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: qa, Private: []byte("hello"), Connect: verbs.ConnectOptions{MaxRdAtomic: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	cb := <-accepted
	if !bytes.HasPrefix(cb.Private(), []byte("hello\x00")) || len(cb.Private()) != 56 || !bytes.HasPrefix(ca.Private(), []byte("welcome\x00")) {
		t.Errorf("private data %q and %q", cb.Private(), ca.Private())
	}
	if ca.RemoteAddr() != l.Addr() || cb.LocalAddr() != l.Addr() || ca.LocalAddr() != cb.RemoteAddr() || ca.LocalAddr().Addr() != a.addr(v4, 0).Addr() {
		t.Errorf("%v to %v, from %v at %v", ca.LocalAddr(), ca.RemoteAddr(), cb.RemoteAddr(), cb.LocalAddr())
	}
	if xa, xb := must(qa.Query()), must(qb.Query()); typ == verbs.RC && (xa.MaxRdAtomic != 5 || xb.MaxDestRdAtomic != 5 || xa.MaxDestRdAtomic != 3 || xb.MaxRdAtomic != 3) {
		t.Errorf("READs: %d to %d, %d to %d", xa.MaxRdAtomic, xb.MaxDestRdAtomic, xb.MaxRdAtomic, xa.MaxDestRdAtomic)
	}
	for _, e := range []struct {
		from, to *side
		q        *verbs.QP
	}{{a, b, qa}, {b, a, qb}} {
		must(e.q.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Flags: verbs.Signaled, InlineData: []byte("data")}))
		if wc := e.from.wait(); wc.Status != verbs.Success {
			t.Fatalf("sent: %v", wc.Status)
		}
		if wc := e.to.wait(); wc.Status != verbs.Success || string(e.to.mr.Bytes()[:wc.ByteLen]) != "data" {
			t.Fatalf("received: %+v", wc)
		}
	}
	if err := ca.Disconnect(ctx(t), nil); err != nil {
		t.Error(err)
	}
	<-cb.Done()
	if ca.Err() != nil || cb.Err() != nil || must(qa.Query()).State != verbs.StateErr || must(qb.Query()).State != verbs.StateErr {
		t.Errorf("ended by %v and %v in %v and %v", ca.Err(), cb.Err(), must(qa.Query()).State, must(qb.Query()).State)
	}
	for _, e := range []error{ca.Close(), cb.Close(), ca.Close(), l.Close()} {
		if e != nil {
			t.Error(e)
		}
	}
	if err := l.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	ended(t, a.dev) // when both connections have left TimeWait
	ended(t, b.dev)
}

// Each way in which a request comes to nothing.
func TestRejected(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, netip.AddrPortFrom(netip.IPv4Unspecified(), 7777), ListenOptions{MinRNRRetry: 3}))
	defer l.Close()
	q := a.qp(verbs.RC)
	dial := func(port uint16, o verbs.ConnectOptions) error {
		_, err := Dial(ctx(t), a.dev, b.addr(true, port), DialOptions{Options: Options{QP: q, Connect: o}})
		return err
	}
	var r *RejectedError
	if err := dial(7778, verbs.ConnectOptions{}); !errors.As(err, &r) || r.Reason != InvalidServiceID {
		t.Errorf("nobody listens: %v", err)
	}
	if err := dial(7777, verbs.ConnectOptions{RNRRetry: 1}); !errors.As(err, &r) || r.Reason != cm.RejInvalidRNRRetry {
		t.Errorf("too few retries: %v", err)
	}
	go func() {
		must(l.Accept(ctx(t))).Reject(ConsumerReject, []byte("go away"))
		must(l.Accept(ctx(t))).Accept(ctx(t), Options{QP: b.qp(verbs.UC)})
	}()
	if err := dial(7777, verbs.ConnectOptions{}); !errors.As(err, &r) || r.Reason != ConsumerReject || !bytes.HasPrefix(r.Private, []byte("go away\x00")) ||
		!strings.Contains(err.Error(), "consumer reject (reason 28)") {
		t.Errorf("rejected: %v", err)
	}
	if err := dial(7777, verbs.ConnectOptions{}); !errors.As(err, &r) || r.Reason != NoQP {
		t.Errorf("the server's QP is of another type: %v", err)
	}
	if _, err := Listen(b.dev, b.addr(true, 7777), ListenOptions{}); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := Listen(b.dev, a.addr(true, 7779), ListenOptions{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a listener at the peer's address: %v", err)
	}
	if s := must(q.Query()).State; s != verbs.StateInit {
		t.Errorf("the QP is in %v", s)
	}
	conform.Row(t, "5.10/rej-1", "5.10/rej-8", "5.10/rej-28", "5.10/rej-29")
}

// What can't be is refused, and leaves nothing.
func TestListenOptionsThatCannotBe(t *testing.T) {
	_, b := newPair(t, verbs.PairOptions{})
	for _, o := range []ListenOptions{{Backlog: -1}, {Backlog: 1 << 62}, {MinRNRRetry: 8}} {
		if _, err := Listen(b.dev, b.addr(true, 7777), o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := must(Listen(b.dev, b.addr(true, 7777), ListenOptions{Backlog: 1 << 16, MinRNRRetry: 7})).Close(); err != nil {
		t.Error(err)
	}
}

// Who gave up while the service was busy takes no QP of it, nor a place from who comes later.
func TestGivenUpBeforeAccept(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(true, 7777), ListenOptions{Backlog: 3}))
	defer l.Close()
	for range 3 {
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := Dial(soon, a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	waitFor(t, "the end of those requests", func() bool {
		l.a.mu.Lock()
		defer l.a.mu.Unlock()
		return l.a.m.Conns() == 0
	})
	qa := a.qp(verbs.RC)
	accepted := serve(t, l, Options{QP: b.qp(verbs.RC)})
	waitFor(t, "a place", func() bool { return len(l.requests) == 0 })
	c, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: qa}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	(<-accepted).Close()
}

// A listener at one address hears no requests for another.
func TestListenAtOneAddress(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(false, 7777), ListenOptions{}))
	defer l.Close()
	var r *RejectedError
	if _, err := Dial(ctx(t), a.dev, b.addr(true, 7777), DialOptions{Options: Options{QP: a.qp(verbs.RC)}}); !errors.As(err, &r) || r.Reason != InvalidServiceID {
		t.Error(err)
	}
}

// The ends have different path MTUs: the passive one refuses the greater and says its own, with which the active one asks again.
func TestSmallerMTU(t *testing.T) {
	conform.Row(t, "bug/41", "5.10/rej-26")
	a, b := newPair(t, verbs.PairOptions{LinkMTU: 1500})
	if b.dev.QueryPort().ActiveMTU != ib.MTU1024 {
		t.Fatalf("active MTU %v", b.dev.QueryPort().ActiveMTU)
	}
	l := must(Listen(b.dev, netip.AddrPort{}, ListenOptions{}))
	defer l.Close()
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	accepted := serve(t, l, Options{QP: qb})
	c, err := Dial(ctx(t), a.dev, b.addr(true, l.Addr().Port()), DialOptions{Options: Options{QP: qa, Connect: verbs.ConnectOptions{PathMTU: ib.MTU4096}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer (<-accepted).Close()
	if x, y := must(qa.Query()).PathMTU, must(qb.Query()).PathMTU; x != ib.MTU1024 || y != ib.MTU1024 {
		t.Errorf("path MTUs %v and %v", x, y)
	}
}

func TestUnreachable(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	to := b.addr(true, 1)
	b.dev.Close()
	fast := DialOptions{Options: Options{QP: a.qp(verbs.RC)}, ResponseTimeout: 12, PacketLifetime: 10, MaxRetries: 3}
	if _, err := Dial(ctx(t), a.dev, to, fast); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if _, err := ResolveUD(ctx(t), a.dev, to, ResolveOptions{ResponseTimeout: 12, PacketLifetime: 10, MaxRetries: 3}); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Dial(short, a.dev, to, DialOptions{Options: Options{QP: a.qp(verbs.RC)}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A datagram QP is asked for, and datagrams go there.
func TestResolve(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(ListenUD(b.dev, b.addr(true, 7174), ListenOptions{}))
	defer l.Close()
	qb := b.qp(verbs.UD)
	if err := qb.Start(verbs.ConnectOptions{QKey: QKeyUDP}); err != nil {
		t.Fatal(err)
	}
	go func() {
		r := must(l.Accept(ctx(t)))
		if r.Type() != verbs.UD || !bytes.HasPrefix(r.Private(), []byte("who\x00")) || len(r.Private()) != 180 {
			t.Errorf("%v, %q", r.Type(), r.Private())
		}
		if err := r.AcceptUD(qb, QKeyUDP, []byte("me")); err != nil {
			t.Error(err)
		}
		must(l.Accept(ctx(t))).Reject(ConsumerReject, []byte("no"))
	}()
	d, err := ResolveUD(ctx(t), a.dev, l.Addr(), ResolveOptions{Private: []byte("who")})
	if err != nil || d.QPN != qb.Number() || d.QKey != QKeyUDP || !bytes.HasPrefix(d.Private, []byte("me\x00")) {
		t.Fatalf("%+v, %v", d, err)
	}
	qa := a.qp(verbs.UD)
	if err := qa.Start(verbs.ConnectOptions{QKey: QKeyUDP}); err != nil {
		t.Fatal(err)
	}
	must(qa.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: []byte("data"), AH: must(a.pd.CreateAH(d.AV)), RemoteQPN: d.QPN, RemoteQKey: d.QKey}))
	if wc := b.wait(); wc.Status != verbs.Success || string(b.mr.Bytes()[verbs.GRHLen:wc.ByteLen]) != "data" {
		t.Errorf("received %+v", wc)
	}
	var r *RejectedError
	if _, err := ResolveUD(ctx(t), a.dev, l.Addr(), ResolveOptions{}); !errors.As(err, &r) || r.Status != cm.SIDRRejected || !bytes.HasPrefix(r.Private, []byte("no\x00")) {
		t.Error(err)
	}
}

// Hundreds ask at once. All are served in the end, and nothing wedges.
func TestManyAtOnce(t *testing.T) {
	conform.Row(t, "bug/54")
	const n = 300
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{Backlog: 20}))
	small := verbs.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	newQP := func(s *side) *verbs.QP {
		return must(s.pd.CreateQP(verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Caps: small}))
	}
	go func() {
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go r.Accept(context.Background(), Options{QP: newQP(b)})
		}
	}()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			q := newQP(a)
			for {
				var r *RejectedError
				c, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: q}})
				if errors.As(err, &r) && r.Reason == NoResources {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				return
			}
		})
	}
	all.Wait()
	l.Close()
}

func TestBadOptions(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	q := a.qp(verbs.RC)
	to := b.addr(true, 1)
	for name, o := range map[string]DialOptions{
		"no QP":                {},
		"a QP of the peer":     {Options: Options{QP: b.qp(verbs.RC)}},
		"a UD QP":              {Options: Options{QP: a.qp(verbs.UD)}},
		"too much private":     {Options: Options{QP: q, Private: make([]byte, 57)}},
		"an address elsewhere": {Options: Options{QP: q}, LocalAddr: to.Addr()},
	} {
		if _, err := Dial(ctx(t), a.dev, to, o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, to := range []string{"", "0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1", "127.0.0.1:1", "224.0.0.1:1", "[ff02::1]:1", "255.255.255.255:1"} {
		to, _ := netip.ParseAddrPort(to)
		if _, err := Dial(ctx(t), a.dev, to, DialOptions{Options: Options{QP: q}}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("dial %v: %v", to, err)
		}
		if _, err := ResolveUD(ctx(t), a.dev, to, ResolveOptions{}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("resolve %v: %v", to, err)
		}
	}
	if _, err := Dial(ctx(t), a.dev, to, DialOptions{Options: Options{QP: q}, LocalAddr: a.addr(false, 0).Addr()}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("two versions of IP: %v", err)
	}
	gsi := must(a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.GSI, SendCQ: a.cq, RecvCQ: a.cq}))
	if _, err := Dial(ctx(t), a.dev, to, DialOptions{Options: Options{QP: q}}); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("QP1 is taken: %v", err)
	}
	if err := gsi.Destroy(); err != nil {
		t.Error(err)
	}
}

// Who waits when the device is closed is told.
func TestDeviceCloses(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
	go func() {
		must(l.Accept(ctx(t)))
		a.dev.Close()
		b.dev.Close()
	}()
	if _, err := Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
	if _, err := l.Accept(ctx(t)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// A connection ends with its device; and a new one may be asked for as soon as the last of a device was closed.
func TestConnectionsEndWithTheirDevice(t *testing.T) {
	a, b := newPair(t, verbs.PairOptions{})
	for range 5 {
		l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
		accepted := serve(t, l, Options{QP: b.qp(verbs.RC)})
		c := must(Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}}))
		for _, err := range []error{c.Close(), (<-accepted).Close(), l.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	l := must(Listen(b.dev, b.addr(true, 0), ListenOptions{}))
	accepted := serve(t, l, Options{QP: b.qp(verbs.RC)})
	c := must(Dial(ctx(t), a.dev, l.Addr(), DialOptions{Options: Options{QP: a.qp(verbs.RC)}}))
	<-accepted
	a.dev.Close()
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the device is closed, and its connection goes on")
	}
	if !errors.Is(c.Err(), verbs.ErrClosed) {
		t.Errorf("it ended by %v", c.Err())
	}
}
