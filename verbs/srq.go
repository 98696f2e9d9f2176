package verbs

import (
	"errors"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/qp"
)

// SRQAttr are the attributes of an SRQ: MaxWR work requests of MaxSGE elements; with a Limit, Device.Events tells
// SRQ_LIMIT_REACHED once fewer work requests wait. SRQAttrMask names some of them.
type (
	SRQAttr     = rocev2.SRQAttr
	SRQAttrMask = rocev2.SRQAttrMask
)

// The attributes that SRQ.Modify changes, numbered as ibv_srq_attr_mask.
const (
	AttrSRQMaxWR = rocev2.AttrSRQMaxWR
	AttrSRQLimit = rocev2.AttrSRQLimit
)

// SRQ is a shared receive queue: its QPs take from it the receive work requests that their messages need, so that
// fewer have to be posted than if each QP had its own. All methods may be called by any goroutine.
//
// A receive completes in the RecvCQ of the QP that took it, and WC.QPN says which that is. Messages that find the SRQ
// empty are those that find a QP's own queue empty: RC peers are told to try again, others lose theirs. A message that UC
// or UD drops for another reason, once it has taken a receive, completes that with RemInvReqErr, or with LocLenErr if it
// was too short, and the QP goes on (IBA 9.9.3, class E): post as many as you need then, too. A QP in ERR
// flushes what it has taken and not what waits in the SRQ; then it tells LAST_WQE_REACHED, after which all its receives
// are in the CQ: wait for that before you destroy it, or the completions that you haven't polled are lost with it.
//
// There is no SRQ_ERR: a receive that is no good is an error of the QP that takes it.
type SRQ struct {
	dev   *Device
	pd    *PD
	queue *rocev2.SRQ
	gone  atomic.Bool
	qps   int // that use it; under dev.mu

	errFull error // made once, as those of QP
}

// CreateSRQ makes an SRQ; a Limit is as one that Modify sets once the first receive has been taken. The keys of its
// receives are those of its PD, which may be another than that of the QPs. Its errors wrap ErrInvalid (beyond DeviceAttr),
// ErrLimit or ErrClosed.
func (p *PD) CreateSRQ(a SRQAttr) (*SRQ, error) {
	d := p.dev
	switch {
	case a.MaxWR < 1 || a.MaxWR > limits.MaxSRQWR:
		return nil, d.errorf("create SRQ: %w: MaxWR %d (allowed: 1 to %d, MaxSRQWR)", ErrInvalid, a.MaxWR, limits.MaxSRQWR)
	case a.MaxSGE < 0 || a.MaxSGE > limits.MaxSRQSge:
		return nil, d.errorf("create SRQ: %w: MaxSGE %d (allowed: 0 to %d, MaxSRQSge)", ErrInvalid, a.MaxSGE, limits.MaxSRQSge)
	case a.Limit < 0 || a.Limit > a.MaxWR:
		return nil, d.errorf("create SRQ: %w: Limit %d (allowed: 0 to MaxWR, %d)", ErrInvalid, a.Limit, a.MaxWR)
	}
	s := &SRQ{dev: d, pd: p, errFull: d.errorf("post SRQ recv: receive %w: SRQAttr.MaxWR of them wait or have not been polled", ErrQueueFull)}
	s.queue = rocev2.NewSRQ(a, s.limitReached)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.pds, p, "create SRQ: PD"); err != nil {
		return nil, err
	}
	if err := add(d, d.srqs, s, limits.MaxSRQ, "SRQ"); err != nil {
		return nil, err
	}
	p.srqs++
	return s, nil
}

func (s *SRQ) limitReached() { s.dev.events.push(Event{Type: EventSRQLimitReached, SRQ: s}) }

// PostRecv posts receive work requests in order and returns how many were accepted, with the errors of QP.PostRecv. Each
// makes exactly one completion; if the QP that takes it is reset or destroyed before, it waits for another. Its slot is
// free when that was polled.
func (s *SRQ) PostRecv(wrs ...RecvWR) (int, error) {
	if s.gone.Load() {
		return 0, s.dev.errorf("post SRQ recv: %w", ErrClosed)
	}
	n, err := s.queue.Post(len(wrs), func(i int, w *qp.RecvWQE) error { return s.dev.fillRecv(w, &wrs[i]) })
	switch {
	case errors.Is(err, rocev2.ErrSRQFull):
		err = s.errFull
	case err != nil:
		err = s.dev.errorf("post SRQ recv, %s: %w", nth(n, len(wrs), wrs[n].ID), err)
	}
	return n, err
}

// Query returns the attributes as they are now: Limit is 0 when it was reached.
func (s *SRQ) Query() (SRQAttr, error) {
	if s.gone.Load() {
		return SRQAttr{}, s.dev.errorf("query SRQ: %w", ErrClosed)
	}
	return s.queue.Query(), nil
}

// Modify changes the attributes that mask names, as ibv_modify_srq does. MaxWR resizes the SRQ; what is posted stays, in
// its order, and QPs may go on taking meanwhile. Limit arms it: once fewer work requests wait, Device.Events tells so, at
// once if they are few already, and the limit is off until it is set again. On an error, which wraps ErrInvalid (also for
// fewer work requests than are in use) or ErrClosed, nothing has changed.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	d := s.dev
	if s.gone.Load() {
		return d.errorf("modify SRQ: %w", ErrClosed)
	}
	if mask&AttrSRQMaxWR != 0 && a.MaxWR > limits.MaxSRQWR {
		return d.errorf("modify SRQ: %w: MaxWR %d (allowed: 1 to %d, MaxSRQWR)", ErrInvalid, a.MaxWR, limits.MaxSRQWR)
	}
	if err := s.queue.Modify(a, mask); err != nil {
		return d.errorf("modify SRQ: %w: %w", ErrInvalid, err)
	}
	return nil
}

// Destroy frees the SRQ and forgets what is posted; ErrBusy while QPs use it.
func (s *SRQ) Destroy() error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.srqs, s, "destroy SRQ"); err != nil {
		return err
	}
	if err := inUse(d, "destroy SRQ", user{s.qps, "QP"}); err != nil {
		return err
	}
	delete(d.srqs, s)
	s.gone.Store(true)
	s.pd.srqs--
	d.events.withdraw(Event{SRQ: s})
	return nil
}
