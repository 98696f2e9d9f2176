package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/tests/conform"
)

// srq makes an SRQ, and a QP in RTS that uses it, on the fake engine.
func (b *bench) srq(a SRQAttr) (*SRQ, *QP, *fakeQP) {
	s := must(b.pd.CreateSRQ(a))
	q := must(b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, SRQ: s}))
	if err := q.Modify(QPAttr{State: StateRTS}, AttrState); err != nil {
		b.t.Fatal(err)
	}
	return s, q, q.engine.(*fakeQP)
}

// take plays the worker: a QP takes a receive of its SRQ and completes it.
func (f *fakeQP) take(t *testing.T, cq *CQ) uint64 {
	t.Helper()
	w := f.init.RQ.Next()
	if w == nil {
		t.Fatal("no receive waits")
	}
	id := w.ID
	w.Completed = true
	f.init.RQ.Retire(w)
	cq.push(qp.Completion{ID: id, QPN: f.num, Opcode: WCRecv})
	return id
}

func TestSRQRefuses(t *testing.T) {
	b, other := newBench(t), newBench(t)
	l := b.dev.Query()
	for says, a := range map[string]SRQAttr{
		"MaxWR 0 (allowed: 1 to 32768, MaxSRQWR)":     {},
		"MaxWR 32769 (allowed: 1 to 32768, MaxSRQWR)": {MaxWR: l.MaxSRQWR + 1},
		"MaxSGE 33 (allowed: 0 to 32, MaxSRQSge)":     {MaxWR: 1, MaxSGE: l.MaxSRQSge + 1},
		"MaxSGE -1 (allowed: 0 to 32, MaxSRQSge)":     {MaxWR: 1, MaxSGE: -1},
		"Limit 2 (allowed: 0 to MaxWR, 1)":            {MaxWR: 1, Limit: 2},
		"Limit -1 (allowed: 0 to MaxWR, 10)":          {MaxWR: 10, Limit: -1},
	} {
		_, err := b.pd.CreateSRQ(a)
		wantErr(t, err, ErrInvalid, says)
	}
	s, q, _ := b.srq(SRQAttr{MaxWR: 4, MaxSGE: 1, Limit: 2})
	_, err := other.pd.CreateQP(QPInitAttr{SendCQ: other.cq, RecvCQ: other.cq, SRQ: s})
	wantErr(t, err, ErrInvalid, "the SRQ is of device fake0")
	_, err = q.PostRecv(RecvWR{})
	wantErr(t, err, ErrInvalid, "the QP takes its receives from an SRQ: post there")
	n, err := s.PostRecv(RecvWR{ID: 1}, RecvWR{ID: 2, SGEs: make([]SGE, 2)}, RecvWR{})
	wantErr(t, err, ErrInvalid, "work request 2 of 3 (wr_id 2): invalid argument: 2 scatter-gather elements: the queue takes 1")
	if n != 1 {
		t.Errorf("%d posted", n)
	}
	n, err = s.PostRecv(make([]RecvWR, 4)...)
	wantErr(t, err, ErrQueueFull, "SRQAttr.MaxWR of them wait or have not been polled")
	if n != 3 {
		t.Errorf("%d posted", n)
	}
	wantErr(t, s.Modify(SRQAttr{MaxWR: 3}, AttrSRQMaxWR), ErrInvalid, "MaxWR 3: the SRQ holds 4 work requests")
	wantErr(t, s.Modify(SRQAttr{MaxWR: l.MaxSRQWR + 1}, AttrSRQMaxWR), ErrInvalid, "MaxWR 32769 (allowed: 1 to 32768, MaxSRQWR)")
	wantErr(t, s.Modify(SRQAttr{Limit: 5}, AttrSRQLimit), ErrInvalid, "limit 5 (allowed: 0 to MaxWR, 4)")
	if a := must(s.Query()); a != (SRQAttr{MaxWR: 4, MaxSGE: 1, Limit: 2}) {
		t.Errorf("after what failed: %+v", a)
	}
	wantErr(t, s.Destroy(), ErrBusy, "in use by 1 QP")
	wantErr(t, b.pd.Dealloc(), ErrBusy, "1 SRQ")
	q.Destroy()
	if err := s.Destroy(); err != nil {
		t.Fatal(err)
	}
	_, postErr := s.PostRecv(RecvWR{})
	_, queryErr := s.Query()
	_, createErr := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, SRQ: s})
	for _, err := range []error{postErr, queryErr, createErr, s.Modify(SRQAttr{}, 0), s.Destroy()} {
		wantErr(t, err, ErrClosed, "SRQ")
	}
	left := must(b.pd.CreateSRQ(SRQAttr{MaxWR: 1}))
	b.dev.Close()
	_, err = left.PostRecv(RecvWR{})
	wantErr(t, err, ErrClosed, "post SRQ recv")
}

// As many receives as there may be, each of as many elements. See TestDeviceLimits, too.
func TestSRQLimits(t *testing.T) {
	b := newBench(t)
	l := b.dev.Query()
	s := must(b.pd.CreateSRQ(SRQAttr{MaxWR: l.MaxSRQWR, MaxSGE: l.MaxSRQSge, Limit: l.MaxSRQWR}))
	list := make([]SGE, l.MaxSRQSge)
	for i := range list {
		list[i] = b.mr.SGE(i, 1)
	}
	wrs := make([]RecvWR, l.MaxSRQWR+1)
	for i := range wrs {
		wrs[i].SGEs = list
	}
	if n, err := s.PostRecv(wrs...); n != l.MaxSRQWR || !errors.Is(err, ErrQueueFull) {
		t.Errorf("%d, %v", n, err)
	}
}

// A receive's slot is free when its completion was polled, or is lost with its QP or CQ.
func TestSRQSlots(t *testing.T) {
	full := func(t *testing.T, s *SRQ) bool {
		t.Helper()
		n, err := s.PostRecv(RecvWR{})
		if n+btoi(errors.Is(err, ErrQueueFull)) != 1 {
			t.Fatal(n, err)
		}
		return n == 0
	}
	for name, end := range map[string]func(b *bench, q *QP){
		"polled":      func(b *bench, _ *QP) { b.cq.Poll(make([]WC, 1)) },
		"reset":       func(_ *bench, q *QP) { q.Modify(QPAttr{State: StateReset}, AttrState) },
		"destroyed":   func(_ *bench, q *QP) { q.Destroy() },
		"cq overrun":  func(b *bench, q *QP) { b.cq.push(make([]qp.Completion, b.cq.Depth())...); b.lose(q) },
		"from before": func(b *bench, q *QP) { b.lose(q) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s, q, f := b.srq(SRQAttr{MaxWR: 1})
			must(s.PostRecv(RecvWR{ID: 1}))
			if name == "from before" { // the CQ is overrun already
				b.cq.push(make([]qp.Completion, b.cq.Depth()+1)...)
			} else if name != "cq overrun" {
				f.take(t, b.cq)
			}
			if !full(t, s) {
				t.Fatal("there is room, and the completion was not polled")
			}
			if end(b, q); full(t, s) {
				t.Error("there is no room")
			}
		})
	}
}

// lose completes a receive that the CQ has no room for.
func (b *bench) lose(q *QP) { q.engine.(*fakeQP).take(b.t.(*testing.T), b.cq) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSRQLimitReached(t *testing.T) {
	b := newBench(t)
	s, _, f := b.srq(SRQAttr{MaxWR: 8, Limit: 2})
	must(s.PostRecv(make([]RecvWR, 4)...))
	f.take(t, b.cq)
	f.take(t, b.cq)
	wantEvents(t, b.dev)
	f.take(t, b.cq)
	f.take(t, b.cq)
	reached := Event{Type: EventSRQLimitReached, SRQ: s}
	wantEvents(t, b.dev, reached)
	if err := s.Modify(SRQAttr{Limit: 8}, AttrSRQLimit); err != nil { // fewer wait: at once
		t.Fatal(err)
	}
	wantEvents(t, b.dev, reached)
	if e := reached.String(); e != "SRQ_LIMIT_REACHED" || EventLastWQEReached.String() != "LAST_WQE_REACHED" {
		t.Error(e)
	}
}

// The events of an SRQ that is destroyed go with it.
func TestSRQEventsGoWithIt(t *testing.T) {
	b := newBench(t)
	s := must(b.pd.CreateSRQ(SRQAttr{MaxWR: 8}))
	if err := s.Modify(SRQAttr{Limit: 8}, AttrSRQLimit); err != nil {
		t.Fatal(err)
	}
	if err := s.Destroy(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, b.dev)
}

func TestPostSRQAllocatesNothing(t *testing.T) {
	b := newBench(t)
	s, _, f := b.srq(SRQAttr{MaxWR: 8, MaxSGE: 2})
	wrs := []RecvWR{{ID: 1, SGEs: []SGE{b.mr.SGE(0, 8), b.mr.SGE(8, 8)}}, {ID: 2}}
	wcs := make([]WC, 4)
	if n := testing.AllocsPerRun(200, func() {
		s.PostRecv(wrs...)
		f.take(t, b.cq)
		f.take(t, b.cq)
		b.cq.Poll(wcs)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// newQueues makes two devices that are joined by a link in memory per queue.
func newQueues(t *testing.T, n int) (a, b *Device) {
	t.Helper()
	links := [2][]rocev2.Link{}
	for range n {
		la, lb, err := rocev2.NewPair(rocev2.PairOptions{})
		if err != nil {
			t.Fatal(err)
		}
		links[0], links[1] = append(links[0], la), append(links[1], lb)
	}
	var devs [2]*Device
	for i := range devs {
		p, err := rocev2.NewPort(rocev2.Config{Name: fmt.Sprintf("queues%d", i), Links: links[i], Net: &rocev2.FixedNet{
			Addresses: []ib.GID{{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: byte(i + 1)}}}})
		if err != nil {
			t.Fatal(err)
		}
		devs[i] = OpenPort(p, Options{})
		t.Cleanup(func() {
			if err := devs[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return devs[0], devs[1]
}

// RC, UC and UD on one SRQ, whose PD is another than theirs.
func TestSRQOfAllServices(t *testing.T) {
	da, db := newQueues(t, 1)
	buf := make([]byte, 1<<16)
	pd := must(db.AllocPD())
	mr := must(pd.RegMR(buf, LocalWrite))
	srq := must(pd.CreateSRQ(SRQAttr{MaxWR: 64, MaxSGE: 2}))
	for i := range 64 {
		must(srq.PostRecv(RecvWR{ID: uint64(i) << 10, SGEs: []SGE{mr.SGE(i<<10, 100), mr.SGE(i<<10+100, 924)}}))
	}
	cq := must(db.CreateCQ(64, nil))
	for i, typ := range []QPType{RC, UC, UD} {
		a := newSide(da, 4096, Caps{})
		a.qp.Destroy()
		a.qp = must(a.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: a.cq, RecvCQ: a.cq}))
		b := &side{dev: db, pd: must(db.AllocPD()), cq: cq}
		b.qp = must(b.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, SRQ: srq}))
		wr := SendWR{Opcode: OpSend, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 500)}}
		at := 0
		if typ == UD {
			at = GRHLen
			wr.AH, wr.RemoteQPN = must(a.pd.CreateAH(AV{DGID: db.GIDs()[0]})), b.qp.Number()
			if err := errors.Join(a.qp.Start(ConnectOptions{}), b.qp.Start(ConnectOptions{})); err != nil {
				t.Fatal(err)
			}
		} else {
			connect(t, a, b, ConnectOptions{})
		}
		fill(a.buf, uint64(i))
		must(a.qp.PostSend(wr))
		a.done(t)
		wc := b.done(t)
		got := buf[int(wc.ID)+at:][:500]
		if wc.QPN != b.qp.Number() || wc.ID != uint64(i)<<10 || !bytes.Equal(got, a.buf[:500]) {
			t.Errorf("%v: %+v", typ, wc)
		}
	}
}

// After LAST_WQE_REACHED all completions of the QP are in the CQ, and none comes later.
func TestLastWQEReached(t *testing.T) {
	da, db := newQueues(t, 2)
	for round := range 20 {
		a := newSide(da, 1<<16, Caps{})
		pd, cq := must(db.AllocPD()), must(db.CreateCQ(1024, nil))
		buf := make([]byte, 1<<12)
		mr := must(pd.RegMR(buf, LocalWrite))
		srq := must(pd.CreateSRQ(SRQAttr{MaxWR: 500, MaxSGE: 1}))
		for range 500 {
			must(srq.PostRecv(RecvWR{SGEs: []SGE{mr.SGE(0, 1<<12)}}))
		}
		b := &side{dev: db, pd: pd, cq: cq, qp: must(pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq}))}
		connect(t, a, b, ConnectOptions{RetryCnt: 1, Timeout: 10})
		for range 100 {
			must(a.qp.PostSend(SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 1<<12)}}))
		}
		time.Sleep(time.Duration(round) * 50 * time.Microsecond)
		if err := b.qp.Modify(QPAttr{State: StateErr}, AttrState); err != nil {
			t.Fatal(err)
		}
		if e := wantEvent(t, db, EventLastWQEReached); e.QP != b.qp {
			t.Errorf("of %v", e.QP)
		}
		wcs := make([]WC, 1024)
		n := cq.Poll(wcs)
		for i, wc := range wcs[:n] {
			if wc.Status != Success && (wc.Status != WRFlushErr || i != n-1) {
				t.Errorf("completion %d of %d: %v", i, n, wc.Status)
			}
		}
		if n+srq.queue.Posted() != 500 || srq.queue.Used() != srq.queue.Posted() {
			t.Errorf("%d completed, %d wait, %d used, of 500", n, srq.queue.Posted(), srq.queue.Used())
		}
		time.Sleep(100 * time.Microsecond)
		if n := cq.Poll(wcs); n != 0 {
			t.Errorf("%d completions after the event", n)
		}
		a.qp.Destroy()
		b.qp.Destroy()
	}
}

// crowd is many QPs of several workers on one SRQ and one CQ, and what came.
type crowd struct {
	t   *testing.T
	srq *SRQ
	cq  *CQ
	buf []byte
	mr  *MR

	came  [crowdSenders * crowdMessages]atomic.Int32
	total atomic.Int64
}

const (
	crowdSenders  = 8
	crowdMessages = 300
	crowdDepth    = 100
	crowdSlot     = 2048
)

// post posts the receive of a slot.
func (c *crowd) post(slot uint64) {
	if _, err := c.srq.PostRecv(RecvWR{ID: slot, SGEs: []SGE{c.mr.SGE(int(slot)*crowdSlot, crowdSlot)}}); err != nil {
		c.t.Errorf("slot %d, whose completion was polled: %v", slot, err)
	}
}

// poll polls and posts again until all is there.
func (c *crowd) poll() {
	wcs := make([]WC, 5)
	for c.total.Load() < crowdSenders*crowdMessages && !c.t.Failed() {
		for _, wc := range wcs[:c.cq.Poll(wcs)] {
			if wc.Status != Success {
				c.t.Errorf("%+v", wc)
				return
			}
			b := c.buf[wc.ID*crowdSlot:][:wc.ByteLen]
			id := binary.LittleEndian.Uint64(b)
			if n := c.came[id].Add(1); n != 1 || !bytes.Equal(b, message(id)) {
				c.t.Errorf("message %d came %d times, or with other bytes", id, n)
			}
			c.total.Add(1)
			c.post(wc.ID)
		}
	}
}

// message makes the bytes of a message: its id, then bytes that depend on it.
func message(id uint64) []byte {
	r := rand.New(rand.NewPCG(id, 7))
	b := make([]byte, 8+r.IntN(crowdSlot-8))
	binary.LittleEndian.PutUint64(b, id)
	for i := range b[8:] {
		b[8+i] = byte(r.Uint32())
	}
	return b
}

// QPs of four workers share an SRQ and a CQ that three goroutines poll, while both are resized and the limit is armed
// again and again: each message comes once, in a receive of its own.
func TestOneSRQAndOneCQForAll(t *testing.T) {
	da, db := newQueues(t, 4)
	pd := must(db.AllocPD())
	c := &crowd{t: t, buf: make([]byte, crowdDepth*crowdSlot)}
	c.mr = must(pd.RegMR(c.buf, LocalWrite))
	c.srq = must(pd.CreateSRQ(SRQAttr{MaxWR: crowdDepth, MaxSGE: 1, Limit: crowdDepth}))
	c.cq = must(db.CreateCQ(crowdDepth, nil))
	var senders []*side
	workers := map[poller]bool{}
	for range crowdSenders {
		a := newSide(da, 64*crowdSlot, Caps{MaxSendWR: 64, MaxSendSGE: 1})
		b := &side{dev: db, pd: pd, qp: must(pd.CreateQP(QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, SRQ: c.srq}))}
		connect(t, a, b, ConnectOptions{MinRNRTimer: 1})
		senders = append(senders, a)
		workers[b.qp.poller] = true
	}
	if len(workers) != 4 {
		t.Fatalf("%d workers", len(workers))
	}
	for slot := range uint64(crowdDepth) {
		c.post(slot)
	}
	var wg sync.WaitGroup
	for i, s := range senders {
		wg.Go(func() { s.sendAll(t, uint64(i*crowdMessages)) })
	}
	for range 3 {
		wg.Go(c.poll)
	}
	ctx, stop := context.WithCancel(t.Context())
	var meddlers sync.WaitGroup
	reached := c.meddle(ctx, &meddlers, db)
	wg.Wait()
	stop()
	meddlers.Wait()
	for id := range c.came {
		if n := c.came[id].Load(); n != 1 {
			t.Fatalf("message %d came %d times", id, n)
		}
	}
	if reached.Load() == 0 || c.cq.Err() != nil {
		t.Errorf("%d limit events, %v", reached.Load(), c.cq.Err())
	}
	if q := c.srq.queue; q.Used() != crowdDepth || q.Posted() != crowdDepth {
		t.Errorf("%d used, %d wait, of %d", q.Used(), q.Posted(), crowdDepth)
	}
}

// sendAll sends messages from an id on, 64 at a time.
func (s *side) sendAll(t *testing.T, id uint64) {
	wcs := make([]WC, 64)
	for sent, done := 0, 0; done < crowdMessages && !t.Failed(); {
		for ; sent < crowdMessages && sent-done < 64; sent++ {
			off := sent % 64 * crowdSlot
			n := copy(s.buf[off:], message(id+uint64(sent)))
			must(s.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, SGEs: []SGE{s.mr.SGE(off, n)}}))
		}
		for _, wc := range wcs[:s.cq.Poll(wcs)] {
			if err := wc.Err(); err != nil {
				t.Error(err)
			}
			done++
		}
	}
}

// meddle resizes the CQ and the SRQ, and arms the limit each time that it is reached.
func (c *crowd) meddle(ctx context.Context, wg *sync.WaitGroup, d *Device) *atomic.Int64 {
	wg.Go(func() {
		for r := rand.New(rand.NewPCG(1, 1)); ctx.Err() == nil; time.Sleep(20 * time.Microsecond) {
			if err := c.cq.Resize(crowdDepth + r.IntN(1000)); err != nil {
				c.t.Error(err)
			}
			// All receives are in use: it can't have fewer.
			if err := c.srq.Modify(SRQAttr{MaxWR: crowdDepth + r.IntN(1000)}, AttrSRQMaxWR); err != nil {
				c.t.Error(err)
			}
		}
	})
	limits := new(atomic.Int64)
	wg.Go(func() {
		for {
			select {
			case e := <-d.Events():
				if e.Type == EventSRQLimitReached && e.SRQ == c.srq {
					limits.Add(1)
					if err := c.srq.Modify(SRQAttr{Limit: crowdDepth - 1}, AttrSRQLimit); err != nil {
						c.t.Error(err)
					}
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return limits
}

// QPs come and go in the flood: no receive is lost.
func TestSRQInAFlood(t *testing.T) {
	conform.Row(t, "bug/24")
	da, db := newQueues(t, 3)
	pd := must(db.AllocPD())
	buf := make([]byte, 4096)
	mr := must(pd.RegMR(buf, LocalWrite))
	const depth = 50
	srq := must(pd.CreateSRQ(SRQAttr{MaxWR: depth, MaxSGE: 1}))
	cq := must(db.CreateCQ(2*depth, nil))
	fillUp := func() {
		for n := 1; n > 0; {
			n, _ = srq.PostRecv(RecvWR{SGEs: []SGE{mr.SGE(0, 4096)}})
		}
	}
	fillUp()
	ctx, stop := context.WithCancel(t.Context())
	var pollers sync.WaitGroup
	for range 2 {
		pollers.Go(func() {
			for wcs := make([]WC, 8); ctx.Err() == nil; {
				if cq.Poll(wcs) > 0 {
					fillUp()
				}
			}
		})
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(i)))
			for range 15 {
				a := newSide(da, 1<<14, Caps{})
				b := &side{dev: db, pd: pd, qp: must(pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq}))}
				connect(t, a, b, ConnectOptions{RetryCnt: 1, Timeout: 8, MinRNRTimer: 1})
				for range 50 {
					must(a.qp.PostSend(SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 4096)}}))
				}
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				switch r.IntN(3) {
				case 0:
					b.qp.Modify(QPAttr{State: StateErr}, AttrState)
				case 1:
					b.qp.Modify(QPAttr{State: StateReset}, AttrState)
				}
				b.qp.Destroy()
				a.qp.Destroy()
			}
		})
	}
	wg.Wait()
	stop()
	pollers.Wait()
	if q := srq.queue; q.Used() != q.Posted() {
		t.Errorf("%d receives are used, %d wait, no QP is left", q.Used(), q.Posted())
	}
	if fillUp(); srq.queue.Posted() != depth {
		t.Errorf("%d of %d receives can be posted", srq.queue.Posted(), depth)
	}
}
