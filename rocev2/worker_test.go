package rocev2

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// A QP with a great message takes turns with those that have little.
func TestFairness(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{Frames: 4096})
	list := newFakes(t, a, 8, gid("10.0.0.2"))
	list[0].owed.Store(1 << 20)
	for _, q := range list[1:] {
		q.owed.Store(40)
	}
	for _, q := range list {
		q.Doorbell()
	}
	w := a.Workers()[0]
	for step := 1; step <= 10; step++ {
		w.Step(clock.Time(step))
		total := 0
		for _, q := range list {
			total += q.planned()
		}
		if total > step*burst {
			t.Fatalf("%d packets in %d Steps; a Step sends at most %d", total, step, burst)
		}
	}
	// 8 QPs with 16 packets a turn: after 10 Steps each had 5 turns at least.
	for i, q := range list[1:] {
		if q.planned() != 40 {
			t.Errorf("QP %d sent %d packets of 40", i+1, q.planned())
		}
	}
	if n := list[0].planned(); n != 10*burst-7*40 {
		t.Errorf("the great message got %d packets on its way, want what the others left, %d", n, 10*burst-7*40)
	}
}

// Without room to send, nothing is lost, and turns go on where they were.
func TestNoRoomToSend(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{Frames: 8})
	list := newFakes(t, a, 3, gid("10.0.0.2"))
	for _, q := range list {
		q.owed.Store(50)
		q.Doorbell()
	}
	now := settle(t, 1, nil, a) // nobody receives
	sent := a.Counters().SentPkts
	if sent != 8 {
		t.Fatalf("%d packets sent into 8 frames", sent)
	}
	settle(t, now, nil, a, b)
	for i, q := range list {
		if q.planned() != 50 {
			t.Errorf("QP %d sent %d packets of 50", i, q.planned())
		}
	}
	if got := b.Counters().RcvdPkts; got != 150 {
		t.Errorf("%d of 150 packets arrived", got)
	}
}

func TestTimersOfManyQPs(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	list := newFakes(t, a, 300, gid("10.0.0.2"))
	for i, q := range list {
		q.setDeadline(clock.Time(1000 + i%7))
		q.Doorbell()
	}
	w := a.Workers()[0]
	for w.Step(10) {
	}
	if d := w.Deadline(); d != 1000 {
		t.Fatalf("deadline %d, want 1000", d)
	}
	w.Step(1003)
	expired := 0
	for _, q := range list {
		expired += q.expired()
	}
	if expired != burst {
		t.Errorf("%d timers ran out in a Step, want %d", expired, burst)
	}
	for w.Step(1003) {
	}
	for i, q := range list {
		if want := 0; i%7 <= 3 {
			if want = 1; q.expired() != want {
				t.Errorf("timer %d ran out %d times, want %d", i, q.expired(), want)
			}
		} else if q.expired() != want {
			t.Errorf("timer %d ran out %d times, want %d", i, q.expired(), want)
		}
	}
	if d := w.Deadline(); d != 1004 {
		t.Errorf("deadline %d, want 1004", d)
	}
}

// An acknowledgement waits while a poller's lease lives and something goes on;
// otherwise it is sent.
func TestAcknowledgementsWait(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	q := newFakes(t, a, 1, gid("10.0.0.2"))[0]
	q.QP.ack.lulls.skip = math.MaxUint16 // its peer waits for them
	w := a.Workers()[0]
	w.Step(1)
	q.onlyAcks = true
	now := clock.Time(1000)
	// step says whether packets came, and the lease lives; it returns whether the
	// acknowledgement was sent.
	step := func(fresh, lease bool, after time.Duration) bool {
		now = now.Add(after)
		w.leased.Store(0)
		if lease {
			w.leased.Store(int64(now) + 1)
		}
		q.owed.Store(1)
		q.QP.ack.asked = q.QP.ack.asked || fresh
		q.Doorbell()
		before := q.planned()
		w.Step(now)
		if q.planned() == before && w.Deadline() > now {
			t.Errorf("a waiting acknowledgement leaves the deadline at %d", w.Deadline())
		}
		return q.planned() != before
	}
	const us = time.Microsecond
	for i, c := range []struct {
		fresh, lease bool
		after        time.Duration
		sent         bool
	}{
		{true, false, 0, true}, // no one polls
		{true, true, 0, false}, {false, true, us, false}, {false, true, us, false}, {false, true, us, false}, {false, true, us, false},
		{false, true, us, true}, // nothing goes on
		{true, true, 0, false}, {false, true, us, false}, {true, true, us, false}, {false, true, us, false}, {false, true, us, false},
		{false, true, ackTime, true}, // long enough
		{true, true, 0, false},
		{true, true, ackTime, false}, // an answer may come
		{true, true, ackTime, true},  // it doesn't
		{true, true, 0, false},
		{true, false, us, true}, // the lease is over
	} {
		if sent := step(c.fresh, c.lease, c.after); sent != c.sent {
			t.Errorf("step %d: the acknowledgement was sent: %v, want %v", i, sent, c.sent)
		}
		if c.sent {
			w.Step(now)
		}
	}
}

// spyLink keeps the goroutine's Waits.
type spyLink struct {
	Link
	err error // of Flush

	recv atomic.Pointer[func()] // called in the next Recv

	mu    sync.Mutex
	waits []wait
}

type wait struct {
	rx   bool
	from time.Time
}

func (l *spyLink) Wait(deadline clock.Time, rx bool) {
	l.mu.Lock()
	l.waits = append(l.waits, wait{rx, time.Now()})
	l.mu.Unlock()
	l.Link.Wait(deadline, rx)
}

// last returns how many Waits there were, and the last.
func (l *spyLink) last() (int, wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waits), l.waits[len(l.waits)-1]
}

func (l *spyLink) Recv(batch []RxFrame) int {
	if f := l.recv.Swap(nil); f != nil {
		(*f)()
	}
	return l.Link.Recv(batch)
}

func (l *spyLink) Flush() error {
	return errors.Join(l.err, l.Link.Flush())
}

// inBubble runs f with a Port of one worker, in fake time.
func inBubble(t *testing.T, f func(p *Port, l *spyLink, q fakeQP)) {
	synctest.Test(t, func(t *testing.T) {
		x, _, err := NewPair(PairOptions{Frames: 1024})
		if err != nil {
			t.Fatal(err)
		}
		l := &spyLink{Link: x}
		p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: &FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}}, Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
		q := newFakes(t, p, 1, gid("10.0.0.2"))[0]
		synctest.Wait()
		f(p, l, q)
	})
}

// An idle worker sleeps, until its deadline or a doorbell.
func TestIdleWorkerSleeps(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		n, _ := l.last()
		time.Sleep(time.Second)
		if more, last := l.last(); more != n || !last.rx {
			t.Fatalf("%d waits in a second without work; the last for frames: %v", more-n, last.rx)
		}
		q.owed.Store(1)
		q.Doorbell()
		synctest.Wait()
		if q.planned() != 1 {
			t.Error("a doorbell did not wake the worker")
		}
		q.setDeadline(clock.Now().Add(time.Millisecond))
		q.Doorbell()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if q.expired() != 1 {
			t.Error("the deadline did not wake the worker")
		}
	})
}

// While someone polls, the goroutine leaves frames alone, and takes over some
// time after the last Poll.
func TestLease(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		w := p.Workers()[0]
		for range 100 {
			q.owed.Store(1)
			q.Doorbell()
			w.Poll()
			time.Sleep(10 * time.Microsecond)
		}
		synctest.Wait()
		if _, last := l.last(); last.rx {
			t.Error("the goroutine waits for frames while someone polls")
		}
		if q.planned() != 100 {
			t.Errorf("%d packets of 100", q.planned())
		}
		// Posted within the lease, and no Poll any more: the goroutine's turn.
		q.owed.Store(1)
		q.Doorbell()
		synctest.Wait()
		if q.planned() != 100 {
			t.Error("a doorbell during the lease woke the goroutine")
		}
		time.Sleep(lease + longestStandby)
		synctest.Wait()
		if q.planned() != 101 {
			t.Error("what was posted in the lease is not done after its end")
		}
		if _, last := l.last(); !last.rx {
			t.Error("after the lease the goroutine doesn't wait for frames")
		}
	})
}

// A post within the lease is sent at once, the first after each Poll.
func TestKick(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		w := p.Workers()[0]
		q.owed.Store(1)
		q.Kick()
		synctest.Wait()
		if q.planned() != 1 {
			t.Fatal("a post without a lease did not wake the goroutine")
		}
		for i := range 3 {
			before := q.planned()
			w.Poll()
			for range 5 {
				q.owed.Add(1)
				q.Kick()
			}
			if got := q.planned() - before; got != 1 {
				t.Errorf("round %d: %d of 5 posts after a Poll were sent at once, want the first", i, got)
			}
			w.Poll()
			if got := q.planned() - before; got != 5 {
				t.Errorf("round %d: %d of 5 posts were sent by the next Poll", i, got)
			}
		}
		before := q.planned()
		for range 2 { // and no Poll any more
			q.owed.Add(1)
			q.Kick()
		}
		time.Sleep(lease + longestStandby)
		synctest.Wait()
		if got := q.planned() - before; got != 2 {
			t.Errorf("%d of 2 posts were sent after the lease", got)
		}
	})
}

// What is posted while another has the token, and is past the doorbells or looks at
// counters, is done though no one polls any more.
func TestPostWhileTheTokenIsTaken(t *testing.T) {
	for what, during := range map[string]func(w *Worker, l *spyLink, post func()){
		"Poll": func(w *Worker, l *spyLink, post func()) {
			l.recv.Store(&post)
			w.Poll()
		},
		"Counters": func(w *Worker, _ *spyLink, post func()) {
			w.Poll()
			w.token.Lock()
			post()
			w.token.Unlock()
		},
	} {
		inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
			during(p.Workers()[0], l, func() {
				q.owed.Store(1)
				q.Kick()
			})
			time.Sleep(lease + longestStandby)
			synctest.Wait()
			if q.planned() != 1 {
				t.Errorf("what was posted during %s was left lying", what)
			}
		})
	}
}

// After a few Polls the goroutine looks soon whether there are more, and after
// many Polls later; a doorbell after the lease's end needs no such look.
func TestStandby(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		w := p.Workers()[0]
		post := func() {
			q.owed.Store(1)
			q.Doorbell()
		}
		post()
		w.Poll()
		synctest.Wait()
		before := q.planned()
		post()
		time.Sleep(lease)
		synctest.Wait()
		if q.planned() != before+1 {
			t.Error("after one Poll the goroutine takes over later than at the lease's end")
		}
		n, _ := l.last()
		for range 1000 {
			post()
			w.Poll()
			time.Sleep(10 * time.Microsecond)
		}
		synctest.Wait()
		if more, _ := l.last(); more-n > 100 {
			t.Errorf("the goroutine woke up %d times in 10 ms of polling", more-n)
		}
		time.Sleep(lease + 1)
		before = q.planned()
		post()
		synctest.Wait()
		if q.planned() != before+1 {
			t.Error("a doorbell after the lease's end did not wake the goroutine on standby")
		}
	})
}

// An acknowledgement that waits is sent before its QP ends.
func TestWaitingAcknowledgementsAreSentAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Port, *endpoint) error{
		"destroy": func(_ *Port, y *endpoint) error { y.Destroy(); return nil },
		"reset":   func(_ *Port, y *endpoint) error { return y.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState) },
		"err":     func(_ *Port, y *endpoint) error { return y.Modify(&qp.Attr{State: qp.Err}, qp.AttrState) },
		"close":   func(b *Port, _ *endpoint) error { return b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPorts(t, true, 1, PairOptions{})
			x, y := newEndpoint(t, a, 100, 4), newEndpoint(t, b, 100, 4)
			join(t, x, y, ib.MTU1024)
			y.recv(1, 0, 8)
			now := settle(t, 1, nil, a, b)
			x.send(2, 0, 8)
			x.Worker().Step(now)
			y.Worker().leased.Store(int64(now) + 1)
			y.Worker().Step(now)
			wantCompletions(t, &y.cq, 1)
			x.Worker().Step(now)
			if x.cq.len() != 0 {
				t.Fatal("the acknowledgement did not wait")
			}
			if err := end(b, y); err != nil {
				t.Fatal(err)
			}
			x.Worker().Step(now)
			wantCompletions(t, &x.cq, 2)
		})
	}
}

// A peer that goes on without an acknowledgement lets it wait through the lull
// between two requests; for one that does not, trials become rare.
func TestAcknowledgementsSitOutLulls(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	q := newFakes(t, a, 1, gid("10.0.0.2"))[0]
	w := a.Workers()[0]
	w.Step(1)
	q.onlyAcks = true
	now := clock.Time(1000)
	step := func(asked bool) (sent bool) {
		before := q.planned()
		now = now.Add(time.Microsecond)
		if w.leased.Store(int64(now.Add(lease))); asked {
			q.owed.Store(1)
			q.QP.ack.asked = true
			q.Doorbell()
		}
		w.Step(now)
		return q.planned() != before
	}
	// wait asks and returns after how many Steps more the acknowledgement went.
	wait := func() (steps int) {
		for sent := step(true); !sent; sent = step(false) {
			steps++
		}
		return steps
	}
	for range 3 { // requests in the lulls: one acknowledgement for all
		for i := range ackSteps + 5 {
			if step(i == 0) {
				t.Fatal("an acknowledgement goes although the peer goes on without it")
			}
		}
	}
	long := int(ackLull / time.Microsecond)
	if got := wait(); got != long {
		t.Errorf("an acknowledgement waits for %d Steps, want %d", got, long)
	}
	for trial, between := range []int{fewestLulls, 2 * fewestLulls, 4 * fewestLulls} {
		for range between - 1 { // the one of the trial was the first
			if got := wait(); got != ackSteps+1 {
				t.Fatalf("after trial %d an acknowledgement waits for %d Steps, want %d", trial, got, ackSteps+1)
			}
		}
		if got := wait(); got != long {
			t.Errorf("%d acknowledgements after trial %d one waits for %d Steps, want %d", between, trial, got, long)
		}
	}
}

// So many messages are acknowledged whatever goes on.
func TestAcknowledgementsOfManyMessages(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	q := newFakes(t, a, 1, gid("10.0.0.2"))[0]
	w := a.Workers()[0]
	w.Step(1)
	q.onlyAcks = true
	w.leased.Store(int64(clock.Never))
	for i := range 3 * ackMessages {
		q.owed.Store(1)
		for _, o := range []wire.Opcode{wire.RCAck, wire.RCSendFirst, wire.RCSendLast} {
			q.QP.ack.came(o, wire.Accepted)
		}
		q.Doorbell()
		before := q.planned()
		w.Step(1000)
		if sent := q.planned() != before; sent != (i%ackMessages == ackMessages-1) {
			t.Fatalf("after %d messages an acknowledgement goes: %v", i%ackMessages+1, sent)
		}
	}
}

// A peer that sends again, as its timeout is shorter than the acknowledgement
// waits, gets it then: it does not run out of retries.
func TestAcknowledgementsForTheImpatient(t *testing.T) {
	for code := uint8(1); code <= 6; code++ {
		a, b := newPorts(t, true, 1, PairOptions{})
		x, y := newEndpoint(t, a, 100, 4), newEndpoint(t, b, 100, 4)
		join(t, x, y, ib.MTU1024)
		now := settle(t, 1, nil, a, b)
		x.modifyInSQD(t, qp.Attr{Timeout: code}, qp.AttrTimeout)
		y.Worker().leased.Store(int64(clock.Never))
		for i := range uint64(200) {
			y.recv(i, 0, 8)
			x.send(i, 0, 8)
			for steps := 0; x.cq.len() == 0; steps++ {
				if steps > 500 {
					t.Fatalf("timeout code %d: message %d has no completion after 500 µs", code, i)
				}
				now = now.Add(time.Microsecond)
				x.Worker().Step(now)
				y.Worker().Step(now)
			}
			if c := x.cq.take()[0]; c.Status != qp.Success {
				t.Fatalf("timeout code %d: message %d: %v", code, i, c.Status)
			}
		}
		if n := a.Stats().Counters["local_ack_timeout_err"]; code > 4 && n != 0 {
			t.Errorf("timeout code %d: %d timeouts", code, n)
		}
	}
}

// An acknowledgement that waited long, as the program had other things to do,
// keeps the next ones from waiting.
func TestAcknowledgementsStopWaiting(t *testing.T) {
	a, _ := newPorts(t, true, 1, PairOptions{})
	q := newFakes(t, a, 1, gid("10.0.0.2"))[0]
	w := a.Workers()[0]
	w.Step(1)
	q.onlyAcks = true
	now := clock.Time(1000)
	waited := func() bool {
		before := q.planned()
		q.owed.Store(1)
		q.Doorbell()
		q.QP.ack.asked = true
		w.leased.Store(int64(now.Add(lease)))
		w.Step(now)
		return q.planned() == before
	}
	if !waited() {
		t.Fatal("an acknowledgement does not wait")
	}
	now = now.Add(time.Millisecond)
	w.Step(now)
	for i := range skipWaits - 1 { // the late one was the first
		if waited() {
			t.Fatalf("acknowledgement %d after a late one waits", i)
		}
	}
	if !waited() {
		t.Error("acknowledgements don't wait ever again")
	}
}

// EndLease hands over at once.
func TestEndLease(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		w := p.Workers()[0]
		for range 3 {
			q.owed.Store(1)
			q.Doorbell()
			w.Poll()
			synctest.Wait()
		}
		before := time.Now()
		w.EndLease()
		synctest.Wait()
		_, last := l.last()
		if !last.rx || last.from != before {
			t.Errorf("the goroutine waits for frames: %v, %v after EndLease", last.rx, last.from.Sub(before))
		}
	})
}

// A Poll that leaves work behind and never comes back: nothing is lost.
func TestOnePollOnly(t *testing.T) {
	inBubble(t, func(p *Port, l *spyLink, q fakeQP) {
		q.owed.Store(40) // less than the pair holds
		p.Workers()[0].bells.ring(q.QP)
		p.Workers()[0].Poll()
		if q.planned() == 0 {
			t.Fatal("Poll did nothing")
		}
		q.setDeadline(clock.Now().Add(time.Millisecond))
		q.owed.Add(1)
		p.Workers()[0].bells.ring(q.QP)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if q.planned() != 41 || q.expired() != 1 {
			t.Errorf("%d packets of 41, %d timers of 1", q.planned(), q.expired())
		}
	})
}

// The requests on a Link that died end by their timers.
func TestDeadLink(t *testing.T) {
	x, _, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &spyLink{Link: x}
	a := newPort(t, "a", true, "10.0.0.1", l)
	e := newEndpoint(t, a, 100_000, 16)
	if err := e.connect(5, gid("10.0.0.2"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	now := settle(t, 1, nil, a)
	l.err = errors.New("pulled out")
	e.sq.Post(&qp.SendWQE{ID: 1, Opcode: qp.WRWrite, SGEs: e.sge(0, 100_000)})
	e.sq.Post(&qp.SendWQE{ID: 2, Opcode: qp.WRWrite, SGEs: e.sge(0, 1000)})
	e.Doorbell()
	settle(t, now, func() bool { return e.cq.len() == 2 }, a)
	cs := e.cq.take()
	if cs[0].Status != qp.RetryExcErr || cs[1].Status != qp.WRFlushErr {
		t.Errorf("completions %v and %v, want RETRY_EXC_ERR and WR_FLUSH_ERR", cs[0].Status, cs[1].Status)
	}
	if a.Err() == nil || a.State() != ib.PortDown {
		t.Errorf("error %v, state %v; want one, and DOWN", a.Err(), a.State())
	}
}

// A CQ without room takes its QPs to ERR.
func TestOverrun(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 10_000, 16), newEndpoint(t, b, 10_000, 16)
	join(t, x, y, ib.MTU1024)
	x.cq.size = 2
	for i := range 4 {
		x.write(uint64(i), y, 0, 100)
	}
	settle(t, 1, nil, a, b)
	if s := x.Query().State; s != qp.Err {
		t.Errorf("state %v after an overrun, want ERR", s)
	}
	if len(x.events) == 0 || x.events[0] != qp.EventQPFatal {
		t.Errorf("events %v, want QP_FATAL", x.events)
	}
}

// All completions of a burst come in one Push.
func TestOnePushPerBurst(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 10_000, 64), newEndpoint(t, b, 10_000, 64)
	join(t, x, y, ib.MTU1024)
	now := settle(t, 1, nil, a, b)
	for i := range 30 {
		x.write(uint64(i), y, 0, 100)
	}
	settle(t, now, nil, a, b)
	if n := x.cq.len(); n != 30 || x.cq.calls > 3 {
		t.Errorf("%d completions of 30 in %d pushes, want a few", n, x.cq.calls)
	}
}
