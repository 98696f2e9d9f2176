package sim

import (
	"fmt"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
)

// pool is an SRQ of a host, whose QPs of any type may use it, and the
// application that posts to it: each receive that it has posted must be
// completed once, by one of them, or wait in the SRQ at the end.
type pool struct {
	w     *world
	host  *host
	name  string
	srq   *rocev2.SRQ
	pd    *mem.PD // the SRQ's own
	buf   []byte
	mr    *mem.MR
	depth int // as many receives are posted
	slot  int // bytes of one

	serial uint64
	at     map[uint64]int // the places of receives that haven't completed, by id
	free   []int          // places
	limit  int            // that is armed; 0: none
	wake   clock.Time
	hold   clock.Time // no receives before
}

// newPool makes an SRQ.
func (w *world) newPool(h *host) (err error) {
	p := &pool{w: w, host: h, name: "SRQ of " + h.name, pd: new(mem.PD), depth: 2 + w.r.IntN(depthMax), slot: 5*4096 + 8, wake: w.now, at: map[uint64]int{}}
	for i := range p.depth {
		p.free = append(p.free, i*p.slot)
	}
	p.buf = make([]byte, len(p.free)*p.slot)
	p.srq = rocev2.NewSRQ(rocev2.SRQAttr{MaxWR: p.depth, MaxSGE: 4}, p.reached)
	p.mr, err = h.registerIn(p.pd, w.r, nil, p.buf, mem.LocalWrite)
	h.pool = p
	return err
}

// poolFor returns the SRQ of a host for one of its QPs, or nil.
func (w *world) poolFor(h *host) *pool {
	if h.pool == nil || w.r.IntN(2) == 0 {
		return nil
	}
	return h.pool
}

// use makes a QP one that takes its receives from the SRQ. When LAST_WQE_REACHED
// is raised, all its receives have completed.
func (p *pool) use(i *rocev2.QPInit, recvs *completions) {
	if p == nil {
		return
	}
	i.RQ, i.SharedRQ, i.RecvPD = p.srq, true, p.pd
	onEvent := i.OnEvent
	i.OnEvent = func(e qp.Event) {
		if e == qp.EventLastWQEReached {
			recvs.lasts++
		}
		if onEvent != nil {
			onEvent(e)
		}
	}
}

// reached takes the limit event: it is for once, and not too early.
func (p *pool) reached() {
	if n := p.srq.Posted(); p.limit == 0 || n >= p.limit {
		p.violation("limit event with %d receives, the limit is %d", n, p.limit)
	}
	p.limit = 0
	p.wake = min(p.wake, max(p.w.now, p.hold))
	p.w.trace.met["SRQ limit"]++
}

// act posts, arms the limit, and resizes. It reports whether it did anything.
func (p *pool) act() bool {
	if p == nil || p.w.now < p.wake {
		return false
	}
	p.wake = clock.Never
	if p.limit > p.srq.Posted() {
		p.violation("no limit event with %d receives, the limit is %d", p.srq.Posted(), p.limit)
	}
	if !p.w.net.quiet && p.w.r.IntN(20) == 0 {
		p.hold = p.w.now.Add(time.Duration(p.w.r.Int64N(int64(200 * time.Microsecond))))
		p.wake = p.hold
		return true
	}
	p.resize()
	p.post()
	if p.limit == 0 {
		p.arm()
	}
	return true
}

// post keeps as many receives posted as there were at first.
func (p *pool) post() {
	for p.srq.Used() < p.depth && len(p.free) > 0 {
		place := p.free[len(p.free)-1]
		n, err := p.srq.Post(1, func(_ int, w *qp.RecvWQE) error {
			p.serial++
			w.ID, w.SGEs = p.serial, append(w.SGEs, elements(p.w.r, p.mr, place, p.slot)...)
			return nil
		})
		if n != 1 || err != nil {
			p.violation("post with %d of %d used: %v", p.srq.Used(), p.srq.Query().MaxWR, err)
			return
		}
		p.free = p.free[:len(p.free)-1]
		p.at[p.serial] = place
	}
}

// arm sets a limit. One that is reached already raises the event at once.
func (p *pool) arm() {
	p.limit = 1 + p.w.r.IntN(p.depth)
	if err := p.srq.Modify(rocev2.SRQAttr{Limit: p.limit}, rocev2.AttrSRQLimit); err != nil {
		p.violation("arm: %v", err)
	}
}

// resize now and then makes the SRQ larger or smaller, which must fail when too
// much is in it.
func (p *pool) resize() {
	if p.w.r.IntN(8) > 0 {
		return
	}
	n, used := p.depth+p.w.r.IntN(20), p.srq.Used()
	if p.w.r.IntN(4) == 0 {
		n = used - 1
	}
	if err := p.srq.Modify(rocev2.SRQAttr{MaxWR: n}, rocev2.AttrSRQMaxWR); (err == nil) != (n >= used) {
		p.violation("resize to %d with %d used: %v", n, used, err)
	}
}

// completed takes a completion of a receive, and returns the receive's bytes.
// They are posted again when they were looked at.
func (p *pool) completed(c *qp.Completion) []byte {
	place, ok := p.at[c.ID]
	if !ok {
		p.violation("completion of receive %d by QP %v, which was completed before or never posted", c.ID, c.QPN)
		return nil
	}
	delete(p.at, c.ID)
	p.free = append(p.free, place)
	p.srq.Free(1)
	p.wake = min(p.wake, max(p.w.now, p.hold))
	return p.buf[place : place+p.slot]
}

// left takes the completions of a QP that was destroyed or reset. What it held
// waits in the SRQ again.
func (p *pool) left(recvs *completions) {
	if p == nil {
		return
	}
	for _, c := range recvs.take() {
		p.completed(&c)
	}
}

// checkLast checks that a QP in ERR has said once that its receives are done,
// and that none was completed later.
func (p *pool) checkLast(recvs *completions, who string) {
	if p != nil && (recvs.lasts != 1 || recvs.late) {
		p.violation("%s: LAST_WQE_REACHED came %d times; a receive completed after it: %v", who, recvs.lasts, recvs.late)
	}
}

// check checks, at the end, that every receive is accounted for.
func (p *pool) check() {
	if p == nil {
		return
	}
	if p.srq.Used() != p.srq.Posted() {
		p.violation("%d receives used, %d wait, and no QP has any", p.srq.Used(), p.srq.Posted())
	}
	p.limit = p.depth + 1 // whatever it is, it is reached now
	for w := p.srq.Next(); w != nil; w = p.srq.Next() {
		if _, ok := p.at[w.ID]; !ok {
			p.violation("receive %d waits, which was completed or comes again", w.ID)
			return
		}
		delete(p.at, w.ID)
	}
	if len(p.at) > 0 {
		p.violation("%d receives are lost", len(p.at))
	}
}

func (p *pool) violation(format string, args ...any) {
	p.w.net.violation("%s: %s", p.name, fmt.Sprintf(format, args...))
}
