package qp

import (
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// A rate holds requests back, and responses with data, but no acknowledgement
// that overtakes none of these.
func TestPace(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, tq.mem[:256])
	tq.Pace(tq.now.Add(time.Millisecond))
	tq.wantQuiet()
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 0, 0, 0)), nil)
	tq.wantPacket(ackP(0, 1), nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 1, 0, 300), nil)
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 3, 0, 0)), nil)
	tq.wantQuiet() // the ACK waits for the response
	if want := tq.now.Add(time.Millisecond); tq.Deadline() != want {
		t.Errorf("deadline %d, want %d", tq.Deadline(), want)
	}
	tq.sleep(time.Millisecond - 1)
	tq.wantQuiet()
	tq.sleep(1)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespFirst, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 2}, tq.mem[:256])
	tq.Pace(tq.now.Add(time.Second))
	tq.Pace(0)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespLast, PSN: psnP(2), Syndrome: wire.SyndromeAck, MSN: 2}, tq.mem[256:300])
	tq.wantPacket(ackP(3, 3), nil)
	tq.wantQuiet()
}

// What ends a connection is said whatever the rate.
func TestPaceOfTheEnd(t *testing.T) {
	tq := newQP(t, nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 0, 0, 4), nil)
	tq.Pace(tq.now.Add(time.Hour))
	tq.wantVerdict(wire.DropRejected, tq.gets(req(wire.RCSendMiddle, 1), make([]byte, 256)))
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1}, tq.mem[:4])
	tq.wantPacket(nakP(1, wire.NakInvalidRequest, 1), nil)
	if err := tq.Modify(&Attr{State: Reset}, AttrState, tq.now); err != nil || tq.Deadline() != clock.Never {
		t.Errorf("in RESET: %v, deadline %d", err, tq.Deadline())
	}
}

// A congestion notification goes first, at any rate, and changes nothing else.
func TestCongestionNotification(t *testing.T) {
	conform.Row(t, "5.9/cnp-form", "5.9/cnp-state")
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled})
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 0, 0, 0)), nil)
	tq.Pace(tq.now.Add(time.Millisecond))
	tq.Congested()
	tq.Congested()
	if tq.OnlyAcks(tq.now) {
		t.Error("a CNP may wait like an acknowledgement")
	}
	tq.wantCNP()
	tq.wantPacket(ackP(0, 1), nil)
	tq.sleep(time.Millisecond)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, nil)
	tq.wantQuiet()
}

// A repetition that its rate holds back is not late: the retries are for those
// that were sent.
func TestPaceHoldsBackARepetition(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled})
	want := wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}
	tq.wantPacket(want, nil)
	timeout := ackTimeout(tq.attr.Timeout)
	tq.sleep(timeout)
	held := tq.now.Add(20 * timeout)
	tq.Pace(held)
	for tq.now < held {
		tq.wantQuiet()
		tq.sleep(timeout)
	}
	tq.wantState(RTS)
	if got := tq.cfg.Counters.Timeouts; got != 1 {
		t.Errorf("%d timeouts, want 1", got)
	}
	tq.wantPacket(want, nil)
	tq.accepts(ack(0, 1), nil)
	tq.wantWC(Completion{ID: 1})
}

// An unreliable connection has a rate, too, and tells its peer of congestion.
func TestPaceOfUC(t *testing.T) {
	tq := newUC(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	tq.wantPacket(wire.Header{Opcode: wire.UCSendFirst, PSN: psnL(0)}, tq.mem[:256])
	tq.Pace(tq.now.Add(time.Millisecond))
	tq.wantQuiet()
	tq.Congested()
	p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}}
	if !tq.Plan(tq.now, &p, tq.batch) || wire.Opcode(p.Frame.Frag[0][p.Path.HeaderLen(wire.CongestionNotify)-16-wire.BTHLen]) != wire.CongestionNotify {
		t.Error("no CNP")
	}
	tq.wantQuiet()
	tq.sleep(time.Millisecond)
	tq.wantPacket(wire.Header{Opcode: wire.UCSendLast, PSN: psnL(1)}, tq.mem[256:300])
	tq.wantWC(Completion{ID: 1})
}

// wantCNP says that the QP must send a congestion notification next.
func (tq *testQP) wantCNP() {
	tq.t.Helper()
	p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}}
	if !tq.Plan(tq.now, &p, tq.batch) {
		tq.t.Fatal("nothing is sent")
	}
	p.Path.Seal(p.Frame)
	var got wire.Packet
	tq.wantVerdict(wire.Accepted, wire.Parse(&got, p.Frame))
	if want := (wire.Header{Opcode: wire.CongestionNotify, PKey: tq.wantPKey, BECN: true, DestQP: peerQPN}); got.Header != want {
		tq.t.Errorf("%+v, want %+v", got.Header, want)
	}
}
