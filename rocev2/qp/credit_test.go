package qp

import (
	"math/rand/v2"
	"testing"

	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// countedRQ is a receive queue that knows how many receives wait.
type countedRQ struct{ fakeRQ }

func (f countedRQ) Posted() int { return len(f.recvs) - f.next }

// newCounted returns a QP in RTS that tells its peer of its receives.
func newCounted(t *testing.T) *testQP {
	tq := newQP(t, nil)
	tq.posted = countedRQ{fakeRQ{&tq.rq}}
	return tq
}

// An ACK says how many receives wait; responses with data and NAKs don't.
func TestCreditsAreTold(t *testing.T) {
	conform.Row(t, "5.2/no-credits")
	tq := newCounted(t)
	credit := func(h wire.Header, code wire.Syndrome) wire.Header { h.Syndrome = code; return h }
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 0, 0, 0)), nil)
	tq.wantPacket(credit(ackP(0, 1), 0), nil)
	for id := range uint64(7) {
		tq.recv(id, 0, 300)
	}
	tq.accepts(ackReq(tq.reth(wire.RCWriteOnly, 1, 0, 0)), nil)
	tq.wantPacket(credit(ackP(1, 2), 5), nil) // 6, as 7 can't be told
	// A message in progress doesn't count in the MSN yet, so its receive still does.
	tq.accepts(ackReq(req(wire.RCSendFirst, 2)), seq(256))
	tq.wantPacket(credit(ackP(2, 2), 5), nil)
	tq.accepts(ackReq(req(wire.RCSendLast, 3)), seq(4))
	tq.wantPacket(credit(ackP(3, 3), 5), nil)
	tq.accepts(tq.reth(wire.RCReadRequest, 4, 0, 4), nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(4), Syndrome: wire.SyndromeAck, MSN: 4}, tq.mem[:4])
	tq.accepts(tq.reth(wire.RCFetchAdd, 5, 0, 0), nil)
	if p, _ := tq.plan(); p.Opcode != wire.RCAtomicAck || p.Syndrome != wire.SyndromeAck {
		t.Errorf("%v", p)
	}
	shared := New(Config{QPN: 1, RQ: countedRQ{fakeRQ{&tq.rq}}, SQ: fakeSQ{&tq.sq}, Host: tq, SharedRQ: true})
	if shared.ackSyndrome() != wire.SyndromeAck {
		t.Error("credits of a shared receive queue")
	}
}

// Every code: so many messages go at once, and one more asks how things are.
func TestCreditsAreKept(t *testing.T) {
	conform.Row(t, "5.2/credit-*")
	for code, grant := range []int{
		0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
		6144, 8192, 12288, 16384, 24576, 32768, -1,
	} {
		if n, limited := wire.Syndrome(code).Credits(); limited != (grant >= 0) || limited && n != grant {
			t.Errorf("code %d: %d credits, limited %v, want %d", code, n, limited, grant)
		}
		tq := newQP(t, nil)
		tq.cfg.Window = 1 << 20
		tq.send(SendWQE{ID: 1, Opcode: WRSend})
		tq.plan()
		tq.accepts(wire.Header{Opcode: wire.RCAck, PSN: psnL(0), Syndrome: wire.Syndrome(code), MSN: 1}, nil)
		posts := min(grant, 50) + 5
		if grant < 0 {
			posts = 50
		}
		for range posts {
			tq.send(SendWQE{ID: 2, Opcode: WRSend})
		}
		sent := 0
		for _, ok := tq.plan(); ok; _, ok = tq.plan() {
			sent++
		}
		if want := min(grant+1, posts); grant >= 0 && sent != want || grant < 0 && sent != posts {
			t.Errorf("code %d: %d of %d messages sent", code, sent, posts)
		}
	}
}

// Beyond its credits a requester sends a packet, and goes on when that is
// acknowledged; what needs no receive isn't held back.
func TestOverdraft(t *testing.T) {
	tq := newQP(t, nil)
	tq.send(SendWQE{ID: 1, Opcode: WRSend})
	tq.plan()
	grant := func(n int, code wire.Syndrome) {
		t.Helper()
		tq.accepts(wire.Header{Opcode: wire.RCAck, PSN: psnL(n), Syndrome: code}, nil)
	}
	grant(0, 0)
	tq.send(SendWQE{ID: 2, Opcode: WRWrite, RKey: 1})
	tq.send(SendWQE{ID: 3, Opcode: WRSend, SGEs: tq.local(0, 600)})
	tq.send(SendWQE{ID: 4, Opcode: WRWrite, RKey: 1})
	tq.send(SendWQE{ID: 5, Opcode: WRWriteImm, RKey: 1})
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteOnly, PSN: psnL(1), AckReq: true, RKey: 1}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(2), AckReq: true}, tq.mem[:256])
	tq.wantQuiet()
	// Not ready: the same again, after the wait.
	tq.accepts(nak(2, wire.SyndromeRNR|1, 2), nil)
	tq.wantQuiet()
	tq.sleep(RNRTimeout(1))
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(2), AckReq: true}, tq.mem[:256])
	tq.wantQuiet()
	grant(2, 0) // it has its receive: the rest goes, and what needs none
	tq.wantPacket(wire.Header{Opcode: wire.RCSendMiddle, PSN: psnL(3)}, tq.mem[256:512])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(4), AckReq: true}, tq.mem[512:600])
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteOnly, PSN: psnL(5), AckReq: true, RKey: 1}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteOnlyImm, PSN: psnL(6), AckReq: true, RKey: 1}, nil)
	tq.send(SendWQE{ID: 6, Opcode: WRSend})
	tq.wantQuiet()
	grant(6, 31) // no more credits are kept
	tq.send(SendWQE{ID: 7, Opcode: WRSend})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(7), AckReq: true}, nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(8), AckReq: true}, nil)
	grant(7, 0)
	if err := tq.Modify(&Attr{State: Reset}, AttrState, tq.now); err != nil || tq.req.credits != (credits{}) {
		t.Errorf("in RESET: %v, %+v", err, tq.req.credits)
	}
}

// With credits no RNR NAK is needed to send more messages than there are
// receives; without, there are some.
func TestCreditsSpareRNR(t *testing.T) {
	for _, told := range []bool{false, true} {
		x := newQP(t, func(a *Attr) { a.RNRRetry = 7 })
		y := newQP(t, func(a *Attr) { a.DestQPN, a.RQPSN, a.SQPSN = testQPN, localPSN, peerPSN })
		if told {
			y.posted = countedRQ{fakeRQ{&y.rq}}
		}
		const messages = 200
		w := greatWire{r: rand.New(rand.NewPCG(1, 2))}
		x.send(SendWQE{Opcode: WRWrite, Flags: Signaled}) // its ACK brings the first credits
		y.recv(0, 0, 4)
		w.pass(x, y, 1)
		w.pass(y, x, 1)
		for id := range uint64(messages) {
			x.send(SendWQE{ID: id, Opcode: WRSend, Flags: Signaled, SGEs: x.local(0, 4)})
		}
		for round := 0; len(x.wcs) <= messages && round < 100*messages; round++ {
			for len(y.rq.recvs) < len(y.wcs)+3 { // three receives at a time
				y.recv(uint64(len(y.rq.recvs)), 0, 4)
			}
			w.pass(x, y, 8)
			w.pass(y, x, 10)
			x.sleep(100_000)
		}
		if len(x.wcs) != messages+1 || len(y.wcs) != messages {
			t.Fatalf("told %v: %d sent, %d received", told, len(x.wcs), len(y.wcs))
		}
		if n := x.cfg.Counters.RcvdRNRErr; told != (n == 0) {
			t.Errorf("told %v: %d RNR NAKs", told, n)
		}
	}
}

func TestCreditSyndrome(t *testing.T) {
	for n := range 100_000 {
		got, limited := wire.CreditSyndrome(n).Credits()
		next, more := (wire.CreditSyndrome(n) + 1).Credits()
		if !limited || got > n || more && next <= n {
			t.Fatalf("%d receives are told as %d", n, got)
		}
	}
	if wire.CreditSyndrome(-1) != 0 || wire.CreditSyndrome(1<<40) != 30 {
		t.Error("out of range")
	}
}
