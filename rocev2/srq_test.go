package rocev2

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/tests/conform"
)

// postIDs posts work requests with the ids from from on.
func postIDs(s *SRQ, from uint64, n int) (int, error) {
	return s.Post(n, func(i int, w *qp.RecvWQE) error {
		w.ID = from + uint64(i)
		return nil
	})
}

// wantNext takes work requests, which must have the ids.
func wantNext(t *testing.T, s *SRQ, ids ...uint64) (ws []*qp.RecvWQE) {
	t.Helper()
	for _, id := range ids {
		w := s.Next()
		if w == nil || w.ID != id {
			t.Fatalf("got %+v, want work request %d", w, id)
		}
		ws = append(ws, w)
	}
	return ws
}

// retire gives a work request back with a completion, which was polled.
func retire(s *SRQ, w *qp.RecvWQE) {
	w.Completed = true
	s.Retire(w)
	s.Free(1)
}

// A place is free again when its completion was polled, whatever the order.
func TestSRQRoom(t *testing.T) {
	s := NewSRQ(SRQAttr{MaxWR: 3, MaxSGE: 2}, nil)
	if n, err := postIDs(s, 1, 5); n != 3 || !errors.Is(err, ErrSRQFull) {
		t.Fatalf("%d, %v", n, err)
	}
	ws := wantNext(t, s, 1, 2, 3)
	if s.Next() != nil {
		t.Fatal("more work requests than were posted")
	}
	ws[1].Completed = true
	s.Retire(ws[1])
	if n, err := postIDs(s, 4, 1); n != 0 || !errors.Is(err, ErrSRQFull) {
		t.Errorf("%d, %v: the completion wasn't polled", n, err)
	}
	s.Free(1)
	s.Retire(ws[0]) // no completion: it waits again
	if n, _ := postIDs(s, 4, 3); n != 1 || s.Used() != 3 || s.Posted() != 2 {
		t.Errorf("%d posted, %d used, %d wait", n, s.Used(), s.Posted())
	}
	wantNext(t, s, 1, 4)
}

// What one fill refuses takes no place, and ends the post.
func TestSRQPostRefused(t *testing.T) {
	s, bad := NewSRQ(SRQAttr{MaxWR: 2, MaxSGE: 3}, nil), errors.New("bad")
	for range 5 {
		n, err := s.Post(2, func(i int, w *qp.RecvWQE) error {
			if len(w.SGEs) != 0 || cap(w.SGEs) != 3 || w.Completed {
				t.Errorf("an empty work request is %+v", w)
			}
			w.ID = uint64(i)
			if i == 1 {
				return bad
			}
			return nil
		})
		if n != 1 || err != bad {
			t.Fatal(n, err)
		}
		retire(s, wantNext(t, s, 0)[0])
	}
}

func TestSRQLimit(t *testing.T) {
	events := 0
	want := func(s *SRQ, n, limit int) {
		t.Helper()
		if got := s.Query(); events != n || got.Limit != limit {
			t.Fatalf("%d events, limit %d; want %d, %d", events, got.Limit, n, limit)
		}
	}
	s := NewSRQ(SRQAttr{MaxWR: 10, Limit: 3}, func() { events++ })
	arm := func(n int) {
		t.Helper()
		if err := s.Modify(SRQAttr{Limit: n}, AttrSRQLimit); err != nil {
			t.Fatal(err)
		}
	}
	want(s, 0, 3) // nothing was there to be taken
	postIDs(s, 1, 5)
	wantNext(t, s, 1, 2)
	want(s, 0, 3) // 3 wait
	wantNext(t, s, 3)
	want(s, 1, 0)
	wantNext(t, s, 4, 5)
	want(s, 1, 0) // once
	arm(1)
	want(s, 2, 0) // few already
	postIDs(s, 6, 2)
	arm(2)
	want(s, 2, 2)
	arm(0)
	wantNext(t, s, 6)
	want(s, 2, 0)
	arm(1)
	wantNext(t, s, 7)
	want(s, 3, 0)
}

// A resize keeps what waits, in its order, and what is taken; one that fails
// keeps everything.
func TestSRQResize(t *testing.T) {
	conform.Row(t, "bug/59")
	s := NewSRQ(SRQAttr{MaxWR: 5, MaxSGE: 1}, func() {})
	postIDs(s, 1, 5)
	ws := wantNext(t, s, 1, 2)
	for _, c := range []struct {
		a    SRQAttr
		mask SRQAttrMask
	}{
		{SRQAttr{MaxWR: 4}, AttrSRQMaxWR}, // 5 are in use
		{SRQAttr{MaxWR: 0}, AttrSRQMaxWR}, // none
		{SRQAttr{MaxWR: -1}, AttrSRQMaxWR},
		{SRQAttr{Limit: 6}, AttrSRQLimit}, // more than there can be
		{SRQAttr{Limit: -1}, AttrSRQLimit},
		{SRQAttr{MaxWR: 9, Limit: 10}, 3},
		{SRQAttr{MaxWR: 9, Limit: 1}, 1 << 2}, // no such attribute

	} {
		if err := s.Modify(c.a, c.mask); err == nil || s.Query() != (SRQAttr{MaxWR: 5, MaxSGE: 1}) {
			t.Errorf("%+v, mask %d: %v, then %+v", c.a, c.mask, err, s.Query())
		}
		if n, err := postIDs(s, 9, 1); n != 0 || !errors.Is(err, ErrSRQFull) || s.Posted() != 3 {
			t.Fatalf("after a resize that failed: %d, %v, %d wait", n, err, s.Posted())
		}
	}
	if err := s.Modify(SRQAttr{MaxWR: 9, Limit: 2}, AttrSRQMaxWR|AttrSRQLimit); err != nil {
		t.Fatal(err)
	}
	if n, _ := postIDs(s, 6, 5); n != 4 {
		t.Errorf("%d posted, want 4 more", n)
	}
	if err := s.Modify(SRQAttr{MaxWR: 1}, AttrSRQMaxWR); err == nil {
		t.Error("a size below the limit and what is in use")
	}
	ws = append(ws, wantNext(t, s, 3, 4, 5, 6, 7)...)
	for i := range ws {
		retire(s, ws[len(ws)-1-i])
	}
	if err := s.Modify(SRQAttr{MaxWR: 2}, AttrSRQMaxWR); err != nil {
		t.Fatal(err)
	}
	wantNext(t, s, 8, 9)
	if s.slots != 2 {
		t.Errorf("%d places, want 2", s.slots)
	}
}

// Takers, posters, resizers and those who arm it, all at once: each work request
// is taken once, but for those that wait again, and no event is lost.
func TestSRQConcurrently(t *testing.T) {
	const takers, posters, each = 3, 2, 20_000
	var events atomic.Int64
	s := NewSRQ(SRQAttr{MaxWR: 64, MaxSGE: 1}, func() { events.Add(1) })
	var taken [posters * each]atomic.Int32
	var left atomic.Int64
	left.Store(posters * each)
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for id := p * each; id < (p+1)*each; {
				n, _ := postIDs(s, uint64(id), min(7, (p+1)*each-id))
				id += n
			}
		})
	}
	for i := range takers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			var held []*qp.RecvWQE
			for left.Load() > 0 || len(held) > 0 {
				w := s.Next()
				if w != nil {
					taken[w.ID].Add(1)
					left.Add(-1)
					held = append(held, w)
				}
				if len(held) > 0 && (w == nil || r.IntN(2) == 0) {
					k := r.IntN(len(held))
					if w := held[k]; r.IntN(4) == 0 { // as of a QP that was reset
						taken[w.ID].Add(-1)
						left.Add(1)
						s.Retire(w)
					} else {
						retire(s, w)
					}
					held[k] = held[len(held)-1]
					held = held[:len(held)-1]
				}
			}
		})
	}
	resized := 0
	for r := rand.New(rand.NewPCG(1, 99)); left.Load() > 0; {
		if s.Modify(SRQAttr{MaxWR: 1 + r.IntN(200), Limit: r.IntN(3)}, AttrSRQMaxWR|AttrSRQLimit) == nil {
			resized++
		}
	}
	wg.Wait()
	for id := range taken {
		if n := taken[id].Load(); n != 1 {
			t.Fatalf("work request %d was taken %d times", id, n)
		}
	}
	if s.Used() != 0 || s.Posted() != 0 || resized == 0 {
		t.Errorf("%d used, %d wait, %d times resized", s.Used(), s.Posted(), resized)
	}
	before := events.Load()
	if err := s.Modify(SRQAttr{MaxWR: 100, Limit: 1}, AttrSRQMaxWR|AttrSRQLimit); err != nil || events.Load() != before+1 {
		t.Errorf("%v, %d events", err, events.Load()-before)
	}
}

func TestSRQDoesNotAllocate(t *testing.T) {
	s := NewSRQ(SRQAttr{MaxWR: 100, MaxSGE: 1}, nil)
	if n := testing.AllocsPerRun(100, func() {
		postIDs(s, 1, 60)
		for w := s.Next(); w != nil; w = s.Next() {
			retire(s, w)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// newSharing makes a QP of an SRQ and a CQ that it shares with others.
func newSharing(t *testing.T, p *Port, srq *SRQ, cq CQ, onEvent func(*QP, qp.Event)) *QP {
	t.Helper()
	var q *QP
	q, err := p.CreateQP(QPInit{
		PD: new(mem.PD), SQ: new(qptest.SendQueue), RQ: srq, SharedRQ: true, RecvPD: new(mem.PD), SendCQ: cq, RecvCQ: cq,
		OnEvent: func(e qp.Event) { onEvent(q, e) }, Caps: qp.Caps{MaxSendWR: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Destroy)
	return q
}

// When LAST_WQE_REACHED is raised, the completions are in the CQ.
func TestLastWQEReachedComesLast(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	y := newEndpoint(t, b, 10_000, 16)
	srq, cq := NewSRQ(SRQAttr{MaxWR: 8}, nil), new(compQueue)
	var at []int
	q := newSharing(t, a, srq, cq, func(_ *QP, e qp.Event) {
		if e == qp.EventLastWQEReached {
			at = append(at, cq.len())
		}
	})
	x := &endpoint{QP: q, port: a}
	join(t, x, y, ib.MTU256)
	postIDs(srq, 1, 3)
	y.send(1, 0, 0)
	now := settle(t, 1, nil, a, b)
	y.send(2, 0, 300) // there is no room for it: an error, whose completion comes before the event
	settle(t, now, nil, a, b)
	cs := cq.take()
	if len(at) != 1 || at[0] != 2 || len(cs) != 2 || cs[1].Status != qp.LocLenErr {
		t.Errorf("%+v, and at the event %v", cs, at)
	}
	if srq.Posted() != 1 {
		t.Errorf("%d work requests wait, want 1", srq.Posted())
	}
}

// What is completed by a Modify is in the CQ when that returns, so that nothing
// of a QP comes once it is destroyed.
func TestModifyCompletes(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	x := newEndpoint(t, a, 10_000, 16)
	if err := x.connect(5, gid("10.0.0.2"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	x.recv(1, 0, 10)
	x.recv(2, 0, 10)
	if err := x.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if n := x.cq.len(); n != 2 {
		t.Errorf("%d completions, want 2", n)
	}
	x.Destroy()
	settle(t, 1, nil, a)
	if n := x.cq.len(); n != 2 {
		t.Errorf("%d completions after the QP is gone", n-2)
	}
}

// What a destroyed QP has taken waits in the SRQ again.
func TestDestroyGivesBack(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	y := newEndpoint(t, b, 60_000, 16)
	srq := NewSRQ(SRQAttr{MaxWR: 2, MaxSGE: 1}, nil)
	pd, buf := new(mem.PD), make([]byte, 60_000)
	mr, err := a.Keys().Register(pd, mem.NewBytes(buf, 0), 0, 0, 60_000, mem.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.CreateQP(QPInit{PD: new(mem.PD), SQ: new(qptest.SendQueue), RQ: srq, SharedRQ: true, RecvPD: pd, SendCQ: new(compQueue), RecvCQ: new(compQueue)})
	if err != nil {
		t.Fatal(err)
	}
	join(t, &endpoint{QP: q, port: a}, y, ib.MTU256)
	srq.Post(1, func(_ int, w *qp.RecvWQE) error {
		w.SGEs = append(w.SGEs, qp.SGE{Length: 60_000, LKey: mr.Key})
		return nil
	})
	y.send(1, 0, 60_000)
	settle(t, 1, func() bool { return srq.Posted() == 0 }, a, b) // the first packets have come
	if srq.Used() != 1 {
		t.Fatalf("%d used", srq.Used())
	}
	if q.Destroy(); srq.Used() != 1 || srq.Posted() != 1 {
		t.Errorf("%d used, %d wait after the QP is gone", srq.Used(), srq.Posted())
	}
}

// A CQ that overruns takes the QPs of all workers to ERR, those too that
// complete nothing.
func TestOverrunOfSeveralWorkers(t *testing.T) {
	conform.Row(t, "5.8/resp-cq")
	for _, manual := range []bool{true, false} {
		a, b := newPorts(t, manual, 3, PairOptions{})
		cq := &compQueue{size: 2}
		srq := NewSRQ(SRQAttr{MaxWR: 8}, nil)
		var fatal, last atomic.Int32
		var qs []*QP
		workers := map[*Worker]bool{}
		for range 6 {
			q := newSharing(t, a, srq, cq, func(_ *QP, e qp.Event) {
				switch e {
				case qp.EventQPFatal:
					fatal.Add(1)
				case qp.EventLastWQEReached:
					last.Add(1)
				}
			})
			workers[q.Worker()] = true
			qs = append(qs, q)
		}
		other := newEndpoint(t, a, 100, 1) // of another CQ
		y := newEndpoint(t, b, 100, 16)
		join(t, &endpoint{QP: qs[0], port: a}, y, ib.MTU256)
		postIDs(srq, 1, 8)
		for range 3 {
			y.send(1, 0, 0)
		}
		done := func() bool { return fatal.Load() == 6 && last.Load() == 6 }
		if manual {
			settle(t, 1, done, a, b)
		} else {
			for limit := time.Now().Add(10 * time.Second); !done() && time.Now().Before(limit); {
				time.Sleep(time.Millisecond)
			}
		}
		for _, q := range qs {
			if s := q.Query().State; s != qp.Err {
				t.Errorf("QP %v is in %v", q.Number(), s)
			}
		}
		if !done() {
			t.Errorf("QP_FATAL %d times, LAST_WQE_REACHED %d; want 6 each", fatal.Load(), last.Load())
		}
		if s := other.Query().State; s != qp.Reset || len(workers) != 3 {
			t.Errorf("the QP of another CQ is in %v; %d workers", s, len(workers))
		}
	}
}
