package rocev2

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

const (
	// burst is how many frames a Step receives, and how many it sends, on each side.
	burst = 64
	// quantum is how many packets a QP sends before the next one has its turn.
	quantum = 16
	// batchOps is room for a burst of packets with a few pieces each.
	batchOps = 512
	// lease is how long after a Poll the worker's goroutine leaves the Link to
	// the poller.
	lease = 50 * time.Microsecond
	// longestStandby is how late, after the end of a lease, the goroutine may
	// notice that.
	longestStandby = 500 * time.Microsecond
	// yieldAfter is how many Polls find nothing before the poller gives up the
	// processor: some 20 µs.
	yieldAfter = 100
	// defaultSpin is how long an idle worker looks again before it sleeps.
	defaultSpin = 20 * time.Microsecond
)

// Worker runs the QPs of one queue. Whoever holds its token may run a Step: the
// goroutine of the worker, a poller, or the caller of a Manual port.
type Worker struct {
	port  *Port
	index int
	line  Link // the wire side's, for Wait and Wake
	sends bool // the Link can

	token sync.Mutex // guards all down to bells

	now   clock.Time // of the Step that runs, or the last one
	sides [2]side
	batch *mem.Batch

	// What comes.
	pkt    wire.Packet // the packet being handled
	parser wire.Parser
	gate   gate
	rx     [burst]RxFrame

	// What goes, and what the Step has done so far.
	tx      [burst]planned
	ntx     int  // packets in tx
	moved   int  // packets received and sent in this Step
	behind  int  // Steps on end in which a burst was full of what came
	awaited bool // a worker was late that may have something to lend
	crossed bool // a QP changed sides in this Step
	spare   reserved
	copy    struct { // what is reserved of the loop for a copy of the next packet
		frame TxFrame
		room  int // as asked for; 0: it isn't
	}
	skipWaits int // so many acknowledgements that could wait don't

	fullWire, fullLoans bool       // a burst of what came in this Step was, of the wire or of loans
	awaitedSince        clock.Time // since when awaited was so in each Step; 0: it isn't

	// The QPs that live here.
	recent *QP // who got the last packet
	qps    map[*QP]struct{}
	timers timers
	bursts map[CQ]*cqBurst
	dirty  []*cqBurst

	// Packets of others' QPs, and others' of these.
	in, out []*handover // by the other worker's index
	lent    int         // loans in out

	near    [burst]*QP // see touch
	touched uint64     // what touch added up: nobody wants it, but it has to be computed

	shares shares // frames that are on loan to several workers

	counters qp.Counters
	traffic  traffic
	longest  int // bytes of a frame that the interface may send; see longestFrame
	drops    [wire.NumVerdicts]uint64

	// For any goroutine, without the token.
	bells     doorbells
	leased    atomic.Int64  // clock.Time at which the poller's lease ends
	polled    atomic.Int64  // clock.Time of the first Poll since the goroutine ran a Step; 0: none
	rest      atomic.Uint32 // awake, asleep or standby
	closed    atomic.Bool
	late      atomic.Bool           // see isLate
	overrun   atomic.Bool           // another worker met a CQ that is overrun
	fruitless atomic.Uint32         // Polls since the last that did something
	kicked    atomic.Bool           // a post ran a Step since the last Poll
	load      atomic.Int32          // QPs
	starved   atomic.Bool           // the loop had no frame in the last Step; see isFed
	failure   atomic.Pointer[error] // what the Link died of
	roused    chan struct{}         // ends stand
	standing  nap                   // the goroutine's, for stand
	done      chan struct{}
	spin      time.Duration
}

// Worker.rest: what the worker's goroutine does.
const (
	awake   uint32 = iota
	asleep         // waits for frames, doorbells and the deadline
	standby        // waits for the end of the poller's lease
)

// side is a way in and out: the wire, or the loop to the Port's own addresses.
type side struct {
	link    Link
	ready   qpList // QPs that may have something to send; they take turns: the head gets a quantum, then goes to the tail
	waiting qpList // QPs whose acknowledgement waits a Step
	full    bool   // the last Reserve failed
	used    bool   // there may be packets on the way: always so by the wire, seldom in the loop
}

const (
	sideWire uint8 = iota
	sideLoop
)

type traffic struct {
	sentPkts, rcvdPkts, sentBytes, rcvdBytes, tooLong uint64
	congestionCounters
	multicastCounters
}

// receiveOnly is a Link that may have no way to send: some devices have more
// queues in than out. No QP lives there.
type receiveOnly interface{ CanSend() bool }

func newWorker(p *Port, index int, link, loop Link) *Worker {
	r, ok := link.(receiveOnly)
	w := &Worker{
		port: p, index: index, line: link, gate: newGate(p), sends: !ok || r.CanSend(), batch: mem.NewBatch(batchOps),
		qps: make(map[*QP]struct{}), longest: p.longestFrame(), bursts: make(map[CQ]*cqBurst), shares: newShares(),
		done: make(chan struct{}), roused: make(chan struct{}, 1), spin: p.cfg.Spin,
	}
	w.sides = [...]side{sideWire: {link: link, used: true}, sideLoop: {link: loop}}
	if w.spin == 0 {
		w.spin = defaultSpin
	}
	if p.cfg.Manual {
		w.batch.Guard(0) // it knows no time but what its Steps are given
	}
	return w
}

// Index returns the number of the worker's queue.
func (w *Worker) Index() int { return w.index }

// Poll runs a Step on the calling goroutine unless another runs one, and renews
// the poller's lease: while it lives, the worker's goroutine leaves the Link
// alone (docs/architecture.md: Who runs Step). On a Manual port it does nothing.
func (w *Worker) Poll() {
	if w.port.cfg.Manual {
		return
	}
	now := clock.Now()
	w.renew(now)
	if w.kicked.Load() {
		w.kicked.Store(false)
	}
	if w.tryStep(now) {
		w.fruitless.Store(0)
	} else {
		w.pause()
	}
}

// tryStep runs a Step for a poller unless another goroutine runs one, and
// reports whether it did anything.
func (w *Worker) tryStep(now clock.Time) bool {
	if !w.token.TryLock() {
		return false
	}
	worked := !w.closed.Load() && w.step(now)
	if worked && w.moved > quantum {
		w.renew(clock.Now()) // the Step may have taken longer than the lease
	}
	w.token.Unlock()
	// A goroutine that sleeps for frames knows nothing of the lease, nor of what
	// the Step has left to do. A Step without work changed nothing.
	if worked && w.rest.Load() == asleep {
		w.wake()
	}
	return worked
}

// kick sees to a Step soon, as nudge does. While a poller's lease lives, it runs
// one at once, since the poller may wait for something else next, or do other
// things; but not twice between two Polls, so that many posts make one burst.
func (w *Worker) kick() {
	now := clock.Now()
	switch {
	case w.leased.Load() <= int64(now):
		w.nudge()
	case w.kicked.Load() || !w.kicked.CompareAndSwap(false, true) || w.tryStep(now):
	case w.rest.Load() == asleep: // whoever has the token may be past the doorbells, or run no Step
		w.wake()
	}
}

// pause is called after a Poll that found nothing. A program that polls on and
// on takes the processor from the one that it waits for, if there are fewer
// processors than pollers: so it gives it up from time to time.
func (w *Worker) pause() {
	if w.fruitless.Add(1)%yieldAfter == 0 {
		runtime.Gosched()
		yield()
	}
}

// renew lets the lease end later.
func (w *Worker) renew(now clock.Time) {
	// Not each time: a store costs more than a look.
	if end := now.Add(lease); end.Sub(clock.Time(w.leased.Load())) > lease/10 {
		w.leased.Store(int64(end))
	}
	if w.polled.Load() == 0 {
		w.polled.Store(int64(now))
	}
}

// standbyTime is how long a goroutine on standby leaves the poller alone before
// it looks whether the lease has ended: an eighth of the time that it has been
// polled without a break. To wake up every 50 µs would cost a poller beside it
// a third of its time, mostly for timers that a virtual machine can't set alone.
func (w *Worker) standbyTime(now clock.Time) time.Duration {
	return min(max(now.Sub(clock.Time(w.polled.Load()))/8, lease), longestStandby)
}

// EndLease says that no one polls any more, so that the worker's goroutine
// takes over at once instead of at the lease's end. Call it before sleeping on
// a completion channel.
func (w *Worker) EndLease() {
	w.leased.Store(0)
	if w.rest.Load() == standby {
		w.wake()
	}
}

// Step is one round, for Manual ports: receive, handle, plan, send. It reports
// whether it did anything.
func (w *Worker) Step(now clock.Time) bool {
	if w.port.cfg.Manual {
		w.port.refreshIfChanged()
	}
	w.token.Lock()
	defer w.token.Unlock()
	return !w.closed.Load() && w.step(now)
}

// Deadline is when Step has something to do even if nothing arrives: now at the
// latest if it has something to do already.
func (w *Worker) Deadline() clock.Time {
	w.token.Lock()
	defer w.token.Unlock()
	return w.deadline()
}

func (w *Worker) deadline() clock.Time {
	for i := range w.sides {
		s := &w.sides[i]
		if s.waiting.n > 0 || s.ready.n > 0 && !s.full {
			return w.now
		}
	}
	if w.hasWork() {
		return w.now
	}
	return w.timers.next()
}

// hasWork reports whether others left work since the last Step.
func (w *Worker) hasWork() bool {
	return w.bells.any() || w.hasLoans() || w.isFed() || w.overrun.Load()
}

// run is the worker's goroutine.
func (w *Worker) run() {
	defer close(w.done)
	liveWorkers.Add(1)
	defer liveWorkers.Add(-1)
	var busy clock.Time // when a Step did something last
	for !w.closed.Load() {
		now := clock.Now()
		if clock.Time(w.leased.Load()) > now {
			w.sleep(standby, now.Add(w.standbyTime(now)))
			continue
		}
		w.polled.Store(0)
		switch {
		case w.Step(now):
			busy = now
		case now.Sub(busy) < w.spin && !outnumbered():
		default:
			// Whoever this Step made runnable runs before the thread sleeps in
			// the kernel, which would keep its processor for some time.
			runtime.Gosched()
			w.sleep(asleep, clock.Never)
		}
	}
}

// liveWorkers counts the goroutines of all workers of the process.
var liveWorkers atomic.Int32

// outnumbered reports whether the workers, if all of them ran at once, would leave
// no processor of Go's to anyone else.
func outnumbered() bool { return runtime.GOMAXPROCS(0) <= int(liveWorkers.Load()) }

// sleep announces how the goroutine rests, looks once more for what came in
// before that was seen, and waits.
func (w *Worker) sleep(how uint32, until clock.Time) {
	w.rest.Store(how)
	if how == asleep {
		// Only now: a poller's Step may have set a timer since the last one
		// here, and then seen this goroutine awake.
		until = w.Deadline()
	}
	stay := how == standby || !w.hasWork() && w.leased.Load() <= int64(clock.Now())
	switch {
	case !stay || w.closed.Load():
	case how == standby && outnumbered():
		w.stand(until)
	default:
		// A dead Link may call itself ready for ever.
		w.line.Wait(until, how == asleep && w.failure.Load() == nil)
	}
	w.rest.Store(awake)
}

// stand waits without a system call. Where processors are scarce, a goroutine
// that blocks in the kernel keeps its own from a poller until the runtime takes it
// away, and the runtime then wakes up every 20 µs to look for more such. The price
// is a timer that may be a millisecond late.
func (w *Worker) stand(until clock.Time) {
	w.standing.until(until, w.roused)
}

// nudge sees to a Step soon. It wakes the goroutine unless that is awake, or a
// poller's lease promises a Step and the goroutine stands by.
func (w *Worker) nudge() {
	switch w.rest.Load() {
	case asleep:
		w.wake()
	case standby:
		if w.leased.Load() <= int64(clock.Now()) {
			w.wake()
		}
	}
}

func (w *Worker) wake() {
	select {
	case w.roused <- struct{}{}:
	default:
	}
	w.line.Wake()
}

// control runs f under the token and sees that what it caused is done. Its
// completions are in their CQs when it returns: a QP may be destroyed next.
func (w *Worker) control(f func()) {
	w.token.Lock()
	f()
	if !w.closed.Load() {
		w.publish()
	}
	w.token.Unlock()
	w.nudge()
}

// stop ends the goroutine. No Step runs afterwards.
func (w *Worker) stop() {
	w.closed.Store(true)
	w.wake()
	if !w.port.cfg.Manual {
		<-w.done
	}
	w.token.Lock() // until a poller's Step is over
	defer w.token.Unlock()
	for q := range w.qps {
		w.sayAcks(q)
	}
	w.batch.Close()
}
