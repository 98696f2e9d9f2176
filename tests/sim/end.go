package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
)

// end is one side of a connection: a QP, the application that uses it, and the
// model of what must come of it.
type end struct {
	pair  *pair
	host  *host
	peer  *end
	name  string
	r     *rand.Rand
	qp    *rocev2.QP
	sq    qptest.SendQueue
	rq    qptest.RecvQueue
	pool  *pool // instead of rq, if there is one
	sends completions
	recvs completions

	psn       ib.PSN
	rdAtomics uint8
	rnrTimer  uint8
	timeout   uint8
	depth     int
	slot      int // bytes of a message's place

	// buf is the end's memory: what it sends, places for receives, places for
	// what READs and atomics bring, and the window that its peer WRITEs to.
	buf           []byte
	mr            *mem.MR
	process       *mem.Process // whose the memory is, if it is to end
	lost          bool         // the memory has gone
	source        []byte
	recvAt, gotAt int
	windowAt      int
	window        []byte // what the window must hold: the model of the peer's WRITEs
	casWord       uint64 // what the peer's word for compare-and-swap must hold
	win           window // by which the peer may reach it, too

	todo      int // work requests still to be posted
	posted    []*work
	free      []int   // places for READs and atomics
	incoming  []*work // messages of the peer that need a receive, in order
	places    []int   // of the receives posted, in order
	nextPlace int
	serial    uint64
	wake      clock.Time
	holdRecv  clock.Time // no receives before
	broken    bool       // an error completion came: only flushes may follow
	gone      bool       // the QP was destroyed
	broke     qp.WCStatus
	drain     drainState
	events    map[qp.Event]int
}

// work is a send work request and what must come of it.
type work struct {
	id     uint64
	wqe    *qp.SendWQE
	length int
	data   []byte // the message
	place  int    // of a READ or atomic
	want   []byte // what a READ must bring …
	dirty  []bool // … but for bytes written since
	winOff int    // of a READ of the window, else -1
	word   int    // of an atomic: a counter, or -1 for the compare-and-swap word
	found  uint64 // what a compare-and-swap must find
	bad    bool   // a request that must fail
}

const (
	sourceSize = 5*4096 + 1000
	depthMax   = 32
)

func (p *pair) newEnd(k int, h *host) (*end, error) {
	r := p.w.r
	e := &end{
		pair: p, host: h, r: r, name: fmt.Sprintf("%s.%d on %s", p.name, k, h.name),
		rdAtomics: uint8(1 + r.IntN(8)), rnrTimer: uint8(1 + r.IntN(14)), timeout: uint8(6 + r.IntN(6)),
		depth: 1 + r.IntN(depthMax), slot: 5*p.mtu.Bytes() + 8, wake: p.w.now, events: map[qp.Event]int{},
		psn: ib.PSN(r.Uint32() & 0xffffff),
	}
	if r.IntN(3) == 0 { // soon it wraps
		e.psn = ib.PSN(0xffffff - r.Uint32N(1000))
	}
	e.todo = 60 + r.IntN(60)
	if len(p.w.pairs) == 0 { // the first pair always lives: it makes up for the others
		e.todo = 250
	}
	if err := e.layOut(); err != nil {
		return nil, err
	}
	var err error
	rq := []qp.RecvQueue{&e.rq, countedRing{&e.rq}}[r.IntN(2)]
	init := rocev2.QPInit{
		PD: h.pd, SQ: &e.sq, RQ: rq, SendCQ: &e.sends, RecvCQ: &e.recvs,
		Caps:   qp.Caps{MaxSendWR: e.depth, MaxRecvWR: e.depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128},
		Window: []int{0, 4, 16, 64}[r.IntN(4)], OnEvent: func(ev qp.Event) { e.events[ev]++ },
		Trace: p.w.trace.hook(),
	}
	if p.fate.sharesReceives() {
		if e.pool = p.w.poolFor(h); p.fate == peerGone {
			e.pool = h.pool // what it holds must not go with it
		}
		e.pool.use(&init, &e.recvs)
	}
	e.qp, err = h.port.CreateQP(init)
	return e, err
}

// recvRoom returns the bytes of a receive.
func (e *end) recvRoom() int {
	if e.pool != nil {
		return e.pool.slot
	}
	return e.slot
}

// layOut makes and registers the end's memory.
func (e *end) layOut() (err error) {
	e.recvAt = sourceSize
	e.gotAt = e.recvAt + e.depth*e.slot
	e.windowAt = (e.gotAt + e.depth*e.slot + 7) &^ 7
	e.buf = make([]byte, e.windowAt+8+2*e.slot)
	e.source = e.buf[:sourceSize]
	fill(e.source, e.r)
	e.window = bytes.Clone(e.buf[e.windowAt:])
	e.casWord = binary.NativeEndian.Uint64(e.window)
	for i := range e.depth {
		e.free = append(e.free, e.gotAt+i*e.slot)
	}
	if e.pair.fate == appGone {
		if e.process, err = mem.NewProcess(os.Getpid()); err != nil {
			return err
		}
	}
	e.mr, err = e.host.register(e.r, e.process, e.buf, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic|mem.MWBind)
	if err != nil {
		return err
	}
	return e.allocWindow()
}

// act polls and posts. It reports whether it did anything.
func (e *end) act() (worked bool) {
	if e.gone {
		return false
	}
	for _, c := range e.sends.take() {
		e.sendCompleted(&c)
		worked = true
	}
	for _, c := range e.recvs.take() {
		e.recvCompleted(&c)
		e.wake = min(e.wake, max(e.pair.w.now, e.holdRecv)) // to post another
		worked = true
	}
	if e.pair.w.now < e.wake || e.pair.phase != working {
		return worked
	}
	worked = e.postReceives() || worked
	worked = e.postSends() || worked
	e.wake = e.pair.w.now.Add(time.Duration(e.r.Int64N(int64(30 * time.Microsecond))))
	if e.broken || e.todo == 0 && e.pair.w.now >= e.holdRecv {
		e.wake = clock.Never
	}
	e.think()
	return worked
}

// think now and then holds back receives, so that the peer meets RNR NAKs, and
// drains the send queue.
func (e *end) think() {
	w := e.pair.w
	switch {
	case w.net.quiet:
	case e.r.IntN(40) == 0:
		e.holdRecv = w.now.Add(time.Duration(e.r.Int64N(int64(500 * time.Microsecond))))
	case e.r.IntN(60) == 0:
		e.startDrain()
	case e.r.IntN(60) == 0:
		e.retune()
	}
	e.checkDrain()
}

// retune changes what may be changed of a QP that works.
func (e *end) retune() {
	if s := e.qp.Query().State; s != qp.RTS {
		return
	}
	e.mustModify(qp.Attr{MinRNRTimer: uint8(1 + e.r.IntN(14)), Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic},
		qp.AttrMinRNRTimer|qp.AttrAccess)
	e.pair.w.trace.met["QP modified in a flood"]++
}

// postReceives keeps the receive queue filled.
func (e *end) postReceives() (worked bool) {
	if e.pool != nil || e.pair.w.now < e.holdRecv || e.pair.fate.starve(e) {
		return false
	}
	for e.rq.Pending() < e.depth && !e.broken {
		e.serial++
		place := e.recvAt + e.nextPlace*e.slot
		e.nextPlace = (e.nextPlace + 1) % e.depth
		e.rq.Post(&qp.RecvWQE{ID: e.serial, SGEs: e.pieces(place, e.slot)})
		e.places = append(e.places, place)
		e.qp.Doorbell()
		worked = true
	}
	return worked
}

// pieces names n bytes at off of the end's memory.
func (e *end) pieces(off, n int) []qp.SGE { return elements(e.r, e.mr, off, n) }

// postSends posts a few work requests.
func (e *end) postSends() (worked bool) {
	for n := e.r.IntN(6); n > 0 && e.todo > 0 && e.sq.Pending() < e.depth && !e.broken; n-- {
		w := e.pair.fate.spoil(e, e.newWork())
		if w == nil {
			return worked
		}
		if w.length > 0 && e.peer.lost && w.wqe.RKey == e.peer.mr.Key {
			w.bad = true
		}
		e.todo--
		e.pair.w.posts++
		e.posted = append(e.posted, w)
		if op := w.wqe.Opcode; op == qp.WRSend || op == qp.WRSendImm || op == qp.WRSendInv || op == qp.WRWriteImm {
			e.peer.incoming = append(e.peer.incoming, w)
		}
		e.sq.Post(w.wqe)
		e.qp.Doorbell()
		worked = true
	}
	return worked
}

// newWork makes a random work request, or nil if there is no place for it.
func (e *end) newWork() *work {
	e.serial++
	w := &work{id: e.serial, wqe: &qp.SendWQE{ID: e.serial, Opcode: qp.WROpcode(e.r.IntN(7))}, winOff: -1}
	if e.r.IntN(4) > 0 {
		w.wqe.Flags |= qp.Signaled
	}
	if e.r.IntN(8) == 0 {
		w.wqe.Flags |= qp.Fence
	}
	if e.r.IntN(8) == 0 {
		w.wqe.Flags |= qp.Solicited
	}
	w.wqe.Imm = e.r.Uint32()
	switch {
	case e.win.mw != nil && !e.win.bound && e.r.IntN(4) == 0:
		e.bindWork(w)
		return w
	case e.peer.win.key != 0 && e.r.IntN(16) == 0 && e.pair.fate != windowGone:
		e.invalidateWork(w)
		return w
	}
	switch w.wqe.Opcode {
	case qp.WRSend, qp.WRSendImm, qp.WRWrite, qp.WRWriteImm:
		e.fillOutgoing(w)
	default:
		if len(e.free) == 0 {
			return nil
		}
		w.place = e.free[len(e.free)-1]
		e.free = e.free[:len(e.free)-1]
		if w.wqe.Opcode == qp.WRRead {
			e.fillRead(w)
		} else {
			e.fillAtomic(w)
		}
	}
	return w
}

// messageLength is between 0 and 5 path MTUs, and often near a multiple.
func (e *end) messageLength() int {
	mtu := e.pair.mtu.Bytes()
	n := e.r.IntN(5*mtu + 1)
	if e.r.IntN(2) == 0 {
		n = mtu*e.r.IntN(6) + e.r.IntN(5) - 2
	}
	return max(0, min(n, 5*mtu))
}

// fillOutgoing makes w carry bytes of the source.
func (e *end) fillOutgoing(w *work) {
	w.length = e.messageLength()
	off := e.r.IntN(sourceSize - w.length)
	w.data = e.source[off : off+w.length]
	if w.length <= 128 && e.r.IntN(2) == 0 {
		w.wqe.Flags |= qp.Inline
		w.wqe.Inline = w.data
	} else {
		w.wqe.SGEs = e.pieces(off, w.length)
	}
	op := w.wqe.Opcode
	if op == qp.WRWrite || op == qp.WRWriteImm {
		at := 8 + e.r.IntN(len(e.peer.window)-8-w.length+1)
		w.wqe.RemoteAddr, w.wqe.RKey = e.aim(at)
		copy(e.peer.window[at:], w.data)
		if w.wqe.Flags&qp.Fence == 0 {
			e.soil(at, w.length)
		}
		if w.length == 0 {
			w.wqe.RemoteAddr, w.wqe.RKey = e.r.Uint64(), e.r.Uint32() // not looked at
		}
	}
}

// soil notes that READs of the window which are under way may see a later
// WRITE: a response that is asked for again is read anew (C9-105). Only a fence
// keeps the WRITE until the READs are done (IBA 10.8.3.3).
func (e *end) soil(at, n int) {
	for _, w := range e.posted {
		if w.winOff < 0 {
			continue
		}
		for i := max(at, w.winOff); i < min(at+n, w.winOff+w.length); i++ {
			w.dirty[i-w.winOff] = true
		}
	}
}

// fillRead makes w READ the peer's window, or the table of the peer's host.
func (e *end) fillRead(w *work) {
	w.length = e.messageLength()
	w.wqe.SGEs = e.pieces(w.place, w.length)
	if e.r.IntN(2) == 0 {
		at := e.r.IntN(tableSize - w.length)
		w.want = e.peer.host.table[at : at+w.length]
		w.wqe.RemoteAddr, w.wqe.RKey = e.peer.host.tableMR.IOVA+uint64(at), e.peer.host.tableMR.Key
	} else {
		w.winOff = 8 + e.r.IntN(len(e.peer.window)-8-w.length+1)
		w.want = bytes.Clone(e.peer.window[w.winOff : w.winOff+w.length])
		w.wqe.RemoteAddr, w.wqe.RKey = e.aim(w.winOff)
	}
	w.dirty = make([]bool, w.length)
	if w.length == 0 {
		w.wqe.RemoteAddr, w.wqe.RKey = e.r.Uint64(), e.r.Uint32()
	}
}

// fillAtomic makes w add to a counter of the peer's host, or swap the first
// word of the peer's window, which only this end does.
func (e *end) fillAtomic(w *work) {
	w.length = 8
	w.wqe.SGEs = []qp.SGE{{Addr: e.mr.IOVA + uint64(w.place), Length: 8, LKey: e.mr.Key}}
	h := e.peer.host
	if w.wqe.Opcode == qp.WRFetchAdd && e.pair.fate != lives {
		w.wqe.Opcode = qp.WRCompareSwap // what becomes of it may never be known
	}
	if w.wqe.Opcode == qp.WRFetchAdd {
		w.word = e.r.IntN(counterWords)
		w.wqe.CompareAdd = 1
		w.wqe.RemoteAddr, w.wqe.RKey = h.counterMR.IOVA+uint64(8*w.word), h.counterMR.Key
		h.adds[w.word]++
		return
	}
	w.found = e.peer.casWord
	w.wqe.CompareAdd, w.wqe.Swap = w.found, e.r.Uint64()
	if e.r.IntN(3) == 0 {
		w.wqe.CompareAdd++ // it must not swap
	} else {
		e.peer.casWord = w.wqe.Swap
	}
	w.wqe.RemoteAddr, w.wqe.RKey = e.aim(0)
}

func (e *end) violation(format string, args ...any) {
	e.pair.w.net.violation("%s: %s", e.name, fmt.Sprintf(format, args...))
}
