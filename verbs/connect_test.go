package verbs

import (
	"errors"
	"testing"
)

// Zero asks for a 0, in each field that has a default.
func TestZero(t *testing.T) {
	a, _ := newPair(t, 4096, Caps{}, ConnectOptions{MaxRdAtomic: Zero, MaxDestRdAtomic: Zero, MinRNRTimer: Zero, Timeout: Zero, RetryCnt: Zero, RNRRetry: Zero})
	if x := must(a.qp.Query()); x.MaxRdAtomic|x.MaxDestRdAtomic|x.MinRNRTimer|x.Timeout|x.RetryCnt|x.RNRRetry != 0 {
		t.Errorf("%+v", x)
	}
	a, _ = newPair(t, 4096, Caps{}, ConnectOptions{})
	if x := must(a.qp.Query()); x.MaxRdAtomic != 16 || x.MaxDestRdAtomic != 16 || x.MinRNRTimer != 12 || x.Timeout != 14 || x.RetryCnt != 7 || x.RNRRetry != 7 {
		t.Errorf("%+v", x)
	}
}

// What a 0 does: no second try, no READ.
func TestZeroIsKept(t *testing.T) {
	read := func(a, b *side) SendWR {
		return SendWR{Opcode: OpRead, SGEs: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey()}
	}
	for _, c := range []struct {
		name   string
		opts   ConnectOptions
		wr     func(a, b *side) SendWR
		status WCStatus
		once   string // the counter that says how often it was tried
	}{
		{"MaxRdAtomic", ConnectOptions{MaxRdAtomic: Zero}, read, LocQPOpErr, ""},
		{"MaxDestRdAtomic", ConnectOptions{MaxDestRdAtomic: Zero}, read, RemInvReqErr, ""},
		{"RNRRetry", ConnectOptions{RNRRetry: Zero}, func(a, _ *side) SendWR {
			return SendWR{Opcode: OpSend, SGEs: []SGE{a.mr.SGE(0, 8)}}
		}, RNRRetryExcErr, "rcvd_rnr_err"},
		{"RetryCnt", ConnectOptions{RetryCnt: Zero}, func(a, b *side) SendWR {
			b.qp.Destroy()
			return write(a, b, 0, b.mr.RKey())
		}, RetryExcErr, "local_ack_timeout_err"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, 4096, Caps{}, c.opts)
			must(a.qp.PostSend(c.wr(a, b)))
			if wc := a.wait(t, 1)[0]; wc.Status != c.status {
				t.Errorf("status %v, want %v", wc.Status, c.status)
			}
			if n := a.dev.Stats().Counters; c.once != "" && n[c.once] != 1 {
				t.Errorf("%s is %d, want 1: %v", c.once, n[c.once], n)
			}
		})
	}
}

// A datagram QP has no peer: it can't be connected, and a connected one not started.
func TestConnectIsNotForDatagrams(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	for _, typ := range []QPType{UD, GSI} {
		q := must(a.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: a.cq, RecvCQ: a.cq}))
		if err := q.Connect(must(b.qp.Endpoint(0)), ConnectOptions{}); !errors.Is(err, ErrInvalid) || must(q.Query()).State != StateInit {
			t.Errorf("%v in %v: %v", typ, must(q.Query()).State, err)
		}
	}
	q := must(a.pd.CreateQP(QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq}))
	if err := q.Start(ConnectOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("RC started: %v", err)
	}
}
