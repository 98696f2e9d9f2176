package qp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// FuzzPair joins two QPs by a channel that the script drives: it says what is
// posted, which packets are lost, doubled and overtaken, and when timers run
// out. Then the channel is repaired; in the end both memories, all completions
// and all atomics are those of a channel without faults.
func FuzzPair(f *testing.F) {
	for _, b := range pairScripts {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		p := newDuo(t, b)
		for len(p.s) > 0 {
			p.step()
		}
		p.settle()
		for _, e := range p.ends {
			e.check()
		}
	})
}

// pairScripts begin with the first PSNs, the depth of READs, the window, and whether
// each memory window is bound. What follows a step is its end; of a post, the
// operation, bytes, and flags.
var pairScripts = [][]byte{
	{},
	{0, 0, 0, 0, 0, 0, duoPost, 0, 2, 0, 4, 1, duoRecv, 1, 3, duoSend, 0, 3, 0, 1, 0, duoArrive, 1, 4, duoSend, 1, 1, 0, duoArrive, 0, 1},
	{1, 1, 1, 1, 0, 0, duoPost, 0, 4, 0, 7, 1, duoSend, 0, 0, 0, duoArrive, 1, 1, duoSend, 1, 5, 0, 0, 1, 0, 0, duoArrive, 0, 6, duoExpire, 0, 0, 0, duoSend, 0, 1, 0},
	{2, 2, 2, 0, 0, 0, duoPost, 0, 6, 0, 0, 1, duoPost, 0, 5, 0, 0, 1, duoSend, 0, 2, 0, 0, duoArrive, 1, 2, duoSend, 1, 2, 1, 2, duoExpire, 0, 0, 0, duoSend, 0, 2, 0, 3},
	{3, 0, 1, 3, 0, 0, duoPost, 1, 1, 0, 6, 1, duoSend, 1, 5, 0, 3, 2, 0, 0, duoArrive, 0, 5, duoSend, 0, 2, 0, 0, duoArrive, 1, 2, duoDrain, 1, duoRecv, 0, 9, duoDrain, 1},
	{0, 0, 0, 0, 3, 3, duoPost, 1, 9, 0, 0, 1, duoSend, 1, 0, duoPost, 0, 0, 0, 6, 0x80, duoPost, 0, 8, 0, 0, 0x80, duoPost, 0, 11, 0, 3, 0, duoRecv, 1, 0, duoSend, 0, 7, 0, 0, 1, 0, 0, 0, duoArrive, 1, 8},
	{0, 0, 0, 0, 0, 0, duoPost, 0, 4, 0, 6, 0x80, duoSend, 0, 0, 0, duoArrive, 1, 0, duoSend, 1, 3, 0, 0, 0, duoArrive, 0, 3, duoPost, 1, 10, 0, 0, 1, duoSend, 1, 0, duoPost, 1, 9, 0, 0, 1, duoPost, 0, 7, 0, 0, 0x80},
}

// The steps of a script.
const (
	duoPost = iota
	duoRecv
	duoSend
	duoArrive
	duoExpire
	duoDrain
	duoPath
	duoSteps
)

func (p *duo) step() {
	step, e := p.s.next()%duoSteps, p.ends[p.s.next()&1]
	// However much is lost, retries don't end: that is another test.
	p.ends[0].req.retries, p.ends[1].req.retries = 7, 7
	switch step {
	case duoPost:
		e.post()
	case duoRecv:
		e.postRecv(int(p.s.next()))
	case duoSend:
		e.transmit(1+int(p.s.next()%16), func() byte { return p.s.next() })
	case duoArrive:
		e.arrive(1 + int(p.s.next()%16))
	case duoExpire:
		p.expire(e)
	case duoDrain:
		e.toggleDrain()
	case duoPath:
		e.SetPath(pick(&p.s, testPath, nil))
	}
	p.watch()
}

// watch takes note of what has completed.
func (p *duo) watch() {
	for _, e := range p.ends {
		e.watchWindow()
		e.checkFlushes()
	}
}

// duo is two QPs and what is between them.
type duo struct {
	s    script
	ends [2]*duoEnd
}

// duoEnd is one of them, with the model of what must come of it.
type duoEnd struct {
	*testQP
	d       *duo
	peer    *duoEnd
	air     [][]byte // packets on their way to it
	model   []byte   // what its memory must be
	want    [2][]Completion
	inbound []inbound // messages of the peer that need a receive
	counter uint64    // FETCH_ADDs of the peer
	swapped uint64    // the peer's last compare-and-swap
	posted  int       // work requests that have places in memory
	window  window    // by which the peer reaches all of its memory, for a while
	flushes []flush
}

// inbound is a message that goes into a receive.
type inbound struct {
	data []byte
	wc   Completion
}

// The memory of an end: a source that never changes, places for the peer's
// WRITEs and atomics, for receives, and for what READs and atomics bring.
const (
	duoMTU    = 256
	duoSlot   = 5 * duoMTU
	duoMost   = 12 // work requests of an end
	windowAt  = memSize / 4
	receiveAt = memSize / 2
	inboxAt   = memSize * 3 / 4
	counterAt = windowAt + duoMost*duoSlot
)

func newDuo(t *testing.T, b []byte) *duo {
	p := &duo{s: b}
	psns := []ib.PSN{pick(&p.s, ib.PSN(0), 0xfffffe, 0x7ffffd), pick(&p.s, ib.PSN(0xffffff), 1, 0x800000)}
	depth, window := pick[uint8](&p.s, 4, 1, 2), pick(&p.s, 128, 1, 3, 8)
	for i := range p.ends {
		e := &duoEnd{testQP: newReset(t), d: p}
		e.cfg.Window = window
		for _, a := range []Attr{initAttr, rtrAttr, rtsAttr} {
			a.SQPSN, a.RQPSN = psns[i], psns[1-i]
			a.MaxRdAtomic, a.MaxDestRdAtomic, a.RetryCnt, a.RNRRetry, a.Timeout = depth, depth, 7, 7, 8
			a.Access |= mem.FlushGlobal
			if err := e.Modify(&a, modifyMask(a.State), e.now); err != nil {
				t.Fatal(err)
			}
		}
		e.SetPath(testPath)
		e.openMemory(pick(&p.s, true, true, true, false))
		e.model = bytes.Clone(e.mem)
		e.counter, e.swapped = binary.NativeEndian.Uint64(e.mem[counterAt:]), binary.NativeEndian.Uint64(e.mem[counterAt+8:])
		p.ends[i] = e
	}
	p.ends[0].peer, p.ends[1].peer = p.ends[1], p.ends[0]
	return p
}

// post posts a work request, and says what must come of it.
func (e *duoEnd) post() {
	s, i := &e.d.s, e.posted
	op := e.possible(pick(s, WRWrite, WRWriteImm, WRSend, WRSendImm, WRRead, WRCompareSwap, WRFetchAdd, WRAtomicWrite, WRFlush, WRBindMW, WRLocalInv, WRSendInv))
	w := SendWQE{ID: uint64(len(e.sq.sends) + 1), Opcode: op, Imm: uint32(i) + 7}
	n := pick(s, 0, 1, 255, 256, 257, 512, 600, 1280, int(s.next())*5)
	flags := s.next()
	w.Flags = SendFlags(flags) & (Fence | Signaled | Solicited)
	if len(e.sq.sends) == 3*duoMost || i == duoMost && !placeless(op) {
		return
	}
	if !placeless(op) {
		e.posted++
	}
	e.useKey(&w, flags&0x80 != 0)
	data := e.mem[i%duoMost*1000:][:n]
	wc := Completion{ID: w.ID, QPN: testQPN, Opcode: w.Opcode.operation().completion}
	switch w.Opcode {
	case WRRead:
		w.SGEs, w.RemoteAddr = e.split(inboxAt+i*duoSlot, n, int(flags)*7), memBase+uint64(i*500)
		copy(e.model[inboxAt+i*duoSlot:], e.peer.mem[i*500:i*500+n])
		wc.ByteLen = uint32(n)
	case WRFetchAdd, WRCompareSwap:
		e.postAtomic(&w, i)
		wc.ByteLen = 8
	case WRAtomicWrite:
		w.SGEs, w.RemoteAddr = e.local(i*1000, 8), memBase+counterAt+16+uint64(8*i)
		copy(e.peer.model[counterAt+16+8*i:], e.mem[i*1000:][:8])
	case WRFlush:
		w.Flush, w.RemoteAddr, w.Length = FlushGlobal|Flush(flags)&FlushRegion, memBase+uint64(n), uint32(flags)
		e.flushes = append(e.flushes, flush{len(e.sq.sends), i})
	case WRBindMW:
		e.postBind(&w)
	case WRLocalInv:
		w.InvKey = e.window.key
		e.window.shutBy(e, len(e.sq.sends))
	default:
		w.SGEs = e.split(i*1000, n, int(flags)*7)
		e.postMessage(&w, i, data)
	}
	if w.Flags&Signaled != 0 {
		e.want[1] = append(e.want[1], wc)
	}
	e.send(w)
}

// split names n bytes at off by two elements.
func (e *duoEnd) split(off, n, cut int) []SGE {
	cut = min(cut, n)
	return append(e.local(off, cut), e.local(off+cut, n-cut)...)
}

func (e *duoEnd) postAtomic(w *SendWQE, i int) {
	w.SGEs, w.RemoteAddr = e.local(inboxAt+i*duoSlot, 8), memBase+counterAt
	place := e.model[inboxAt+i*duoSlot:]
	if w.Opcode == WRFetchAdd {
		w.CompareAdd = 1 << i
		binary.NativeEndian.PutUint64(place, e.peer.counter)
		e.peer.counter += w.CompareAdd
		binary.NativeEndian.PutUint64(e.peer.model[counterAt:], e.peer.counter)
		return
	}
	w.RemoteAddr += 8
	w.CompareAdd, w.Swap = e.peer.swapped+uint64(i%3/2), uint64(i)*99
	binary.NativeEndian.PutUint64(place, e.peer.swapped)
	if w.CompareAdd == e.peer.swapped {
		e.peer.swapped = w.Swap
		binary.NativeEndian.PutUint64(e.peer.model[counterAt+8:], w.Swap)
	}
}

func (e *duoEnd) postMessage(w *SendWQE, i int, data []byte) {
	wc := Completion{Opcode: WCRecv, QPN: testQPN, SrcQP: peerQPN, ByteLen: uint32(len(data)), Solicited: w.Flags&Solicited != 0}
	if w.Opcode == WRSendImm || w.Opcode == WRWriteImm {
		wc.Flags, wc.Imm = WCWithImm, w.Imm
	}
	if w.Opcode == WRSendInv {
		e.postInvalidate(w)
		wc.Flags, wc.Imm = WCWithInv, w.InvKey
	}
	if w.Opcode == WRWrite || w.Opcode == WRWriteImm {
		w.RemoteAddr = memBase + windowAt + uint64(i*duoSlot)
		copy(e.peer.model[windowAt+i*duoSlot:], data)
		data = nil
		wc.Opcode = WCRecvWriteImm
	}
	if w.Opcode != WRWrite {
		e.peer.inbound = append(e.peer.inbound, inbound{data, wc})
	}
}

// postRecv posts a receive; what goes there is settled at the end.
func (e *duoEnd) postRecv(cut int) {
	if k := len(e.rq.recvs); k < duoMost {
		e.rq.recvs = append(e.rq.recvs, &RecvWQE{ID: uint64(k + 1), SGEs: e.split(receiveAt+k*duoSlot, duoSlot, cut)})
	}
}

// transmit has the QP make up to n packets in a burst; fate says what becomes
// of each.
func (e *duoEnd) transmit(n int, fate func() byte) (made int) {
	packets := make([]TxPacket, n)
	for ; made < n && e.batch.Free() >= PlanOps; made++ {
		packets[made].Frame = &wire.Frame{Frag: [2][]byte{make([]byte, e.FrameRoom())}}
		if !e.Plan(e.now, &packets[made], e.batch) {
			break
		}
	}
	e.batch.Run()
	for i := range packets[:made] {
		if packets[i].Void {
			if e.window.state == open || e.State() == Err { // it is of a READ by a key that is no more
				e.t.Fatalf("a packet of good memory was void; state %v", e.State())
			}
			continue
		}
		e.Path().Seal(packets[i].Frame)
		e.peer.travel(packets[i].Frag[0], fate())
	}
	return made
}

// travel puts a packet on its way to e.
func (e *duoEnd) travel(b []byte, fate byte) {
	switch fate % 8 {
	case 1: // lost
	case 2:
		e.air = append(e.air, b, bytes.Clone(b))
	case 3: // overtakes
		at := int(fate/8) % (len(e.air) + 1)
		e.air = append(e.air[:at], append([][]byte{b}, e.air[at:]...)...)
	default:
		e.air = append(e.air, b)
	}
}

// arrive hands the QP up to n packets as a burst.
func (e *duoEnd) arrive(n int) {
	for range min(n, len(e.air)) {
		var p wire.Packet
		f := wire.Frame{Frag: [2][]byte{e.air[0]}}
		e.air = e.air[1:]
		if v := wire.Parse(&p, &f); v != wire.Accepted {
			e.t.Fatalf("the QP made a packet that is %v", v)
		}
		if e.batch.Free() < HandleOps {
			e.batch.Run()
		}
		v := e.Handle(&p, e.now, e.batch)
		if testing.Verbose() {
			e.t.Logf("end %p at %v: %v: %v", e, e.now, pkt{p.Header, p.Payload[0]}, v)
		}
	}
	e.batch.Run()
}

// expire lets the time pass to the deadline of e, or a little.
func (p *duo) expire(e *duoEnd) {
	now := e.now.Add(time.Duration(p.s.next()) * time.Microsecond)
	if d := e.Deadline(); p.s.next()&1 == 0 && d != clock.Never {
		now = max(e.now, d)
	}
	p.pass(now)
}

func (p *duo) pass(now clock.Time) {
	for _, e := range p.ends {
		e.now = now
		e.Expire(now)
	}
}

// toggleDrain moves the QP from RTS to SQD, or back.
func (e *duoEnd) toggleDrain() {
	a := Attr{State: SQD}
	if e.State() == SQD {
		a.State = RTS
	}
	if err := e.Modify(&a, AttrState, e.now); err != nil {
		e.t.Fatal(err)
	}
}

// settle repairs everything and waits until nothing happens any more.
func (p *duo) settle() {
	for _, e := range p.ends {
		e.SetPath(testPath)
		e.req.retries = 7
		if e.State() == SQD {
			e.toggleDrain()
		}
		for len(e.rq.recvs) < len(e.inbound) {
			e.postRecv(100)
		}
	}
	for range 10000 {
		p.watch()
		moved := false
		for _, e := range p.ends {
			moved = e.transmit(7, func() byte { return 0 }) > 0 || len(e.air) > 0 || moved
			e.arrive(5)
		}
		if moved {
			continue
		}
		next := min(p.ends[0].Deadline(), p.ends[1].Deadline())
		if next == clock.Never {
			return
		}
		p.pass(next)
	}
	p.ends[0].t.Fatal("no end")
}

// check compares an end with its model.
func (e *duoEnd) check() {
	for i, m := range e.inbound {
		m.wc.ID = uint64(i + 1)
		e.want[0] = append(e.want[0], m.wc)
		copy(e.model[receiveAt+i*duoSlot:], m.data)
	}
	var got [2][]Completion
	for _, c := range e.wcs {
		queue := 1
		if c.Opcode >= WCRecv {
			queue = 0
		}
		got[queue] = append(got[queue], c)
	}
	e.wantState(RTS)
	if d := cmp.Diff(e.want, got); d != "" {
		e.t.Fatalf("completions of receives and sends (-want +got):\n%s", d)
	}
	if !bytes.Equal(e.mem, e.model) {
		for i := range e.mem {
			if e.mem[i] != e.model[i] {
				e.t.Fatalf("memory differs at %#x: %#x, want %#x", i, e.mem[i], e.model[i])
			}
		}
	}
	if e.sq.retired != len(e.sq.sends) {
		e.t.Fatalf("%d of %d sends are retired", e.sq.retired, len(e.sq.sends))
	}
}
