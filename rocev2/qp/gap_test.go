package qp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// readOf is the request for n packets from packet i on, of a READ of address
// 0x9000 and first PSN 0.
func readOf(i, n int) wire.Header {
	return wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(i), AckReq: true, VA: 0x9000 + uint64(i)*256, RKey: 3, Length: uint32(n) * 256}
}

// startRead has the QP send a READ of n packets to off, and returns what answers it.
func (tq *testQP) startRead(id uint64, off, n int) []byte {
	tq.t.Helper()
	tq.send(SendWQE{ID: id, Opcode: WRRead, Flags: Signaled, SGEs: tq.local(off, n*256), RemoteAddr: 0x9000, RKey: 3})
	if _, ok := tq.plan(); !ok {
		tq.t.Fatal("no READ request")
	}
	return seq(n * 256)
}

func readDone(id uint64, packets int) Completion {
	return Completion{ID: id, Opcode: WCRead, ByteLen: uint32(packets) * 256}
}

// Several gaps in a READ: one is asked for at a time, in order, whatever else
// comes, and the end lands last.
func TestGapsOfOneRead(t *testing.T) {
	conform.Row(t, "5.3/req-gap", "5.3/req-read-resume", "bug/15")
	tq := newQP(t, nil)
	data := tq.startRead(1, 0, 10)
	for _, i := range []int{0, 2, 3, 6, 9} { // without 1, 4, 5, 7, 8
		tq.accepts(readResponse(i, i, 10), data[i*256:(i+1)*256])
	}
	tq.wantMem(512, data[512:1024])
	tq.wantMem(9*256, append(bytes.Clone(data[9*256:10*256-8]), pattern[10*256-8:10*256]...))
	tq.wantPacket(readOf(1, 1), nil)
	tq.wantQuiet()
	tq.accepts(readResponse(5, 5, 10), data[5*256:6*256]) // it was only late
	tq.accepts(readResponse(1, 0, 1), data[256:512])
	tq.wantPacket(readOf(4, 1), nil)
	tq.wantQuiet()
	tq.accepts(readResponse(4, 0, 1), data[4*256:5*256])
	tq.wantPacket(readOf(7, 2), nil)
	tq.accepts(readResponse(7, 0, 2), data[7*256:8*256])
	tq.wantMem(10*256-8, pattern[10*256-8:10*256])
	tq.wantWC()
	tq.accepts(readResponse(8, 1, 2), data[8*256:9*256])
	tq.wantWC(readDone(1, 10))
	tq.wantMem(0, data)
	tq.wantQuiet()
}

// Gaps in several requests: each is asked for at once, and completions keep their
// order. What a later answer acknowledges isn't sent again.
func TestGapsOfSeveralRequests(t *testing.T) {
	conform.Row(t, "5.3/req-implied", "5.3/req-gap")
	tq := newQP(t, nil)
	data := tq.startRead(1, 0, 2)
	tq.send(SendWQE{ID: 2, Opcode: WRFetchAdd, Flags: Signaled, SGEs: tq.local(4096, 8), RemoteAddr: 0x40, RKey: 3, CompareAdd: 5})
	tq.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled})
	tq.plan()
	tq.plan()
	tq.startRead(4, 1024, 2)
	tq.accepts(readResponse(5, 1, 2), data[256:512]) // all before is lost
	tq.wantPacket(readOf(0, 2), nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCFetchAdd, PSN: psnL(2), AckReq: true, VA: 0x40, RKey: 3, Swap: 5}, nil)
	h := readOf(4, 1)
	h.VA = 0x9000
	tq.wantPacket(h, nil)
	tq.wantQuiet()
	tq.accepts(readResponse(4, 0, 1), data[:256])
	tq.accepts(wire.Header{Opcode: wire.RCAtomicAck, PSN: psnL(2), Orig: 7}, nil)
	tq.accepts(readResponse(1, 1, 2), data[256:512])
	tq.wantWC()
	tq.accepts(readResponse(0, 0, 2), data[:256])
	tq.wantWC(readDone(1, 2), Completion{ID: 2, Opcode: WCFetchAdd, ByteLen: 8}, Completion{ID: 3}, readDone(4, 2))
	tq.wantMem(0, data)
	tq.wantMem(1024, data)
	if tq.req.flight != 0 || tq.req.rdAtomics != 0 || tq.Deadline() != clock.Never {
		t.Errorf("%d in flight, %d outstanding, deadline %v", tq.req.flight, tq.req.rdAtomics, tq.Deadline())
	}
}

// rxe answers a part of a READ by Middle and Last packets.
func TestAnswerOfAPartAsRxeGivesIt(t *testing.T) {
	tq := newQP(t, nil)
	data := tq.startRead(1, 0, 5)
	tq.accepts(readResponse(0, 0, 5), data[:256])
	tq.accepts(readResponse(4, 4, 5), data[4*256:])
	tq.wantPacket(readOf(1, 3), nil)
	for i := 1; i < 4; i++ {
		tq.accepts(readResponse(i, i, 4), data[i*256:(i+1)*256])
	}
	tq.wantWC(readDone(1, 5))
	tq.wantMem(0, data)
}

// Two READs to the same memory: what the second brings stays, though a part of
// the first came later.
func TestReadsOfOneBufferLandInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		second func(*testQP) []SGE
		kept   bool // what comes early
	}{
		"the same":          {func(tq *testQP) []SGE { return tq.local(256, 512) }, false},
		"by another region": {func(tq *testQP) []SGE { return tq.alias(256, 512) }, false},
		"beside":            {func(tq *testQP) []SGE { return tq.local(1024, 512) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newQP(t, nil)
			first, second := tq.startRead(1, 0, 3), bytes.Repeat([]byte{7}, 512)
			list := c.second(tq)
			tq.send(SendWQE{ID: 2, Opcode: WRRead, Flags: Signaled, SGEs: list, RemoteAddr: 0x9000, RKey: 3})
			tq.plan()
			tq.accepts(readResponse(0, 0, 3), first[:256])
			tq.accepts(readResponse(2, 2, 3), first[512:])
			want := wire.DropOutOfOrder
			if c.kept {
				want = wire.Accepted
			}
			tq.wantVerdict(want, tq.gets(readResponse(3, 0, 2), second[:256]))
			tq.wantVerdict(want, tq.gets(readResponse(4, 1, 2), second[256:]))
			tq.wantPacket(readOf(1, 1), nil)
			again := readOf(0, 2) // from what was dropped first, once
			again.PSN = psnL(3)
			if !c.kept {
				tq.wantPacket(again, nil)
			}
			tq.wantQuiet()
			tq.accepts(readResponse(1, 0, 1), first[256:512])
			if c.kept {
				tq.wantWC(readDone(1, 3), readDone(2, 2))
			} else {
				tq.wantWC(readDone(1, 3))
				tq.accepts(readResponse(3, 0, 2), second[:256])
				tq.accepts(readResponse(4, 1, 2), second[256:])
				tq.wantWC(readDone(2, 2))
			}
			tq.wantMem(int(list[0].Addr-memBase), second)
		})
	}
}

// alias names n bytes of memory at off by another region.
func (tq *testQP) alias(off, n int) []SGE {
	tq.t.Helper()
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize, mem.LocalWrite)
	if err != nil {
		tq.t.Fatal(err)
	}
	return []SGE{{Addr: memBase + uint64(off), Length: uint32(n), LKey: mr.Key}}
}

// There is room for so many gaps; what would open more is as good as lost.
func TestTooManyGaps(t *testing.T) {
	tq := newQP(t, nil)
	const n = 4 * maxGaps
	data := tq.startRead(1, 0, n)
	for i := 1; i < n; i += 2 {
		v := tq.gets(readResponse(i, i, n), data[i*256:(i+1)*256])
		if want := map[bool]wire.Verdict{true: wire.Accepted, false: wire.DropOutOfOrder}[i < 2*(maxGaps-1)]; v != want {
			t.Fatalf("packet %d: %v, want %v", i, v, want)
		}
	}
	for range 2 * n {
		p, ok := tq.plan()
		if !ok {
			tq.sleep(ackTimeout(rtsAttr.Timeout))
			continue
		}
		for k := range int(p.Length / 256) {
			i := int(p.PSN.Sub(psnL(0))) + k
			tq.gets(readResponse(i, i, n), data[i*256:(i+1)*256])
		}
	}
	tq.wantWC(readDone(1, n))
	tq.wantMem(0, data)
}

// A READ's response in the middle doesn't begin or end there, unless a part was
// asked for.
func TestPlacesOfResponses(t *testing.T) {
	conform.Row(t, "5.8/req-response")
	for _, o := range []wire.Opcode{wire.RCReadRespFirst, wire.RCReadRespLast, wire.RCReadRespOnly} {
		tq := newQP(t, nil)
		data := tq.startRead(1, 0, 4)
		tq.accepts(readResponse(0, 0, 4), data[:256])
		h := readResponse(1, 1, 4)
		h.Opcode = o
		tq.wantVerdict(wire.DropUnexpected, tq.gets(h, data[256:512]))
		tq.wantWC(Completion{ID: 1, Status: BadRespErr, Opcode: WCRead, ByteLen: 1024})
	}
}

// A gap that is filled ends no RNR wait, nor does a question for another. What the
// wait is about isn't sent before its time.
func TestGapsInAnRNRWait(t *testing.T) {
	conform.Row(t, "bug/11", "5.3/req-rnr")
	tq := newQP(t, nil)
	data := tq.startRead(1, 0, 2)
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled})
	tq.plan()
	tq.accepts(nak(2, wire.SyndromeRNR|12, 1), nil)
	tq.wantPacket(readOf(0, 2), nil)
	tq.wantQuiet()
	tq.accepts(readResponse(1, 1, 2), data[256:])
	tq.accepts(readResponse(0, 0, 2), data[:256])
	tq.wantWC(readDone(1, 2))
	tq.sleep(RNRTimeout(12) - 1)
	tq.wantQuiet()
	tq.sleep(1)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(2), AckReq: true}, nil)
}

// measured returns a QP that has seen answers take 20 µs.
func measured(t *testing.T, tune func(*Attr)) *testQP {
	const n = 40
	tq := newQP(t, func(a *Attr) {
		a.SQPSN = ib.PSN(localPSN).Add(-n) // what the test sends has the numbers of psnL
		if tune != nil {
			tune(a)
		}
	})
	for i := range n {
		tq.send(SendWQE{Opcode: WRSend})
		tq.plan()
		tq.now = tq.now.Add(20 * time.Microsecond)
		tq.accepts(ack(i-n, 0), nil)
	}
	tq.sq = fakeQueue{sends: tq.sq.sends[n:]}
	return tq
}

// waits lets the time pass until the QP sends something, or its retries end, and
// returns how long that took.
func (tq *testQP) waits() (pkt, time.Duration) {
	tq.t.Helper()
	start := tq.now
	for tq.Deadline() != clock.Never {
		tq.sleep(tq.Deadline().Sub(tq.now))
		if p, ok := tq.plan(); ok {
			return p, tq.now.Sub(start)
		}
	}
	return pkt{}, tq.now.Sub(start)
}

// The last packet is lost, and no NAK tells: it is sent again long before the
// local ACK timeout, at the cost of no retry.
func TestLostEnd(t *testing.T) {
	tq := measured(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 512)})
	tq.plan()
	tq.plan()
	p, d := tq.waits()
	if p.Opcode != wire.RCSendFirst || !p.AckReq || d > 4*time.Millisecond {
		t.Fatalf("after %v: %v", d, p)
	}
	tq.wantQuiet() // until that is answered
	tq.accepts(wire.Header{Opcode: wire.RCAck, PSN: p.PSN, Syndrome: wire.SyndromeAck}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:512])
	if tq.req.retries != rtsAttr.RetryCnt {
		t.Errorf("%d retries left, want all %d", tq.req.retries, rtsAttr.RetryCnt)
	}
	tq.accepts(ack(1, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

// What a NAK has had sent again is lost again: the peer says nothing, as it has
// said so once. It is sent again at once, for the first time as a whole.
func TestLostRepetition(t *testing.T) {
	tq := measured(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 700)})
	for range 3 {
		tq.plan()
	}
	tq.accepts(nak(0, wire.NakSequence, 0), nil)
	for range 3 {
		tq.plan()
	}
	p, d := tq.waits()
	if p.PSN != psnL(0) || !p.AckReq || d > 40*time.Microsecond {
		t.Fatalf("after %v: %v", d, p)
	}
	tq.wantPacket(wire.Header{Opcode: wire.RCSendMiddle, PSN: psnL(1)}, tq.mem[256:512])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(2), AckReq: true}, tq.mem[512:700])
	if tq.req.retries != rtsAttr.RetryCnt-1 {
		t.Errorf("%d retries left, want %d", tq.req.retries, rtsAttr.RetryCnt-1)
	}
}

// A peer that is silent gets few questions, ever more rarely, and RETRY_EXC comes
// when the local ACK timer has run out retries + 1 times, to the nanosecond.
func TestProbesAreNoRetries(t *testing.T) {
	conform.Row(t, "5.11/14", "5.8/req-retries", "5.3/req-timeout")
	tq := measured(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	start := tq.now
	tq.plan()
	for tq.State() == RTS {
		tq.waits()
	}
	if got, want := tq.now.Sub(start), (1+2+4+4)*ackTimeout(rtsAttr.Timeout); got != want {
		t.Errorf("the end came after %v, want %v", got, want)
	}
	if n := tq.cfg.Counters.Probes; n < 5 || n > 40 {
		t.Errorf("%d questions in %v", n, tq.now.Sub(start))
	}
	tq.wantWC(Completion{ID: 1, Status: RetryExcErr})
}

// The end of a READ's response is lost, then all of it.
func TestLostEndOfRead(t *testing.T) {
	tq := measured(t, nil)
	data := tq.startRead(1, 0, 20)
	for i := range 18 {
		tq.accepts(readResponse(i, i, 20), data[i*256:(i+1)*256])
	}
	p, d := tq.waits()
	if want := (pkt{readOf(18, 2), nil}); p.Header != want.Header || d > 4*time.Millisecond {
		t.Fatalf("after %v: %v, want %v", d, p, want)
	}
	tq.accepts(readResponse(18, 0, 2), data[18*256:19*256])
	tq.accepts(readResponse(19, 1, 2), data[19*256:])
	tq.wantWC(readDone(1, 20))
	tq.wantMem(0, data)

	tq = measured(t, nil)
	tq.startRead(1, 0, 20)
	if p, d := tq.waits(); p.Header != readOf(0, 20) || d > 4*time.Millisecond { // the peer may not know of it
		t.Fatalf("after %v: %v", d, p)
	}
}

// The answer to a question for a gap is lost, or the question.
func TestLostAnswerOfAGap(t *testing.T) {
	tq := measured(t, nil)
	data := tq.startRead(1, 0, 4)
	tq.accepts(readResponse(0, 0, 4), data[:256])
	tq.accepts(readResponse(2, 2, 4), data[512:768])
	tq.accepts(readResponse(3, 3, 4), data[768:])
	tq.wantPacket(readOf(1, 1), nil)
	for range 3 {
		if p, d := tq.waits(); p.Header != readOf(1, 1) || d > 200*time.Microsecond {
			t.Fatalf("after %v: %v", d, p)
		}
	}
	tq.accepts(readResponse(1, 0, 1), data[256:512])
	tq.wantWC(readDone(1, 4))
	tq.wantMem(0, data)
}

// situation is what a QP is in the middle of.
type situation struct {
	name string
	make func(*testQP)
	ids  []uint64 // of the sends that have been begun
}

var situations = []situation{
	{"retry after a NAK", func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 700)})
		tq.plan()
		tq.plan()
		tq.plan()
		tq.accepts(nak(1, wire.NakSequence, 0), nil)
	}, []uint64{1}},
	{"retry after a timeout", func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
		tq.plan()
		tq.sleep(ackTimeout(rtsAttr.Timeout))
	}, []uint64{1}},
	{"probe", func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 512)})
		tq.plan()
		tq.plan()
		tq.waits()
	}, []uint64{1}},
	{"RNR wait", func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
		tq.plan()
		tq.accepts(nak(0, wire.SyndromeRNR|12, 0), nil)
	}, []uint64{1}},
	{"gap in a READ", func(tq *testQP) {
		data := tq.startRead(1, 0, 4)
		tq.accepts(readResponse(2, 2, 4), data[512:768])
	}, []uint64{1}},
	{"gap in a READ, asked for, and the end held back", func(tq *testQP) {
		data := tq.startRead(1, 0, 4)
		tq.accepts(readResponse(3, 3, 4), data[768:])
		tq.plan()
	}, []uint64{1}},
	{"gap before an RNR wait", func(tq *testQP) {
		tq.startRead(1, 0, 2)
		tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled})
		tq.plan()
		tq.accepts(nak(2, wire.SyndromeRNR|12, 1), nil)
	}, []uint64{1, 2}},
	{"atomic whose answer is lost", func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRFetchAdd, Flags: Signaled, SGEs: tq.local(16, 8), RKey: 3})
		tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled})
		tq.plan()
		tq.plan()
		tq.accepts(ack(1, 2), nil)
	}, []uint64{1, 2}},
}

// answerAll has a patient peer answer whatever the QP sends, until it is quiet.
func (tq *testQP) answerAll() {
	for range 100 {
		p, ok := tq.plan()
		if !ok {
			if tq.Deadline() == clock.Never {
				return
			}
			tq.sleep(tq.Deadline().Sub(tq.now))
			continue
		}
		switch p.Opcode {
		case wire.RCReadRequest:
			n := max(1, int(p.Length)/256)
			for i := range n {
				h := readResponse(0, i, n)
				h.PSN = p.PSN.Add(i)
				tq.gets(h, make([]byte, 256))
			}
		case wire.RCFetchAdd:
			tq.gets(wire.Header{Opcode: wire.RCAtomicAck, PSN: p.PSN}, nil)
		default:
			if p.AckReq {
				tq.gets(wire.Header{Opcode: wire.RCAck, PSN: p.PSN, Syndrome: wire.SyndromeAck}, nil)
			}
		}
	}
	tq.t.Fatal("no end")
}

// In the middle of any recovery the send queue can be drained, and goes on after
// that; and the QP can be brought to ERR or RESET, where nothing of it is left.
func TestEndsInTheMiddleOfARecovery(t *testing.T) {
	conform.Row(t, "bug/12")
	for _, s := range situations {
		for _, measure := range []bool{false, true} {
			fresh := func(t *testing.T) *testQP {
				tq := newQP(t, nil)
				if measure || s.name == "probe" {
					tq = measured(t, nil)
				}
				tq.recv(9, 8192, 4)
				s.make(tq)
				return tq
			}
			name := fmt.Sprintf("%s, measured %v", s.name, measure)
			t.Run(name+", SQD", func(t *testing.T) { fresh(t).drainsAndGoesOn(s) })
			t.Run(name+", ERR", func(t *testing.T) { fresh(t).endsInErr(s, Err) })
			t.Run(name+", SQD, ERR", func(t *testing.T) {
				tq := fresh(t)
				tq.mustModify(Attr{State: SQD}, AttrState)
				tq.endsInErr(s, Err)
			})
			t.Run(name+", RESET", func(t *testing.T) { fresh(t).endsInErr(s, Reset) })
		}
	}
}

func (tq *testQP) mustModify(a Attr, mask AttrMask) {
	tq.t.Helper()
	if err := tq.Modify(&a, mask, tq.now); err != nil {
		tq.t.Fatal(err)
	}
}

func (tq *testQP) drainsAndGoesOn(s situation) {
	tq.send(SendWQE{ID: 50, Opcode: WRSend, Flags: Signaled}) // not begun
	tq.mustModify(Attr{State: SQD, SQDAsyncNotify: true}, AttrState|AttrSQDAsyncNotify)
	tq.wantEvents()
	if !tq.Query().SQDraining {
		tq.t.Error("not draining")
	}
	tq.answerAll()
	tq.wantEvents(EventSQDrained)
	if tq.Query().SQDraining {
		tq.t.Error("still draining")
	}
	tq.wantIDs(Success, s.ids...)
	tq.mustModify(Attr{State: RTS}, AttrState)
	tq.answerAll()
	tq.wantIDs(Success, 50)
	tq.wantState(RTS)
}

func (tq *testQP) endsInErr(s situation, to State) {
	tq.mustModify(Attr{State: to}, AttrState)
	if tq.Deadline() != clock.Never {
		tq.t.Errorf("a timer runs: %v", tq.Deadline())
	}
	if to == Err {
		tq.wantIDs(WRFlushErr, append(s.ids, 9)...)
	} else {
		tq.wantIDs(Success)
	}
	tq.gets(readResponse(0, 0, 4), make([]byte, 256))
	tq.gets(ack(0, 1), nil)
	tq.wantQuiet()
	tq.sleep(time.Hour)
	tq.wantQuiet()
	tq.wantWC()
	if tq.sq.retired != len(tq.sq.sends) || tq.rq.retired != len(tq.rq.recvs) {
		tq.t.Errorf("%d of %d sends and %d of %d receives given back", tq.sq.retired, len(tq.sq.sends), tq.rq.retired, len(tq.rq.recvs))
	}
	if to == Reset { // and anew
		tq.connect(nil)
		tq.send(SendWQE{ID: 60, Opcode: WRSend, Flags: Signaled})
		tq.answerAll()
		tq.wantIDs(Success, 60)
	}
}

// wantIDs says which work requests have completed, all with one status.
func (tq *testQP) wantIDs(status WCStatus, ids ...uint64) {
	tq.t.Helper()
	if len(tq.wcs) != len(ids) {
		tq.t.Fatalf("completions %+v, want of %v", tq.wcs, ids)
	}
	for i, c := range tq.wcs {
		if c.ID != ids[i] || c.Status != status {
			tq.t.Fatalf("completions %+v, want of %v with %v", tq.wcs, ids, status)
		}
	}
	tq.wcs = nil
}

// Duplicates go before what is owed of later PSNs, and what is still to be sent
// isn't owed twice.
func TestRepeatedReadsGoFirst(t *testing.T) {
	conform.Row(t, "5.3/resp-behind-read")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 8*256), nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 8, 4096, 512), nil)
	for range 4 {
		tq.plan()
	}
	again := func(i, n int) {
		tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, i, i*256, n*256), nil))
	}
	again(1, 1)
	again(6, 1) // is on its way
	again(1, 1) // owed
	var got []ib.PSN
	for p, ok := tq.plan(); ok; p, ok = tq.plan() {
		got = append(got, p.PSN)
		if want := map[bool]wire.Opcode{true: wire.RCReadRespOnly, false: wire.RCReadRespMiddle}[p.PSN == psnP(1)]; p.PSN.Sub(psnP(7)) < 0 && p.Opcode != want {
			t.Errorf("PSN %v: %v, want %v", p.PSN, p.Opcode, want)
		}
	}
	want := fmt.Sprint([]ib.PSN{psnP(1), psnP(4), psnP(5), psnP(6), psnP(7), psnP(8), psnP(9)})
	if fmt.Sprint(got) != want {
		t.Errorf("answers %v, want %v", got, want)
	}
}
