package qp

import (
	"testing"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// fakeSRQ is a shared receive queue, whose receives come back in any order.
type fakeSRQ struct {
	recvs           []*RecvWQE
	taken           map[*RecvWQE]bool
	completed, lost int
}

func (f *fakeSRQ) Next() *RecvWQE {
	if len(f.recvs) == 0 {
		return nil
	}
	w := f.recvs[0]
	f.recvs = f.recvs[1:]
	f.taken[w] = true
	return w
}

func (f *fakeSRQ) Retire(w *RecvWQE) {
	switch {
	case !f.taken[w]:
		panic("retired a receive that isn't taken")
	case w.Completed:
		f.completed++
	default:
		f.lost++
	}
	delete(f.taken, w)
}

// newShared returns a QP of a type in RTS whose receives come from f, and are
// named by keys of another PD.
func newShared(t *testing.T, typ Type, f *fakeSRQ) *testQP {
	tq := newTyped(t, typ)
	c := tq.cfg
	c.RQ, c.SharedRQ, c.RecvPD, c.Caps.MaxRecvWR = f, true, new(mem.PD), 0
	mr, err := tq.keys.Register(c.RecvPD, mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize, mem.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	tq.QP = New(c)
	tq.recvMR = mr
	return tq.connect(func(a *Attr) { a.QKey = testQKey })
}

// post posts a receive of n bytes at off to a shared queue.
func (f *fakeSRQ) post(tq *testQP, id uint64, off, n int) {
	f.recvs = append(f.recvs, &RecvWQE{ID: id, SGEs: []SGE{{Addr: memBase + uint64(off), Length: uint32(n), LKey: tq.recvMR.Key}}})
}

func newFakeSRQ() *fakeSRQ { return &fakeSRQ{taken: map[*RecvWQE]bool{}} }

// connectedTypes have a first and a last packet of a SEND.
var connectedTypes = map[Type]struct{ first, last, only wire.Opcode }{
	RC: {wire.RCSendFirst, wire.RCSendLast, wire.RCSendOnly},
	UC: {wire.UCSendFirst, wire.UCSendLast, wire.UCSendOnly},
}

// What a QP has taken it flushes, what waits it leaves; then it says so, once.
func TestLastWQEReached(t *testing.T) {
	for typ, op := range connectedTypes {
		f := newFakeSRQ()
		tq := newShared(t, typ, f)
		for id := range uint64(3) {
			f.post(tq, id, 0x1000*int(id+1), 600)
		}
		tq.accepts(req(op.only, 0), seq(10))
		tq.accepts(req(op.first, 1), seq(256))
		for range 2 {
			if err := tq.Modify(&Attr{State: Err}, AttrState, tq.now); err != nil {
				t.Fatal(err)
			}
			tq.wantQuiet()
		}
		tq.wantWC(Completion{ID: 0, Opcode: WCRecv, ByteLen: 10, SrcQP: peerQPN}, Completion{ID: 1, Opcode: WCRecv, Status: WRFlushErr})
		tq.wantEvents(EventLastWQEReached)
		if len(f.recvs) != 1 || f.completed != 2 || len(f.taken) != 0 {
			t.Errorf("%v: %d wait, %d completed, %d taken", typ, len(f.recvs), f.completed, len(f.taken))
		}
		// Another life, another event.
		if err := tq.Modify(&Attr{State: Reset}, AttrState, tq.now); err != nil {
			t.Fatal(err)
		}
		tq.connect(nil)
		tq.wantEvents()
		if err := tq.Modify(&Attr{State: Err}, AttrState, tq.now); err != nil {
			t.Fatal(err)
		}
		tq.wantEvents(EventLastWQEReached)
	}
	tq := newQP(t, nil)
	if err := tq.Modify(&Attr{State: Err}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantEvents() // its receives are its own
}

// The event comes after the completion of the receive that the error was about.
func TestLastWQEReachedAfterAnError(t *testing.T) {
	f := newFakeSRQ()
	tq := newShared(t, RC, f)
	f.post(tq, 1, 0x1000, 100)
	f.post(tq, 2, 0x2000, 100)
	tq.wantVerdict(wire.DropRejected, tq.gets(req(wire.RCSendOnly, 0), seq(101)))
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocLenErr})
	tq.wantEvents(EventLastWQEReached)
	tq.wantPacket(nakP(0, wire.NakInvalidRequest, 0), nil)
	if len(f.recvs) != 1 {
		t.Errorf("%d receives wait, want 1", len(f.recvs))
	}
	// An error of the sending half, too.
	f = newFakeSRQ()
	tq = newShared(t, RC, f)
	tq.send(SendWQE{ID: 9, Opcode: WRSend})
	tq.wantPacket(ackReq(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0)}), nil)
	tq.accepts(nak(0, wire.NakRemoteOperation, 0), nil)
	tq.wantEvents(EventLastWQEReached)
}

// An empty queue is as an empty queue of one's own. ACKs tell nothing of it.
func TestSharedQueueEmpty(t *testing.T) {
	conform.Row(t, "5.2/no-credits")
	f := newFakeSRQ()
	tq := newShared(t, RC, f)
	tq.wantVerdict(wire.DropRNR, tq.gets(ackReq(req(wire.RCSendOnly, 0)), seq(4)))
	tq.wantPacket(nakP(0, wire.SyndromeRNR|12, 0), nil)
	f.post(tq, 1, 0x1000, 4)
	tq.accepts(ackReq(req(wire.RCSendOnly, 0)), seq(4))
	tq.wantPacket(ackP(0, 1), nil)
	for typ, h := range map[Type]wire.Header{UC: ucP(wire.UCSendOnly, 0), UD: udP(wire.UDSendOnly)} {
		f := newFakeSRQ()
		tq := newShared(t, typ, f)
		tq.wantVerdict(wire.DropRNR, tq.gets(h, seq(4)))
		tq.wantQuiet()
		tq.wantState(RTS)
	}
}

// RESET and destruction give back what was taken, without completions.
func TestSharedReceivesAreGivenBack(t *testing.T) {
	for typ, op := range connectedTypes {
		for name, end := range map[string]func(*testQP) error{
			"reset":   func(tq *testQP) error { return tq.Modify(&Attr{State: Reset}, AttrState, tq.now) },
			"destroy": func(tq *testQP) error { tq.Release(); return nil },
		} {
			f := newFakeSRQ()
			tq := newShared(t, typ, f)
			f.post(tq, 1, 0x1000, 600)
			f.post(tq, 2, 0x2000, 600)
			tq.accepts(req(op.first, 0), seq(256))
			if err := end(tq); err != nil {
				t.Fatal(err)
			}
			tq.wantWC()
			tq.wantEvents()
			if len(f.recvs) != 1 || f.lost != 1 || f.completed != 0 || len(f.taken) != 0 {
				t.Errorf("%v, %s: %d wait, %d given back, %d completed, %d taken", typ, name, len(f.recvs), f.lost, f.completed, len(f.taken))
			}
		}
	}
	tq := newQP(t, nil)
	tq.recv(1, 0, 600)
	tq.accepts(req(wire.RCSendFirst, 0), seq(256))
	if tq.Release(); tq.rq.retired != 0 {
		t.Error("a receive of the QP's own queue goes with that")
	}
}

// A message that UC or UD drops takes its receive along, which is completed in
// error: no QP keeps for itself what others may wait for. The QP goes on.
func TestSharedReceiveOfADroppedMessage(t *testing.T) {
	conform.Row(t, "5.8/resp-class-e")
	type arrival struct {
		h wire.Header
		n int
		v wire.Verdict
	}
	begun := arrival{ucP(wire.UCSendFirst, 0), 256, wire.Accepted}
	for name, c := range map[string]struct {
		typ     Type
		room    int
		packets []arrival
		status  WCStatus
	}{
		"UC, a gap":             {UC, 600, []arrival{begun, {ucP(wire.UCSendLast, 2), 8, wire.DropOutOfOrder}}, RemInvReqErr},
		"UC, without an end":    {UC, 600, []arrival{begun, {ucP(wire.UCWriteOnly, 1), 0, wire.Accepted}}, RemInvReqErr},
		"UC, another operation": {UC, 600, []arrival{begun, {ucP(wire.UCWriteMiddle, 1), 256, wire.DropRejected}}, RemInvReqErr},
		"UC, too long":          {UC, 300, []arrival{begun, {ucP(wire.UCSendLast, 1), 45, wire.DropTooLong}}, LocLenErr},
		"UC, too long at once":  {UC, 7, []arrival{{ucP(wire.UCSendOnly, 0), 8, wire.DropTooLong}}, LocLenErr},
		"UD, too long":          {UD, GRHLen + 7, []arrival{{udP(wire.UDSendOnly), 8, wire.DropTooLong}}, LocLenErr},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeSRQ()
			tq := newShared(t, c.typ, f)
			tq.t, tq.burst = t, true
			f.post(tq, 1, 0x1000, c.room)
			f.post(tq, 2, 0x2000, 300)
			whole := ucP(wire.UCSendOnly, 10)
			if c.typ == UD {
				whole = udP(wire.UDSendOnly)
			}
			for _, a := range append(c.packets, arrival{whole, 8, wire.Accepted}) {
				tq.wantVerdict(a.v, tq.Handle(packetOf(t, flow4, a.h, seq(a.n)), tq.now, tq.batch))
			}
			tq.batch.Run()
			if len(tq.wcs) != 2 || tq.wcs[0].ID != 1 || tq.wcs[0].Status != c.status || tq.wcs[1].ID != 2 || tq.wcs[1].Status != Success {
				t.Errorf("completions %+v, want %d with status %d, and 2", tq.wcs, 1, c.status)
			}
			if tq.wantState(RTS); f.completed != 2 || len(f.taken) != 0 {
				t.Errorf("%d completed, %d taken", f.completed, len(f.taken))
			}
		})
	}
}

// A fault of UC ends the receives of all that it takes along, that of the WRITE
// whose memory is gone, too.
func TestSharedReceivesRolledBack(t *testing.T) {
	f := newFakeSRQ()
	tq := newShared(t, UC, f)
	other := tq.another(8, mem.LocalWrite|mem.RemoteWrite)
	for id := range uint64(5) {
		f.post(tq, id, 0x1000, 300)
	}
	tq.burst = true
	tq.accepts(ucP(wire.UCSendOnly, 0), nil)
	h := ucP(wire.UCWriteOnlyImm, 1)
	h.RKey, h.Length = other.Key, 8
	tq.accepts(h, seq(8))
	tq.accepts(ucP(wire.UCSendOnly, 2), seq(8))
	tq.accepts(ucP(wire.UCSendFirst, 3), seq(256))
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ucP(wire.UCSendLast, 5), seq(8)))
	tq.keys.Deregister(other)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 0, Opcode: WCRecv, SrcQP: peerQPN}, Completion{ID: 1, Opcode: WCRecv, Status: LocAccessErr},
		Completion{ID: 2, Opcode: WCRecv, Status: RemInvReqErr}, Completion{ID: 3, Opcode: WCRecv, Status: RemInvReqErr})
	tq.accepts(ucP(wire.UCSendOnly, 6), nil)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 4, Opcode: WCRecv, SrcQP: peerQPN})
}

// The keys of receives are of the SRQ's PD, those of sends of the QP's.
func TestSharedQueueHasAPD(t *testing.T) {
	for typ, h := range map[Type]wire.Header{RC: req(wire.RCSendOnly, 0), UC: ucP(wire.UCSendOnly, 0), UD: udP(wire.UDSendOnly)} {
		f := newFakeSRQ()
		tq := newShared(t, typ, f)
		f.post(tq, 1, 0x1000, 300)
		if typ == UD { // with the GRH, by another way
			v, _ := tq.arrives(flow4, h, seq(100))
			tq.wantVerdict(wire.Accepted, v)
			tq.wantMem(0x1000+GRHLen, seq(100))
		} else {
			tq.accepts(h, seq(100))
			tq.wantMem(0x1000, seq(100))
		}
	}
	f := newFakeSRQ()
	tq := newShared(t, RC, f)
	f.post(tq, 1, 0x1000, 300)
	f.recvs[0].SGEs[0].LKey = tq.mr.Key
	tq.wantVerdict(wire.DropRejected, tq.gets(req(wire.RCSendOnly, 0), seq(100)))
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocProtErr})

	tq = newShared(t, RC, f)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: []SGE{{Addr: memBase, Length: 4, LKey: tq.recvMR.Key}}})
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCSend, Status: LocProtErr})
}

// A QP takes as many as a burst brings, whatever its Caps say, and with the
// message in progress.
func TestSharedBurst(t *testing.T) {
	f := newFakeSRQ()
	tq := newShared(t, RC, f)
	tq.burst = true
	for id := range uint64(SharedHeld + 1) {
		f.post(tq, id, 0, 4)
	}
	for n := range SharedHeld {
		tq.accepts(req(wire.RCSendOnly, n), seq(4))
	}
	tq.wantVerdict(wire.DropRNR, tq.gets(req(wire.RCSendOnly, SharedHeld), seq(4)))
	tq.batch.Run()
	if len(tq.wcs) != SharedHeld || len(f.recvs) != 1 {
		t.Errorf("%d completions, %d receives left", len(tq.wcs), len(f.recvs))
	}
	tq.accepts(req(wire.RCSendOnly, SharedHeld), seq(4))
}

// Messages of two QPs fill their own receives, in whatever order their packets come.
func TestSharedQueueOfTwo(t *testing.T) {
	f := newFakeSRQ()
	x, y := newShared(t, RC, f), newShared(t, RC, f)
	f.post(x, 1, 0x1000, 600)
	f.post(y, 2, 0x2000, 600)
	x.accepts(req(wire.RCSendFirst, 0), seq(256))
	y.accepts(req(wire.RCSendFirst, 0), seq(256))
	y.accepts(req(wire.RCSendLast, 1), seq(2))
	x.accepts(req(wire.RCSendLast, 1), seq(1))
	x.wantMem(0x1000, seq(256))
	y.wantMem(0x2000, seq(256))
	x.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 257, SrcQP: peerQPN})
	y.wantWC(Completion{ID: 2, Opcode: WCRecv, ByteLen: 258, SrcQP: peerQPN})
	if f.completed != 2 {
		t.Errorf("%d given back", f.completed)
	}
}
