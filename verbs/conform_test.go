package verbs

import (
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

// Who says nothing about RNR gets a wait of 0.64 ms, not the 655 ms of code 0;
// and both ends can see that there were RNR NAKs.
func TestRNRByDefault(t *testing.T) {
	conform.Row(t, "bug/13", "5.8/resp-rnr")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	if q := must(b.qp.Query()); q.MinRNRTimer != 12 {
		t.Errorf("RNR timer code %d, want 12", q.MinRNRTimer)
	}
	must(a.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, InlineData: make([]byte, 8)}))
	for a.dev.Stats().Counters["rcvd_rnr_err"] == 0 {
		a.cq.Poll(nil)
		b.cq.Poll(nil)
	}
	must(b.qp.PostRecv(RecvWR{SGEs: []SGE{b.mr.SGE(0, 8)}}))
	a.done(t)
	b.done(t)
	sent, rcvd := b.dev.Stats().Counters["send_rnr_err"], a.dev.Stats().Counters["rcvd_rnr_err"]
	if sent == 0 || sent < rcvd {
		t.Errorf("%d RNR NAKs sent, %d received", sent, rcvd)
	}
	wantState(t, b.qp, StateRTS)
}
