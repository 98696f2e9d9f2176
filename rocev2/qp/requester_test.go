package qp

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

func TestSendPackets(t *testing.T) {
	conform.Row(t, "5.3/req-ack", "5.8/signalled", "5.11/1")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSendImm, Flags: Signaled | Solicited, SGEs: tq.local(0, 600), Imm: 0xabcd})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled})
	tq.send(SendWQE{ID: 3, Opcode: WRWrite, SGEs: tq.local(8, 3), RemoteAddr: 0x7000, RKey: 5})
	tq.send(SendWQE{ID: 4, Opcode: WRWriteImm, Flags: Signaled, SGEs: tq.local(8, 257), RemoteAddr: 0x7000, RKey: 5, Imm: 9})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, tq.mem[0:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendMiddle, PSN: psnL(1)}, tq.mem[256:512])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLastImm, PSN: psnL(2), AckReq: true, SE: true, Imm: 0xabcd}, tq.mem[512:600])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(3), AckReq: true}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteOnly, PSN: psnL(4), AckReq: true, VA: 0x7000, RKey: 5, Length: 3}, tq.mem[8:11])
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteFirst, PSN: psnL(5), VA: 0x7000, RKey: 5, Length: 257}, tq.mem[8:264])
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteLastImm, PSN: psnL(6), AckReq: true, Imm: 9}, tq.mem[264:265])
	tq.wantQuiet()
	tq.accepts(ack(2, 1), nil)
	tq.wantWC(Completion{ID: 1})
	tq.accepts(ack(5, 3), nil) // acknowledges half of the last message, too
	tq.wantWC(Completion{ID: 2})
	tq.accepts(ack(6, 4), nil)
	tq.wantWC(Completion{ID: 4, Opcode: WCWrite}) // 3 wasn't signalled
	if tq.sq.retired != 4 {
		t.Errorf("%d retired, want 4", tq.sq.retired)
	}
}

func TestScatterGatherList(t *testing.T) {
	conform.Row(t, "bug/33")
	tq := newQP(t, nil)
	var list []SGE
	var want []byte
	for i := range MaxSGE {
		n := (i * 13) % 40
		if i == 7 {
			n = 0
		}
		list = append(list, tq.local(i*1000, n)...)
		want = append(want, tq.mem[i*1000:i*1000+n]...)
	}
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: list})
	packets := (len(want) + 255) / 256
	for i := range packets {
		got, ok := tq.plan()
		if !ok || string(got.data) != string(want[i*256:min(len(want), i*256+256)]) {
			t.Fatalf("packet %d: %v", i, got)
		}
	}
	tq.wantQuiet()
	tq.accepts(ack(packets-1, 1), nil)
	tq.wantWC(Completion{ID: 1})

	// The same list takes the response of a READ.
	tq.send(SendWQE{ID: 2, Opcode: WRRead, Flags: Signaled, SGEs: list, RemoteAddr: 1 << 40, RKey: 7})
	got, _ := tq.plan()
	if got.Length != uint32(len(want)) {
		t.Fatalf("READ of %d bytes, want %d", got.Length, len(want))
	}
	data := seq(len(want))
	for i := range packets {
		tq.accepts(readResponse(packets+i, i, packets), data[i*256:min(len(want), i*256+256)])
	}
	tq.wantWC(Completion{ID: 2, Opcode: WCRead, ByteLen: uint32(len(want))})
	for _, s := range list {
		tq.wantMem(int(s.Addr-memBase), data[:s.Length])
		data = data[s.Length:]
	}
}

// readResponse is packet i of n of a READ response with PSN number psn.
func readResponse(psn, i, n int) wire.Header {
	return wire.Header{Opcode: readResponseOpcode(i == 0, i == n-1), PSN: psnL(psn), Syndrome: wire.SyndromeAck}
}

func TestInline(t *testing.T) {
	conform.Row(t, "bug/33")
	tq := newQP(t, nil)
	data := seq(300)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled | Inline, Inline: data})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, data[:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, data[256:])
	tq.accepts(ack(1, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

func TestSequenceNAK(t *testing.T) {
	conform.Row(t, "5.2/nak-60", "5.3/req-nak-sequence", "bug/15")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 700)})
	for range 3 {
		tq.plan()
	}
	tq.accepts(nak(1, wire.NakSequence, 0), nil)
	// What comes first asks for an acknowledgement: it tells whether the retry works.
	tq.wantPacket(wire.Header{Opcode: wire.RCSendMiddle, PSN: psnL(1), AckReq: true}, tq.mem[256:512])
	// One retry at a time: the same NAK again starts nothing.
	tq.wantVerdict(wire.DropDuplicate, tq.gets(nak(1, wire.NakSequence, 0), nil))
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(2), AckReq: true}, tq.mem[512:700])
	tq.wantQuiet()
	tq.accepts(ack(2, 1), nil)
	tq.wantWC(Completion{ID: 1})
	tq.wantState(RTS)
}

func TestTimeoutExhaustsRetries(t *testing.T) {
	conform.Row(t, "5.3/req-timeout", "5.8/req-retries", "5.8/req-flush", "5.8/fields", "5.4/detection")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, SGEs: tq.local(0, 4)})
	tq.recv(9, 0, 4)
	for _, timeouts := range []time.Duration{1, 2, 4, 4} {
		tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, tq.mem[:4])
		tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(1), AckReq: true}, tq.mem[:4])
		tq.wantQuiet()
		if tq.Deadline() != tq.req.ackDeadline {
			t.Fatalf("deadline in %v, want that of the timer", tq.Deadline().Sub(tq.now))
		}
		tq.timeout(timeouts)
	}
	// A failed request completes though it wasn't signalled.
	tq.wantWC(Completion{ID: 1, Status: RetryExcErr}, Completion{ID: 2, Status: WRFlushErr}, Completion{ID: 9, Status: WRFlushErr, Opcode: WCRecv})
	tq.wantState(Err)
	tq.wantEvents() // the completion tells it
	if tq.Deadline() != clock.Never {
		t.Error("a timer runs in ERR")
	}
}

func TestProgressRestoresRetries(t *testing.T) {
	conform.Row(t, "5.3/req-timeout")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 10*256)})
	for i := range 9 {
		for _, timeouts := range []time.Duration{1, 2, 4} { // as many as there are retries
			for {
				if _, ok := tq.plan(); !ok {
					break
				}
			}
			tq.timeout(timeouts)
		}
		tq.accepts(ack(i, 0), nil)
	}
	tq.wantState(RTS)
}

func TestTimeoutZeroIsNever(t *testing.T) {
	tq := newQP(t, func(a *Attr) { a.Timeout = 0 })
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)})
	tq.plan()
	if tq.Deadline() != clock.Never {
		t.Error("timeout 0 has a deadline")
	}
}

func TestRNR(t *testing.T) {
	conform.Row(t, "5.3/req-rnr", "5.8/req-rnr", "bug/11")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 300)})
	for round := range rtsAttr.RNRRetry + 1 {
		tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0), AckReq: round > 0}, tq.mem[:256])
		tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
		tq.accepts(nak(0, wire.SyndromeRNR|31, 0), nil)
		if round == rtsAttr.RNRRetry {
			break
		}
		// rxe says this too; neither it nor the ACK timer may end the wait.
		tq.wantVerdict(wire.DropDuplicate, tq.gets(nak(0, wire.NakSequence, 0), nil))
		tq.sleep(491520*time.Microsecond - 1)
		tq.wantQuiet()
		tq.sleep(1)
	}
	tq.wantWC(Completion{ID: 1, Status: RNRRetryExcErr})
	tq.wantState(Err)
}

func TestRNRRetrySevenIsForEver(t *testing.T) {
	conform.Row(t, "5.3/req-rnr", "bug/12")
	tq := newQP(t, func(a *Attr) { a.RNRRetry = 7 })
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	for range 100 {
		tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, tq.mem[:4])
		tq.accepts(nak(0, wire.SyndromeRNR|1, 0), nil)
		tq.sleep(10 * time.Microsecond)
	}
	tq.plan()
	tq.accepts(ack(0, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

// A peer that has no receive is there: what was lost before no longer counts.
func TestRNRRestoresRetries(t *testing.T) {
	tq := newQP(t, func(a *Attr) { a.RNRRetry = 7 })
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	for range 3 {
		for _, timeouts := range []time.Duration{1, 2, 4} { // as many as there are retries
			tq.plan()
			tq.timeout(timeouts)
		}
		tq.plan()
		tq.accepts(nak(0, wire.SyndromeRNR|1, 0), nil)
		tq.sleep(10 * time.Microsecond)
	}
	tq.plan()
	tq.accepts(ack(0, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

func TestRNRTimerTable(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond,
		20: 10240 * time.Microsecond, 25: 61440 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := RNRTimeout(code); got != want {
			t.Errorf("RNR code %d: %v, want %v", code, got, want)
		}
	}
}

func TestErrorNAKs(t *testing.T) {
	conform.Row(t, "5.8/req-61", "5.8/req-62", "5.8/req-63", "5.8/req-flush")
	for s, want := range map[wire.Syndrome]WCStatus{
		wire.NakInvalidRequest: RemInvReqErr, wire.NakRemoteAccess: RemAccessErr, wire.NakRemoteOperation: RemOpErr,
	} {
		tq := newQP(t, nil)
		for id := range uint64(4) {
			tq.send(SendWQE{ID: id, Opcode: WRWrite, Flags: Signaled, SGEs: tq.local(0, 300), RKey: 1})
			tq.plan()
			tq.plan()
		}
		tq.accepts(nak(5, s, 2), nil)
		tq.wantWC(Completion{ID: 0, Opcode: WCWrite}, Completion{ID: 1, Opcode: WCWrite},
			Completion{ID: 2, Status: want, Opcode: WCWrite}, Completion{ID: 3, Status: WRFlushErr, Opcode: WCWrite})
		tq.wantState(Err)
		tq.wantQuiet()
		// What is posted in ERR is flushed.
		tq.send(SendWQE{ID: 5, Opcode: WRSend})
		tq.wantQuiet()
		tq.wantWC(Completion{ID: 5, Status: WRFlushErr})
	}
}

// A NAK in the place of a response in the middle of a READ.
func TestNAKOfARead(t *testing.T) {
	conform.Row(t, "5.3/req-nak-read")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 700), RKey: 3})
	tq.send(SendWQE{ID: 2, Opcode: WRSend})
	tq.plan()
	tq.plan()
	tq.accepts(readResponse(0, 0, 3), seq(256))
	tq.accepts(nak(1, wire.NakRemoteAccess, 1), nil)
	tq.wantWC(Completion{ID: 1, Status: RemAccessErr, Opcode: WCRead, ByteLen: 700}, Completion{ID: 2, Status: WRFlushErr})
	tq.wantState(Err)
}

func TestReservedSyndromesAreIgnored(t *testing.T) {
	conform.Row(t, "5.2/syndrome-reserved", "5.2/nak-64")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)})
	tq.plan()
	for s := range 256 {
		if s := wire.Syndrome(s); !s.IsAck() && !s.IsRNR() && (!s.IsNak() || s > wire.NakRemoteOperation) {
			tq.wantVerdict(wire.DropUnexpected, tq.gets(nak(0, s, 0), nil))
		}
	}
	tq.wantState(RTS)
}

func TestGhostAndOldAcks(t *testing.T) {
	conform.Row(t, "5.3/req-old", "5.3/req-ghost", "5.11/10")
	tq := newQP(t, nil)
	tq.wantVerdict(wire.DropGhost, tq.gets(ack(0, 1), nil))
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	tq.plan()
	tq.wantVerdict(wire.DropGhost, tq.gets(ack(1, 1), nil))
	tq.wantVerdict(wire.DropGhost, tq.gets(ack(1<<22, 1), nil))
	tq.wantWC()
	tq.accepts(ack(0, 1), nil)
	tq.wantWC(Completion{ID: 1})
	tq.wantVerdict(wire.DropDuplicate, tq.gets(ack(0, 1), nil))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(nak(0, wire.NakRemoteAccess, 1), nil))
	tq.wantState(RTS)
}

func TestRead(t *testing.T) {
	conform.Row(t, "5.1/op-0c", "5.3/width", "5.11/9")
	tq := newQP(t, nil)
	data := seq(700)
	tq.send(SendWQE{ID: 1, Opcode: WRRead, Flags: Signaled, SGEs: tq.local(100, 700), RemoteAddr: 0x9000, RKey: 3})
	tq.send(SendWQE{ID: 2, Opcode: WRRead, Flags: Signaled, RemoteAddr: 0x9000, RKey: 3})
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(0), AckReq: true, VA: 0x9000, RKey: 3, Length: 700}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(3), AckReq: true, VA: 0x9000, RKey: 3}, nil)
	tq.accepts(readResponse(0, 0, 3), data[:256])
	tq.wantVerdict(wire.DropDuplicate, tq.gets(readResponse(0, 0, 3), data[:256]))
	tq.accepts(readResponse(1, 1, 3), data[256:512])
	tq.wantWC()
	tq.accepts(readResponse(2, 2, 3), data[512:])
	tq.wantWC(Completion{ID: 1, Opcode: WCRead, ByteLen: 700})
	tq.accepts(readResponse(3, 0, 1), nil)
	tq.wantWC(Completion{ID: 2, Opcode: WCRead})
	tq.wantMem(100, data)
}

// A gap in a READ response is an implied NAK: what is missing, and only that, is
// asked for again.
func TestReadResumesInTheMiddle(t *testing.T) {
	conform.Row(t, "5.3/req-gap", "5.3/req-read-resume", "5.11/6")
	tq := newQP(t, nil)
	data := seq(1000)
	tq.send(SendWQE{ID: 1, Opcode: WRRead, Flags: Signaled, SGEs: tq.local(0, 1000), RemoteAddr: 0x9000, RKey: 3})
	tq.plan()
	tq.accepts(readResponse(0, 0, 4), data[:256])
	tq.accepts(readResponse(2, 2, 4), data[512:768]) // 1 is lost
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(1), AckReq: true, VA: 0x9100, RKey: 3, Length: 256}, nil)
	tq.wantQuiet()
	tq.accepts(readResponse(3, 3, 4), data[768:])
	tq.wantVerdict(wire.DropDuplicate, tq.gets(readResponse(2, 2, 4), data[512:768]))
	tq.wantWC()
	tq.accepts(readResponse(1, 0, 1), data[256:512])
	tq.wantWC(Completion{ID: 1, Opcode: WCRead, ByteLen: 1000})
	tq.wantMem(0, data)
}

// An ACK past a READ without its response is an implied NAK (known bug 14).
func TestAckPastRead(t *testing.T) {
	conform.Row(t, "5.3/req-implied", "5.11/11", "bug/14")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 40, Opcode: WRWrite, Flags: Signaled, SGEs: tq.local(0, 4), RKey: 3})
	tq.send(SendWQE{ID: 41, Opcode: WRRead, Flags: Signaled, SGEs: tq.local(8, 4), RKey: 3})
	tq.send(SendWQE{ID: 42, Opcode: WRWrite, Flags: Signaled, SGEs: tq.local(0, 4), RKey: 3})
	for range 3 {
		tq.plan()
	}
	tq.accepts(ack(2, 3), nil)
	tq.wantWC(Completion{ID: 40, Opcode: WCWrite})
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(1), AckReq: true, RKey: 3, Length: 4}, nil)
	tq.wantQuiet()
	tq.accepts(readResponse(1, 0, 1), []byte("read"))
	tq.wantWC(Completion{ID: 41, Opcode: WCRead, ByteLen: 4}, Completion{ID: 42, Opcode: WCWrite})
	tq.wantMem(8, []byte("read"))
}

func TestAtomics(t *testing.T) {
	conform.Row(t, "5.1/op-12", "5.3/req-implied", "5.11/9")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRFetchAdd, Flags: Signaled, SGEs: tq.local(16, 8), RemoteAddr: 0x40, RKey: 3, CompareAdd: 5})
	tq.send(SendWQE{ID: 2, Opcode: WRCompareSwap, Flags: Signaled, SGEs: tq.local(24, 8), RemoteAddr: 0x48, RKey: 3, CompareAdd: 5, Swap: 6})
	tq.wantPacket(wire.Header{Opcode: wire.RCFetchAdd, PSN: psnL(0), AckReq: true, VA: 0x40, RKey: 3, Swap: 5}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCCompareSwap, PSN: psnL(1), AckReq: true, VA: 0x48, RKey: 3, Swap: 6, Compare: 5}, nil)
	atomicAck := func(n int, orig uint64) wire.Header {
		return wire.Header{Opcode: wire.RCAtomicAck, PSN: psnL(n), Syndrome: wire.SyndromeAck, Orig: orig}
	}
	tq.accepts(atomicAck(1, 77), nil) // the first is lost
	tq.wantWC()
	tq.wantPacket(wire.Header{Opcode: wire.RCFetchAdd, PSN: psnL(0), AckReq: true, VA: 0x40, RKey: 3, Swap: 5}, nil)
	tq.wantQuiet()
	tq.accepts(atomicAck(0, 0x1122334455667788), nil)
	tq.wantWC(Completion{ID: 1, Opcode: WCFetchAdd, ByteLen: 8}, Completion{ID: 2, Opcode: WCCompareSwap, ByteLen: 8})
	if got := binary.NativeEndian.Uint64(tq.mem[16:]); got != 0x1122334455667788 {
		t.Errorf("original value %#x", got)
	}
}

func TestBadResponses(t *testing.T) {
	conform.Row(t, "5.8/req-response")
	read := func(tq *testQP) {
		tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 600), RKey: 3})
	}
	send := func(tq *testQP) { tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)}) }
	atomic := func(tq *testQP) { tq.send(SendWQE{ID: 1, Opcode: WRFetchAdd, SGEs: tq.local(0, 8)}) }
	for name, c := range map[string]struct {
		post func(*testQP)
		h    wire.Header
		n    int
	}{
		"READ answered by a middle first":  {read, readResponse(0, 1, 3), 256},
		"READ answered too short":          {read, readResponse(0, 0, 3), 255},
		"READ answered too long":           {read, readResponse(0, 0, 3), 257},
		"READ answered by an only":         {read, readResponse(0, 0, 1), 256},
		"SEND answered by READ response":   {send, readResponse(0, 0, 1), 4},
		"SEND answered by ATOMIC ACK":      {send, wire.Header{Opcode: wire.RCAtomicAck, PSN: psnL(0)}, 0},
		"READ answered by ATOMIC ACK":      {read, wire.Header{Opcode: wire.RCAtomicAck, PSN: psnL(0)}, 0},
		"atomic answered by READ response": {atomic, readResponse(0, 0, 1), 8},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newQP(t, nil)
			c.post(tq)
			tq.plan()
			tq.wantVerdict(wire.DropUnexpected, tq.gets(c.h, make([]byte, c.n)))
			if len(tq.wcs) != 1 || tq.wcs[0].Status != BadRespErr {
				t.Fatalf("completions %+v", tq.wcs)
			}
			tq.wantState(Err)
		})
	}
}

func TestFence(t *testing.T) {
	conform.Row(t, "5.8/fence", "bug/26")
	for op, answer := range map[WROpcode]wire.Opcode{WRRead: wire.RCReadRespOnly, WRCompareSwap: wire.RCAtomicAck,
		WRFetchAdd: wire.RCAtomicAck, WRAtomicWrite: wire.RCReadRespOnly, WRFlush: wire.RCReadRespOnly} {
		tq := newQP(t, nil)
		w := SendWQE{ID: 1, Opcode: op, RKey: 3, Flush: FlushGlobal}
		if op != WRFlush {
			w.SGEs = tq.local(0, 8)
		}
		var data []byte
		if op == WRRead {
			data = seq(8)
		}
		tq.send(w)
		tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Fence, SGEs: tq.local(0, 8)})
		tq.plan()
		tq.wantQuiet()
		tq.accepts(wire.Header{Opcode: answer, PSN: psnL(0), Syndrome: wire.SyndromeAck, Orig: 7}, data)
		tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(1), AckReq: true}, tq.mem[:8])
	}
	// It is for those alone.
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRWrite, RKey: 3})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Fence})
	tq.plan()
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(1), AckReq: true}, nil)
}

func TestMaxRdAtomic(t *testing.T) {
	tq := newQP(t, func(a *Attr) { a.MaxRdAtomic = 2 })
	for id := range uint64(3) {
		tq.send(SendWQE{ID: id, Opcode: WRRead, Flags: Signaled, SGEs: tq.local(0, 4), RKey: 3})
	}
	tq.plan()
	tq.plan()
	tq.wantQuiet()
	tq.accepts(readResponse(0, 0, 1), []byte("data"))
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(2), AckReq: true, RKey: 3, Length: 4}, nil)
}

func TestWindowAsksForAcks(t *testing.T) {
	tq := newQP(t, nil)
	tq.cfg.Window = 8
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 40*256)})
	for acked, sent := 0, 0; sent < 40; {
		p, ok := tq.plan()
		switch {
		case ok:
			sent++
		case sent-acked != 8:
			t.Fatalf("stopped with %d in flight", sent-acked)
		default:
			acked = sent
			tq.accepts(ack(acked-1, 0), nil)
			continue
		}
		if sent-acked == 8 && !p.AckReq {
			t.Fatalf("the packet that fills the window doesn't ask for an ACK")
		}
	}
}

func TestLocalErrors(t *testing.T) {
	const foreignKey, readOnlyKey = 1, 2 // stand for those of such regions
	conform.Row(t, "5.8/req-prot", "5.8/req-length", "5.8/req-operation", "5.8/req-flush", "bug/34", "bug/38")
	for name, c := range map[string]struct {
		w    SendWQE
		want WCStatus
	}{
		"bad lkey":         {SendWQE{Opcode: WRSend, SGEs: []SGE{{memBase, 4, 0x99}}}, LocProtErr},
		"outside of MR":    {SendWQE{Opcode: WRSend, SGEs: []SGE{{memBase + memSize - 3, 4, 0}}}, LocProtErr},
		"READ bad lkey":    {SendWQE{Opcode: WRRead, SGEs: []SGE{{memBase, 4, 0x99}}}, LocProtErr},
		"atomic bad lkey":  {SendWQE{Opcode: WRFetchAdd, SGEs: []SGE{{memBase, 8, 0x99}}}, LocProtErr},
		"other PD":         {SendWQE{Opcode: WRSend, SGEs: []SGE{{memBase, 4, foreignKey}}}, LocProtErr},
		"READ, no right":   {SendWQE{Opcode: WRRead, SGEs: []SGE{{0, 4, readOnlyKey}}}, LocProtErr},
		"atomic, no right": {SendWQE{Opcode: WRFetchAdd, SGEs: []SGE{{0, 8, readOnlyKey}}}, LocProtErr},
		"atomic length":    {SendWQE{Opcode: WRFetchAdd, SGEs: []SGE{{memBase, 4, 0}}}, LocLenErr},
		"too long":         {SendWQE{Opcode: WRSend, SGEs: []SGE{{memBase, 1 << 31, 0}, {memBase, 1, 0}}}, LocLenErr},
		"unknown opcode":   {SendWQE{Opcode: 77}, LocQPOpErr},
		"inline READ":      {SendWQE{Opcode: WRRead, Flags: Inline, Inline: []byte{1}}, LocQPOpErr},
		"inline too long":  {SendWQE{Opcode: WRSend, Flags: Inline, Inline: make([]byte, 513)}, LocLenErr},
		"too many entries": {SendWQE{Opcode: WRSend, SGEs: make([]SGE, MaxSGE+1)}, LocQPOpErr},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newQP(t, nil)
			foreign, err := tq.keys.Register(new(mem.PD), mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize, mem.LocalWrite)
			if err != nil {
				t.Fatal(err)
			}
			keys := map[uint32]uint32{0: tq.mr.Key, foreignKey: foreign.Key, readOnlyKey: tq.another(8, 0).Key}
			for i := range c.w.SGEs {
				if key := keys[c.w.SGEs[i].LKey]; key != 0 {
					c.w.SGEs[i].LKey = key
				}
			}
			tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
			c.w.ID = 2
			tq.send(c.w)
			tq.send(SendWQE{ID: 3, Opcode: WRSend, SGEs: tq.local(0, 4)})
			tq.plan()
			tq.wantQuiet()
			tq.wantWC() // what was sent before may still succeed
			tq.accepts(ack(0, 1), nil)
			if len(tq.wcs) != 3 || tq.wcs[0].Status != Success || tq.wcs[1].Status != c.want || tq.wcs[2].Status != WRFlushErr {
				t.Fatalf("completions %+v", tq.wcs)
			}
		})
	}
	t.Run("no READs", func(t *testing.T) {
		tq := newQP(t, func(a *Attr) { a.MaxRdAtomic = 0 })
		tq.send(SendWQE{ID: 2, Opcode: WRRead, SGEs: tq.local(0, 4)})
		tq.wantQuiet()
		tq.wantWC(Completion{ID: 2, Status: LocQPOpErr, Opcode: WCRead, ByteLen: 4})
	})
}

// A region that goes away while a message is under way fails it.
func TestDeregisterWhileSending(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 600)})
	tq.plan()
	tq.keys.Deregister(tq.mr)
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Status: LocProtErr})
}

func TestUnresolvedPathParks(t *testing.T) {
	tq := newQP(t, nil)
	tq.SetPath(nil)
	tq.wantQuiet()
	if tq.Deadline() != clock.Never {
		t.Error("a timer runs without work")
	}
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	tq.wantQuiet()
	tq.SetPath(testPath)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, tq.mem[:4])
	tq.SetPath(nil)
	for range rtsAttr.RetryCnt + 1 {
		tq.wantQuiet()
		tq.sleep(tq.Deadline().Sub(tq.now))
	}
	tq.wantWC(Completion{ID: 1, Status: RetryExcErr})
}

func TestDrain(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	tq.plan()
	sqd := Attr{State: SQD, SQDAsyncNotify: true}
	if err := tq.Modify(&sqd, AttrState|AttrSQDAsyncNotify, tq.now); err != nil {
		t.Fatal(err)
	}
	// The message that was begun is finished; the next isn't begun.
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
	tq.wantQuiet()
	tq.wantEvents()
	if !tq.Query().SQDraining {
		t.Error("not draining")
	}
	tq.accepts(ack(1, 1), nil)
	tq.wantWC(Completion{ID: 1})
	tq.wantEvents(EventSQDrained)
	if tq.Query().SQDraining {
		t.Error("still draining")
	}
	if err := tq.Modify(&Attr{State: RTS}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(2), AckReq: true}, tq.mem[:4])
}

func TestSignalAll(t *testing.T) {
	tq := newQP(t, nil)
	tq.cfg.SigAll = true
	tq.send(SendWQE{ID: 1, Opcode: WRSend})
	tq.plan()
	tq.accepts(ack(0, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

func TestPSNArithmetic(t *testing.T) {
	conform.Row(t, "5.3/modulo", "bug/21")
	for _, start := range []ib.PSN{0, 1, 0x7fffff, 0x800000, 0xffffff} {
		tq := newQP(t, func(a *Attr) { a.SQPSN = start })
		for i := range 20 {
			tq.send(SendWQE{ID: uint64(i), Opcode: WRSend, Flags: Signaled})
			p, _ := tq.plan()
			if p.PSN != start.Add(i) {
				t.Fatalf("packet %d of a QP that starts at %v has PSN %v", i, start, p.PSN)
			}
			tq.accepts(wire.Header{Opcode: wire.RCAck, PSN: p.PSN, Syndrome: wire.SyndromeAck}, nil)
			tq.wantWC(Completion{ID: uint64(i)})
		}
	}
}

// With Rings, a send queue that was found empty is looked at when the host says so.
func TestEmptySendQueueWaitsForTheBell(t *testing.T) {
	tq := newQP(t, nil)
	tq.cfg.Rings = true
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, nil)
	tq.wantQuiet()
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled})
	tq.wantQuiet()
	tq.Posted()
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(1), AckReq: true}, nil)
	tq.wantQuiet()
	if err := tq.Modify(&Attr{State: Err}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled})
	tq.wantWC(Completion{ID: 1, Status: WRFlushErr}, Completion{ID: 2, Status: WRFlushErr})
	tq.Posted()
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 3, Status: WRFlushErr})
}
