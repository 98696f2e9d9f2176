package rocev2

import (
	"slices"

	"github.com/urxe/urxe/rocev2/qp"
)

// CQ takes completions. Push is called by a worker once a burst, with all
// completions of the burst for this CQ; it must not block, and must not keep
// cs. It returns false when the CQ is overrun, which it is for good: the QPs that
// complete there are then moved to ERR, those of other workers, too. Push may be
// called without completions, to ask for that.
type CQ interface {
	Push(cs []qp.Completion) bool
}

// cqBurst collects the completions of a burst for one CQ. It is a worker's own.
type cqBurst struct {
	cq      CQ
	cs      []qp.Completion
	users   int // queues of QPs that complete here
	dirty   bool
	overrun bool
}

// attach returns the worker's burst for cq.
func (w *Worker) attach(cq CQ) *cqBurst {
	b := w.bursts[cq]
	if b == nil {
		b = &cqBurst{cq: cq, cs: make([]qp.Completion, 0, burst)}
		w.bursts[cq] = b
		w.dirty = slices.Grow(w.dirty, len(w.bursts)) // empty between Steps
	}
	b.users++
	return b
}

func (w *Worker) detach(b *cqBurst) {
	if b.users--; b.users == 0 {
		delete(w.bursts, b.cq)
	}
}

// complete adds a completion, to be filled in, to its burst.
func (w *Worker) complete(b *cqBurst) *qp.Completion {
	n := len(b.cs)
	if n == cap(b.cs) {
		b.push()
		n = 0
	}
	b.cs = b.cs[:n+1]
	b.cs[n] = qp.Completion{}
	if !b.dirty {
		b.dirty = true
		w.dirty = append(w.dirty, b)
	}
	return &b.cs[n]
}

func (b *cqBurst) push() {
	if !b.cq.Push(b.cs) {
		b.overrun = true
	}
	b.cs = b.cs[:0]
}

// publish pushes the completions of the burst.
func (w *Worker) publish() {
	if len(w.dirty) == 0 {
		return
	}
	overrun := false
	for i, b := range w.dirty {
		b.push()
		b.dirty = false
		overrun = overrun || b.overrun
		w.dirty[i] = nil
	}
	w.dirty = w.dirty[:0]
	if overrun {
		w.failOverrun()
	}
}

// failOverrun moves the QPs to ERR whose CQ had no room (IBA 11.6.3.2).
func (w *Worker) failOverrun() {
	failed := false
	for q := range w.qps {
		if !q.sendCQ.overrun && !q.recvCQ.overrun || q.core.State() == qp.Err {
			continue
		}
		// To ERR is legal from every state.
		_ = q.core.Modify(&qp.Attr{State: qp.Err}, qp.AttrState, w.now)
		q.Notify(nil, qp.EventQPFatal)
		w.activate(q)
		failed = true
	}
	for _, b := range w.bursts {
		b.overrun = false
	}
	if failed {
		w.tellOverrun()
	}
}

// tellOverrun has the other workers see to their QPs of a CQ that is overrun.
func (w *Worker) tellOverrun() {
	for _, x := range w.port.workers {
		if x != w {
			x.overrun.Store(true)
			x.nudge()
		}
	}
}

// meetOverrun looks which CQs are overrun, after another worker found one.
func (w *Worker) meetOverrun() {
	for _, b := range w.bursts {
		b.push()
	}
	w.failOverrun()
}
