package qp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// requestPlaces has the request opcodes that carry payload: which opcode must
// come before, and how long their payload may be at path MTU 256.
var requestPlaces = []struct {
	row         string
	op, before  wire.Opcode // before: the same for none
	least, most int
}{
	{"5.1/op-00", wire.RCSendFirst, wire.RCSendFirst, 256, 256},
	{"5.1/op-01", wire.RCSendMiddle, wire.RCSendFirst, 256, 256},
	{"5.1/op-02", wire.RCSendLast, wire.RCSendFirst, 1, 256},
	{"5.1/op-03", wire.RCSendLastImm, wire.RCSendFirst, 1, 256},
	{"5.1/op-04", wire.RCSendOnly, wire.RCSendOnly, 0, 256},
	{"5.1/op-05", wire.RCSendOnlyImm, wire.RCSendOnlyImm, 0, 256},
	{"5.1/op-06", wire.RCWriteFirst, wire.RCWriteFirst, 256, 256},
	{"5.1/op-07", wire.RCWriteMiddle, wire.RCWriteFirst, 256, 256},
	{"5.1/op-08", wire.RCWriteLast, wire.RCWriteFirst, 1, 256},
	{"5.1/op-09", wire.RCWriteLastImm, wire.RCWriteFirst, 1, 256},
	{"5.1/op-0a", wire.RCWriteOnly, wire.RCWriteOnly, 0, 256},
	{"5.1/op-0b", wire.RCWriteOnlyImm, wire.RCWriteOnlyImm, 0, 256},
}

// Every length of payload behind every opcode, at its place in a message: taken
// and answered, or refused.
func TestPayloadsOfRequests(t *testing.T) {
	for _, c := range requestPlaces {
		t.Run(c.op.String(), func(t *testing.T) {
			conform.Row(t, c.row, "5.8/resp-length")
			for n := range 260 {
				tq := newQP(t, nil)
				tq.recv(1, 0, 1024)
				psn, size := 0, n
				if c.before != c.op {
					psn, size = 1, 256+max(n, 1) // a First that is all of its WRITE is none
				}
				if !c.op.Info().Place.Ends() {
					size += 256 // there is more to come
				}
				if psn > 0 {
					tq.accepts(tq.reth(c.before, 0, 2048, size), seq(256))
				}
				h := ackReq(tq.reth(c.op, psn, 2048, size))
				h.Imm = 7
				if n < c.least || n > c.most {
					tq.wantVerdict(wire.DropRejected, tq.gets(h, seq(n)))
					tq.wantPacket(nakP(psn, wire.NakInvalidRequest, 0), nil)
					continue
				}
				tq.accepts(h, seq(n))
				tq.wantTaken(c.op, psn, size, n)
			}
		})
	}
}

// wantTaken checks the answer to a packet that was taken, and where its n bytes
// of payload went.
func (tq *testQP) wantTaken(o wire.Opcode, psn, size, n int) {
	tq.t.Helper()
	i, msn := o.Info(), ib.MSN(0)
	if i.Place.Ends() {
		msn = 1
	}
	tq.wantPacket(ackP(psn, msn), nil)
	at := 256 * psn
	if i.Operation == wire.OpWrite {
		at += 2048
	}
	tq.wantMem(at, seq(n))
	imm := i.Ext.Has(wire.ExtImmDt)
	if !i.Place.Ends() || i.Operation == wire.OpWrite && !imm {
		tq.wantWC()
		return
	}
	c := Completion{ID: 1, Opcode: WCRecv, ByteLen: uint32(size), SrcQP: peerQPN}
	if i.Operation == wire.OpWrite {
		c.Opcode = WCRecvWriteImm
	}
	if imm {
		c.Flags, c.Imm = WCWithImm, 7
	}
	tq.wantWC(c)
}

// What a requester makes of messages of each length: the opcodes, and how much
// each packet carries.
func TestPacketsOfMessages(t *testing.T) {
	conform.Row(t, "5.1/op-00", "5.1/op-01", "5.1/op-02", "5.1/op-03", "5.1/op-04", "5.1/op-05",
		"5.1/op-06", "5.1/op-07", "5.1/op-08", "5.1/op-09", "5.1/op-0a", "5.1/op-0b")
	for op, places := range map[WROpcode][4]wire.Opcode{ // first, middle, last, only
		WRSend:     {0x00, 0x01, 0x02, 0x04},
		WRSendImm:  {0x00, 0x01, 0x03, 0x05},
		WRWrite:    {0x06, 0x07, 0x08, 0x0a},
		WRWriteImm: {0x06, 0x07, 0x09, 0x0b},
	} {
		for _, n := range []int{0, 1, 255, 256, 257, 511, 512, 513, 768, 1000} {
			tq := newQP(t, nil)
			tq.send(SendWQE{ID: 1, Opcode: op, SGEs: tq.local(0, n), RKey: 5, RemoteAddr: 0x7000, Imm: 9})
			packets := max(1, (n+255)/256)
			for i := range packets {
				want := places[3]
				switch {
				case packets == 1:
				case i == 0:
					want = places[0]
				case i == packets-1:
					want = places[2]
				default:
					want = places[1]
				}
				p, ok := tq.plan()
				if !ok || p.Opcode != want || len(p.data) != min(256, n-256*i) || p.PSN != psnL(i) || p.AckReq != (i == packets-1) {
					t.Fatalf("work request %v of %d bytes, packet %d: %v, want %v", op, n, i, p, want)
				}
			}
			tq.wantQuiet()
		}
	}
}

// Every length of payload in every packet of a READ response.
func TestPayloadsOfResponses(t *testing.T) {
	for _, c := range []struct {
		row           string
		length, index int // of the READ; which packet of its response
		want          wire.Opcode
	}{
		{"5.1/op-0d", 700, 0, wire.RCReadRespFirst},
		{"5.1/op-0e", 700, 1, wire.RCReadRespMiddle},
		{"5.1/op-0f", 700, 2, wire.RCReadRespLast},
		{"5.1/op-0f", 768, 2, wire.RCReadRespLast},
		{"5.1/op-10", 200, 0, wire.RCReadRespOnly},
		{"5.1/op-10", 0, 0, wire.RCReadRespOnly},
	} {
		t.Run(fmt.Sprintf("%v of %d bytes", c.want, c.length), func(t *testing.T) {
			conform.Row(t, c.row, "5.8/req-response")
			packets := max(1, (c.length+255)/256)
			for n := range 260 {
				for _, o := range []wire.Opcode{wire.RCReadRespFirst, wire.RCReadRespMiddle, wire.RCReadRespLast, wire.RCReadRespOnly} {
					tq := newQP(t, nil)
					tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, c.length), RKey: 3})
					tq.plan()
					for i := range c.index {
						tq.accepts(readResponse(i, i, packets), seq(256))
					}
					h := readResponse(c.index, c.index, packets)
					h.Opcode = o
					if o == c.want && n == min(256, c.length-256*c.index) {
						tq.accepts(h, seq(n))
						tq.wantState(RTS)
						continue
					}
					tq.wantVerdict(wire.DropUnexpected, tq.gets(h, seq(n)))
					tq.wantWC(Completion{ID: 1, Status: BadRespErr, Opcode: WCRead, ByteLen: uint32(c.length)})
					tq.wantState(Err)
				}
			}
		})
	}
}

// Each RNR NAK timer code makes the requester wait so long, to the nanosecond.
func TestEveryRNRTimer(t *testing.T) {
	conform.Row(t, "5.2/rnr-*", "5.3/req-rnr", "bug/11")
	for code, hundredths := range []int{ // of a millisecond
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	} {
		tq := newQP(t, func(a *Attr) { a.Timeout = 1 }) // 8 µs: it would cut every wait short
		tq.send(SendWQE{ID: 1, Opcode: WRSend})
		tq.plan()
		tq.accepts(nak(0, wire.SyndromeRNR|wire.Syndrome(code), 0), nil)
		tq.sleep(time.Duration(hundredths)*10*time.Microsecond - 1)
		tq.wantQuiet()
		tq.sleep(1)
		tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, nil)
	}
}

// Each local ACK timeout runs out when it should, and means a retry.
func TestEveryTimeout(t *testing.T) {
	conform.Row(t, "5.4/timeout-*", "5.4/detection")
	for n := range uint8(32) {
		tq := newQP(t, func(a *Attr) { a.Timeout = n })
		tq.send(SendWQE{ID: 1, Opcode: WRSend})
		again := wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}
		tq.wantPacket(again, nil)
		if n == 0 {
			if tq.Deadline() != clock.Never {
				t.Errorf("timeout 0 ends at %v", tq.Deadline())
			}
			continue
		}
		timeout := 4096 * time.Nanosecond << n
		tq.sleep(timeout - 1)
		tq.wantQuiet()
		tq.sleep(1)
		tq.wantPacket(again, nil)
	}
}

// Duplicates are answered while a packet before them is missing.
func TestDuplicatesInAGap(t *testing.T) {
	conform.Row(t, "5.3/resp-ahead", "5.8/resp-psn")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 4), nil)
	answer := wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1}
	tq.wantPacket(answer, tq.mem[:4])
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendOnly, 2)), nil))
	tq.wantPacket(nakP(1, wire.NakSequence, 1), nil)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 0, 0, 4), nil))
	tq.wantPacket(answer, tq.mem[:4])
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendOnly, 3)), nil))
	tq.wantQuiet()
	tq.wantWC()
	tq.wantEvents()
	tq.wantState(RTS)
}

// A READ that is asked for again has its key looked up again.
func TestRepeatedReadOfMemoryThatIsGone(t *testing.T) {
	conform.Row(t, "5.3/resp-behind-read", "5.3/req-nak-read", "bug/17")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 300), nil)
	tq.plan()
	tq.plan()
	tq.keys.Deregister(tq.mr)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 1, 256, 44), nil))
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 1), nil)
	tq.wantEvents(EventQPAccessErr)
	tq.wantState(Err)
}

// Timeouts, sequence NAKs and implied NAKs all draw on one count of retries.
func TestRetriesOfAllKinds(t *testing.T) {
	conform.Row(t, "5.8/req-retries", "5.3/req-gap", "5.3/req-nak-sequence", "5.3/req-timeout", "5.3/req-implied")
	kinds := map[string]func(*testQP){
		"timeout":      func(tq *testQP) { tq.sleep(tq.req.ackDeadline.Sub(tq.now)) },
		"sequence NAK": func(tq *testQP) { tq.gets(nak(0, wire.NakSequence, 0), nil) },
		"implied NAK":  func(tq *testQP) { tq.gets(ack(3, 1), nil) },
		"gap":          func(tq *testQP) { tq.gets(readResponse(1, 1, 3), seq(256)) },
	}
	for x, first := range kinds {
		for y, then := range kinds {
			t.Run(x+", "+y, func(t *testing.T) {
				tq := newQP(t, nil) // three retries
				tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 700), RKey: 3})
				tq.send(SendWQE{ID: 2, Opcode: WRSend})
				again := func() { // as much as is missing
					p, ok := tq.plan()
					if p.Opcode != wire.RCReadRequest || p.PSN != psnL(0) {
						t.Fatalf("sent %v, want the READ again", p)
					}
					for ok {
						_, ok = tq.plan()
					}
				}
				again()
				// A NAK for the same packet counts once only until the timer has run out.
				for i, do := range []func(*testQP){first, kinds["timeout"], kinds["timeout"], then} {
					tq.wantState(RTS)
					if do(tq); i < 3 {
						again()
					}
				}
				if tq.State() == RTS { // it was the NAK of a retry under way
					kinds["timeout"](tq)
				}
				tq.wantWC(Completion{ID: 1, Status: RetryExcErr, Opcode: WCRead, ByteLen: 700}, Completion{ID: 2, Status: WRFlushErr})
				tq.wantState(Err)
			})
		}
	}
}

// A NAK and the timer, close to each other: one retry.
func TestOneRetryAtATime(t *testing.T) {
	conform.Row(t, "bug/15")
	for _, timerFirst := range []bool{false, true} {
		tq := newQP(t, nil)
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
		tq.plan()
		tq.plan()
		tq.sleep(ackTimeout(rtsAttr.Timeout) - 1)
		if timerFirst {
			tq.sleep(1)
			tq.wantVerdict(wire.DropDuplicate, tq.gets(nak(0, wire.NakSequence, 0), nil))
		} else {
			tq.accepts(nak(0, wire.NakSequence, 0), nil)
			tq.sleep(1)
		}
		tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0), AckReq: true}, tq.mem[:256])
		tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
		tq.wantQuiet()
		if want := rtsAttr.RetryCnt - 1; tq.req.retries != want {
			t.Errorf("timer first %v: %d retries left, want %d", timerFirst, tq.req.retries, want)
		}
		tq.accepts(ack(1, 1), nil)
		tq.wantWC(Completion{ID: 1})
	}
}

func TestMSNWraps(t *testing.T) {
	conform.Row(t, "5.2/msn", "5.2/msn-read")
	tq := newQP(t, nil)
	tq.resp.msn = 0xfffffd
	for i, want := range []ib.MSN{0xfffffe, 0xffffff, 0, 1} {
		tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, i, 0, 0)), nil)
		tq.wantPacket(ackP(i, want), nil)
	}
	// A READ counts once its request is there, before its response has gone.
	tq.accepts(tq.reth(wire.RCReadRequest, 4, 0, 300), nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(4), Syndrome: wire.SyndromeAck, MSN: 2}, tq.mem[:256])
}

// Of several things wrong with a request, the first of the order is said.
func TestOrderOfKeyChecks(t *testing.T) {
	conform.Row(t, "5.7/rkey-qp", "5.7/rkey-region", "5.7/rkey-range")
	past := func(_ *testQP, h *wire.Header) { h.VA = memBase + memSize }
	for name, c := range map[string]struct {
		access mem.Access // of the QP
		change func(*testQP, *wire.Header)
		want   wire.Syndrome
	}{
		"all wrong":     {0, func(tq *testQP, h *wire.Header) { badKey(tq, h); past(tq, h) }, wire.NakInvalidRequest},
		"QP alone":      {0, func(*testQP, *wire.Header) {}, wire.NakInvalidRequest},
		"key and range": {initAttr.Access, func(tq *testQP, h *wire.Header) { badKey(tq, h); past(tq, h) }, wire.NakRemoteAccess},
		"key alone":     {initAttr.Access, badKey, wire.NakRemoteAccess},
		"range alone":   {initAttr.Access, past, wire.NakRemoteAccess},
		"other PD": {initAttr.Access, func(tq *testQP, h *wire.Header) {
			var pd mem.PD
			mr, err := tq.keys.Register(&pd, mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize, tq.mr.Access)
			if err != nil {
				tq.t.Fatal(err)
			}
			h.RKey = mr.Key
		}, wire.NakRemoteAccess},
	} {
		for _, o := range []wire.Opcode{wire.RCWriteOnly, wire.RCReadRequest, wire.RCFetchAdd} {
			t.Run(fmt.Sprintf("%s, %v", name, o), func(t *testing.T) {
				tq := newQP(t, func(a *Attr) { a.Access = c.access })
				h := ackReq(tq.reth(o, 0, 64, 8))
				c.change(tq, &h)
				var data []byte
				if o == wire.RCWriteOnly {
					data = seq(8)
				}
				tq.wantVerdict(wire.DropRejected, tq.gets(h, data))
				tq.wantPacket(nakP(0, c.want, 0), nil)
			})
		}
	}
}

// A WRITE whose range ends beyond its region is refused before any of it lands.
func TestWriteLeavesItsRegionLater(t *testing.T) {
	conform.Row(t, "bug/39")
	tq := newQP(t, nil)
	before := slices.Clone(tq.mem)
	h := tq.reth(wire.RCWriteFirst, 0, memSize-512, 513)
	tq.wantVerdict(wire.DropRejected, tq.gets(h, seq(256)))
	tq.wantPacket(nakP(0, wire.NakRemoteAccess, 0), nil)
	tq.wantEvents(EventQPAccessErr)
	tq.wantMem(0, before)
	// And the requester that is told so, at whichever packet.
	for at := range 3 {
		tq := newQP(t, nil)
		tq.send(SendWQE{ID: 1, Opcode: WRWrite, SGEs: tq.local(0, 700), RKey: 3})
		for range 3 {
			tq.plan()
		}
		tq.accepts(nak(at, wire.NakRemoteAccess, 0), nil)
		tq.wantWC(Completion{ID: 1, Status: RemAccessErr, Opcode: WCWrite})
		tq.wantState(Err)
	}
}

// The solicited bit counts on the last packet of what takes a receive.
func TestSolicited(t *testing.T) {
	conform.Row(t, "5.1/se")
	for _, c := range []struct {
		op   wire.Opcode
		want bool
	}{{wire.RCSendOnly, true}, {wire.RCSendOnlyImm, true}, {wire.RCWriteOnlyImm, true}} {
		for _, se := range []bool{false, true} {
			tq := newQP(t, nil)
			tq.recv(1, 0, 8)
			h := tq.reth(c.op, 0, 64, 4)
			h.SE = se
			tq.accepts(h, seq(4))
			if len(tq.wcs) != 1 || tq.wcs[0].Solicited != (se && c.want) {
				t.Errorf("%v, SE %v: %+v", c.op, se, tq.wcs)
			}
		}
	}
	// Of a longer message it is the last packet's that counts.
	for _, last := range []bool{false, true} {
		tq := newQP(t, nil)
		tq.recv(1, 0, 300)
		first, end := req(wire.RCSendFirst, 0), req(wire.RCSendLast, 1)
		first.SE, end.SE = !last, last
		tq.accepts(first, seq(256))
		tq.accepts(end, seq(4))
		if len(tq.wcs) != 1 || tq.wcs[0].Solicited != last {
			t.Errorf("SE of the last packet %v: %+v", last, tq.wcs)
		}
	}
	for op, want := range map[WROpcode]bool{WRSend: true, WRSendImm: true, WRWrite: false, WRWriteImm: true} {
		tq := newQP(t, nil)
		tq.send(SendWQE{ID: 1, Opcode: op, Flags: Solicited, SGEs: tq.local(0, 300), RKey: 1})
		first, _ := tq.plan()
		last, _ := tq.plan()
		if first.SE || last.SE != want {
			t.Errorf("work request %v: SE %v and %v, want only the last's, %v", op, first.SE, last.SE, want)
		}
	}
}

// An ACK and, right behind it, the message that answers the request: the
// request completes first, also when both come in one burst.
func TestAckThenAnswer(t *testing.T) {
	conform.Row(t, "bug/65")
	for _, burst := range []bool{false, true} {
		tq := newQP(t, nil)
		tq.burst = burst
		tq.recv(2, 0, 4)
		tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled})
		tq.plan()
		tq.accepts(ack(0, 1), nil)
		tq.accepts(req(wire.RCSendOnly, 0), seq(4))
		tq.batch.Run()
		tq.wantWC(Completion{ID: 1}, Completion{ID: 2, Opcode: WCRecv, ByteLen: 4, SrcQP: peerQPN})
	}
}

func TestStatusNumbers(t *testing.T) {
	conform.Row(t, "5.8/status")
	for n, s := range []WCStatus{Success, LocLenErr, LocQPOpErr, LocEECOpErr, LocProtErr, WRFlushErr, MWBindErr, BadRespErr,
		LocAccessErr, RemInvReqErr, RemAccessErr, RemOpErr, RetryExcErr, RNRRetryExcErr, LocRDDViolErr, RemInvRDReqErr,
		RemAbortErr, InvEECNErr, InvEECStateErr, FatalErr, RespTimeoutErr, GeneralErr} {
		if int(s) != n {
			t.Errorf("%v is %d, want %d", s, uint8(s), n)
		}
	}
}
