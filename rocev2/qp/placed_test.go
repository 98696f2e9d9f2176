package qp

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// placedP is the answer to an ATOMIC WRITE or FLUSH.
func placedP(n int, msn int) wire.Header {
	return wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(n), Syndrome: wire.SyndromeAck, MSN: ib.MSN(msn)}
}

func flushable(a *Attr) { a.Access |= mem.FlushGlobal | mem.FlushPersistent }

// flushOf is a FLUSH of n bytes of mr.
func flushOf(n int, f Flush, mr *mem.MR, off, length int) wire.Header {
	h := to(wire.RCFlush, n, mr.Key, mr.IOVA+uint64(off), length)
	h.Flush = uint32(f)
	return h
}

func TestAtomicWriteArrives(t *testing.T) {
	conform.Row(t, "5.1/op-1d", "5.1/op-10", "5.8/atomic-write")
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCAtomicWrite, 0, 16, 8), []byte("12345678"))
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 1, 32, 4)), []byte("abcd"))
	tq.wantMem(16, []byte("12345678"))
	tq.wantPacket(placedP(0, 1), nil)
	tq.wantPacket(ackP(1, 2), nil)
	// A repetition is answered, and writes nothing.
	tq.accepts(tq.reth(wire.RCAtomicWrite, 2, 16, 8), []byte("87654321"))
	tq.wantPacket(placedP(2, 3), nil)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(tq.reth(wire.RCAtomicWrite, 0, 16, 8), []byte("12345678")))
	tq.wantPacket(placedP(0, 1), nil)
	tq.wantMem(16, []byte("87654321"))
	// One that is no repetition isn't answered.
	for _, h := range []wire.Header{
		tq.reth(wire.RCAtomicWrite, 0, 24, 8), tq.reth(wire.RCFlush, 0, 16, 8), tq.reth(wire.RCAtomicWrite, 1, 16, 8),
	} {
		tq.wantVerdict(wire.DropNoReplay, tq.gets(h, nil))
	}
	tq.wantQuiet()
}

func TestPlacedRequestsAreRefused(t *testing.T) {
	conform.Row(t, "5.8/atomic-write", "5.8/flush-rights", "5.8/resp-flags", "5.8/resp-misaligned", "5.8/resp-many", "bug/28")
	without := func(acc mem.Access) func(*Attr) {
		return func(a *Attr) { flushable(a); a.Access &^= acc }
	}
	word := seq(8)
	for _, c := range []struct {
		name string
		tune func(*Attr)
		h    func(tq *testQP, mr *mem.MR) wire.Header
		data []byte
		nak  wire.Syndrome
	}{
		{"atomic write, QP without the right", without(mem.RemoteWrite), func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 8) }, word, 0x61},
		{"atomic write, misaligned", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 4, 8) }, word, 0x61},
		{"atomic write, 4 bytes", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 4) }, word[:4], 0x61},
		{"atomic write, 16 bytes", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 16) }, seq(16), 0x61},
		{"atomic write, RETH length 5000", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 5000) }, word, 0x61},
		{"atomic write, nothing", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 0) }, nil, 0x61},
		{"atomic write, no depth", func(a *Attr) { a.MaxDestRdAtomic = 0 }, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 0, 8) }, word, 0x61},
		{"atomic write, bad key", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key^1, 0, 8) }, word, 0x62},
		{"atomic write, out of range", nil, func(tq *testQP, mr *mem.MR) wire.Header { return to(wire.RCAtomicWrite, 0, mr.Key, 64, 8) }, word, 0x62},
		{"atomic write, read-only region", nil, func(tq *testQP, mr *mem.MR) wire.Header {
			return to(wire.RCAtomicWrite, 0, tq.another(64, mem.RemoteRead).Key, 0, 8)
		}, word, 0x62},
		{"flush, QP without the right", without(mem.FlushGlobal), func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal, mr, 0, 8) }, nil, 0x61},
		{"flush, QP without the right to persistence", without(mem.FlushPersistent), func(tq *testQP, mr *mem.MR) wire.Header {
			return flushOf(0, FlushGlobal|FlushPersistent, mr, 0, 8)
		}, nil, 0x61},
		{"flush to nowhere", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, 0, mr, 0, 8) }, nil, 0x61},
		{"flush, reserved type", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal|4, mr, 0, 8) }, nil, 0x61},
		{"flush, reserved selector", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal|0x20, mr, 0, 8) }, nil, 0x61},
		{"flush, no depth", func(a *Attr) { flushable(a); a.MaxDestRdAtomic = 0 }, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal, mr, 0, 8) }, nil, 0x61},
		{"flush of memory that doesn't persist", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushPersistent, mr, 0, 8) }, nil, 0x62},
		{"flush, out of range", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal, mr, 60, 8) }, nil, 0x62},
		{"flush, region without the right", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal|FlushRegion, tq.mr, 0, 8) }, nil, 0x62},
		{"flush of no bytes, bad key", nil, func(tq *testQP, mr *mem.MR) wire.Header {
			h := flushOf(0, FlushGlobal, mr, 0, 0)
			h.RKey ^= 1
			return h
		}, nil, 0x62},
		{"flush of no bytes, out of range", nil, func(tq *testQP, mr *mem.MR) wire.Header { return flushOf(0, FlushGlobal, mr, 65, 0) }, nil, 0x62},
		{"flush of a region, bad key", nil, func(tq *testQP, mr *mem.MR) wire.Header {
			h := flushOf(0, FlushGlobal|FlushRegion, mr, 0, 0)
			h.RKey ^= 0x100
			return h
		}, nil, 0x62},
	} {
		t.Run(c.name, func(t *testing.T) {
			tune := c.tune
			if tune == nil {
				tune = flushable
			}
			tq := newQP(t, tune)
			mr := tq.another(64, mem.LocalWrite|mem.RemoteWrite|mem.FlushGlobal)
			tq.wantVerdict(wire.DropRejected, tq.gets(c.h(tq, mr), c.data))
			tq.wantPacket(nakP(0, c.nak, 0), nil)
			event := EventQPReqErr
			if c.nak == wire.NakRemoteAccess {
				event = EventQPAccessErr
			}
			tq.wantEvents(event)
			if string(mr.Bytes()) != string(make([]byte, 64)) {
				t.Error("memory has changed")
			}
		})
	}
}

func TestFlushArrives(t *testing.T) {
	conform.Row(t, "5.1/op-1c", "5.1/op-10", "5.8/flush-order")
	tq := newQP(t, flushable)
	mr := tq.another(64, mem.LocalWrite|mem.RemoteWrite|mem.FlushGlobal)
	tq.burst = true
	tq.accepts(to(wire.RCWriteOnly, 0, mr.Key, 0, 4), []byte("abcd"))
	tq.accepts(flushOf(1, FlushGlobal, mr, 0, 4), nil)
	tq.wantQuiet() // not before the bytes have moved
	tq.batch.Run()
	tq.wantPacket(placedP(1, 2), nil)
	if string(mr.Bytes()[:4]) != "abcd" {
		t.Error("answered before the WRITE")
	}
	tq.burst = false
	tq.accepts(flushOf(2, FlushGlobal, mr, 64, 0), nil) // no bytes, at the end of the region
	tq.wantPacket(placedP(2, 3), nil)
	all := flushOf(3, FlushGlobal|FlushRegion, mr, 0, 0)
	all.VA, all.Length = 0xdeadbeef, 7 // no one looks at them, nor at reserved bits
	all.Flush |= 0xffffffc0
	tq.accepts(all, nil)
	tq.wantPacket(placedP(3, 4), nil)
	tq.wantVerdict(wire.DropDuplicate, tq.gets(all, nil))
	tq.wantPacket(placedP(3, 4), nil)
}

// Memory that goes away before the flush has run is not flushed.
func TestFlushOfMemoryThatWentAway(t *testing.T) {
	tq := newQP(t, flushable)
	mr := tq.another(64, mem.LocalWrite|mem.FlushGlobal)
	tq.burst = true
	tq.accepts(flushOf(0, FlushGlobal, mr, 0, 4), nil)
	tq.keys.Deregister(mr)
	tq.batch.Run()
	tq.wantPacket(nakP(0, wire.NakRemoteAccess, 0), nil)
}

func TestPlacedRequestPackets(t *testing.T) {
	conform.Row(t, "5.1/op-1c", "5.1/op-1d")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRAtomicWrite, Flags: Signaled, SGEs: tq.local(8, 8), RemoteAddr: 0x7000, RKey: 5})
	tq.send(SendWQE{ID: 2, Opcode: WRAtomicWrite, Flags: Signaled | Inline, Inline: []byte("12345678"), RemoteAddr: 0x7008, RKey: 5})
	tq.send(SendWQE{ID: 3, Opcode: WRFlush, Flags: Signaled, RemoteAddr: 0x7000, RKey: 5, Length: 4000, Flush: FlushGlobal | FlushRegion})
	tq.send(SendWQE{ID: 4, Opcode: WRSend, Flags: Signaled})
	write := func(n int, va uint64) wire.Header {
		return wire.Header{Opcode: wire.RCAtomicWrite, PSN: psnL(n), AckReq: true, VA: va, RKey: 5, Length: 8}
	}
	flush := wire.Header{Opcode: wire.RCFlush, PSN: psnL(2), AckReq: true, VA: 0x7000, RKey: 5, Length: 4000, Flush: 0x11}
	tq.wantPacket(write(0, 0x7000), tq.mem[8:16])
	tq.wantPacket(write(1, 0x7008), []byte("12345678"))
	tq.wantPacket(flush, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(3), AckReq: true}, nil)
	done := func(n, msn int) wire.Header {
		return wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnL(n), Syndrome: wire.SyndromeAck, MSN: ib.MSN(msn)}
	}
	tq.accepts(done(0, 1), nil)
	tq.wantWC(Completion{ID: 1, Opcode: WCAtomicWrite})
	// An ACK of what follows is none of these: the answer was lost.
	tq.accepts(ack(3, 4), nil)
	tq.wantWC()
	tq.wantPacket(write(1, 0x7008), []byte("12345678"))
	tq.wantPacket(flush, nil)
	tq.wantQuiet()
	tq.accepts(done(1, 2), nil)
	tq.accepts(done(2, 3), nil)
	tq.wantWC(Completion{ID: 2, Opcode: WCAtomicWrite}, Completion{ID: 3, Opcode: WCFlush}, Completion{ID: 4})
	if tq.req.rdAtomics != 0 || tq.req.flight != 0 {
		t.Errorf("%d outstanding, %d in flight", tq.req.rdAtomics, tq.req.flight)
	}
}

// A response that doesn't fit, and work requests that can't be.
func TestPlacedRequestsFail(t *testing.T) {
	conform.Row(t, "5.8/req-response", "5.8/req-length", "5.8/req-operation")
	for _, o := range []wire.Opcode{wire.RCReadRespFirst, wire.RCAtomicAck, wire.RCReadRespOnly} {
		tq := newQP(t, nil)
		tq.send(SendWQE{ID: 1, Opcode: WRFlush, Flush: FlushGlobal})
		if _, ok := tq.plan(); !ok {
			t.Fatal("nothing sent")
		}
		n := map[wire.Opcode]int{wire.RCReadRespFirst: 256, wire.RCReadRespOnly: 4}[o]
		tq.wantVerdict(wire.DropUnexpected, tq.gets(wire.Header{Opcode: o, PSN: psnL(0), Syndrome: wire.SyndromeAck}, seq(n)))
		tq.wantWC(Completion{ID: 1, Status: BadRespErr, Opcode: WCFlush})
	}
	for i, x := range []struct {
		w    SendWQE
		tune func(*Attr)
		want WCStatus
	}{
		{SendWQE{Opcode: WRAtomicWrite, Flags: Inline, Inline: seq(4)}, nil, LocLenErr},
		{SendWQE{Opcode: WRAtomicWrite}, nil, LocLenErr},
		{SendWQE{Opcode: WRFlush, Flags: Inline, Inline: seq(4)}, nil, LocLenErr},
		{SendWQE{Opcode: WRFlush}, func(a *Attr) { a.MaxRdAtomic = 0 }, LocQPOpErr},
		{SendWQE{Opcode: WROpcode(10)}, nil, LocQPOpErr},
		{SendWQE{Opcode: WROpcode(200)}, nil, LocQPOpErr},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tq := newQP(t, x.tune)
			tq.send(x.w)
			tq.wantQuiet()
			tq.wantWC(Completion{Status: x.want, Opcode: x.w.Opcode.operation().completion})
		})
	}
}

// Two in flight where the peer has room for one: they go one by one.
func TestPlacedRequestsCountAsReads(t *testing.T) {
	tq := newQP(t, func(a *Attr) { a.MaxRdAtomic = 1 })
	for i := range 2 {
		tq.send(SendWQE{ID: uint64(i), Opcode: WRFlush, Flush: FlushGlobal})
	}
	flush := func(n int) wire.Header {
		return wire.Header{Opcode: wire.RCFlush, PSN: psnL(n), AckReq: true, Flush: 1}
	}
	tq.wantPacket(flush(0), nil)
	tq.wantQuiet()
	tq.sleep(time.Second)
	tq.wantPacket(flush(0), nil)
	tq.accepts(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnL(0), Syndrome: wire.SyndromeAck, MSN: 1}, nil)
	tq.wantPacket(flush(1), nil)
}

// The 8 bytes come in two pieces of a frame.
func TestAtomicWriteAcrossAFramesCut(t *testing.T) {
	tq := newQP(t, nil)
	data := binary.NativeEndian.AppendUint64(nil, 0x1122334455667788)
	p := wire.Packet{Header: tq.reth(wire.RCAtomicWrite, 0, 0, 8), Payload: [2][]byte{data[:3], data[3:]}, Len: 8}
	tq.wantVerdict(wire.Accepted, tq.Handle(&p, tq.now, tq.batch))
	tq.batch.Run()
	tq.wantMem(0, data)
}
