package qp

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// another registers a second region, of n bytes at IOVA 0.
func (tq *testQP) another(n int, access mem.Access) *mem.MR {
	tq.t.Helper()
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(make([]byte, n), 0), 0, 0, uint64(n), access)
	if err != nil {
		tq.t.Fatal(err)
	}
	return mr
}

// planBurst makes all packets that the QP would send now before any of their
// ops runs, as with another process's memory, and returns those that came to be.
func (tq *testQP) planBurst(between func(made int)) (sent []wire.Header) {
	tq.t.Helper()
	tq.batch.Add() // something waits, so that the payloads are fetched at the end
	var packets [64]TxPacket
	n := 0
	for ; n < len(packets); n++ {
		if between != nil {
			between(n)
		}
		packets[n].Frame = &wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}
		if !tq.Plan(tq.now, &packets[n], tq.batch) {
			break
		}
	}
	tq.batch.Run()
	for i := range packets[:n] {
		if packets[i].Void {
			continue
		}
		tq.Path().Seal(packets[i].Frame)
		var p wire.Packet
		if v := wire.Parse(&p, packets[i].Frame); v != wire.Accepted {
			tq.t.Fatalf("the QP made a packet that is %v", v)
		}
		sent = append(sent, p.Header)
	}
	return sent
}

// A message that has been sent is to be sent again, and its region is gone. If
// it had arrived all the same, the QP goes on.
func TestMemoryGoneAtRepetition(t *testing.T) {
	tq := newQP(t, nil)
	other := tq.another(4, mem.LocalWrite)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	tq.send(SendWQE{ID: 2, Opcode: WRSend, Flags: Signaled, SGEs: []SGE{{Length: 4, LKey: other.Key}}})
	tq.plan()
	tq.plan()
	tq.keys.Deregister(other)
	tq.sleep(ackTimeout(rtsAttr.Timeout))
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, tq.mem[:4])
	tq.wantQuiet()
	tq.accepts(ack(1, 2), nil) // of the first time
	tq.wantWC(Completion{ID: 1}, Completion{ID: 2})
	tq.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 4)})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(2), AckReq: true}, tq.mem[:4])
	tq.accepts(ack(2, 3), nil)
	tq.wantWC(Completion{ID: 3})
}

// A request that can't be sent doesn't keep the answers back that are owed.
func TestLocalErrorKeepsAnswers(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)})
	tq.plan()
	for i := range 2 { // the second time it is the requester's turn
		tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, i, 0, 0)), nil)
		tq.wantPacket(ackP(i, ib.MSN(i+1)), nil)
		tq.send(SendWQE{ID: 2, Opcode: 77})
	}
	tq.wantQuiet()
}

// Two memories of READs go away in one burst: the NAK is the first one's.
func TestNAKOfTheFirstFault(t *testing.T) {
	tq := newQP(t, nil)
	first, second := tq.another(512, mem.RemoteRead), tq.another(512, mem.RemoteRead)
	for i, mr := range []*mem.MR{first, second} {
		h := req(wire.RCReadRequest, 2*i)
		h.RKey, h.Length = mr.Key, 512
		tq.accepts(h, nil)
	}
	sent := tq.planBurst(func(made int) {
		if made == 2 { // both packets of the first are made, not yet read
			tq.keys.Deregister(second)
			tq.keys.Deregister(first)
		}
	})
	if len(sent) != 0 {
		t.Errorf("sent %+v of memory that is gone", sent)
	}
	tq.wantPacket(nakP(0, wire.NakRemoteAccess, 2), nil)
	tq.wantEvents(EventQPAccessErr)
	tq.wantQuiet()
	if n := tq.cfg.Counters.NAKRemoteAccess; n != 1 {
		t.Errorf("%d NAKs counted, want 1", n)
	}
}

// The memory of a WRITE with immediate goes away after it took its receive.
func TestFaultOfWriteImm(t *testing.T) {
	conform.Row(t, "5.8/resp-access-imm")
	tq := newQP(t, nil)
	other := tq.another(4, mem.LocalWrite|mem.RemoteWrite)
	tq.recv(1, 0, 4)
	tq.recv(2, 0, 4)
	tq.burst = true
	h := tq.reth(wire.RCWriteOnlyImm, 0, 0, 4)
	h.VA, h.RKey = 0, other.Key
	tq.accepts(h, make([]byte, 4))
	tq.keys.Deregister(other)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Status: LocAccessErr, Opcode: WCRecv}, Completion{ID: 2, Status: WRFlushErr, Opcode: WCRecv})
	tq.wantPacket(nakP(0, wire.NakRemoteAccess, 0), nil)
}

func TestReceiveWithTooManyElements(t *testing.T) {
	tq := newQP(t, nil)
	var list []SGE
	for i := range MaxSGE + 10 {
		list = append(list, tq.local(i, 1)...)
	}
	tq.rq.recvs = append(tq.rq.recvs, &RecvWQE{ID: 1, SGEs: list})
	tq.wantVerdict(wire.DropRejected, tq.gets(req(wire.RCSendOnly, 0), make([]byte, MaxSGE+10)))
	tq.wantWC(Completion{ID: 1, Status: LocProtErr, Opcode: WCRecv})
	tq.wantPacket(nakP(0, wire.NakRemoteOperation, 0), nil)
}

// The packets of a READ's response are not packets in flight.
func TestWindowWithReads(t *testing.T) {
	tq := newQP(t, nil)
	tq.cfg.Window = 4
	tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 5*256), RKey: 3})
	for id := range uint64(10) {
		tq.send(SendWQE{ID: 2 + id, Opcode: WRSend})
	}
	for range 4 {
		tq.plan()
	}
	for i := range 4 {
		tq.wantQuiet()
		tq.accepts(readResponse(i, i, 5), make([]byte, 256))
	}
	tq.wantQuiet()
	tq.accepts(readResponse(4, 4, 5), make([]byte, 256))
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(8), AckReq: true}, nil)
	tq.wantQuiet()
}

// A saved answer of 2^24 PSNs ago has the same PSN as a new one.
func TestNewestAnswerIsGivenAgain(t *testing.T) {
	tq := newQP(t, nil)
	add := tq.reth(wire.RCFetchAdd, 0, 0, 0)
	add.Swap = 1
	tq.accepts(add, nil)
	first, _ := tq.plan()
	tq.resp.epsn = psnP(0) // 2^24 packets later
	tq.accepts(add, nil)
	second, _ := tq.plan()
	if first.Orig+1 != second.Orig {
		t.Fatalf("found %d, then %d", first.Orig, second.Orig)
	}
	tq.wantVerdict(wire.DropDuplicate, tq.gets(add, nil))
	if again, _ := tq.plan(); again.Orig != second.Orig {
		t.Errorf("answered %d again, want %d", again.Orig, second.Orig)
	}
}
