package qp

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
)

// qpAccess are the rights that a QP can give its peer.
const qpAccess = mem.LocalWrite | mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic | mem.FlushGlobal | mem.FlushPersistent

// Modify changes the attributes of mask to those of a, and the state with
// AttrState, as ibv_modify_qp does. On an error, which says what is wrong and
// what may be, nothing has changed.
func (q *QP) Modify(a *Attr, mask AttrMask, now clock.Time) error {
	to := q.state
	if mask.has(AttrState) {
		to = a.State
	}
	if err := q.checkModify(a, to, mask); err != nil {
		return err
	}
	q.store(a, mask)
	if mask.has(AttrState) {
		q.enter(to, now)
	}
	return nil
}

// checkModify says why a must not be applied.
func (q *QP) checkModify(a *Attr, to State, mask AttrMask) error {
	if mask.has(AttrCurState) && a.CurState != q.state {
		return fmt.Errorf("modify: the current state is %v, not %v as CUR_STATE says", q.state, a.CurState)
	}
	if err := q.svc.checkTransition(q.state, to, mask); err != nil {
		return err
	}
	for _, c := range []struct {
		attr AttrMask
		ok   bool
		want string
	}{
		{AttrPathMTU, a.PathMTU.Valid(), "256, 512, 1024, 2048 or 4096"},
		{AttrDestQPN, a.DestQPN.Valid(), "a 24-bit number"},
		{AttrRQPSN, a.RQPSN.Valid(), "a 24-bit number"},
		{AttrSQPSN, a.SQPSN.Valid(), "a 24-bit number"},
		{AttrAccess, a.Access&^qpAccess == 0, "LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, FLUSH_GLOBAL and FLUSH_PERSISTENT only"},
		{AttrTimeout, a.Timeout <= 31, "0 to 31"},
		{AttrRetryCnt, a.RetryCnt <= 7, "0 to 7"},
		{AttrRNRRetry, a.RNRRetry <= 7, "0 to 7"},
		{AttrMinRNRTimer, a.MinRNRTimer <= 31, "0 to 31"},
		{AttrMaxRdAtomic, a.MaxRdAtomic <= MaxRdAtomic, "0 to 128 (MaxQPInitRdAtom)"},
		{AttrMaxDestRdAtomic, a.MaxDestRdAtomic <= MaxRdAtomic, "0 to 128 (MaxQPRdAtom)"},
		{AttrQKey, q.cfg.Type != GSI || a.QKey == ib.QKeyGSI, "0x80010000, the Q_Key of QP1 (IBA 12.4.2)"},
		{AttrPKeyIndex, int(a.PKeyIndex) < len(q.cfg.PKeys), fmt.Sprintf("0 to %d, the last index of the P_Key table", len(q.cfg.PKeys)-1)},
		{AttrPort, a.Port == 1, "1: the device has one port"},
		{AttrAltPath | AttrPathMigState, false, "nothing: automatic path migration is not supported"},
	} {
		if mask&c.attr != 0 && !c.ok {
			return fmt.Errorf("modify: %v out of range, want %s", mask&c.attr, c.want)
		}
	}
	return nil
}

// store copies the attributes of mask.
func (q *QP) store(a *Attr, mask AttrMask) {
	d := &q.attr
	set(&d.Access, a.Access, mask.has(AttrAccess))
	set(&d.QKey, a.QKey, mask.has(AttrQKey))
	set(&d.PKeyIndex, a.PKeyIndex, mask.has(AttrPKeyIndex))
	set(&d.Port, a.Port, mask.has(AttrPort))
	set(&d.AV, a.AV, mask.has(AttrAV))
	set(&d.PathMTU, a.PathMTU, mask.has(AttrPathMTU))
	set(&d.DestQPN, a.DestQPN, mask.has(AttrDestQPN))
	set(&d.RQPSN, a.RQPSN, mask.has(AttrRQPSN))
	set(&d.SQPSN, a.SQPSN, mask.has(AttrSQPSN))
	set(&d.Timeout, a.Timeout, mask.has(AttrTimeout))
	set(&d.RetryCnt, a.RetryCnt, mask.has(AttrRetryCnt))
	set(&d.RNRRetry, a.RNRRetry, mask.has(AttrRNRRetry))
	set(&d.MinRNRTimer, a.MinRNRTimer, mask.has(AttrMinRNRTimer))
	set(&d.MaxRdAtomic, a.MaxRdAtomic, mask.has(AttrMaxRdAtomic))
	if mask.has(AttrMaxDestRdAtomic) && d.MaxDestRdAtomic != a.MaxDestRdAtomic {
		d.MaxDestRdAtomic = a.MaxDestRdAtomic
		q.resp.resize(int(a.MaxDestRdAtomic))
	}
	set(&d.SQDAsyncNotify, a.SQDAsyncNotify, mask.has(AttrSQDAsyncNotify))
}

func set[T any](d *T, v T, really bool) {
	if really {
		*d = v
	}
}

// enter does what goes with a transition that Modify has found legal.
func (q *QP) enter(to State, now clock.Time) {
	from := q.state
	q.state = to
	switch {
	case to == Reset:
		q.reset()
	case to == Err:
		q.enterErr(false)
	case to == RTR:
		q.setMTU()
		q.resp.start(q.attr.RQPSN)
	case from == RTR && to == RTS:
		q.req.start(q.attr.SQPSN, &q.attr)
	case to == SQD && from == RTS:
		q.req.drained = !q.attr.SQDAsyncNotify // each transition asks anew
		q.attr.SQDAsyncNotify = false
		q.checkDrained()
	}
}

// reset forgets everything, as the RESET state asks; posted work requests
// vanish without completions (IBA 10.3.1.1), those taken from a shared queue from
// the QP alone.
func (q *QP) reset() {
	sends := int(q.req.tail - q.req.oldest)
	for ; q.cfg.SQ.Next() != nil; sends++ {
	}
	for ; sends > 0; sends-- {
		q.cfg.SQ.Retire()
	}
	q.resp.next = q.resp.tail
	for r := &q.resp; r.head != r.tail || q.takePosted() != nil; r.head++ {
		q.cfg.RQ.Retire(r.at(r.head).wqe)
	}
	q.state, q.dying, q.path, q.pace, q.cnpOwed = Reset, false, nil, 0, false
	q.attr = Attr{}
	q.setMTU()
	q.req.clear()
	q.resp.clear()
}

// SetMTU says how long the packets of a datagram QP may be: what the link has
// room for. A connected QP has its path MTU.
func (q *QP) SetMTU(m ib.MTU) {
	q.linkMTU = m
	q.setMTU()
}

func (q *QP) setMTU() {
	switch {
	case q.svc.datagram && q.linkMTU.Valid():
		q.mtu = q.linkMTU.Bytes()
	case q.attr.PathMTU.Valid():
		q.mtu = q.attr.PathMTU.Bytes()
	default:
		q.mtu = ib.MTU256.Bytes()
	}
}

// Query returns the QP's attributes.
func (q *QP) Query() Attr {
	a := q.attr
	a.State, a.CurState = q.state, q.state
	a.Caps = q.cfg.Caps
	a.SQDraining = q.state == SQD && q.busy()
	if q.state == RTS || q.state == SQD || q.state == SQE {
		a.SQPSN = q.psnOf(q.req.nxt)
	}
	if q.state.Receives() {
		a.RQPSN = q.resp.epsn
	}
	return a
}

// pkey returns the P_Key that packets of the QP carry (IBA 10.9.3).
func (q *QP) pkey() ib.PKey { return q.cfg.PKeys[q.attr.PKeyIndex] }

// psnOf returns the PSN of the requester's sequence number s.
func (q *QP) psnOf(s uint64) ib.PSN { return q.req.base.Add(int(s & 0xffffff)) }
