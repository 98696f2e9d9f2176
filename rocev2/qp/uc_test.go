package qp

import (
	"testing"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

func newUC(t *testing.T, tune func(*Attr)) *testQP { return newTyped(t, UC).connect(tune) }

// ucP is packet n of the peer.
func ucP(op wire.Opcode, n int) wire.Header { return wire.Header{Opcode: op, PSN: psnP(n)} }

// A message is cut into packets that ask for nothing, and is complete with its last.
func TestUCSends(t *testing.T) {
	conform.Row(t, "5.1/op-20", "5.1/op-21", "5.1/op-22", "5.1/op-23", "5.1/op-24", "5.1/op-25", "5.1/op-26", "5.1/op-27", "5.1/op-28", "5.1/op-29", "5.1/op-2a", "5.1/op-2b", "bug/6")
	data := pattern[0x100:0x300]
	for _, c := range []struct {
		wr                        WROpcode
		wc                        WCOpcode
		first, middle, last, only wire.Opcode
	}{
		{WRSend, WCSend, wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLast, wire.UCSendOnly},
		{WRSendImm, WCSend, wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLastImm, wire.UCSendOnlyImm},
		{WRWrite, WCWrite, wire.UCWriteFirst, wire.UCWriteMiddle, wire.UCWriteLast, wire.UCWriteOnly},
		{WRWriteImm, WCWrite, wire.UCWriteFirst, wire.UCWriteMiddle, wire.UCWriteLastImm, wire.UCWriteOnlyImm},
	} {
		tq := newUC(t, nil)
		w := SendWQE{ID: 1, Opcode: c.wr, Flags: Signaled, SGEs: tq.local(0x100, 512+5), RemoteAddr: 0x5000, RKey: 7, Imm: 9}
		tq.send(w)
		want := func(op wire.Opcode, n, length int) wire.Header {
			h := wire.Header{Opcode: op, PSN: psnL(n)}
			if op.Info().Ext.Has(wire.ExtRETH) {
				h.VA, h.RKey, h.Length = 0x5000, 7, uint32(length)
			}
			if op.Info().Ext.Has(wire.ExtImmDt) {
				h.Imm = 9
			}
			return h
		}
		tq.wantPacket(want(c.first, 0, 517), data[:256])
		tq.wantWC()
		tq.wantPacket(want(c.middle, 1, 517), data[256:])
		tq.wantWC()
		tq.wantPacket(want(c.last, 2, 517), pattern[0x300:0x305])
		tq.wantWC(Completion{ID: 1, Opcode: c.wc})
		w.ID, w.SGEs = 2, nil
		tq.send(w)
		tq.wantPacket(want(c.only, 3, 0), nil)
		tq.wantWC(Completion{ID: 2, Opcode: c.wc})
		tq.wantQuiet()
		if tq.Deadline() != newTyped(t, UC).Deadline() {
			t.Error("UC has a timer")
		}
	}
}

// Only what was signalled completes.
func TestUCUnsignalled(t *testing.T) {
	tq := newUC(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 8)})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled | Solicited, SGEs: tq.local(0, 8)})
	tq.wantPacket(wire.Header{Opcode: wire.UCSendOnly, PSN: psnL(0)}, pattern[:8])
	tq.wantPacket(wire.Header{Opcode: wire.UCSendOnly, PSN: psnL(1), SE: true}, pattern[:8])
	tq.wantWC(Completion{ID: 2, Opcode: WCSend})
}

func TestUCReceives(t *testing.T) {
	conform.Row(t, "5.1/op-20", "5.1/op-21", "5.1/op-23", "5.1/op-24", "5.1/op-26", "5.1/op-28", "5.1/op-2b")
	tq := newUC(t, nil)
	tq.recv(1, 0x1000, 600)
	tq.recv(2, 0x2000, 600)
	tq.recv(3, 0x3000, 600)
	data := seq(600)
	first := ucP(wire.UCSendFirst, 0)
	first.AckReq = true // not for UC, and not minded
	tq.accepts(first, data[:256])
	tq.accepts(ucP(wire.UCSendMiddle, 1), data[256:512])
	last := ucP(wire.UCSendLastImm, 2)
	last.Imm, last.SE, last.AckReq = 77, true, true
	tq.accepts(last, data[512:])
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 600, SrcQP: peerQPN, Flags: WCWithImm, Imm: 77, Solicited: true})
	tq.wantMem(0x1000, data)

	w := ucP(wire.UCWriteFirst, 3)
	w.VA, w.RKey, w.Length = memBase+0x4000, tq.mr.Key, 300
	tq.accepts(w, data[:256])
	tq.accepts(ucP(wire.UCWriteLast, 4), data[256:300])
	tq.wantWC()
	tq.wantMem(0x4000, data[:300])
	w = ucP(wire.UCWriteOnlyImm, 5)
	w.VA, w.RKey, w.Length, w.Imm = memBase+0x4100, tq.mr.Key, 10, 5
	tq.accepts(w, data[:10])
	tq.wantWC(Completion{ID: 2, Opcode: WCRecvWriteImm, ByteLen: 10, SrcQP: peerQPN, Flags: WCWithImm, Imm: 5})
	tq.accepts(ucP(wire.UCSendOnly, 6), nil)
	tq.wantWC(Completion{ID: 3, Opcode: WCRecv, SrcQP: peerQPN})
	tq.wantQuiet()
}

// The rest of the opcodes, each at its place.
func TestUCReceivesTheOthers(t *testing.T) {
	conform.Row(t, "5.1/op-20", "5.1/op-22", "5.1/op-25", "5.1/op-26", "5.1/op-27", "5.1/op-29", "5.1/op-2a")
	tq := newUC(t, nil)
	for i := range uint64(3) {
		tq.recv(i+1, 0x1000, 600)
	}
	data := seq(600)
	tq.accepts(ucP(wire.UCSendFirst, 0), data[:256])
	tq.accepts(ucP(wire.UCSendLast, 1), data[256:300])
	h := ucP(wire.UCSendOnlyImm, 2)
	h.Imm = 3
	tq.accepts(h, data[:7])
	w := ucP(wire.UCWriteFirst, 3)
	w.VA, w.RKey, w.Length = memBase+0x4000, tq.mr.Key, 600
	tq.accepts(w, data[:256])
	tq.accepts(ucP(wire.UCWriteMiddle, 4), data[256:512])
	h = ucP(wire.UCWriteLastImm, 5)
	h.Imm = 6
	tq.accepts(h, data[512:])
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 300, SrcQP: peerQPN},
		Completion{ID: 2, Opcode: WCRecv, ByteLen: 7, SrcQP: peerQPN, Flags: WCWithImm, Imm: 3},
		Completion{ID: 3, Opcode: WCRecvWriteImm, ByteLen: 600, SrcQP: peerQPN, Flags: WCWithImm, Imm: 6})
	tq.wantMem(0x4000, data)
	w = ucP(wire.UCWriteOnly, 6)
	w.VA, w.RKey, w.Length = memBase+0x5000, tq.mr.Key, 5
	tq.accepts(w, data[:5])
	tq.wantMem(0x5000, data[:5])
	w = ucP(wire.UCWriteOnly, 7) // of no bytes: neither key nor address is looked at (C9-88)
	w.VA, w.RKey = 1, 0xdeadbeef
	tq.accepts(w, nil)
	tq.wantQuiet()
}

// A gap drops the rest of a message; the next one has its receive.
func TestUCGap(t *testing.T) {
	conform.Row(t, "5.3/uc-gap")
	tq := newUC(t, nil)
	tq.recv(1, 0x1000, 600)
	data := seq(600)
	tq.accepts(ucP(wire.UCSendFirst, 0), data[:256])
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ucP(wire.UCSendMiddle, 2), data[:256]))
	tq.wantVerdict(wire.DropIncomplete, tq.gets(ucP(wire.UCSendLast, 3), data[:9]))
	tq.wantWC()
	// A message whose FIRST is lost.
	tq.wantVerdict(wire.DropIncomplete, tq.gets(ucP(wire.UCSendMiddle, 5), data[:256]))
	tq.wantVerdict(wire.DropIncomplete, tq.gets(ucP(wire.UCSendLast, 6), data[:9]))
	tq.accepts(ucP(wire.UCSendFirst, 40), data[:256])
	tq.accepts(ucP(wire.UCSendLast, 41), data[:3])
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 259, SrcQP: peerQPN})
	// The message in progress ends without a LAST: the next begins.
	tq.recv(2, 0x2000, 600)
	tq.accepts(ucP(wire.UCSendFirst, 42), data[:256])
	tq.accepts(ucP(wire.UCSendOnly, 50), data[:4])
	tq.wantWC(Completion{ID: 2, Opcode: WCRecv, ByteLen: 4, SrcQP: peerQPN})
	tq.wantMem(0x2000, data[:4])
	if got := tq.cfg.Counters.DroppedMessages; got != 2 {
		t.Errorf("%d messages dropped, want 2", got)
	}
	tq.wantQuiet()
	tq.wantState(RTS)
}

// What the network delivers late or twice is no message.
func TestUCDuplicates(t *testing.T) {
	tq := newUC(t, nil)
	tq.recv(1, 0x1000, 600)
	tq.recv(2, 0x2000, 600)
	tq.accepts(ucP(wire.UCSendOnly, 0), seq(4))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(ucP(wire.UCSendOnly, 0), seq(4)))
	tq.accepts(ucP(wire.UCSendFirst, 1), seq(256))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(ucP(wire.UCSendFirst, 1), seq(256)))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(ucP(wire.UCSendOnly, -staleWindow+2), seq(4)))
	tq.accepts(ucP(wire.UCSendLast, 2), seq(4))
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 4, SrcQP: peerQPN}, Completion{ID: 2, Opcode: WCRecv, ByteLen: 260, SrcQP: peerQPN})
	// Far behind is far ahead, around the other side.
	tq.recv(3, 0x3000, 600)
	tq.accepts(ucP(wire.UCSendOnly, -staleWindow-1), seq(4))
	tq.wantWC(Completion{ID: 3, Opcode: WCRecv, ByteLen: 4, SrcQP: peerQPN})
}

// Whatever is wrong with a message: it is dropped, its receive waits for the
// next, nothing is answered, and the QP lives.
func TestUCRefuses(t *testing.T) {
	write := func(tq *testQP, op wire.Opcode, n int, length uint32) wire.Header {
		h := ucP(op, n)
		h.VA, h.RKey, h.Length = memBase+0x4000, tq.mr.Key, length
		return h
	}
	for name, c := range map[string]struct {
		verdict wire.Verdict
		do      func(tq *testQP) wire.Verdict // sends packets up to number 1
	}{
		"too long": {wire.DropTooLong, func(tq *testQP) wire.Verdict {
			tq.gets(ucP(wire.UCSendFirst, 0), seq(256))
			return tq.gets(ucP(wire.UCSendLast, 1), seq(200))
		}},
		"over the MTU":  {wire.DropRejected, func(tq *testQP) wire.Verdict { return tq.gets(ucP(wire.UCSendOnly, 1), seq(257)) }},
		"a short FIRST": {wire.DropRejected, func(tq *testQP) wire.Verdict { return tq.gets(ucP(wire.UCSendFirst, 1), seq(252)) }},
		"another operation's LAST": {wire.DropRejected, func(tq *testQP) wire.Verdict {
			tq.gets(ucP(wire.UCSendFirst, 0), seq(256))
			return tq.gets(ucP(wire.UCWriteLast, 1), seq(8))
		}},
		"a bad rkey": {wire.DropRejected, func(tq *testQP) wire.Verdict {
			h := write(tq, wire.UCWriteOnly, 1, 8)
			h.RKey ^= 0x1000
			return tq.gets(h, seq(8))
		}},
		"RETH and payload differ": {wire.DropRejected, func(tq *testQP) wire.Verdict { return tq.gets(write(tq, wire.UCWriteOnly, 1, 9), seq(8)) }},
		"a READ":                  {wire.DropTransport, func(tq *testQP) wire.Verdict { return tq.gets(ucP(wire.RCReadRequest, 0), nil) }},
		"an ACK":                  {wire.DropTransport, func(tq *testQP) wire.Verdict { return tq.gets(ucP(wire.RCAck, 0), nil) }},
		"a datagram":              {wire.DropTransport, func(tq *testQP) wire.Verdict { return tq.gets(ucP(wire.UDSendOnly, 0), nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newUC(t, nil)
			tq.t = t
			tq.recv(1, 0x1000, 300)
			tq.wantVerdict(c.verdict, c.do(tq))
			tq.wantWC()
			tq.wantEvents()
			tq.wantState(RTS)
			tq.wantQuiet()
			tq.accepts(ucP(wire.UCSendOnly, 2), seq(8))
			tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN})
			tq.wantMem(0x4000, pattern[0x4000:0x4008])
		})
	}
}

func TestUCWithoutRights(t *testing.T) {
	tq := newUC(t, func(a *Attr) { a.Access = 0 })
	h := ucP(wire.UCWriteOnly, 0)
	h.VA, h.RKey, h.Length = memBase, tq.mr.Key, 8
	tq.wantVerdict(wire.DropRejected, tq.gets(h, seq(8)))
	tq.wantMem(0, pattern[:8])
	tq.wantState(RTS)
}

// Without a receive a message is lost, and the one after it isn't.
func TestUCWithoutReceive(t *testing.T) {
	tq := newUC(t, nil)
	tq.wantVerdict(wire.DropRNR, tq.gets(ucP(wire.UCSendFirst, 0), seq(256)))
	tq.recv(1, 0x1000, 300)
	tq.wantVerdict(wire.DropIncomplete, tq.gets(ucP(wire.UCSendLast, 1), seq(8)))
	tq.accepts(ucP(wire.UCSendOnly, 2), seq(8))
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN})
	h := ucP(wire.UCWriteOnlyImm, 3)
	h.VA, h.RKey, h.Length = memBase+0x4000, tq.mr.Key, 8
	tq.wantVerdict(wire.DropRNR, tq.gets(h, seq(8)))
	tq.wantQuiet()
}

// A receive that is no good is this side's own error.
func TestUCBadReceive(t *testing.T) {
	tq := newUC(t, nil)
	tq.recv(1, 0x1000, 300)
	tq.recv(2, 0x2000, 300)
	tq.recv(3, 0x3000, 300)
	tq.rq.recvs[1].SGEs[0].LKey ^= 0x1000
	tq.burst = true
	tq.accepts(ucP(wire.UCSendOnly, 0), seq(8))
	tq.wantVerdict(wire.DropRejected, tq.gets(ucP(wire.UCSendOnly, 1), seq(8)))
	tq.wantVerdict(wire.DropQPState, tq.gets(ucP(wire.UCSendOnly, 2), seq(8)))
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN},
		Completion{ID: 2, Opcode: WCRecv, Status: LocProtErr}, Completion{ID: 3, Opcode: WCRecv, Status: WRFlushErr})
	tq.wantState(Err)
	tq.wantQuiet()
}

// A WRITE whose memory goes away between check and copy takes the rest of the
// burst with it; their receives wait for other messages.
func TestUCMemoryGone(t *testing.T) {
	tq := newUC(t, nil)
	other := make([]byte, 64)
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(other, 0), 0, 0, 64, mem.LocalWrite|mem.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		tq.recv(i+1, 0x1000*int(i+1), 600)
	}
	tq.burst = true
	tq.accepts(ucP(wire.UCSendOnly, 0), seq(8))
	h := ucP(wire.UCWriteOnly, 1)
	h.RKey, h.Length = mr.Key, 8
	tq.accepts(h, seq(8))
	tq.accepts(ucP(wire.UCSendOnly, 2), seq(9))
	tq.accepts(ucP(wire.UCSendFirst, 3), seq(256))
	tq.keys.Deregister(mr)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN})
	tq.wantState(RTS)
	tq.wantVerdict(wire.DropIncomplete, tq.gets(ucP(wire.UCSendLast, 4), seq(8)))
	tq.accepts(ucP(wire.UCSendOnly, 5), seq(10))
	tq.accepts(ucP(wire.UCSendOnly, 6), seq(11))
	tq.batch.Run()
	tq.wantWC(Completion{ID: 2, Opcode: WCRecv, ByteLen: 10, SrcQP: peerQPN}, Completion{ID: 3, Opcode: WCRecv, ByteLen: 11, SrcQP: peerQPN})
	tq.wantMem(0x2000, seq(10))
	tq.wantQuiet()
}

// A receive that is no good, met behind a WRITE whose memory goes away, has not
// been met: the QP goes on until a message needs it.
func TestUCBadReceiveRolledBack(t *testing.T) {
	tq := newUC(t, nil)
	other := tq.another(8, mem.LocalWrite|mem.RemoteWrite)
	tq.recv(1, 0x1000, 300)
	tq.rq.recvs[0].SGEs[0].LKey ^= 0x1000
	tq.burst = true
	h := ucP(wire.UCWriteOnly, 0)
	h.RKey, h.Length = other.Key, 8
	tq.accepts(h, seq(8))
	tq.wantVerdict(wire.DropRejected, tq.gets(ucP(wire.UCSendOnly, 1), seq(8)))
	tq.keys.Deregister(other)
	tq.batch.Run()
	tq.wantWC()
	tq.wantState(RTS)
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 8)})
	tq.wantPacket(wire.Header{Opcode: wire.UCSendOnly, PSN: psnL(0)}, pattern[:8])
	tq.wantWC(Completion{ID: 2, Opcode: WCSend})
	h = ucP(wire.UCWriteOnly, 2)
	h.VA, h.RKey, h.Length = memBase+0x4000, tq.mr.Key, 8
	tq.accepts(h, seq(8))
	tq.batch.Run()
	tq.wantMem(0x4000, seq(8))
	tq.wantVerdict(wire.DropRejected, tq.gets(ucP(wire.UCSendOnly, 3), seq(8)))
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocProtErr})
	tq.wantState(Err)
}

// Each message that a fault takes along is counted, that in progress, too.
func TestUCRolledBackIsCounted(t *testing.T) {
	tq := newUC(t, nil)
	other := tq.another(8, mem.LocalWrite|mem.RemoteWrite)
	tq.recv(1, 0x1000, 300)
	tq.recv(2, 0x1000, 300)
	tq.burst = true
	h := ucP(wire.UCWriteOnly, 0)
	h.RKey, h.Length = other.Key, 8
	tq.accepts(h, seq(8))
	h = ucP(wire.UCWriteFirst, 1)
	h.VA, h.RKey, h.Length = memBase, tq.mr.Key, 264
	tq.accepts(h, seq(256))
	tq.accepts(ucP(wire.UCWriteLast, 2), seq(8))
	tq.accepts(ucP(wire.UCSendOnly, 3), nil)
	tq.accepts(ucP(wire.UCSendFirst, 4), seq(256))
	tq.keys.Deregister(other)
	tq.batch.Run()
	if got := tq.cfg.Counters.DroppedMessages; got != 4 {
		t.Errorf("%d messages dropped, want 4", got)
	}
}

// Memory that is gone under a SEND is the receive's.
func TestUCReceiveMemoryGone(t *testing.T) {
	tq := newUC(t, nil)
	tq.recv(1, 0x1000, 300)
	tq.burst = true
	tq.accepts(ucP(wire.UCSendOnly, 0), seq(8))
	tq.keys.Deregister(tq.mr)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocProtErr})
	tq.wantState(Err)
}

// A send that fails stops the send queue only, until the QP is modified to RTS.
func TestSendQueueError(t *testing.T) {
	conform.Row(t, "5.8/req-sqe")
	for name, c := range map[string]struct {
		status WCStatus
		w      SendWQE
	}{
		"a bad lkey":      {LocProtErr, SendWQE{Opcode: WRSend, SGEs: []SGE{{Addr: memBase, Length: 8, LKey: 1}}}},
		"a READ":          {LocQPOpErr, SendWQE{Opcode: WRRead}},
		"an atomic":       {LocQPOpErr, SendWQE{Opcode: WRFetchAdd}},
		"no opcode":       {LocQPOpErr, SendWQE{Opcode: 200}},
		"inline too long": {LocLenErr, SendWQE{Opcode: WRSend, Flags: Inline, Inline: seq(600)}},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newUC(t, nil)
			tq.t = t
			ok := SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)}
			tq.send(ok)
			c.w.ID = 2
			tq.send(c.w)
			ok.ID = 3
			tq.send(ok)
			tq.wantPacket(wire.Header{Opcode: wire.UCSendFirst, PSN: psnL(0)}, pattern[:256])
			tq.wantPacket(wire.Header{Opcode: wire.UCSendLast, PSN: psnL(1)}, pattern[256:300])
			tq.wantQuiet()
			tq.wantState(SQE)
			wc := c.w.Opcode.operation().completion
			tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: wc, Status: c.status},
				Completion{ID: 3, Opcode: WCSend, Status: WRFlushErr})
			ok.ID = 4
			tq.send(ok)
			tq.wantQuiet()
			tq.wantWC(Completion{ID: 4, Opcode: WCSend, Status: WRFlushErr})
			tq.recv(9, 0x1000, 300)
			tq.accepts(ucP(wire.UCSendOnly, 0), seq(8)) // it receives as before
			tq.wantWC(Completion{ID: 9, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN})
			if err := tq.Modify(&Attr{State: RTS, CurState: SQE}, AttrState|AttrCurState, tq.now); err != nil {
				t.Fatal(err)
			}
			ok.ID, ok.SGEs = 5, tq.local(0, 8)
			tq.send(ok)
			got, _ := tq.plan()
			if got.Opcode != wire.UCSendOnly || got.PSN.Sub(psnL(1)) < 1 || got.PSN.Sub(psnL(1)) > 2 {
				t.Errorf("after SQE: %v", got)
			}
			tq.wantWC(Completion{ID: 5, Opcode: WCSend})
			tq.wantEvents()
		})
	}
}

// Memory that is gone when a packet is made fails the request; what was made
// before it in the burst goes out.
func TestUCSendMemoryGone(t *testing.T) {
	tq := newUC(t, nil)
	other := make([]byte, 300)
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(other, 0), 0, 0, 300, 0)
	if err != nil {
		t.Fatal(err)
	}
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 8)})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled, SGEs: []SGE{{Length: 300, LKey: mr.Key}}})
	tq.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 8)})
	var ps [5]TxPacket
	n := 0
	for i := range ps {
		ps[i].Frame = &wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}
		if tq.Plan(tq.now, &ps[i], tq.batch) {
			n++
		}
	}
	tq.keys.Deregister(mr)
	tq.batch.Run()
	if n != 4 || ps[0].Void || !ps[1].Void || !ps[2].Void || !ps[3].Void {
		t.Errorf("%d packets, void: %v %v %v %v", n, ps[0].Void, ps[1].Void, ps[2].Void, ps[3].Void)
	}
	tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: WCSend, Status: LocProtErr},
		Completion{ID: 3, Opcode: WCSend, Status: WRFlushErr})
	tq.wantState(SQE)
}

// Messages wait for the next hop for a second; then they are lost, as a network
// loses what it can't deliver.
func TestUCWithoutPath(t *testing.T) {
	tq := newUC(t, nil)
	tq.SetPath(nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	tq.send(SendWQE{ID: 2, Opcode: WRWrite, SGEs: tq.local(0, 8)})
	tq.wantQuiet()
	tq.sleep(pathTimeout - 1)
	tq.wantQuiet()
	tq.wantWC()
	tq.sleep(1)
	tq.wantWC(Completion{ID: 1, Opcode: WCSend})
	tq.wantQuiet()
	if tq.cfg.Counters.Unsent != 2 {
		t.Errorf("%d unsent", tq.cfg.Counters.Unsent)
	}
	tq.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 8)})
	tq.wantQuiet()
	tq.SetPath(testPath)
	tq.wantPacket(wire.Header{Opcode: wire.UCSendOnly, PSN: psnL(3)}, pattern[:8])
	tq.wantWC(Completion{ID: 3, Opcode: WCSend})
	tq.sleep(2 * pathTimeout)
	tq.wantQuiet()
}

// SQD ends the message under way and begins none.
func TestUCDrain(t *testing.T) {
	tq := newUC(t, nil)
	for i := range uint64(2) {
		tq.send(SendWQE{ID: i + 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	}
	tq.wantPacket(wire.Header{Opcode: wire.UCSendFirst, PSN: psnL(0)}, pattern[:256])
	if err := tq.Modify(&Attr{State: SQD, SQDAsyncNotify: true}, AttrState|AttrSQDAsyncNotify, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantEvents()
	tq.wantPacket(wire.Header{Opcode: wire.UCSendLast, PSN: psnL(1)}, pattern[256:300])
	tq.wantQuiet()
	tq.wantEvents(EventSQDrained)
	if err := tq.Modify(&Attr{State: RTS}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantPacket(wire.Header{Opcode: wire.UCSendFirst, PSN: psnL(2)}, pattern[:256])
}

func TestUCCommunicationEstablished(t *testing.T) {
	tq := newTyped(t, UC)
	for _, a := range []Attr{initAttr, rtrAttr} {
		if err := tq.Modify(&a, tq.svc.required(a.State), tq.now); err != nil {
			t.Fatal(err)
		}
	}
	tq.recv(1, 0, 8)
	tq.accepts(ucP(wire.UCSendOnly, 0), seq(8))
	tq.wantEvents(EventCommEst)
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN})
}

// Error and reset give back every work request, those of a message under way too.
func TestUCFlush(t *testing.T) {
	for _, to := range []State{Err, Reset} {
		tq := newUC(t, nil)
		tq.recv(1, 0x1000, 600)
		tq.recv(2, 0x2000, 600)
		tq.accepts(ucP(wire.UCSendFirst, 0), seq(256))
		tq.send(SendWQE{ID: 3, Opcode: WRSend, SGEs: tq.local(0, 300)})
		tq.send(SendWQE{ID: 4, Opcode: WRSend, SGEs: tq.local(0, 300)})
		tq.wantPacket(wire.Header{Opcode: wire.UCSendFirst, PSN: psnL(0)}, pattern[:256])
		if err := tq.Modify(&Attr{State: to}, AttrState, tq.now); err != nil {
			t.Fatal(err)
		}
		if to == Err {
			tq.wantWC(Completion{ID: 3, Opcode: WCSend, Status: WRFlushErr}, Completion{ID: 4, Opcode: WCSend, Status: WRFlushErr},
				Completion{ID: 1, Opcode: WCRecv, Status: WRFlushErr}, Completion{ID: 2, Opcode: WCRecv, Status: WRFlushErr})
		}
		tq.wantWC()
		if tq.sq.retired != 2 || tq.rq.retired != 2 {
			t.Errorf("%v: %d sends and %d receives given back", to, tq.sq.retired, tq.rq.retired)
		}
	}
}

// Of a receive queue that it shares, a QP gives back only what it holds.
func TestSharedReceives(t *testing.T) {
	for _, to := range []State{Err, Reset} {
		tq := newTyped(t, UC)
		tq.cfg.SharedRQ = true
		tq.connect(nil)
		tq.recv(1, 0x1000, 600)
		tq.recv(2, 0x2000, 600)
		tq.accepts(ucP(wire.UCSendFirst, 0), seq(256))
		if err := tq.Modify(&Attr{State: to}, AttrState, tq.now); err != nil {
			t.Fatal(err)
		}
		if to == Err {
			tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: WRFlushErr})
		}
		tq.wantQuiet()
		if tq.rq.next != 1 || tq.rq.retired != 1 {
			t.Errorf("%v: %d taken, %d given back", to, tq.rq.next, tq.rq.retired)
		}
	}
}

func TestUCDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newUC(t, nil), newUC(t, nil)
	w := &SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: a.local(0, 600)}
	p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}}
	r := &RecvWQE{ID: 1, SGEs: b.local(0, 600)}
	var got wire.Packet
	n := testing.AllocsPerRun(100, func() {
		a.sq.sends, a.sq.next, a.sq.retired = append(a.sq.sends[:0], w), 0, 0
		b.rq.recvs, b.rq.next, b.rq.retired = append(b.rq.recvs[:0], r), 0, 0
		for a.Plan(a.now, &p, a.batch) {
			a.batch.Run()
			p.Path.Seal(p.Frame)
			if wire.Parse(&got, p.Frame) != wire.Accepted {
				t.Fatal("no packet")
			}
			got.PSN = b.resp.epsn
			b.Handle(&got, b.now, b.batch)
			b.batch.Run()
			p.Frag = [2][]byte{p.Frag[0][:cap(p.Frag[0])]}
		}
		a.wcs, b.wcs = a.wcs[:0], b.wcs[:0]
	})
	if n != 0 {
		t.Errorf("%v allocations a message", n)
	}
	if b.cfg.Counters.RDMARecvs < 100 {
		t.Errorf("%d messages received", b.cfg.Counters.RDMARecvs)
	}
}
