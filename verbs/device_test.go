package verbs

import (
	"errors"
	"strings"
	"testing"
)

func wantErr(t *testing.T, err, is error, says string) {
	t.Helper()
	if !errors.Is(err, is) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v\nwant %v, saying %q", err, is, says)
	}
}

func TestDestroyOrder(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq := must(b.dev.CreateCQ(4, ch))
	q := must(b.pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: b.cq}))
	wantErr(t, b.pd.Dealloc(), ErrBusy, "in use by 1 QP and 1 MR")
	wantErr(t, cq.Destroy(), ErrBusy, "in use by 1 QP")
	wantErr(t, b.cq.Destroy(), ErrBusy, "in use by 1 QP")
	wantErr(t, ch.Destroy(), ErrBusy, "in use by 1 CQ")
	for _, destroy := range []func() error{q.Destroy, b.mr.Dereg, b.pd.Dealloc, cq.Destroy, b.cq.Destroy, ch.Destroy} {
		if err := destroy(); err != nil {
			t.Error(err)
		}
		wantErr(t, destroy(), ErrClosed, "")
	}
	if b.engine.barriers != 1 || !q.engine.(*fakeQP).gone {
		t.Error("Dereg waits for the workers; Destroy destroys the QP")
	}
}

func TestMakingFromWhatIsGone(t *testing.T) {
	b := newBench(t)
	ch := must(b.dev.CreateCompChannel())
	cq, pd := must(b.dev.CreateCQ(4, nil)), must(b.dev.AllocPD())
	for _, err := range []error{ch.Destroy(), cq.Destroy(), pd.Dealloc()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.dev.CreateCQ(4, ch)
	wantErr(t, err, ErrClosed, "completion channel")
	_, err = pd.RegMR(b.buf, 0)
	wantErr(t, err, ErrClosed, "PD")
	_, err = pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: cq})
	wantErr(t, err, ErrClosed, "RecvCQ")
	wantErr(t, err, ErrClosed, "PD")
	q, _ := b.qp(DefaultCaps, StateRTS)
	q.Destroy()
	_, err = q.PostSend(SendWR{})
	wantErr(t, err, ErrClosed, "QP 0x000001")
	_, err = q.PostRecv(RecvWR{})
	wantErr(t, err, ErrClosed, "")
	_, err = q.Query()
	wantErr(t, err, ErrClosed, "")
	wantErr(t, q.Modify(QPAttr{}, 0), ErrClosed, "")
}

func TestCloseDestroysAll(t *testing.T) {
	b := newBench(t)
	q, f := b.qp(DefaultCaps, StateRTS)
	if err := b.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if !f.gone || !b.mr.now.Load().mr.Dead() {
		t.Error("Close left a QP or an MR alive")
	}
	if _, open := <-b.dev.Events(); open {
		t.Error("the channel of events is open")
	}
	_, err := b.dev.AllocPD()
	wantErr(t, err, ErrClosed, "fake0")
	wantErr(t, q.Destroy(), ErrClosed, "")
	wantErr(t, b.mr.Dereg(), ErrClosed, "")
	if err := errors.Join(b.dev.Close(), b.pd.Dealloc(), b.cq.Destroy()); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

func TestRegMRRefuses(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		buf  []byte
		acc  Access
		iova uint64
		says string
	}{
		{nil, 0, 0, "length 0"},
		{b.buf, 1 << 10, 0, "unknown access"},
		{b.buf, RemoteWrite, 0, "lacks LOCAL_WRITE"},
		{b.buf, RemoteAtomic, 0, "lacks LOCAL_WRITE"},
		{b.buf, 0, ^uint64(0) - 100, "exceeds 64 bits"},
		{b.buf, ZeroBased, 4096, "ZERO_BASED"},
	} {
		_, err := b.pd.RegMROpts(c.buf, c.acc, MROptions{IOVA: c.iova})
		wantErr(t, err, ErrInvalid, c.says)
	}
	m := must(b.pd.RegMROpts(b.buf, RemoteRead, MROptions{IOVA: 0x1000}))
	z := must(b.pd.RegMR(b.buf, ZeroBased))
	if m.IOVA() != 0x1000 || z.IOVA() != 0 || b.mr.IOVA() == 0 || m.RKey() == z.RKey() {
		t.Errorf("IOVAs %#x %#x %#x", m.IOVA(), z.IOVA(), b.mr.IOVA())
	}
	if b.pd.mrs != 3 {
		t.Errorf("the PD counts %d MRs, want 3", b.pd.mrs)
	}
}

func TestCapsAreChecked(t *testing.T) {
	b := newBench(t)
	a := b.dev.Query()
	most := Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: a.MaxSGE, MaxRecvSGE: a.MaxSGE, MaxInline: a.MaxInline}
	wr := Caps{MaxSendWR: a.MaxQPWR, MaxRecvWR: a.MaxQPWR, MaxSendSGE: 1, MaxRecvSGE: 1}
	for _, c := range []Caps{most, wr} {
		if _, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Caps: c}); err != nil {
			t.Errorf("at the limit: %v", err)
		}
	}
	for name, change := range map[string]func(*Caps){
		"MaxSendWR": func(c *Caps) { c.MaxSendWR = a.MaxQPWR + 1 }, "MaxRecvWR": func(c *Caps) { c.MaxRecvWR = -1 },
		"MaxSendSGE": func(c *Caps) { c.MaxSendSGE++ }, "MaxRecvSGE": func(c *Caps) { c.MaxRecvSGE++ },
		"MaxInline": func(c *Caps) { c.MaxInline++ },
	} {
		c := most
		change(&c)
		_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Caps: c})
		wantErr(t, err, ErrInvalid, name)
	}
	for _, depth := range []int{0, -1, a.MaxCQE + 1} {
		_, err := b.dev.CreateCQ(depth, nil)
		wantErr(t, err, ErrInvalid, "allowed: 1 to")
	}
	_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq})
	wantErr(t, err, ErrInvalid, "must both be set")
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.engine.fail = errors.New("no number left")
	_, err := b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq})
	wantErr(t, err, b.engine.fail, "fake0: create QP")
	if err := errors.Join(b.mr.Dereg(), b.pd.Dealloc(), b.cq.Destroy()); err != nil {
		t.Error(err)
	}
}

func TestWCErr(t *testing.T) {
	wc := WC{ID: 5, QPN: 0x11, Status: RetryExcErr}
	var ce *CompletionError
	if err := wc.Err(); !errors.As(err, &ce) || ce.WC != wc ||
		err.Error() != "verbs: QP 0x000011: work request 5: transport retry counter exceeded (status 12)" {
		t.Errorf("%v", err)
	}
	if wc.Status = Success; wc.Err() != nil {
		t.Error("a success is no error")
	}
}

func TestQueryGID(t *testing.T) {
	b := newBench(t)
	if g, err := b.dev.QueryGID(0); err != nil || g != b.engine.gids[0] {
		t.Error(g, err)
	}
	for _, i := range []int{-1, 1, 2} {
		_, err := b.dev.QueryGID(i)
		wantErr(t, err, ErrInvalid, "(the table: 0: fe80::1)")
	}
}
