package qp

import "testing"

// Of a QP whose port is gone: the request that the peer is to answer fails as after the last retry, also with a timer that
// never runs out; all else is flushed.
func TestUnreachable(t *testing.T) {
	flushed := func(id uint64, op WCOpcode) Completion {
		return Completion{ID: id, Status: WRFlushErr, Opcode: op}
	}
	for _, c := range []struct {
		name   string
		make   func() *testQP
		begin  bool
		status WCStatus // of the send
	}{
		{"RC, asked", func() *testQP { return newQP(t, func(a *Attr) { a.Timeout = 0 }) }, true, RetryExcErr},
		{"RC, not yet", func() *testQP { return newQP(t, nil) }, false, RetryExcErr},
		{"RC in SQD", func() *testQP {
			tq := newQP(t, nil)
			if err := tq.Modify(&Attr{State: SQD}, AttrState, tq.now); err != nil {
				t.Fatal(err)
			}
			return tq
		}, false, WRFlushErr},
		{"UD", func() *testQP { return newUD(t, UD) }, false, WRFlushErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			tq := c.make()
			tq.t = t
			tq.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: tq.local(0, 4)})
			tq.recv(2, 0, 4)
			if c.begin {
				tq.plan()
			}
			tq.send(SendWQE{ID: 3, Opcode: WRSend, SGEs: tq.local(0, 4)})
			tq.Unreachable(tq.now)
			first := flushed(1, WCSend)
			first.Status = c.status
			tq.wantWC(first, flushed(3, WCSend), flushed(2, WCRecv))
			tq.wantState(Err)
			tq.wantEvents()
			tq.Unreachable(tq.now)
			tq.wantWC()
		})
	}
	tq := newReset(t)
	tq.Unreachable(tq.now)
	tq.wantState(Reset)
}
