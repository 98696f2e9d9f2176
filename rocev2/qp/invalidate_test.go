package qp

import (
	"os"
	"testing"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// inv is a SEND with invalidate.
func inv(o wire.Opcode, n int, key uint32) wire.Header {
	h := ackReq(req(o, n))
	h.InvKey = key
	return h
}

// bound returns the key of a window of n bytes that the QP has bound, and its memory.
func (tq *testQP) bound(w *mem.MW, n int, b uint8) uint32 {
	tq.t.Helper()
	wr := bindWR(0, w, tq.bindable(n), 0, n, b)
	if err := tq.keys.Bind(&wr.Local.Bind, &tq.pd, tq.QP); err != nil {
		tq.t.Fatal(err)
	}
	return w.Key()
}

func TestSendWithInvalidateArrives(t *testing.T) {
	conform.Row(t, "5.1/op-16", "5.1/op-17", "5.11/23")
	for _, o := range []wire.Opcode{wire.RCSendOnlyInv, wire.RCSendLastInv} {
		tq := newQP(t, nil)
		key := tq.bound(tq.window(mem.MWType2), 64, 5)
		tq.recv(1, 0, 600)
		tq.recv(2, 0, 600)
		tq.accepts(to(wire.RCWriteOnly, 0, key, 0, 64), seq(64))
		n, length := 1, 8
		if o == wire.RCSendLastInv {
			tq.accepts(req(wire.RCSendFirst, 1), seq(256))
			n, length = 2, 264
		}
		last := inv(o, n, key)
		last.SE = true
		tq.accepts(last, seq(8))
		tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: uint32(length), SrcQP: peerQPN, Flags: WCWithInv, Imm: key, Solicited: true})
		tq.wantPacket(ackP(n, 2), nil)
		tq.wantVerdict(wire.DropRejected, tq.gets(to(wire.RCReadRequest, n+1, key, 0, 64), nil))
		tq.wantPacket(nakP(n+1, wire.NakRemoteAccess, 2), nil)
		tq.wantEvents(EventQPAccessErr)
	}
}

// What comes behind an invalidation, in the same burst, is checked against what is
// left of the key, although the worker collects ops on another process's memory.
func TestInvalidateSettlesTheBatch(t *testing.T) {
	tq := newQP(t, nil)
	tq.burst = true
	key := tq.bound(tq.window(mem.MWType2), 64, 5)
	self, err := mem.NewProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	buf := make([]byte, 8)
	far, err := tq.keys.Register(&tq.pd, self, mem.Address(buf), 0, uint64(len(buf)), mem.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	tq.recv(1, 0, 8)
	op := tq.batch.Add()
	op.Kind, op.MR, op.Frag[0] = mem.Scatter, far, seq(8)
	if tq.batch.Immediate() {
		t.Fatal("ops on another process's memory aren't collected")
	}
	tq.accepts(inv(wire.RCSendOnlyInv, 0, key), seq(8))
	if !tq.batch.Immediate() {
		t.Fatal("the batch isn't run before the next packet")
	}
	tq.batch.Run()
	tq.gets(to(wire.RCWriteOnly, 1, key, 0, 64), seq(64))
	tq.batch.Run()
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 1), nil)
}

// A repetition invalidates nothing: the key may have been given anew.
func TestRepeatedInvalidateDoesNothing(t *testing.T) {
	tq := newQP(t, nil)
	w := tq.window(mem.MWType2)
	key := tq.bound(w, 64, 5)
	tq.recv(1, 0, 8)
	tq.accepts(inv(wire.RCSendOnlyInv, 0, key), seq(8))
	if again := tq.bound(w, 64, 5); again != key {
		t.Fatalf("key %#x, want %#x", again, key)
	}
	tq.wantVerdict(wire.DropDuplicate, tq.gets(inv(wire.RCSendOnlyInv, 0, key), seq(8)))
	tq.accepts(to(wire.RCWriteOnly, 1, key, 0, 64), seq(64))
}

// Repetitions of a READ whose key its own sender has invalidated are dropped:
// they are the network's.
func TestRepeatedReadByAnInvalidatedKey(t *testing.T) {
	conform.Row(t, "5.3/resp-behind-gone")
	tq := newQP(t, nil)
	key := tq.bound(tq.window(mem.MWType2), 600, 5)
	tq.recv(1, 0, 8)
	read := to(wire.RCReadRequest, 0, key, 0, 600)
	tq.accepts(read, nil)
	for range 3 {
		tq.plan()
	}
	tq.wantVerdict(wire.DropDuplicate, tq.gets(read, nil)) // asked for again, and not needed after all
	tq.accepts(inv(wire.RCSendOnlyInv, 3, key), seq(8))
	tq.wantPacket(ackP(3, 2), nil)
	tq.wantVerdict(wire.DropNoReplay, tq.gets(read, nil))
	tq.wantQuiet()
	tq.wantState(RTS)
}

// What can't be invalidated ends the QP, without a NAK; what came before is
// acknowledged.
func TestBadInvalidate(t *testing.T) {
	conform.Row(t, "5.8/resp-invalidate", "5.8/mw-type1", "5.8/mw-type2")
	for name, key := range map[string]func(*testQP) uint32{
		"no such key":            func(tq *testQP) uint32 { return tq.mr.Key ^ 0xff00 },
		"a region":               func(tq *testQP) uint32 { return tq.mr.Key },
		"a window of type 1":     func(tq *testQP) uint32 { return tq.bound(tq.window(mem.MWType1), 8, 1) },
		"a window that is free":  func(tq *testQP) uint32 { return tq.window(mem.MWType2).Key() },
		"the window's other key": func(tq *testQP) uint32 { return tq.bound(tq.window(mem.MWType2), 8, 1) ^ 1 },
		"another QP's window": func(tq *testQP) uint32 {
			mine := tq.QP
			defer func() { tq.QP = mine }()
			tq.QP = New(tq.cfg)
			return tq.bound(tq.window(mem.MWType2), 8, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newQP(t, nil)
			bad := key(tq)
			for i := range 3 {
				tq.recv(uint64(i), i*8, 8)
			}
			tq.send(SendWQE{ID: 9, Opcode: WRSend})
			tq.burst = true
			tq.accepts(ackReq(req(wire.RCSendOnly, 0)), seq(8))
			tq.accepts(inv(wire.RCSendOnlyInv, 1, bad), seq(8))
			tq.accepts(ackReq(req(wire.RCSendOnly, 2)), seq(8))
			tq.batch.Run()
			tq.wantState(Err)
			tq.wantWC(Completion{ID: 0, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN}, Completion{ID: 1, Opcode: WCRecv, Status: RemInvReqErr},
				Completion{ID: 9, Status: WRFlushErr}, Completion{ID: 2, Opcode: WCRecv, Status: WRFlushErr})
			tq.wantPacket(ackP(0, 1), nil)
			tq.wantQuiet()
			tq.wantEvents()
		})
	}
}

// Requests that were checked before an invalidate in the same burst find the
// window closed when their turn comes.
func TestInvalidateInABurst(t *testing.T) {
	conform.Row(t, "5.11/23")
	tq := newQP(t, nil)
	w := tq.window(mem.MWType2)
	wr := bindWR(0, w, tq.bindable(64), 0, 64, 5)
	if err := tq.keys.Bind(&wr.Local.Bind, &tq.pd, tq.QP); err != nil {
		t.Fatal(err)
	}
	key := w.Key()
	m := tq.keys.FindRemote(key, &tq.pd, tq.QP, 0, 64, mem.RemoteWrite)
	tq.recv(1, 0, 8)
	tq.burst = true
	tq.accepts(to(wire.RCWriteOnly, 0, key, 0, 4), []byte("abcd"))
	tq.accepts(inv(wire.RCSendOnlyInv, 1, key), seq(8))
	tq.accepts(ackReq(to(wire.RCWriteOnly, 2, key, 0, 4)), []byte("wxyz"))
	tq.batch.Run()
	tq.wantPacket(nakP(2, wire.NakRemoteAccess, 2), nil)
	if got := string(m.Bytes()[:4]); got != "abcd" {
		t.Errorf("the memory has %q", got)
	}
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 8, SrcQP: peerQPN, Flags: WCWithInv, Imm: key})
	tq.wantState(Err)
}

// A window closes between the packets of a READ response, and of a WRITE.
func TestWindowClosesInTheMiddle(t *testing.T) {
	conform.Row(t, "bug/17")
	tq := newQP(t, nil)
	w := tq.window(mem.MWType2)
	key := tq.bound(w, 600, 5)
	tq.accepts(to(wire.RCReadRequest, 0, key, 0, 600), nil)
	if p, ok := tq.plan(); !ok || p.Opcode != wire.RCReadRespFirst {
		t.Fatalf("sent %v", p)
	}
	if err := tq.keys.Invalidate(key, &tq.pd); err != nil {
		t.Fatal(err)
	}
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 1), nil)
	tq.wantState(Err)

	tq = newQP(t, nil)
	w = tq.window(mem.MWType2)
	key = tq.bound(w, 600, 5)
	tq.accepts(to(wire.RCWriteFirst, 0, key, 0, 300), seq(256))
	if err := tq.keys.Invalidate(key, &tq.pd); err != nil {
		t.Fatal(err)
	}
	tq.gets(req(wire.RCWriteLast, 1), seq(44))
	tq.wantPacket(nakP(1, wire.NakRemoteAccess, 0), nil)
	tq.wantState(Err)
}

func TestSendWithInvalidatePackets(t *testing.T) {
	conform.Row(t, "5.1/op-16", "5.1/op-17")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSendInv, Flags: Signaled | Solicited, SGEs: tq.local(0, 300), InvKey: 0x1234})
	tq.send(SendWQE{ID: 2, Opcode: WRSendInv, Flags: Signaled, InvKey: 0x5678})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, tq.mem[:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLastInv, PSN: psnL(1), AckReq: true, SE: true, InvKey: 0x1234}, tq.mem[256:300])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnlyInv, PSN: psnL(2), AckReq: true, InvKey: 0x5678}, nil)
	tq.accepts(ack(2, 2), nil)
	tq.wantWC(Completion{ID: 1}, Completion{ID: 2})
	if n := tq.cfg.Counters.RDMASends; n != 2 {
		t.Errorf("%d SENDs counted, want 2", n)
	}
}

// The path of a request through a window allocates nothing.
func TestWindowsDontAllocate(t *testing.T) {
	tq := newQP(t, nil)
	key := tq.bound(tq.window(mem.MWType2), 64, 5)
	p := wire.Packet{Header: to(wire.RCWriteOnly, 0, key, 0, 64), Payload: [2][]byte{seq(64)}, Len: 64}
	n := testing.AllocsPerRun(100, func() {
		if v := tq.Handle(&p, tq.now, tq.batch); v != wire.Accepted {
			t.Fatal(v)
		}
		tq.batch.Run()
		p.PSN = p.PSN.Next()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
