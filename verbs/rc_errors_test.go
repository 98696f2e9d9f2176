package verbs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/conform"
)

// wantEvent waits for an event of d.
func wantEvent(t *testing.T, d *Device, want EventType) Event {
	t.Helper()
	select {
	case e := <-d.Events():
		if e.Type != want {
			t.Errorf("event %v, want %v", e, want)
		}
		return e
	case <-time.After(5 * time.Second):
		t.Errorf("no event, want %v", want)
		return Event{}
	}
}

func wantState(t *testing.T, q *QP, want QPState) {
	t.Helper()
	if a := must(q.Query()); a.State != want {
		t.Errorf("%v is in %v, want %v", q, a.State, want)
	}
}

// What goes wrong, and how each side learns of it (the table of errors to completions).
func TestErrors(t *testing.T) {
	conform.Row(t, "5.8/mlx5-rkey", "5.8/mlx5-flags", "5.8/mlx5-local", "5.8/mlx5-rnr", "5.8/mlx5-gone",
		"5.8/resp-long", "5.8/resp-lkey", "5.8/resp-access")
	quick := ConnectOptions{RNRRetry: 1, MinRNRTimer: 1}
	gone, reading := quick, quick
	gone.Timeout, gone.RetryCnt = 8, 1
	reading.Access = RemoteRead
	for _, c := range []struct {
		name   string
		opts   ConnectOptions
		wr     func(a, b *side) SendWR
		recv   func(b *side) *RecvWR
		status WCStatus
		peer   WCStatus // of the receive; Success when there is none to complete
		event  EventType
	}{
		{name: "bad rkey", opts: quick, status: RemAccessErr, event: EventQPAccessErr,
			wr: func(a, b *side) SendWR { return write(a, b, 0, b.mr.RKey()^1) }},
		{name: "WRITE past the end", opts: quick, status: RemAccessErr, event: EventQPAccessErr,
			wr: func(a, b *side) SendWR { return write(a, b, len(b.buf)-7, b.mr.RKey()) }},
		{name: "WRITE before the start", opts: quick, status: RemAccessErr, event: EventQPAccessErr,
			wr: func(a, b *side) SendWR { return write(a, b, -1, b.mr.RKey()) }},
		{name: "WRITE without the right", opts: reading, status: RemInvReqErr, event: EventQPReqErr,
			wr: func(a, b *side) SendWR { return write(a, b, 0, b.mr.RKey()) }},
		{name: "SEND longer than the receive", opts: quick, status: RemInvReqErr, peer: LocLenErr, event: noEvent,
			wr:   func(a, _ *side) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 8)}} },
			recv: func(b *side) *RecvWR { return &RecvWR{SGEs: []SGE{b.mr.SGE(0, 7)}} }},
		{name: "receive beyond its MR", opts: quick, status: RemOpErr, peer: LocProtErr, event: noEvent,
			wr:   func(a, _ *side) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 8)}} },
			recv: func(b *side) *RecvWR { return &RecvWR{SGEs: []SGE{b.mr.SGE(len(b.buf)-4, 8)}} }},
		{name: "no receive", opts: quick, status: RNRRetryExcErr, event: noEvent,
			wr: func(a, _ *side) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 8)}} }},
		{name: "SGE beyond its MR", opts: quick, status: LocProtErr, event: noEvent,
			wr: func(a, _ *side) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(len(a.buf)-7, 8)}} }},
		{name: "SGE of a region that is gone", opts: quick, status: LocProtErr, event: noEvent,
			wr: func(a, _ *side) SendWR {
				m := must(a.pd.RegMR(make([]byte, 8), LocalWrite))
				mustDo(t, m.Dereg)
				return SendWR{Opcode: OpSend, SGEs: []SGE{m.SGE(0, 8)}}
			}},
		{name: "SGE of another PD", opts: quick, status: LocProtErr, event: noEvent,
			wr: func(a, _ *side) SendWR {
				m := must(must(a.dev.AllocPD()).RegMR(make([]byte, 8), LocalWrite))
				return SendWR{Opcode: OpSend, SGEs: []SGE{m.SGE(0, 8)}}
			}},
		{name: "READ into a region without the right", opts: quick, status: LocProtErr, event: noEvent,
			wr: func(a, b *side) SendWR {
				wr := write(a, b, 0, b.mr.RKey())
				wr.Opcode, wr.SGEs = OpRead, []SGE{must(a.pd.RegMR(make([]byte, 8), RemoteRead)).SGE(0, 8)}
				return wr
			}},
		{name: "peer in ERR", opts: gone, status: RetryExcErr, event: noEvent,
			wr: func(a, b *side) SendWR {
				mustDo(t, func() error { return b.qp.Modify(QPAttr{State: StateErr}, AttrState) })
				return write(a, b, 0, b.mr.RKey())
			}},
		{name: "peer is gone", opts: gone, status: RetryExcErr, event: noEvent,
			wr: func(a, b *side) SendWR {
				b.qp.Destroy()
				return write(a, b, 0, b.mr.RKey())
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, 4096, Caps{}, c.opts)
			if c.recv != nil {
				must(b.qp.PostRecv(*c.recv(b)))
			}
			wr := c.wr(a, b)
			wr.ID = 1 // not signalled: an error completes all the same
			must(a.qp.PostSend(wr, SendWR{ID: 2, Opcode: OpSend}))
			wcs := a.wait(t, 2)
			if wcs[0].ID != 1 || wcs[0].Status != c.status || wcs[1].ID != 2 || wcs[1].Status != WRFlushErr {
				t.Errorf("completions %+v\nwant %v, then a flush", wcs, c.status)
			}
			wantState(t, a.qp, StateErr)
			if c.recv != nil {
				if wc := b.wait(t, 1)[0]; wc.Status != c.peer {
					t.Errorf("the receive ended with %v, want %v", wc.Status, c.peer)
				}
				wantState(t, b.qp, StateErr)
			}
			if c.event != noEvent {
				for e := wantFirst(t, b.dev); e.Type != c.event; e = wantFirst(t, b.dev) {
					if e.Type != EventCommEst {
						t.Fatalf("event %v, want %v", e, c.event)
					}
				}
				wantState(t, b.qp, StateErr)
			}
		})
	}
}

const noEvent EventType = 255

func wantFirst(t *testing.T, d *Device) Event {
	t.Helper()
	select {
	case e := <-d.Events():
		return e
	case <-time.After(5 * time.Second):
		t.Fatal("no event after 5 s")
		return Event{}
	}
}

// write makes a WRITE of 8 bytes to an offset of b's region.
func write(a, b *side, offset int, rkey uint32) SendWR {
	return SendWR{Opcode: OpWrite, SGEs: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.IOVA() + uint64(offset), RKey: rkey}
}

// Deregistering a region that a peer is reading: the peer gets RemAccessErr.
func TestDeregWhileREADsFly(t *testing.T) {
	conform.Row(t, "bug/17")
	a, b := newPair(t, 1<<20, Caps{MaxSendWR: 8, MaxSendSGE: 1}, ConnectOptions{})
	wr := SendWR{Opcode: OpRead, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey()}
	floodUntil(t, a, wr, b.mr.Dereg, RemAccessErr)
}

// A region of this side that is deregistered while WRITEs read from it.
func TestDeregLocally(t *testing.T) {
	a, b := newPair(t, 1<<20, Caps{MaxSendWR: 8, MaxSendSGE: 1}, ConnectOptions{})
	wr := SendWR{Opcode: OpWrite, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 1<<20)}, RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey()}
	floodUntil(t, a, wr, a.mr.Dereg, LocProtErr)
}

// floodUntil keeps a's send queue full, deregisters in the middle, and wants successes, then one failure, then flushes: one
// completion for each work request.
func floodUntil(t *testing.T, a *side, wr SendWR, dereg func() error, want WCStatus) {
	t.Helper()
	var got []WCStatus
	for posted := uint64(0); len(got) == 0 || got[len(got)-1] == Success || uint64(len(got)) < posted; {
		for wr.ID = posted; len(got) == 0 || got[len(got)-1] == Success; wr.ID = posted {
			if _, err := a.qp.PostSend(wr); err != nil {
				break // the queue is full
			}
			posted++
		}
		wc := a.wait(t, 1)[0]
		if wc.ID != uint64(len(got)) {
			t.Fatalf("completion of work request %d, want %d", wc.ID, len(got))
		}
		if got = append(got, wc.Status); len(got) == 3 {
			if err := dereg(); err != nil {
				t.Fatal(err)
			}
		}
	}
	failed := slices.IndexFunc(got, func(s WCStatus) bool { return s != Success })
	for i, s := range got[failed:] {
		if i == 0 && s != want || i > 0 && s != WRFlushErr {
			t.Fatalf("statuses %v, want %v after successes, and then flushes", got, want)
		}
	}
}

// A CQ that overruns takes its QPs to ERR and says so.
func TestOverrunFailsTheQP(t *testing.T) {
	conform.Row(t, "5.8/resp-cq")
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	small := must(a.dev.CreateCQ(2, nil))
	a.qp.Destroy()
	b.qp.Destroy()
	a.qp = must(a.pd.CreateQP(QPInitAttr{SendCQ: small, RecvCQ: a.cq, SigAll: true}))
	b.qp = must(b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq}))
	connect(t, a, b, ConnectOptions{})
	for range 3 {
		must(a.qp.PostSend(write(a, b, 0, b.mr.RKey())))
	}
	seen := map[EventType]int{}
	for range 2 {
		seen[wantFirst(t, a.dev).Type]++
	}
	if seen[EventCQErr] != 1 || seen[EventQPFatal] != 1 {
		t.Errorf("events %v, want one CQ_ERR and one QP_FATAL", seen)
	}
	if !errors.Is(small.Err(), ErrCQOverrun) {
		t.Error(small.Err())
	}
	wantState(t, a.qp, StateErr)
}

func TestModifyRefuses(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	wantErr(t, a.qp.Modify(QPAttr{State: StateInit}, AttrState), ErrInvalid, "RTS")
	wantErr(t, a.qp.ToRTR(must(b.qp.Endpoint(0)), ConnectOptions{}), ErrInvalid, "RTS")
	q := must(a.pd.CreateQP(QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq}))
	wantErr(t, q.Connect(must(b.qp.Endpoint(0)), ConnectOptions{GIDIndex: 7}), ErrInvalid, "SGID index 7 has no GID")
	wantErr(t, q.Connect(must(b.qp.Endpoint(0)), ConnectOptions{GIDIndex: 1}), ErrInvalid, "not of one IP version")
	_, err := q.Endpoint(9)
	wantErr(t, err, ErrInvalid, "no GID at index 9")
}

// COMM_EST when the first packet finds the QP in RTR; SQ_DRAINED when asked for.
func TestCommEstAndDrained(t *testing.T) {
	da, db, err := OpenPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer da.Close()
	defer db.Close()
	a, b := newSide(da, 4096, Caps{}), newSide(db, 4096, Caps{})
	o := ConnectOptions{Access: RemoteWrite}
	if err := errors.Join(b.qp.ToInit(o), b.qp.ToRTR(must(a.qp.Endpoint(0)), o), a.qp.Connect(must(b.qp.Endpoint(0)), o)); err != nil {
		t.Fatal(err)
	}
	wr := write(a, b, 0, b.mr.RKey())
	wr.Flags = Signaled
	must(a.qp.PostSend(wr))
	a.done(t)
	if e := wantEvent(t, db, EventCommEst); e.QP != b.qp {
		t.Errorf("event of %v", e.QP)
	}
	if err := a.qp.Modify(QPAttr{State: StateSQD, SQDAsyncNotify: true}, AttrState|AttrSQDAsyncNotify); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, da, EventSQDrained)
	must(a.qp.PostSend(wr))
	time.Sleep(2 * time.Millisecond)
	if n := a.cq.Poll(make([]WC, 1)); n != 0 {
		t.Error("a QP in SQD sends")
	}
	if err := a.qp.Modify(QPAttr{State: StateRTS}, AttrState); err != nil {
		t.Fatal(err)
	}
	a.done(t)
}
