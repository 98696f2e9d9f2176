package verbs

import (
	"io"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// fakeEngine stands in for a Port: its QPs do nothing; the test plays their worker.
type fakeEngine struct {
	keys     mem.Table
	barriers int
	next     ib.QPN
	worker   fakeWorker
	fail     error // of createQP
	state    ib.PortState
	downs    uint64
	dead     error
	gids     []ib.GID
	changed  func()
}

type fakeWorker struct {
	polls atomic.Int64
	ends  atomic.Int64
	step  func()
}

func (w *fakeWorker) Poll() {
	w.polls.Add(1)
	if w.step != nil {
		w.step()
	}
}

func (w *fakeWorker) EndLease() { w.ends.Add(1) }

func (e *fakeEngine) Name() string                            { return "fake0" }
func (e *fakeEngine) State() ib.PortState                     { return e.state }
func (e *fakeEngine) LinkDowned() uint64                      { return e.downs }
func (e *fakeEngine) Err() error                              { return e.dead }
func (e *fakeEngine) OnChange(f func())                       { e.changed = f }
func (e *fakeEngine) SetAllowPeers([]netip.Prefix) error      { return nil }
func (e *fakeEngine) Stats() rocev2.Stats                     { return rocev2.Stats{} }
func (e *fakeEngine) VLANOf(int) uint16                       { return 0 }
func (e *fakeEngine) PKeys() ib.PKeyTable                     { return ib.PKeyTable{ib.PKeyDefault} }
func (e *fakeEngine) Drops() (d [wire.NumVerdicts]uint64)     { return d }
func (e *fakeEngine) Record(io.Writer, <-chan struct{}) error { return nil }

func (e *fakeEngine) Keys() *mem.Table  { return &e.keys }
func (e *fakeEngine) GIDs() []ib.GID    { return e.gids }
func (e *fakeEngine) ActiveMTU() ib.MTU { return ib.MTU4096 }
func (e *fakeEngine) Barrier()          { e.barriers++ }
func (e *fakeEngine) Close() error      { return nil }

func (e *fakeEngine) createQP(i rocev2.QPInit) (engineQP, error) {
	if e.fail != nil {
		return nil, e.fail
	}
	e.next++
	return &fakeQP{engine: e, num: e.next, init: i}, nil
}

func (e *fakeEngine) NextHopKnown(AV, bool) (bool, error) { return true, nil }

func (e *fakeEngine) createAH(av AV) (engineAH, error) {
	if e.fail != nil {
		return nil, e.fail
	}
	return &fakeAH{av: av}, nil
}

type fakeAH struct {
	qp.AH
	av   AV
	gone bool
}

func (a *fakeAH) Handle() *qp.AH { return &a.AH }
func (a *fakeAH) AV() AV         { return a.av }
func (a *fakeAH) Destroy()       { a.gone = true }

type fakeQP struct {
	engine *fakeEngine
	num    ib.QPN
	init   rocev2.QPInit
	attr   QPAttr
	bells  atomic.Int64
	gone   bool
}

func (q *fakeQP) Number() ib.QPN                   { return q.num }
func (q *fakeQP) Query() QPAttr                    { return q.attr }
func (q *fakeQP) Doorbell()                        { q.bells.Add(1) }
func (q *fakeQP) Kick()                            { q.bells.Add(1) }
func (q *fakeQP) Destroy()                         { q.gone = true }
func (q *fakeQP) AttachMcast(ib.GID, uint16) error { return q.engine.fail }
func (q *fakeQP) DetachMcast(ib.GID, uint16) error { return q.engine.fail }
func (q *fakeQP) poller() poller                   { return &q.engine.worker }

func (q *fakeQP) Modify(a *QPAttr, mask AttrMask) error {
	if mask&AttrState != 0 {
		q.attr.State = a.State
	}
	return nil
}

// bench is a device over a fake engine with what a QP needs.
type bench struct {
	t      testing.TB
	engine *fakeEngine
	dev    *Device
	pd     *PD
	cq     *CQ
	buf    []byte
	mr     *MR
}

func newBench(t testing.TB) *bench {
	e := &fakeEngine{state: ib.PortActive, gids: []ib.GID{{0: 0xfe, 1: 0x80, 15: 1}, {}}}
	b := &bench{t: t, engine: e, dev: newDevice(e, Options{Name: "fake0"}), buf: make([]byte, 4096)}
	b.pd = must(b.dev.AllocPD())
	b.cq = must(b.dev.CreateCQ(64, nil))
	b.mr = must(b.pd.RegMR(b.buf, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic))
	return b
}

// qp makes a QP in state s.
func (b *bench) qp(c Caps, s QPState) (*QP, *fakeQP) {
	q := must(b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Caps: c}))
	if err := q.Modify(QPAttr{State: s}, AttrState); err != nil {
		b.t.Fatal(err)
	}
	return q, q.engine.(*fakeQP)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// completion makes a completion of the transport.
func completion(id uint64) qp.Completion { return qp.Completion{ID: id, QPN: 1} }
