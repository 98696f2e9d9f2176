package qp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// req is a request of the peer with PSN number n.
func req(o wire.Opcode, n int) wire.Header { return wire.Header{Opcode: o, PSN: psnP(n)} }

// ackReq asks for an acknowledgement.
func ackReq(h wire.Header) wire.Header { h.AckReq = true; return h }

// write is a request with a RETH.
func (tq *testQP) reth(o wire.Opcode, n, off, length int) wire.Header {
	h := req(o, n)
	h.VA, h.RKey, h.Length = memBase+uint64(off), tq.mr.Key, uint32(length)
	return h
}

func TestReceiveSend(t *testing.T) {
	conform.Row(t, "5.3/resp-expected", "5.3/resp-behind-send", "5.3/resp-coalesce", "5.11/1", "5.11/3", "5.11/9")
	tq := newQP(t, nil)
	tq.recv(1, 0, 1000)
	tq.recv(2, 1000, 0)
	data := seq(600)
	tq.accepts(req(wire.RCSendFirst, 0), data[:256])
	tq.accepts(req(wire.RCSendMiddle, 1), data[256:512])
	tq.wantQuiet()
	h := ackReq(req(wire.RCSendLastImm, 2))
	h.SE, h.Imm = true, 0xfeed
	tq.accepts(h, data[512:])
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 600, SrcQP: peerQPN, Flags: WCWithImm, Imm: 0xfeed, Solicited: true})
	tq.wantPacket(ackP(2, 1), nil)
	tq.wantMem(0, data)
	tq.accepts(ackReq(req(wire.RCSendOnly, 3)), nil)
	tq.wantWC(Completion{ID: 2, Opcode: WCRecv, SrcQP: peerQPN})
	tq.wantPacket(ackP(3, 2), nil)
	tq.wantQuiet()
	// A duplicate is acknowledged again, with the newest PSN, at its end or where it
	// asks, and does nothing else.
	tq.wantVerdict(wire.DropDuplicate, tq.gets(req(wire.RCSendFirst, 0), data[:256]))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(req(wire.RCSendMiddle, 1), data[256:512]))
	tq.wantQuiet()
	tq.wantVerdict(wire.DropDuplicate, tq.gets(h, data[512:]))
	tq.wantPacket(ackP(3, 2), nil)
	tq.wantQuiet()
	tq.wantWC()
}

func TestReceiveScatters(t *testing.T) {
	tq := newQP(t, nil)
	var list []SGE
	for i := range MaxSGE {
		list = append(list, tq.local(i*100, i*5%23)...)
	}
	w := RecvWQE{ID: 1, SGEs: list}
	data := seq(int(w.length()))
	tq.rq.recvs = append(tq.rq.recvs, &w)
	tq.accepts(req(wire.RCSendFirst, 0), data[:256])
	tq.accepts(req(wire.RCSendLast, 1), data[256:])
	for _, s := range list {
		tq.wantMem(int(s.Addr-memBase), data[:s.Length])
		data = data[s.Length:]
	}
}

func TestReceiveWrite(t *testing.T) {
	conform.Row(t, "5.11/22", "bug/31")
	tq := newQP(t, nil)
	data := seq(300)
	tq.accepts(tq.reth(wire.RCWriteFirst, 0, 100, 300), data[:256])
	tq.accepts(ackReq(req(wire.RCWriteLast, 1)), data[256:])
	tq.wantPacket(ackP(1, 1), nil)
	tq.wantMem(100, data)
	tq.wantWC()
	// WRITE with immediate consumes a receive; its length is the message's.
	tq.recv(1, 0, 4)
	tq.accepts(tq.reth(wire.RCWriteFirst, 2, 500, 300), data[:256])
	h := req(wire.RCWriteLastImm, 3)
	h.Imm = 7
	tq.accepts(h, data[256:])
	tq.wantWC(Completion{ID: 1, Opcode: WCRecvWriteImm, ByteLen: 300, SrcQP: peerQPN, Flags: WCWithImm, Imm: 7})
	tq.wantMem(500, data)
}

func TestZeroLengthIgnoresTheKey(t *testing.T) {
	conform.Row(t, "5.7/rkey-zero", "5.11/21", "bug/28")
	tq := newQP(t, nil)
	h := req(wire.RCWriteOnly, 0)
	h.RKey, h.VA = 0xdeadbeef, ^uint64(0)
	tq.accepts(ackReq(h), nil)
	tq.wantPacket(ackP(0, 1), nil)
	h = req(wire.RCReadRequest, 1)
	h.RKey, h.VA = 0xdeadbeef, ^uint64(0)
	tq.accepts(h, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 2}, nil)
}

func TestAnswerRead(t *testing.T) {
	conform.Row(t, "5.1/op-0c", "5.3/response", "5.3/resp-expected", "5.3/resp-order", "5.3/resp-behind-read",
		"5.2/msn-read", "5.11/5")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 10, 700), nil)
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 3, 2000, 4)), []byte("abcd"))
	for i, o := range []wire.Opcode{wire.RCReadRespFirst, wire.RCReadRespMiddle, wire.RCReadRespLast} {
		h := wire.Header{Opcode: o, PSN: psnP(i)}
		if o != wire.RCReadRespMiddle {
			h.Syndrome, h.MSN = wire.SyndromeAck, 1
		}
		tq.wantPacket(h, tq.mem[10+256*i:10+min(256*i+256, 700)])
	}
	tq.wantPacket(ackP(3, 2), nil) // in order: not before the response
	// A duplicate of the whole: answered again.
	again := tq.reth(wire.RCReadRequest, 0, 10, 700)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(again, nil))
	for i := range 3 {
		if p, _ := tq.plan(); p.PSN != psnP(i) || p.MSN != map[bool]ib.MSN{true: 0, false: 1}[i == 1] || string(p.data) != string(tq.mem[10+256*i:10+min(256*i+256, 700)]) {
			t.Fatalf("packet %d, again: %v", i, p)
		}
	}
	// A duplicate for a part of it: answered from there.
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 1, 10+256, 700-256), nil))
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[266:522])
	// Again before its end: back to what is asked for, not twice.
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 1, 10+256, 700-256), nil))
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[266:522])
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespLast, PSN: psnP(2), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[522:710])
	tq.wantQuiet()
	// Beyond the original, with another key or address: no answer.
	for _, h := range []wire.Header{
		tq.reth(wire.RCReadRequest, 1, 10+256, 701-256),
		tq.reth(wire.RCReadRequest, 1, 11+256, 600-256),
		tq.reth(wire.RCReadRequest, 1, 9+256, 600-256),
	} {
		tq.wantVerdict(wire.DropNoReplay, tq.gets(h, nil))
	}
	again.RKey++
	tq.wantVerdict(wire.DropNoReplay, tq.gets(again, nil))
	tq.wantQuiet()
}

func TestReadMemoryGone(t *testing.T) {
	conform.Row(t, "5.3/req-nak-read", "bug/17")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 700), nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[:256])
	tq.keys.Deregister(tq.mr)
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 1), nil)
	tq.wantState(Err)
	tq.wantEvents(EventQPAccessErr)
	tq.wantQuiet()
}

func TestAnswerAtomics(t *testing.T) {
	conform.Row(t, "5.1/op-13", "5.1/op-14", "5.3/resp-behind-atomic", "5.3/resp-behind-gone", "5.11/7", "bug/10")
	tq := newQP(t, nil)
	word := func() uint64 { return binary.NativeEndian.Uint64(tq.mem[64:]) }
	binary.NativeEndian.PutUint64(tq.mem[64:], 100)
	add := tq.reth(wire.RCFetchAdd, 0, 64, 0)
	add.Swap = 5
	tq.accepts(add, nil)
	response := wire.Header{Opcode: wire.RCAtomicAck, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1, Orig: 100}
	tq.wantPacket(response, nil)
	for range 100 { // the answer is lost, again and again
		tq.wantVerdict(wire.DropDuplicate, tq.gets(add, nil))
		tq.wantPacket(response, nil)
	}
	if word() != 105 {
		t.Fatalf("%d after 101 requests, want 105", word())
	}
	swap := tq.reth(wire.RCCompareSwap, 1, 64, 0)
	swap.Compare, swap.Swap = 104, 1
	tq.accepts(swap, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCAtomicAck, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 2, Orig: 105}, nil)
	swap = tq.reth(wire.RCCompareSwap, 2, 64, 0)
	swap.Compare, swap.Swap = 105, 1
	tq.accepts(swap, nil)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(swap, nil)) // its answer is still to be sent: once is enough
	tq.wantPacket(wire.Header{Opcode: wire.RCAtomicAck, PSN: psnP(2), Syndrome: wire.SyndromeAck, MSN: 3, Orig: 105}, nil)
	tq.wantQuiet()
	if word() != 1 {
		t.Fatalf("%d after the swap, want 1", word())
	}
	// Four results are kept; the fifth READ or atomic makes the first go.
	for i := range 3 {
		add := tq.reth(wire.RCFetchAdd, 3+i, 64, 0)
		tq.accepts(add, nil)
		tq.plan()
	}
	tq.wantVerdict(wire.DropNoReplay, tq.gets(add, nil))
	tq.wantVerdict(wire.DropNoReplay, tq.gets(tq.reth(wire.RCReadRequest, 5, 64, 8), nil)) // that was an atomic
}

func TestOutOfOrder(t *testing.T) {
	conform.Row(t, "5.3/resp-ahead", "5.8/resp-psn")
	tq := newQP(t, nil)
	for id := range uint64(4) {
		tq.recv(id, 0, 4)
	}
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendOnly, 1)), nil))
	tq.wantPacket(nakP(0, wire.NakSequence, 0), nil)
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendOnly, 2)), nil))
	tq.wantQuiet() // once
	tq.accepts(req(wire.RCSendOnly, 0), nil)
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendOnly, 2)), nil))
	tq.wantPacket(nakP(1, wire.NakSequence, 1), nil) // another gap
	// Half the space ahead is behind.
	tq.wantVerdict(wire.DropOutOfOrder, tq.gets(req(wire.RCSendOnly, ib.PSNWindow), nil))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(req(wire.RCSendOnly, ib.PSNWindow+1), nil))
}

func TestReceiverNotReady(t *testing.T) {
	conform.Row(t, "5.3/resp-rnr", "5.8/resp-rnr", "5.8/mlx5-state")
	tq := newQP(t, nil)
	rnr := nakP(0, wire.SyndromeRNR|12, 0)
	for range 3 {
		tq.wantVerdict(wire.DropRNR, tq.gets(req(wire.RCSendFirst, 0), make([]byte, 256)))
		tq.wantVerdict(wire.DropOutOfOrder, tq.gets(ackReq(req(wire.RCSendLast, 1)), []byte{1}))
		tq.wantPacket(rnr, nil)
		tq.wantQuiet() // the packet behind is not worth a NAK of its own
	}
	tq.recv(1, 0, 300)
	tq.accepts(req(wire.RCSendFirst, 0), make([]byte, 256))
	tq.accepts(ackReq(req(wire.RCSendLast, 1)), []byte{1})
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 257, SrcQP: peerQPN})
	tq.wantPacket(ackP(1, 1), nil)
	// WRITE with immediate: only its last packet needs a receive.
	tq.accepts(tq.reth(wire.RCWriteFirst, 2, 0, 257), make([]byte, 256))
	tq.wantVerdict(wire.DropRNR, tq.gets(req(wire.RCWriteLastImm, 3), []byte{9}))
	tq.wantPacket(nakP(3, wire.SyndromeRNR|12, 1), nil)
	tq.recv(2, 0, 0)
	tq.accepts(ackReq(req(wire.RCWriteLastImm, 3)), []byte{9})
	tq.wantPacket(ackP(3, 2), nil)
	tq.wantState(RTS)
}

// refusals is the responder's half of the table of errors: what is asked, the
// NAK, and the completion or event. setup has PSN 0 and 1 at its disposal.
var refusals = []struct {
	name  string
	tune  func(*Attr)
	setup func(*testQP)
	h     func(*testQP) wire.Header
	n     int
	nak   wire.Syndrome
	wc    WCStatus
	event Event
}{
	{name: "SEND longer than the receive", setup: recv4, h: only(wire.RCSendOnly), n: 5, nak: 0x61, wc: LocLenErr},
	{name: "SEND longer in its last packet", setup: sendFirst, h: at1(wire.RCSendLast), n: 256, nak: 0x61, wc: LocLenErr},
	{name: "receive with a bad lkey", setup: recvBadKey, h: only(wire.RCSendOnly), n: 5, nak: 0x63, wc: LocProtErr},
	{name: "WRITE with a bad rkey", h: reth(wire.RCWriteOnly, badKey), n: 4, nak: 0x62, event: EventQPAccessErr},
	{name: "WRITE beyond the region", h: reth(wire.RCWriteOnly, beyond), n: 4, nak: 0x62, event: EventQPAccessErr},
	{name: "WRITE that wraps around", h: reth(wire.RCWriteOnly, wraps), n: 4, nak: 0x62, event: EventQPAccessErr},
	{name: "WRITE without the QP's right", tune: noAccess, h: reth(wire.RCWriteOnly, nil), n: 4, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE without the region's right", setup: readOnly, h: reth(wire.RCWriteOnly, nil), n: 4, nak: 0x62, event: EventQPAccessErr},
	{name: "WRITE of 2 GiB and a byte", h: reth(wire.RCWriteFirst, tooLarge), n: 256, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE shorter than its RETH", h: reth(wire.RCWriteOnly, nil), n: 3, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE longer than its RETH", h: reth(wire.RCWriteOnly, nil), n: 5, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE first without a last", h: reth(wire.RCWriteFirst, nil), n: 256, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE ends too early", setup: writeFirst, h: at1(wire.RCWriteLast), n: 3, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE goes on too long", setup: writeFirst, h: at1(wire.RCWriteMiddle), n: 256, nak: 0x61, event: EventQPReqErr},
	{name: "WRITE with immediate and a bad rkey", setup: recv4, h: reth(wire.RCWriteOnlyImm, badKey), n: 4, nak: 0x62, event: EventQPAccessErr},
	{name: "READ with a bad rkey", h: reth(wire.RCReadRequest, badKey), nak: 0x62, event: EventQPAccessErr},
	{name: "READ beyond the region", h: reth(wire.RCReadRequest, beyond), nak: 0x62, event: EventQPAccessErr},
	{name: "READ without the QP's right", tune: noAccess, h: reth(wire.RCReadRequest, nil), nak: 0x61, event: EventQPReqErr},
	{name: "READ of 2 GiB and a byte", h: reth(wire.RCReadRequest, tooLarge), nak: 0x61, event: EventQPReqErr},
	{name: "READ that was not granted", tune: noReads, h: reth(wire.RCReadRequest, nil), nak: 0x61, event: EventQPReqErr},
	{name: "READ inside a WRITE", setup: writeFirst, h: reth(wire.RCReadRequest, psn1), nak: 0x61, event: EventQPReqErr},
	{name: "atomic with a bad rkey", h: reth(wire.RCFetchAdd, badKey), nak: 0x62, event: EventQPAccessErr},
	{name: "atomic misaligned", h: reth(wire.RCFetchAdd, odd), nak: 0x61, event: EventQPReqErr},
	{name: "atomic at an odd address", h: reth(wire.RCCompareSwap, oneOff), nak: 0x61, event: EventQPReqErr},
	{name: "atomic without the QP's right", tune: noAccess, h: reth(wire.RCCompareSwap, nil), nak: 0x61, event: EventQPReqErr},
	{name: "atomic without the region's right", setup: readOnly, h: reth(wire.RCCompareSwap, nil), nak: 0x62, event: EventQPAccessErr},
	{name: "atomic that was not granted", tune: noReads, h: reth(wire.RCFetchAdd, nil), nak: 0x61, event: EventQPReqErr},
	{name: "middle without a first", h: only(wire.RCSendMiddle), n: 256, nak: 0x61, event: EventQPReqErr},
	{name: "last without a first", h: only(wire.RCSendLast), n: 4, nak: 0x61, event: EventQPReqErr},
	{name: "first after a first", setup: sendFirst, h: at1(wire.RCSendFirst), n: 256, nak: 0x61, wc: RemInvReqErr},
	{name: "only after a first", setup: sendFirst, h: at1(wire.RCSendOnly), n: 4, nak: 0x61, wc: RemInvReqErr},
	{name: "WRITE last after a SEND first", setup: sendFirst, h: at1(wire.RCWriteLast), n: 4, nak: 0x61, wc: RemInvReqErr},
	{name: "first shorter than the MTU", setup: recv4, h: only(wire.RCSendFirst), n: 252, nak: 0x61, event: EventQPReqErr},
	{name: "only longer than the MTU", setup: recv4, h: only(wire.RCSendOnly), n: 257, nak: 0x61, event: EventQPReqErr},
	{name: "empty last", setup: sendFirst, h: at1(wire.RCSendLast), nak: 0x61, wc: RemInvReqErr},
	{name: "reserved opcode 0x15", h: only(0x15), n: 4, nak: 0x61, event: EventQPReqErr},
	{name: "reserved opcode 0x18", h: only(0x18), nak: 0x61, event: EventQPReqErr},
	{name: "reserved opcode 0x1f", h: only(0x1f), n: 256, nak: 0x61, event: EventQPReqErr},
}

func only(o wire.Opcode) func(*testQP) wire.Header {
	return func(*testQP) wire.Header { return ackReq(req(o, 0)) }
}

func at1(o wire.Opcode) func(*testQP) wire.Header {
	return func(*testQP) wire.Header { return ackReq(req(o, 1)) }
}

func reth(o wire.Opcode, change func(*testQP, *wire.Header)) func(*testQP) wire.Header {
	return func(tq *testQP) wire.Header {
		h := ackReq(tq.reth(o, 0, 64, 4))
		if change != nil {
			change(tq, &h)
		}
		return h
	}
}

func badKey(_ *testQP, h *wire.Header)   { h.RKey ^= 0x5a }
func beyond(_ *testQP, h *wire.Header)   { h.VA = memBase + memSize - 2 }
func wraps(_ *testQP, h *wire.Header)    { h.VA = ^uint64(0) - 1 }
func tooLarge(_ *testQP, h *wire.Header) { h.Length = 1<<31 + 1 }
func odd(_ *testQP, h *wire.Header)      { h.VA += 4 }
func oneOff(_ *testQP, h *wire.Header)   { h.VA++ }
func psn1(_ *testQP, h *wire.Header)     { h.PSN = psnP(1) }
func recv4(tq *testQP)                   { tq.recv(1, 0, 4) }
func noAccess(a *Attr)                   { a.Access = 0 }
func noReads(a *Attr)                    { a.MaxDestRdAtomic = 0 }

func recvBadKey(tq *testQP) {
	tq.rq.recvs = append(tq.rq.recvs, &RecvWQE{ID: 1, SGEs: []SGE{{Addr: memBase, Length: 8, LKey: tq.mr.Key ^ 1}}})
}

func sendFirst(tq *testQP) {
	tq.recv(1, 0, 500)
	tq.accepts(req(wire.RCSendFirst, 0), make([]byte, 256))
}

func writeFirst(tq *testQP) {
	tq.accepts(tq.reth(wire.RCWriteFirst, 0, 0, 300), make([]byte, 256))
}

func readOnly(tq *testQP) {
	tq.keys.Deregister(tq.mr)
	var err error
	tq.mr, err = tq.keys.Register(&tq.pd, mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize, mem.RemoteRead)
	if err != nil {
		tq.t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	conform.Row(t, "5.8/resp-long", "5.8/resp-lkey", "5.8/resp-access", "5.8/resp-flags", "5.8/resp-reserved",
		"5.8/resp-order", "5.8/resp-length", "5.8/resp-misaligned", "5.8/mlx5-state", "5.11/8", "bug/7", "bug/22")
	for _, burst := range []bool{false, true} {
		for _, c := range refusals {
			t.Run(fmt.Sprintf("%s/burst=%v", c.name, burst), func(t *testing.T) {
				tq := newQP(t, c.tune)
				if c.setup != nil {
					c.setup(tq)
				}
				tq.recv(8, 0, 300) // one that is flushed
				tq.send(SendWQE{ID: 9, Opcode: WRSend})
				tq.burst = burst
				h := c.h(tq)
				tq.wantVerdict(wire.DropRejected, tq.gets(h, make([]byte, c.n)))
				tq.wantVerdict(wire.DropQPState, tq.gets(req(wire.RCSendOnly, 7), nil)) // in the same burst
				tq.batch.Run()
				tq.wantState(Err)
				tq.checkRefusal(c.wc, c.event)
				tq.wantPacket(nakP(h.PSN.Sub(peerPSN), c.nak, 0), nil)
				tq.wantQuiet()
				tq.wantVerdict(wire.DropQPState, tq.gets(h, make([]byte, c.n)))
			})
		}
	}
}

// checkRefusal checks how an error of the responder ended its work requests.
func (tq *testQP) checkRefusal(status WCStatus, event Event) {
	tq.t.Helper()
	if event != 0 {
		tq.wantEvents(event)
	} else {
		tq.wantEvents()
	}
	var got []WCStatus
	for _, c := range tq.wcs {
		if c.ID != 9 {
			got = append(got, c.Status)
		}
	}
	if status != 0 && (len(got) == 0 || got[0] != status) {
		tq.t.Fatalf("receives completed with %v, want %v first", got, status)
	}
	if len(tq.wcs) != len(tq.rq.recvs)+len(tq.sq.sends) {
		tq.t.Fatalf("%d completions for %d work requests", len(tq.wcs), len(tq.rq.recvs)+len(tq.sq.sends))
	}
	for i, s := range got {
		if (i > 0 || status == 0) && s != WRFlushErr {
			tq.t.Fatalf("receive %d: %v, want a flush", i, s)
		}
	}
}

// Responses to what came before a bad request are still sent, then its NAK.
func TestRefusalKeepsOrder(t *testing.T) {
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 300), nil)
	h := tq.reth(wire.RCWriteOnly, 2, 0, 4)
	h.RKey++
	tq.wantVerdict(wire.DropRejected, tq.gets(h, make([]byte, 4)))
	tq.wantState(Err)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespLast, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[256:300])
	tq.wantPacket(nakP(2, wire.NakRemoteAccess, 1), nil)
	tq.wantQuiet()
}

// A burst whose second write fails: the first is acknowledged by the NAK, the
// third must not be.
func TestFaultInBurst(t *testing.T) {
	tq := newQP(t, nil)
	other, err := tq.keys.Register(&tq.pd, mem.NewBytes(make([]byte, 64), 0), 0, 0, 64, mem.LocalWrite|mem.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	tq.burst = true
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 0, 0, 4)), []byte("1111"))
	bad := ackReq(tq.reth(wire.RCWriteOnly, 1, 0, 4))
	bad.VA, bad.RKey = 0, other.Key
	tq.accepts(bad, []byte("2222"))
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 2, 4, 4)), []byte("3333"))
	before := string(tq.mem[4:8])
	tq.keys.Deregister(other) // between the check and the copy
	tq.batch.Run()
	tq.wantState(Err)
	tq.wantMem(0, []byte("1111"))
	tq.wantMem(4, []byte(before))
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 1), nil)
	tq.wantEvents(EventQPAccessErr)
	tq.wantQuiet()
}

func TestTooManyReads(t *testing.T) {
	conform.Row(t, "5.8/resp-many")
	tq := newQP(t, nil)
	for i := range 4 {
		tq.accepts(tq.reth(wire.RCReadRequest, i, 0, 4), nil)
	}
	tq.wantVerdict(wire.DropRejected, tq.gets(tq.reth(wire.RCReadRequest, 4, 0, 4), nil))
	for i := range 4 {
		p, _ := tq.plan()
		if p.Opcode != wire.RCReadRespOnly || p.PSN != psnP(i) {
			t.Fatalf("response %d: %v", i, p)
		}
	}
	tq.wantPacket(nakP(4, wire.NakInvalidRequest, 4), nil)
	tq.wantEvents(EventQPReqErr)
	tq.wantState(Err)
}

// Duplicates beyond what there is room to answer are dropped, and take no room
// from new requests.
func TestReplayResources(t *testing.T) {
	tq := newQP(t, nil)
	for i := range 4 {
		tq.accepts(tq.reth(wire.RCReadRequest, i*2, 0, 512), nil)
		tq.plan()
		tq.plan()
	}
	for i := range 4 { // shorter than the first time: another answer each time
		tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, i*2, 0, 256-i), nil))
	}
	tq.wantVerdict(wire.DropResources, tq.gets(tq.reth(wire.RCReadRequest, 0, 0, 512), nil))
	for i := range 4 {
		tq.accepts(tq.reth(wire.RCReadRequest, 8+i, 0, 4), nil)
	}
	var got []ib.PSN
	for p, ok := tq.plan(); ok; p, ok = tq.plan() {
		got = append(got, p.PSN)
	}
	want := []ib.PSN{psnP(0), psnP(2), psnP(4), psnP(6), psnP(8), psnP(9), psnP(10), psnP(11)}
	if !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

// A repetition that overtakes the first answer ends it: the peer has the READ then, and
// may make another.
func TestReplayOvertakes(t *testing.T) {
	conform.Row(t, "5.3/resp-behind-read")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 700), nil)
	for i := range 3 {
		tq.accepts(tq.reth(wire.RCReadRequest, 3+i, 0, 4), nil)
	}
	tq.plan() // of three
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 0, 0, 256), nil))
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCReadRequest, 0, 0, 700), nil))
	for _, want := range []int{0, 0, 1, 2} {
		if p, _ := tq.plan(); p.PSN != psnP(want) {
			t.Fatalf("an answer of PSN %v, want %v", p.PSN, psnP(want))
		}
	}
	tq.accepts(tq.reth(wire.RCReadRequest, 6, 0, 4), nil)
	for i := range 4 {
		if p, _ := tq.plan(); p.PSN != psnP(3+i) {
			t.Fatalf("an answer of PSN %v, want %v", p.PSN, psnP(3+i))
		}
	}
	tq.wantQuiet()
}

// Fewer READs granted while some are owed: nothing owed is lost.
func TestShrinkResources(t *testing.T) {
	conform.Row(t, "bug/27")
	tq := newQP(t, nil)
	for i := range 4 {
		tq.accepts(tq.reth(wire.RCReadRequest, i, 0, 4), nil)
	}
	if err := tq.Modify(&Attr{State: SQD}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	if err := tq.Modify(&Attr{MaxDestRdAtomic: 1}, AttrMaxDestRdAtomic, tq.now); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		p, _ := tq.plan()
		if p.PSN != psnP(i) {
			t.Fatalf("answer %d has PSN %v", i, p.PSN)
		}
	}
	tq.accepts(tq.reth(wire.RCReadRequest, 4, 0, 4), nil)
	tq.wantVerdict(wire.DropRejected, tq.gets(tq.reth(wire.RCReadRequest, 5, 0, 4), nil))
}

func TestCommEst(t *testing.T) {
	tq := newReset(t)
	for _, a := range []Attr{initAttr, rtrAttr} {
		if err := tq.Modify(&a, modifyMask(a.State), tq.now); err != nil {
			t.Fatal(err)
		}
	}
	tq.SetPath(testPath)
	tq.recv(1, 0, 4)
	tq.accepts(ackReq(req(wire.RCSendOnly, 0)), nil)
	tq.accepts(tq.reth(wire.RCWriteOnly, 1, 0, 0), nil)
	tq.wantEvents(EventCommEst)
	tq.wantPacket(ackP(1, 2), nil) // RTR answers
}

func TestBothSidesTakeTurns(t *testing.T) {
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 1024), nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 1024)})
	var requests, responses int
	for range 6 {
		p, _ := tq.plan()
		if p.Opcode.Info().Request {
			requests++
		} else {
			responses++
		}
	}
	if requests != 3 || responses != 3 {
		t.Errorf("%d requests and %d responses in the first 6 packets", requests, responses)
	}
}

func TestOnlyAcks(t *testing.T) {
	tq := newQP(t, nil)
	if tq.OnlyAcks(tq.now) {
		t.Error("an idle QP owes acknowledgements")
	}
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 0, 0, 0)), nil)
	if !tq.OnlyAcks(tq.now) {
		t.Error("an acknowledgement is owed")
	}
	tq.send(SendWQE{ID: 1, Opcode: WRSend})
	if tq.OnlyAcks(tq.now) {
		t.Error("there is a request to send, too")
	}
}
