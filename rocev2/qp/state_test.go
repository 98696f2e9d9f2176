package qp

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

var allStates = []State{Reset, Init, RTR, RTS, SQD, SQE, Err}

// inState returns a QP in state s.
func inState(t *testing.T, s State) *testQP {
	tq := newReset(t)
	steps := map[State][]Attr{
		Reset: nil, Init: {initAttr}, RTR: {initAttr, rtrAttr}, RTS: {initAttr, rtrAttr, rtsAttr},
		SQD: {initAttr, rtrAttr, rtsAttr, {State: SQD}}, Err: {{State: Err}},
	}
	for _, a := range steps[s] {
		mask := AttrState
		if a.State < SQD {
			mask = modifyMask(a.State)
		}
		if err := tq.Modify(&a, mask, tq.now); err != nil {
			t.Fatal(err)
		}
	}
	tq.SetPath(testPath)
	tq.wantState(s)
	return tq
}

func TestTransitions(t *testing.T) {
	legal := map[[2]State]bool{
		{Reset, Init}: true, {Init, Init}: true, {Init, RTR}: true, {RTR, RTS}: true, {RTS, RTS}: true,
		{RTS, SQD}: true, {SQD, SQD}: true, {SQD, RTS}: true,
	}
	all := initAttr
	all.PathMTU, all.DestQPN = ib.MTU256, 2
	for _, from := range allStates {
		if from == SQE {
			continue // only UC and UD get there
		}
		for _, to := range allStates {
			tq := inState(t, from)
			a := all
			a.State = to
			err := tq.Modify(&a, AttrState|rcTransitions[[2]State{from, to}].required, tq.now)
			want := legal[[2]State{from, to}] || to == Reset || to == Err
			if (err == nil) != want {
				t.Errorf("%v to %v: error %v, want legal %v", from, to, err, want)
			}
			if err == nil {
				tq.wantState(to)
			} else {
				tq.wantState(from)
			}
		}
	}
}

func TestModifyNeedsEachRequiredAttribute(t *testing.T) {
	for pair, tr := range rcTransitions {
		for bit := range 21 {
			missing := AttrMask(1) << bit
			if tr.required&missing == 0 {
				continue
			}
			tq := inState(t, pair[0])
			a := rtrAttr
			a.State = pair[1]
			err := tq.Modify(&a, AttrState|tr.required&^missing, tq.now)
			if err == nil || !strings.Contains(err.Error(), missing.String()) || !strings.Contains(err.Error(), "missing") {
				t.Errorf("%v without %v: error %v", pair, missing, err)
			}
		}
	}
}

func TestModifyRefusesOtherAttributes(t *testing.T) {
	for pair, tr := range rcTransitions {
		for bit := range 21 {
			extra := AttrMask(1) << bit
			if (tr.required|tr.optional|AttrState)&extra != 0 {
				continue
			}
			tq := inState(t, pair[0])
			a := rtrAttr
			a.State = pair[1]
			err := tq.Modify(&a, AttrState|tr.required|extra, tq.now)
			if err == nil || !strings.Contains(err.Error(), extra.String()) {
				t.Errorf("%v with %v: error %v", pair, extra, err)
			}
		}
	}
}

func TestModifyChecksRanges(t *testing.T) {
	for name, change := range map[string]func(*Attr){
		"PATH_MTU": func(a *Attr) { a.PathMTU = 6 }, "DEST_QPN": func(a *Attr) { a.DestQPN = 1 << 24 },
		"RQ_PSN": func(a *Attr) { a.RQPSN = 1 << 24 }, "SQ_PSN": func(a *Attr) { a.SQPSN = 1 << 24 },
		"TIMEOUT": func(a *Attr) { a.Timeout = 32 }, "RETRY_CNT": func(a *Attr) { a.RetryCnt = 8 },
		"RNR_RETRY": func(a *Attr) { a.RNRRetry = 8 }, "MIN_RNR_TIMER": func(a *Attr) { a.MinRNRTimer = 32 },
		"MAX_QP_RD_ATOMIC":   func(a *Attr) { a.MaxRdAtomic = 129 },
		"MAX_DEST_RD_ATOMIC": func(a *Attr) { a.MaxDestRdAtomic = 129 },
		"ACCESS_FLAGS":       func(a *Attr) { a.Access = 1 << 20 }, "PORT": func(a *Attr) { a.Port = 2 },
		"PKEY_INDEX": func(a *Attr) { a.PKeyIndex = 1 },
	} {
		tq := newReset(t)
		var err error
		for _, a := range []Attr{initAttr, rtrAttr, rtsAttr} {
			change(&a)
			if err = tq.Modify(&a, modifyMask(a.State), tq.now); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestQueryReturnsWhatWasSet(t *testing.T) {
	tq := newQP(t, nil)
	a := tq.Query()
	if a.State != RTS || a.PathMTU != ib.MTU256 || a.DestQPN != peerQPN || a.RQPSN != peerPSN || a.SQPSN != localPSN ||
		a.Timeout != 14 || a.RetryCnt != 3 || a.RNRRetry != 2 || a.MaxRdAtomic != 4 || a.MaxDestRdAtomic != 4 ||
		a.MinRNRTimer != 12 || a.Caps.MaxSendWR != 64 {
		t.Errorf("%+v", a)
	}
}

// Nothing but RTR, RTS and SQD takes packets; nothing at all makes a QP panic.
func TestEveryOpcodeInEveryState(t *testing.T) {
	conform.Row(t, "5.11/25")
	for _, s := range allStates {
		if s == SQE {
			continue
		}
		for o := range 256 {
			for _, n := range []int{0, 1, 4, 255, 256, 257} {
				tq := inState(t, s)
				tq.recv(1, 0, 1000)
				tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 600)})
				tq.plan()
				v := tq.gets(wire.Header{Opcode: wire.Opcode(o), PSN: peerPSN, RKey: tq.mr.Key, VA: memBase, Length: uint32(n)}, make([]byte, n))
				receives := s == RTR || s == RTS || s == SQD
				switch {
				case !receives && v != wire.DropQPState:
					t.Fatalf("state %v, opcode %#x: %v", s, o, v)
				case receives && wire.Opcode(o).Transport() != wire.RC && v != wire.DropTransport:
					t.Fatalf("state %v, opcode %#x: %v", s, o, v)
				}
				for range 8 {
					tq.plan()
				}
			}
		}
	}
}

// A reset QP begins anew, and its work requests are gone without completions.
func TestResetForgets(t *testing.T) {
	tq := newQP(t, nil)
	for id := range uint64(3) {
		tq.send(SendWQE{ID: id, Opcode: WRSend, SGEs: tq.local(0, 600)})
		tq.recv(id, 0, 600)
	}
	tq.plan()
	tq.accepts(req(wire.RCSendFirst, 0), make([]byte, 256))
	if err := tq.Modify(&Attr{State: Reset}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantWC()
	if tq.sq.retired != 3 || tq.rq.retired != 3 {
		t.Errorf("retired %d sends and %d receives, want 3 and 3", tq.sq.retired, tq.rq.retired)
	}
	for _, a := range []Attr{initAttr, rtrAttr, rtsAttr} {
		if err := tq.Modify(&a, modifyMask(a.State), tq.now); err != nil {
			t.Fatal(err)
		}
	}
	tq.SetPath(testPath)
	tq.wantQuiet()
	tq.recv(7, 0, 4)
	tq.accepts(ackReq(req(wire.RCSendOnly, 0)), []byte("anew"))
	tq.wantWC(Completion{ID: 7, Opcode: WCRecv, ByteLen: 4, SrcQP: peerQPN})
}

// Whatever a peer sends, each work request completes at most once while the QP
// lives, and exactly once when it ends.
func TestArbitraryPackets(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		tq := newQP(t, nil)
		tq.burst = seed%2 == 1
		tq.cfg.Trace = nil
		for id := range uint64(10) {
			tq.recv(id, r.IntN(1000), r.IntN(1000))
			tq.send(SendWQE{ID: id, Opcode: WROpcode(r.IntN(7)), Flags: Signaled, SGEs: tq.local(r.IntN(1000), 8*r.IntN(100))})
		}
		for range 200 {
			if tq.batch.Free() < HandleOps {
				tq.batch.Run()
			}
			tq.gets(wire.Header{
				Opcode: wire.Opcode(r.IntN(0x20)), PSN: psnP(r.IntN(12) - 4), AckReq: r.IntN(2) == 0, RKey: tq.mr.Key,
				VA: memBase + uint64(r.IntN(memSize)), Length: uint32(r.IntN(700)), Syndrome: wire.Syndrome(r.IntN(256)),
			}, make([]byte, []int{0, 4, 256, r.IntN(300)}[r.IntN(4)]))
			if r.IntN(3) == 0 {
				tq.batch.Run()
				tq.plan()
			}
			if r.IntN(10) == 0 {
				tq.batch.Run()
				tq.sleep(ackTimeout(14))
			}
		}
		tq.batch.Run()
		if err := tq.Modify(&Attr{State: Err}, AttrState, tq.now); err != nil {
			t.Fatal(err)
		}
		if len(tq.wcs) != 20 || tq.sq.retired != 10 || tq.rq.retired != 10 {
			t.Fatalf("seed %d: %d completions for 20 work requests; %d, %d retired", seed, len(tq.wcs), tq.sq.retired, tq.rq.retired)
		}
	}
}
