package qp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// script is the input of a fuzz target as a source of choices.
type script []byte

// next returns the next byte, and 0 behind the end.
func (s *script) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) word() uint32 {
	return uint32(s.next())<<24 | uint32(s.next())<<16 | uint32(s.next())<<8 | uint32(s.next())
}

// pick returns one of the choices.
func pick[T any](s *script, choices ...T) T { return choices[int(s.next())%len(choices)] }

// FuzzQP drives one QP by a script of calls of all kinds: modify, post,
// packets in sequence and arbitrary ones, bursts that commit late, plan,
// timers, memory that comes and goes. After each step everything must hold
// that check and the queues check.
func FuzzQP(f *testing.F) {
	for _, b := range seedScripts {
		f.Add(b)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		f.Add(politeScript(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		z := newFuzzed(t, b)
		for len(z.s) > 0 {
			z.step()
			z.check()
		}
		z.end()
	})
}

// seedScripts do one thing of each kind in RTS, and what once went wrong.
var seedScripts = [][]byte{
	{},
	connected(0, stepSend, 0, 2, 1, 0, 4, 4, 0, stepPlan, 0, stepResponse, 0x11, 0, 0x1f, 0, 0, 0, stepPlan, 0),
	connected(0, stepRecv, 1, 0, 0, 255, 0, stepMessage, 0, 3, 1, 0, 4, 0, stepPlan, 0, stepMessage, 1, 2, 0, 4, 4, 0, stepPlan, 0),
	connected(0, stepBurst, stepMessage, 1, 4, 0, 8, 1, 1, stepMemory, stepMessage, 1, 1, 0, 9, 1, 0, stepPlan, 0, stepPlan, 0),
	connected(0, stepSend, 4, 2, 1, 0, 0, 200, 0, stepPlan, 0, stepResponse, 0x0d, 0, 0x1f, 0, 1, 0, stepExpire, 0, stepPlan, 0,
		stepResponse, 0x0e, 0, 0x1f, 0, 1, 0, stepPlan, 0),
	connected(0, stepSend, 6, 2, 1, 0, 0, 0, 252, stepPlan, 0, stepResponse, 0x12, 0, 0x1f, 0, 0, 0,
		stepRequest, 0x14, 0, 0, 8, 0, 0, 2, 0, 0, stepPlan, 0),
	connected(0, stepSend, 2, 2, 1, 0, 8, 9, 0, stepPlan, 0, stepResponse, 0x11, 0, 0x2c, 0, 0, 0, stepPlan, 0, stepExpire, 0, stepPlan, 0),
	// A message arrives, is to be sent again, and its memory is gone; then its ACK comes.
	connected(0, stepSend, 2, 2, 1, 0, 0, 4, 0, stepSend, 2, 2, 1, 1, 0, 4, 0, stepPlan, 0, stepMemory, stepExpire, 0, stepPlan, 0,
		stepResponse, 0x11, 1, 0x1f, 2, 0, 0, stepPlan, 0, stepSend, 2, 2, 1, 0, 0, 4, 0, stepPlan, 0),
	// A READ is asked for again, in parts, and another comes.
	connected(1, stepRequest, 0x0c, 0, 0, 8, 0, 2, 0, 0, 0, stepPlan, 0, stepRequest, 0x0c, 252, 0, 8, 0, 1, 0, 0, 0,
		stepRequest, 0x0c, 252, 0, 8, 0, 2, 0, 0, 0, stepRequest, 0x0c, 0, 0, 8, 0, 2, 0, 0, 0, stepPlan, 0),
	// A request fails while an answer is owed.
	connected(0, stepSend, 2, 2, 1, 0, 0, 4, 0, stepPlan, 0, stepMessage, 1, 0, 0, 0, 4, 0, stepPlan, 0,
		stepMessage, 1, 0, 0, 0, 4, 0, stepSend, 8, 2, 1, 0, 0, 4, 0, stepPlan, 0),
	{0, 0, stepRecv, 1, 0, 0, 1, 0, stepModify, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0},
}

// connected is a script that connects a QP which grants depth (4, 1 or 0 READs
// for 0, 1 and 2), and goes on with steps.
func connected(depth byte, steps ...byte) []byte {
	b := []byte{0, 0, stepConnect}
	for range 3 {
		b = append(b, 1, 1, 0, depth)
	}
	return append(b, steps...)
}

// The steps of a script.
const (
	stepModify = iota
	stepSend
	stepRecv
	stepMessage
	stepRequest
	stepResponse
	stepPacket
	stepPlan
	stepExpire
	stepBurst
	stepMemory
	stepPath
	stepConnect
	stepRun
	numSteps
)

func (z *fuzzed) step() {
	step := z.s.next() % numSteps
	if testing.Verbose() {
		z.t.Logf("%v: step %d %v", z.state, step, head(z.s))
	}
	switch step {
	case stepModify:
		z.modify()
	case stepSend:
		z.postSend()
	case stepRecv:
		z.postRecv()
	case stepMessage:
		z.message()
	case stepRequest:
		z.request()
	case stepResponse:
		z.response()
	case stepPacket:
		z.packet()
	case stepPlan:
		z.planAll()
	case stepExpire:
		z.expire()
	case stepBurst:
		z.burst = !z.burst
	case stepMemory:
		z.changeMemory()
	case stepPath:
		z.run()
		z.SetPath(pick(&z.s, testPath, nil))
	case stepConnect:
		z.connect()
	case stepRun:
		z.run()
	}
}

// fuzzed is the QP under test, and what must be true of it.
type fuzzed struct {
	*testQP
	s        script
	other    []byte  // memory of a region that comes and goes
	otherMR  *mem.MR // nil: not registered
	inbox    *mem.MR // where READs and atomics bring their answers
	serial   uint64
	kinds    map[uint64]bool // of the ids posted: a send
	done     map[uint64]bool // ids completed
	lastID   [2]uint64       // completed last: receives, sends
	vanish   bool            // a RESET takes work requests away
	model    []byte          // what mem must hold
	otherMod []byte          // what other must hold
	effects  []effect        // of packets accepted and not committed
	writing  effect          // the WRITE in progress: where its next packet goes
	sending  *RecvWQE        // the receive of the SEND in progress
	filled   uint64          // of it
	torn     *RecvWQE        // the receive of a SEND that was refused
	taken    int             // receives taken
	maxRd    uint8           // the most READs ever granted, each way
	maxDest  uint8
}

// effect is what a packet does to memory.
type effect struct {
	psn    ib.PSN
	main   bool // to mem, not to other
	off    uint64
	data   []byte
	atomic wire.Opcode
	swap   uint64
	cmp    uint64
}

const (
	otherSize = 4096
	sendID    = 1 << 32 // added to the ids of sends
)

func newFuzzed(t *testing.T, b []byte) *fuzzed {
	z := &fuzzed{testQP: newReset(t), s: b, other: make([]byte, otherSize), kinds: map[uint64]bool{}, done: map[uint64]bool{}}
	z.cfg.SQ, z.cfg.RQ = &fuzzSQ{fakeSQ{&z.sq}, z}, &fuzzRQ{fakeRQ{&z.rq}, z}
	z.cfg.Window = int(pick(&z.s, 128, 1, 2, 7))
	z.cfg.SigAll = z.s.next()%4 == 1
	z.model, z.otherMod = bytes.Clone(z.mem), make([]byte, otherSize)
	z.inbox = z.another(otherSize, mem.LocalWrite)
	z.registerOther()
	return z
}

func (z *fuzzed) registerOther() {
	mr, err := z.keys.Register(&z.pd, mem.NewBytes(z.other, 0), 0, 0, otherSize, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic)
	if err != nil {
		z.t.Fatal(err)
	}
	z.otherMR = mr
}

// fuzzSQ and fuzzRQ check what is retired.
type fuzzSQ struct {
	fakeSQ
	z *fuzzed
}

func (q *fuzzSQ) Retire() {
	w := q.sends[q.retired]
	q.fakeSQ.Retire()
	q.z.digest()
	switch id := w.ID | sendID; {
	case w.Completed != q.z.done[id]:
		q.z.t.Fatalf("send %d was retired; completed: %v, it says %v", w.ID, q.z.done[id], w.Completed)
	case !w.Completed && !q.z.vanish && (w.Flags&Signaled != 0 || q.z.cfg.SigAll || q.z.state == Err):
		q.z.t.Fatalf("send %d was retired without a completion", w.ID)
	}
}

type fuzzRQ struct {
	fakeRQ
	z *fuzzed
}

func (q *fuzzRQ) Retire(w *RecvWQE) {
	q.fakeRQ.Retire(w)
	q.z.digest()
	if !q.z.vanish && !q.z.done[w.ID] {
		q.z.t.Fatalf("receive %d was retired without a completion", w.ID)
	}
}

// digest takes in the completions: once each, and in the order of posting.
func (z *fuzzed) digest() {
	for i := range z.wcs {
		c := &z.wcs[i]
		id, queue := c.ID, 0
		if c.Opcode < WCRecv {
			id, queue = id|sendID, 1
		}
		switch {
		case z.done[id]:
			z.t.Fatalf("work request %#x completed twice", id)
		case id <= z.lastID[queue]:
			z.t.Fatalf("work request %#x completed after %#x", id, z.lastID[queue])
		case c.Status == Success && z.state == Err:
			z.t.Fatalf("work request %#x succeeded in ERR", id)
		}
		z.done[id], z.lastID[queue] = true, id
	}
	z.wcs = z.wcs[:0]
}

// connect takes the QP to RTS from RESET.
func (z *fuzzed) connect() {
	z.try(&Attr{State: Reset}, AttrState)
	psns := []ib.PSN{0, 0xfffffe, 0x7ffffe, 0x800000}
	for _, a := range []Attr{initAttr, rtrAttr, rtsAttr} {
		a.RQPSN, a.SQPSN = pick(&z.s, psns...), pick(&z.s, psns...)
		a.MaxRdAtomic, a.MaxDestRdAtomic = pick[uint8](&z.s, 4, 1, 0), pick[uint8](&z.s, 4, 1, 0)
		z.try(&a, modifyMask(a.State))
	}
	z.SetPath(testPath)
}

func (z *fuzzed) modify() {
	a := Attr{
		State: State(z.s.next() % 8), CurState: State(z.s.next() % 8), PathMTU: ib.MTU(1 + z.s.next()%6), DestQPN: peerQPN,
		RQPSN: ib.PSN(z.s.word()), SQPSN: ib.PSN(z.s.word()), Access: mem.Access(z.s.next()), Port: 1,
		MaxRdAtomic: z.s.next(), MaxDestRdAtomic: z.s.next(), MinRNRTimer: z.s.next(),
		Timeout: z.s.next(), RetryCnt: z.s.next() % 9, RNRRetry: z.s.next() % 9, SQDAsyncNotify: z.s.next()&1 != 0,
	}
	mask := AttrState | rcTransitions[[2]State{z.state, a.State}].required
	switch z.s.next() % 4 {
	case 1:
		mask |= AttrMask(z.s.word())
	case 2:
		mask |= rcTransitions[[2]State{z.state, a.State}].optional
	case 3:
		mask = AttrMask(z.s.word())
	}
	z.try(&a, mask)
}

// try modifies the QP; an error must leave everything as it was.
func (z *fuzzed) try(a *Attr, mask AttrMask) {
	z.run()
	before := z.Query()
	z.vanish = a.State == Reset && mask.has(AttrState)
	err := z.Modify(a, mask, z.now)
	z.vanish = false
	switch {
	case err != nil:
		if after := z.Query(); after != before {
			z.t.Fatalf("modify failed (%v) and changed %+v to %+v", err, before, after)
		}
		return
	case z.state == Reset:
		z.taken, z.sending, z.maxRd, z.maxDest = z.rq.retired, nil, 0, 0
	}
	z.maxRd, z.maxDest = max(z.maxRd, z.attr.MaxRdAtomic), max(z.maxDest, z.attr.MaxDestRdAtomic)
}

// elements makes a list of up to n elements: mostly of good memory.
func (z *fuzzed) elements(n int, key uint32, size int) (list []SGE) {
	for range n {
		off, length := int(z.s.next())*8, int(z.s.next())
		s := SGE{Addr: uint64(off), Length: uint32(length * 4), LKey: key}
		if key == z.mr.Key {
			s.Addr += memBase
		}
		switch z.s.next() {
		case 255:
			s.LKey ^= 1
		case 254:
			s.Addr += uint64(size)
		case 253:
			s.Length = z.s.word()
		case 252:
			s.Length = 8
		}
		list = append(list, s)
	}
	return list
}

func (z *fuzzed) postSend() {
	if len(z.sq.sends)-z.sq.retired >= 64 {
		return
	}
	z.serial++
	w := SendWQE{ID: z.serial, Opcode: WROpcode(z.s.next() % 9), Flags: SendFlags(z.s.next()), RemoteAddr: 64, RKey: 3}
	w.CompareAdd, w.Swap, w.Imm = z.serial, 7, uint32(z.serial)
	key, size := z.mr.Key, memSize
	if w.Opcode >= WRRead {
		key, size = z.inbox.Key, otherSize
	}
	n := int(z.s.next())
	if n != 255 {
		n %= 4
	} else {
		n = MaxSGE + 2
	}
	if z.s.next() == 1 && w.Opcode < WRRead && z.otherMR != nil {
		key = z.otherMR.Key
	}
	w.SGEs = z.elements(n, key, size)
	if w.Flags&Inline != 0 {
		w.Inline = seq(int(z.s.next()) * 3)
	}
	z.send(w)
}

func (z *fuzzed) postRecv() {
	if len(z.rq.recvs)-z.rq.retired >= 64 {
		return
	}
	z.serial++
	n := int(z.s.next())
	if n != 255 {
		n %= 4
	} else {
		n = MaxSGE + 2
	}
	key := z.mr.Key
	if z.s.next() == 1 && z.otherMR != nil {
		key = z.otherMR.Key
	}
	z.rq.recvs = append(z.rq.recvs, &RecvWQE{ID: z.serial, SGEs: z.elements(n, key, memSize)})
}

// changeMemory takes the other region away, or brings it back.
func (z *fuzzed) changeMemory() {
	if z.otherMR != nil {
		z.keys.Deregister(z.otherMR)
		z.otherMR = nil
	} else {
		z.registerOther()
	}
}

func (z *fuzzed) expire() {
	z.run()
	switch d := z.Deadline(); z.s.next() % 3 {
	case 0:
		if d != clock.Never {
			z.now = max(z.now, d)
		}
	case 1:
		z.now = z.now.Add(time.Duration(z.s.next()) * time.Microsecond)
	case 2:
		z.now = z.now.Add(time.Second)
	}
	z.Expire(z.now)
}

// end brings the QP to ERR: then every work request has come to its end.
func (z *fuzzed) end() {
	z.SetPath(testPath)
	z.try(&Attr{State: Err}, AttrState)
	z.planAll()
	z.check()
	if z.sq.retired != len(z.sq.sends) || z.rq.retired != len(z.rq.recvs) {
		z.t.Fatalf("in ERR, %d of %d sends and %d of %d receives are retired",
			z.sq.retired, len(z.sq.sends), z.rq.retired, len(z.rq.recvs))
	}
}

// check checks what must be true at any time.
func (z *fuzzed) check() {
	z.digest()
	r := &z.req
	switch {
	case r.committed > r.una || r.una > r.nxt || r.nxt > r.high:
		z.t.Fatalf("not ascending: committed %d, una %d, nxt %d, high %d", r.committed, r.una, r.nxt, r.high)
	case r.high-r.una > ib.PSNWindow:
		z.t.Fatalf("%d PSNs are unacknowledged", r.high-r.una)
	case z.state != Err && (r.tail-r.oldest > uint32(len(r.ring)) || r.acking-r.oldest > r.tail-r.oldest || r.cur-r.oldest > r.tail-r.oldest):
		z.t.Fatalf("not ascending: oldest %d, acking %d, cur %d, tail %d", r.oldest, r.acking, r.cur, r.tail)
	case z.resp.reading < 0 || z.resp.reading > int(z.maxDest):
		z.t.Fatalf("%d READs and atomics of the peer under way, granted were %d", z.resp.reading, z.maxDest)
	case z.resp.owed.len() > z.resp.owed.cap():
		z.t.Fatalf("%d answers owed, room for %d", z.resp.owed.len(), z.resp.owed.cap())
	}
	if z.state == RTS || z.state == SQD {
		z.checkOutstanding()
		z.checkGaps()
	}
}

// checkGaps checks that gaps are in order, each of one request that is answered by
// a response, and that una stands at the first.
func (z *fuzzed) checkGaps() {
	r := &z.req
	at := r.una
	for i := range r.gaps.list[:r.gaps.n] {
		g := &r.gaps.list[i]
		if t := r.at(g.index); g.from < at || g.n == 0 || !t.responds() || g.from < t.first || g.end() > t.end() {
			z.t.Fatalf("gap %d of %d: %+v, behind %d, of %+v", i, r.gaps.n, g, at, t)
		}
		if at = g.end(); at > r.top() {
			z.t.Fatalf("gap %d ends at %d, behind %d", i, at, r.top())
		}
	}
	if r.gaps.n > 0 && r.gaps.list[0].from != r.una || r.top() > r.nxt {
		z.t.Fatalf("una %d, top %d, nxt %d, gaps %+v", r.una, r.top(), r.nxt, r.gaps)
	}
}

// checkOutstanding counts anew what is outstanding.
func (z *fuzzed) checkOutstanding() {
	r := &z.req
	flight, responding := 0, 0
	for i := r.acking; i != r.tail; i++ {
		t := r.at(i)
		if t.wqe.Flags&Fence != 0 && t.first < r.high && responding > 0 {
			z.t.Fatalf("request %d was sent, whose fence waits for a READ or atomic before it", t.wqe.ID)
		}
		if t.responds() && t.first < r.high {
			responding++
		}
		switch from, to := max(t.first, r.una), min(t.end(), r.nxt); {
		case from >= to:
		case t.isRead():
			flight++
		default:
			flight += int(to - from)
		}
	}
	switch {
	case flight != r.flight || flight > z.cfg.Window:
		z.t.Fatalf("%d request packets in flight, the QP counts %d, the window is %d", flight, r.flight, z.cfg.Window)
	case responding != r.rdAtomics || responding > int(z.maxRd):
		z.t.Fatalf("%d READs and atomics outstanding, the QP counts %d, %d are allowed", responding, r.rdAtomics, z.maxRd)
	}
}

// apply makes the effect on the model m.
func (e *effect) apply(m []byte) {
	if len(e.data) > 0 { // without, nobody looks at the address
		copy(m[e.off:], e.data)
	}
	if e.atomic == 0 {
		return
	}
	word := m[e.off : e.off+8]
	switch old := binary.NativeEndian.Uint64(word); {
	case e.atomic == wire.RCFetchAdd:
		binary.NativeEndian.PutUint64(word, old+e.swap)
	case old == e.cmp:
		binary.NativeEndian.PutUint64(word, e.swap)
	}
}
