package rocev2

import (
	"sync/atomic"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// fakeCore is a QP core that sends as many packets as it is told to.
type fakeCore struct {
	cfg      qp.Config
	owed     atomic.Int64 // packets that Plan makes
	onlyAcks bool
	when     atomic.Int64 // the deadline
	plans    atomic.Int64 // packets that Plan made
	expiries atomic.Int64
	path     *wire.Template
	attr     qp.Attr
	released int
}

func newFakeCore(c qp.Config) *fakeCore {
	f := &fakeCore{cfg: c}
	f.setDeadline(clock.Never)
	return f
}

func (f *fakeCore) State() qp.State { return qp.RTS }

func (f *fakeCore) Modify(a *qp.Attr, mask qp.AttrMask, _ clock.Time) error {
	f.attr = *a
	return nil
}

func (f *fakeCore) Touch() uint64             { return 0 }
func (f *fakeCore) Posted()                   {}
func (f *fakeCore) TouchRequests(bool) uint64 { return 0 }
func (f *fakeCore) Query() qp.Attr            { return f.attr }
func (f *fakeCore) SetPath(t *wire.Template)  { f.path = t }
func (f *fakeCore) FrameRoom() int            { return 256 }
func (f *fakeCore) Deadline() clock.Time      { return clock.Time(f.when.Load()) }
func (f *fakeCore) setDeadline(t clock.Time)  { f.when.Store(int64(t)) }
func (f *fakeCore) planned() int              { return int(f.plans.Load()) }
func (f *fakeCore) expired() int              { return int(f.expiries.Load()) }

func (f *fakeCore) HoldAcks(bool)          {}
func (f *fakeCore) Pace(clock.Time)        {}
func (f *fakeCore) Congested()             {}
func (f *fakeCore) SetMTU(ib.MTU)          {}
func (f *fakeCore) Unreachable(clock.Time) {}
func (f *fakeCore) PathsChanged()          {}
func (f *fakeCore) Release()               { f.released++ }

func (f *fakeCore) Handle(*wire.Packet, clock.Time, *mem.Batch) wire.Verdict {
	return wire.Accepted
}

func (f *fakeCore) OnlyAcks(clock.Time) bool { return f.onlyAcks && f.owed.Load() > 0 }

func (f *fakeCore) Prolong(_, _ clock.Time) bool { return false }

func (f *fakeCore) Expire(now clock.Time) {
	if f.Deadline() <= now {
		f.expiries.Add(1)
		f.setDeadline(clock.Never)
	}
}

func (f *fakeCore) Plan(_ clock.Time, p *qp.TxPacket, _ *mem.Batch) bool {
	if f.path == nil || f.owed.Load() == 0 {
		return false
	}
	f.owed.Add(-1)
	f.plans.Add(1)
	p.Path = f.path
	f.path.Emit(p.Frame, &wire.Header{Opcode: wire.RCAck, MigReq: true, PKey: ib.PKeyDefault, DestQP: f.attr.DestQPN}, 0)
	return true
}

// fakeQP is a QP with a fake core.
type fakeQP struct {
	*QP
	*fakeCore
}

// newFakes makes n QPs with fake cores on p, with a path to dgid.
func newFakes(t testing.TB, p *Port, n int, dgid ib.GID) (list []fakeQP) {
	t.Helper()
	var fake *fakeCore
	p.newCore = func(c qp.Config) core {
		fake = newFakeCore(c)
		return fake
	}
	for range n {
		q, err := p.CreateQP(QPInit{PD: new(mem.PD), SQ: new(qptest.SendQueue), RQ: new(qptest.RecvQueue), SendCQ: new(compQueue), RecvCQ: new(compQueue)})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Modify(&qp.Attr{AV: qp.AV{DGID: dgid}, DestQPN: 77}, qp.AttrAV|qp.AttrDestQPN); err != nil {
			t.Fatal(err)
		}
		list = append(list, fakeQP{q, fake})
	}
	return list
}
