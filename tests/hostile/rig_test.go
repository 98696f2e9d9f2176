package hostile

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// rig is a port under attack: the victim QP, and a bystander that must not
// notice anything.
type rig struct {
	t                 testing.TB
	link              *link   // of the first queue
	links             []*link // of all
	port              *rocev2.Port
	now               clock.Time
	victim, bystander *conn
	v6                uint8 // index of the GIDs used
	mtu               ib.MTU
	group             bool // the peer sends to a group, which the victim is in
}

// conn is a QP of the port, its queues, and its memory in three regions: one
// with every right, one that peers may only read, and one that isn't registered.
type conn struct {
	*rocev2.QP
	rig      *rig
	typ      qp.Type
	sq       qptest.SendQueue
	rq       qptest.RecvQueue
	cq       completions
	events   []qp.Event
	mem      []byte // of all three
	model    []byte // what mem must be
	mr, rdMR *mem.MR
	fast     *mem.FastMR // what SENDs with invalidate may invalidate
	pd       *mem.PD
	peer     byte   // address
	pkey     uint16 // index
}

// Offsets in conn.mem: what is behind guardAt belongs to no region.
const (
	base    = 0x7000_0000_1000 // IOVA of mem[0]
	readAt  = 8192
	guardAt = readAt + 1024
	memSize = guardAt + 1024

	victimQPN, bystanderQPN = 0x111, 0x222
	peerQPN                 = 0x333
	firstRQ, firstSQ        = 0xfffffe, 0xffffff // soon they wrap
)

// pkeys is the port's P_Key table.
var pkeys = ib.PKeyTable{0xffff, 0x7fff, 0x8001, 0x0002}

type completions struct{ got []qp.Completion }

func (c *completions) Push(cs []qp.Completion) bool {
	c.got = append(c.got, cs...)
	return true
}

// newRig makes a port with one queue, and one for each of more. The victim is
// an RC QP.
func newRig(t testing.TB, mtu ib.MTU, more ...*link) *rig { return newRigOf(t, qp.RC, mtu, more...) }

// newRigOf makes one whose victim is of a type.
func newRigOf(t testing.TB, typ qp.Type, mtu ib.MTU, more ...*link) *rig {
	t.Helper()
	r := &rig{t: t, links: append([]*link{newLink(t)}, more...), now: clock.Now(), mtu: mtu}
	r.link = r.links[0]
	var links []rocev2.Link
	for _, l := range r.links {
		links = append(links, l)
	}
	var err error
	r.port, err = rocev2.NewPort(rocev2.Config{Name: "victim", Links: links, Manual: true,
		PKeys: pkeys,
		Net:   &rocev2.FixedNet{Addresses: []ib.GID{gid4(ownAddress), gid6(ownAddress)}, LinkMTU: 9000}})
	if err != nil {
		t.Fatal(err)
	}
	r.victim, r.bystander = r.newConn(typ, victimQPN, peerAddress), r.newConn(qp.RC, bystanderQPN, 3)
	t.Cleanup(func() {
		r.link.check()
		r.victim.Destroy()
		r.bystander.Destroy()
		if err := r.port.Close(); err != nil {
			t.Error(err)
		}
	})
	r.bystander.enter(qp.RTS)
	return r
}

func gid4(last byte) ib.GID { return ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: last} }
func gid6(last byte) ib.GID { return ib.GID{0: 0xfd, 15: last} }

func (r *rig) newConn(typ qp.Type, n ib.QPN, peer byte) *conn {
	c := &conn{rig: r, typ: typ, mem: make([]byte, memSize), peer: peer}
	for i := range c.mem {
		c.mem[i] = byte(i*11 ^ i>>7)
	}
	c.model = bytes.Clone(c.mem)
	pd := new(mem.PD)
	space := mem.NewBytes(c.mem, base)
	c.mr = r.register(pd, space, 0, readAt, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic|mem.FlushGlobal)
	c.rdMR = r.register(pd, space, readAt, guardAt-readAt, mem.RemoteRead)
	var err error
	if c.fast, err = r.port.Keys().AllocMR(pd, 1); err != nil {
		r.t.Fatal(err)
	}
	c.pd = pd
	c.QP, err = r.port.CreateQP(rocev2.QPInit{
		Type: typ, PD: pd, SQ: &c.sq, RQ: &c.rq, SendCQ: &c.cq, RecvCQ: &c.cq, Number: n, SigAll: true,
		Caps:    qp.Caps{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
		OnEvent: func(e qp.Event) { c.events = append(c.events, e) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) register(pd *mem.PD, s mem.Space, off, n uint64, a mem.Access) *mem.MR {
	mr, err := r.port.Keys().Register(pd, s, base+off, base+off, n, a)
	if err != nil {
		r.t.Fatal(err)
	}
	return mr
}

// modify changes attributes, which must be possible.
func (c *conn) modify(a qp.Attr, mask qp.AttrMask) {
	c.rig.t.Helper()
	if err := c.Modify(&a, mask); err != nil {
		c.rig.t.Fatal(err)
	}
}

const (
	initMask = qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess
	rtrMask  = qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
	rtsMask  = qp.AttrState | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic
	// victimKey is the Q_Key of a victim of UD.
	victimKey = 0x11223344
	access    = mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic | mem.FlushGlobal
)

// attrs are the attributes of the steps to RTS.
func (c *conn) attrs() (toInit, toRTR, toRTS qp.Attr) {
	av := qp.AV{DGID: gid4(c.peer), SGIDIndex: c.rig.v6}
	if c.rig.v6 == 1 {
		av.DGID = gid6(c.peer)
	}
	return qp.Attr{State: qp.Init, Port: 1, PKeyIndex: c.pkey, Access: access, QKey: victimKey},
		qp.Attr{State: qp.RTR, AV: av, PathMTU: c.rig.mtu, DestQPN: peerQPN, RQPSN: firstRQ, MaxDestRdAtomic: 2, MinRNRTimer: 1},
		qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 1, RNRRetry: 1, SQPSN: firstSQ, MaxRdAtomic: 4}
}

// masks are the attributes of the steps to RTS.
func (c *conn) masks() (toInit, toRTR, toRTS qp.AttrMask) {
	switch c.typ {
	case qp.UC:
		return initMask, qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN, qp.AttrState | qp.AttrSQPSN
	case qp.UD:
		return qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey, qp.AttrState, qp.AttrState | qp.AttrSQPSN
	}
	return initMask, rtrMask, rtsMask
}

// failSend brings a QP of UC or UD to SQE.
func (c *conn) failSend() {
	c.post(qp.SendWQE{Opcode: qp.WRRead})
	c.rig.step()
	c.sq, c.cq = qptest.SendQueue{}, completions{}
}

// enter takes the QP through RESET to a state, its queues empty.
func (c *conn) enter(s qp.State) {
	c.rig.t.Helper()
	c.modify(qp.Attr{State: qp.Reset}, qp.AttrState)
	c.sq, c.rq, c.cq, c.events = qptest.SendQueue{}, qptest.RecvQueue{}, completions{}, nil
	toInit, toRTR, toRTS := c.attrs()
	initAttrs, rtrAttrs, rtsAttrs := c.masks()
	switch s {
	case qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.SQE:
		c.modify(toInit, initAttrs)
	}
	switch s {
	case qp.RTR, qp.RTS, qp.SQD, qp.SQE:
		c.modify(toRTR, rtrAttrs)
	}
	switch s {
	case qp.RTS, qp.SQD, qp.SQE:
		c.modify(toRTS, rtsAttrs)
	}
	switch s {
	case qp.SQD, qp.Err:
		c.modify(qp.Attr{State: s}, qp.AttrState)
	case qp.SQE:
		c.failSend()
	}
	c.rig.step()
	c.rig.link.take()
}

// sge names n bytes at off.
func (c *conn) sge(off, n int) []qp.SGE {
	return []qp.SGE{{Addr: base + uint64(off), Length: uint32(n), LKey: c.mr.Key}}
}

// freshKey returns a key that the peer can invalidate, and sees that there is one.
func (c *conn) freshKey() uint32 {
	c.rig.t.Helper()
	if key := c.fast.Key(); c.valid(key) {
		return key
	}
	r := mem.Registration{MR: c.fast, Key: 1, Access: mem.RemoteRead, PageList: mem.PageList{Size: 4096, Pages: [][]byte{fastPage}}}
	if err := c.rig.port.Keys().FastRegister(&r, c.pd); err != nil {
		c.rig.t.Fatal(err)
	}
	return c.fast.Key()
}

// spentKey is one that the peer has invalidated.
func (c *conn) spentKey() uint32 {
	key := c.freshKey()
	if err := c.rig.port.Keys().Invalidate(key, c.pd); err != nil {
		c.rig.t.Fatal(err)
	}
	return key
}

// fastPage is read and written by nobody.
var fastPage = make([]byte, 4096)

// valid reports whether key, of conn.fast, leads to memory.
func (c *conn) valid(key uint32) bool { return c.rig.port.Keys().Find(key, c.pd, 0, 1, 0) != nil }

func (c *conn) post(w qp.SendWQE) {
	c.sq.Post(&w)
	c.Doorbell()
}

func (c *conn) recv(id uint64, off, n int) {
	c.rq.Post(&qp.RecvWQE{ID: id, SGEs: c.sge(off, n)})
	c.Doorbell()
}

// request is a frame of the peer with the n-th PSN from the one expected first.
func (c *conn) request(op byte, n int, head, data []byte) *frame {
	f := &frame{v6: c.rig.v6 == 1, src: c.peer, sport: 0xc123, op: op, flags: 0x40, pkey: 0xffff,
		qpn: uint32(c.Number()), group: c.rig.group, psn: (firstRQ + uint32(n)) & 0xffffff, ackReq: true}
	if f.group {
		f.qpn = uint32(ib.QPNMulticast)
	}
	f.body, f.pad = padded(head, data)
	return f
}

// join attaches the victim, which is of UD, to theGroup, and has the peer send to it.
func (r *rig) join() {
	r.t.Helper()
	for _, v6 := range []bool{false, true} {
		if err := r.victim.AttachMcast(theGroup(v6), 0); err != nil {
			r.t.Fatal(err)
		}
	}
	r.group = true
}

// response is a frame of the peer that answers the n-th PSN.
func (c *conn) response(op byte, n int, head, data []byte) *frame {
	f := c.request(op, n, head, data)
	f.psn, f.ackReq = (firstSQ+uint32(n))&0xffffff, false
	return f
}

// step runs the port until it has nothing to do at this time.
func (r *rig) step() {
	for range 10000 {
		busy := false
		for _, w := range r.port.Workers() {
			busy = w.Step(r.now) || w.Deadline() <= r.now || busy
		}
		if !busy {
			return
		}
	}
	r.t.Fatal("the port is never done")
}

// sleep lets time pass.
func (r *rig) sleep(d time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(d)
	r.step()
}

// outcome is all that a frame may have caused.
type outcome struct {
	Verdict wire.Verdict
	Sent    []reply
	WC      []qp.Completion
	Events  []qp.Event
	State   qp.State
}

// deliver hands the port a frame, and checks what holds for every frame: one
// verdict is counted, all frames are given back, no memory changed but by what
// change does to the model, and the bystander has noticed nothing.
func (r *rig) deliver(b []byte, change func(model []byte)) outcome {
	before, traffic := r.port.Drops(), r.port.Counters().RcvdPkts
	r.link.arrived = append(r.link.arrived, bytes.Clone(b))
	r.step()
	o := outcome{Verdict: wire.NumVerdicts, Sent: r.link.take(), State: r.victim.Query().State}
	counted := uint64(0)
	for v, n := range r.port.Drops() {
		if n != before[v] {
			o.Verdict = wire.Verdict(v)
			counted += n - before[v]
		}
	}
	if counted != 1 || r.port.Counters().RcvdPkts != traffic+1 {
		r.t.Fatalf("frame %x: %d verdicts were counted for it", b, counted)
	}
	r.link.check()
	o.WC, o.Events = r.victim.cq.got, r.victim.events
	r.victim.cq.got, r.victim.events = nil, nil
	if change != nil {
		change(r.victim.model)
	}
	r.checkMemory(b)
	return o
}

func (r *rig) checkMemory(b []byte) {
	for _, c := range []*conn{r.victim, r.bystander} {
		if bytes.Equal(c.mem, c.model) {
			continue
		}
		for i := range c.mem {
			if c.mem[i] != c.model[i] {
				r.t.Fatalf("frame %x: memory of QP %v at offset %#x is %#x, want %#x", b, c.Number(), i, c.mem[i], c.model[i])
			}
		}
	}
	if x := r.bystander; len(x.cq.got) > 0 || len(x.events) > 0 {
		r.t.Fatalf("frame %x: the bystander has completions %v, events %v", b, x.cq.got, x.events)
	}
}

// want compares an outcome with what must be.
func (r *rig) want(what any, got, want outcome) {
	if got.Verdict == want.Verdict && got.State == want.State && got.traceless() && want.traceless() {
		return // by far the most frames, for which t.Helper is too slow
	}
	r.t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(reply{})); d != "" {
		r.t.Fatalf("%v (-want +got):\n%s", what, d)
	}
}

// traceless reports whether nothing was sent, completed or raised.
func (o *outcome) traceless() bool { return len(o.Sent)+len(o.WC)+len(o.Events) == 0 }

// silent is the outcome of a frame that is dropped without a trace.
func silent(v wire.Verdict, s qp.State) outcome { return outcome{Verdict: v, State: s} }

// answer is a packet of the victim to its peer.
func answer(op wire.Opcode, psn uint32, syndrome byte, msn ib.MSN) reply {
	return reply{Header: wire.Header{Opcode: op, MigReq: true, PKey: ib.PKeyDefault, DestQP: peerQPN, PSN: ib.PSN(psn & 0xffffff),
		Syndrome: wire.Syndrome(syndrome), MSN: msn}}
}

// wc is a completion of the victim.
func wc(id uint64, op qp.WCOpcode, s qp.WCStatus) qp.Completion {
	return qp.Completion{ID: id, QPN: victimQPN, Opcode: op, Status: s, Solicited: s != qp.Success}
}
