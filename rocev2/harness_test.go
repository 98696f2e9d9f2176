package rocev2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
)

// compQueue keeps completions; with a size, it overruns.
type compQueue struct {
	mu      sync.Mutex
	cs      []qp.Completion
	size    int
	calls   int
	overrun bool
}

func (c *compQueue) Push(cs []qp.Completion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.size > 0 && len(c.cs)+len(cs) > c.size {
		c.overrun = true
	}
	if !c.overrun {
		c.cs = append(c.cs, cs...)
	}
	return !c.overrun
}

func (c *compQueue) take() (cs []qp.Completion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cs, c.cs = c.cs, nil
	return cs
}

func (c *compQueue) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.cs)
}

// endpoint is a QP with its queues and one memory region.
type endpoint struct {
	*QP
	port *Port
	sq   qptest.SendQueue
	rq   qptest.RecvQueue
	cq   compQueue
	buf  []byte
	slow bool // the local ACK timeout is half a second instead of 67 ms
	mr   *mem.MR

	mu     sync.Mutex
	events []qp.Event
}

func gid(s string) ib.GID {
	g, err := ib.ParseGID(s)
	if err != nil {
		panic(err)
	}
	return g
}

func newPort(t testing.TB, name string, manual bool, addr string, links ...Link) *Port {
	t.Helper()
	p, err := NewPort(Config{Name: name, Links: links, Net: &FixedNet{Addresses: []ib.GID{gid(addr)}}, Manual: manual})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return p
}

// newPorts makes two Ports that are joined by a memory pair per queue.
func newPorts(t testing.TB, manual bool, queues int, o PairOptions) (a, b *Port) {
	t.Helper()
	var la, lb []Link
	for range queues {
		x, y, err := NewPair(o)
		if err != nil {
			t.Fatal(err)
		}
		la, lb = append(la, x), append(lb, y)
	}
	return newPort(t, "a", manual, "10.0.0.1", la...), newPort(t, "b", manual, "10.0.0.2", lb...)
}

func newEndpoint(t testing.TB, p *Port, memory int, depth int) *endpoint {
	t.Helper()
	e := &endpoint{port: p, buf: make([]byte, memory)}
	pd := new(mem.PD)
	var err error
	e.mr, err = p.Keys().Register(pd, mem.NewBytes(e.buf, 0), 0, 0, uint64(memory),
		mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	e.QP, err = p.CreateQP(QPInit{
		PD: pd, SQ: &e.sq, RQ: &e.rq, SendCQ: &e.cq, RecvCQ: &e.cq, Caps: qp.Caps{
			MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}, SigAll: true,
		OnEvent: func(ev qp.Event) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.events = append(e.events, ev)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Destroy)
	return e
}

// connect takes e to RTS with peer n at dgid, from the first GID.
func (e *endpoint) connect(n ib.QPN, dgid ib.GID, mtu ib.MTU) error {
	return e.connectFrom(0, n, dgid, mtu)
}

func (e *endpoint) connectFrom(sgid uint8, n ib.QPN, dgid ib.GID, mtu ib.MTU) error {
	timeout := uint8(14)
	if e.slow {
		timeout = 17
	}
	const access = mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic
	for _, step := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, Port: 1, Access: access},
			qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess},
		{qp.Attr{State: qp.RTR, AV: qp.AV{DGID: dgid, SGIDIndex: sgid}, PathMTU: mtu, DestQPN: n, RQPSN: 100, MaxDestRdAtomic: 4, MinRNRTimer: 1},
			qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		{qp.Attr{State: qp.RTS, Timeout: timeout, RetryCnt: 7, RNRRetry: 7, SQPSN: 100, MaxRdAtomic: 4},
			qp.AttrState | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic},
	} {
		if err := e.Modify(&step.a, step.mask); err != nil {
			return err
		}
	}
	return nil
}

func join(t testing.TB, x, y *endpoint, mtu ib.MTU) {
	t.Helper()
	for _, p := range [][2]*endpoint{{x, y}, {y, x}} {
		if err := p[0].connect(p[1].Number(), p[1].port.GIDs()[0], mtu); err != nil {
			t.Fatal(err)
		}
	}
}

// modifyInSQD changes attributes of an endpoint in RTS that may change in SQD only.
func (e *endpoint) modifyInSQD(t testing.TB, a qp.Attr, mask qp.AttrMask) {
	t.Helper()
	for _, m := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{{qp.Attr{State: qp.SQD}, qp.AttrState}, {a, mask}, {qp.Attr{State: qp.RTS}, qp.AttrState}} {
		if err := e.Modify(&m.a, m.mask); err != nil {
			t.Fatal(err)
		}
	}
}

// sge names n bytes at off of e's region.
func (e *endpoint) sge(off, n int) []qp.SGE {
	return []qp.SGE{{Addr: uint64(off), Length: uint32(n), LKey: e.mr.Key}}
}

// write posts a WRITE of n bytes from off of e to off of y.
func (e *endpoint) write(id uint64, y *endpoint, off, n int) {
	e.sq.Post(&qp.SendWQE{ID: id, Opcode: qp.WRWrite, SGEs: e.sge(off, n), RemoteAddr: uint64(off), RKey: y.mr.Key})
	e.Doorbell()
}

func (e *endpoint) read(id uint64, y *endpoint, off, n int) {
	e.sq.Post(&qp.SendWQE{ID: id, Opcode: qp.WRRead, SGEs: e.sge(off, n), RemoteAddr: uint64(off), RKey: y.mr.Key})
	e.Doorbell()
}

func (e *endpoint) send(id uint64, off, n int) {
	e.sq.Post(&qp.SendWQE{ID: id, Opcode: qp.WRSend, SGEs: e.sge(off, n)})
	e.Doorbell()
}

func (e *endpoint) recv(id uint64, off, n int) {
	e.rq.Post(&qp.RecvWQE{ID: id, SGEs: e.sge(off, n)})
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// settle steps manual ports, jumping from deadline to deadline, until nothing
// happens any more or until done. It returns the time then.
func settle(t testing.TB, now clock.Time, done func() bool, ports ...*Port) clock.Time {
	t.Helper()
	for range 1 << 20 {
		worked, next := false, clock.Never
		for _, p := range ports {
			for _, w := range p.Workers() {
				worked = w.Step(now) || worked
				next = min(next, w.Deadline())
			}
		}
		switch {
		case done != nil && done():
			return now
		case worked:
			now++
		case next == clock.Never:
			if done != nil {
				t.Fatal("nothing happens any more, and what was waited for has not")
			}
			return now
		default:
			now = max(now+1, next)
		}
	}
	t.Fatal("a million rounds were not enough")
	return now
}

func wantCompletions(t testing.TB, cq *compQueue, ids ...uint64) {
	t.Helper()
	cs := cq.take()
	var got []string
	ok := len(cs) == len(ids)
	for i, c := range cs {
		got = append(got, fmt.Sprintf("%d:%v", c.ID, c.Status))
		ok = ok && i < len(ids) && c.ID == ids[i] && c.Status == qp.Success
	}
	if !ok {
		t.Fatalf("completions %v; want %v, all successful", got, ids)
	}
}

func wantSame(t testing.TB, what string, a, b []byte) {
	t.Helper()
	if !bytes.Equal(a, b) {
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%s: byte %d of %d is 0x%02x, want 0x%02x", what, i, len(a), b[i], a[i])
			}
		}
		t.Fatalf("%s: %d bytes, want %d", what, len(b), len(a))
	}
}
