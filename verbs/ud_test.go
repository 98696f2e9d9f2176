package verbs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
)

// dgram is a device with a datagram QP in RTS that has posted receives.
type dgram struct {
	t   *testing.T
	dev *Device
	pd  *PD
	cq  *CQ
	qp  *QP
	buf []byte
	mr  *MR
}

const dgramQKey = 0x1234

func newDgram(t *testing.T, d *Device, typ QPType) *dgram {
	t.Helper()
	g := &dgram{t: t, dev: d, pd: must(d.AllocPD()), buf: make([]byte, 1<<16)}
	g.cq = must(d.CreateCQ(256, nil))
	g.mr = must(g.pd.RegMR(g.buf, LocalWrite))
	g.qp = must(g.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: g.cq, RecvCQ: g.cq}))
	if err := g.qp.Start(ConnectOptions{QKey: dgramQKey}); err != nil {
		t.Fatal(err)
	}
	return g
}

// recv posts a receive of n bytes at off.
func (g *dgram) recv(off, n int) {
	must(g.qp.PostRecv(RecvWR{ID: uint64(off), SGEs: []SGE{g.mr.SGE(off, n)}}))
}

// wait polls for a completion.
func (g *dgram) wait() WC {
	g.t.Helper()
	var wc [1]WC
	for end := time.Now().Add(5 * time.Second); g.cq.Poll(wc[:]) == 0; {
		if time.Now().After(end) {
			g.t.Fatal("no completion in five seconds")
		}
	}
	return wc[0]
}

// to makes a datagram to h by the source GID at an index.
func (g *dgram) to(h *dgram, gid int, n int) SendWR {
	a := must(g.pd.CreateAH(AV{DGID: h.dev.GIDs()[gid], SGIDIndex: uint8(gid)}))
	return SendWR{ID: 7, Opcode: OpSend, Flags: Signaled, SGEs: []SGE{g.mr.SGE(0, n)}, AH: a, RemoteQPN: h.qp.Number(), RemoteQKey: dgramQKey}
}

// A datagram comes with its header, by which the receiver can answer.
func TestDatagrams(t *testing.T) {
	a, b := openPair(t)
	for gid, name := range []string{"IPv6", "IPv4"} {
		t.Run(name, func(t *testing.T) {
			x, y := newDgram(t, a, UD), newDgram(t, b, UD)
			copy(x.buf, pattern(3000, 1))
			y.recv(100, GRHLen+3000)
			w := x.to(y, gid, 3000)
			w.Opcode, w.Imm = OpSendImm, 0xcafe
			must(x.qp.PostSend(w))
			if wc := x.wait(); wc.Status != Success || wc.Opcode != WCSend {
				t.Fatalf("sent: %+v", wc)
			}
			wc := y.wait()
			if wc.Status != Success || wc.ByteLen != GRHLen+3000 || wc.SrcQP != x.qp.Number() || wc.Flags != WCGRH|WCWithImm || wc.Imm != 0xcafe {
				t.Fatalf("received: %+v", wc)
			}
			if !bytes.Equal(y.buf[100+GRHLen:][:3000], x.buf[:3000]) {
				t.Error("other bytes came")
			}
			av, err := b.AVFromWC(&wc, y.buf[100:][:GRHLen])
			if err != nil || av.DGID != a.GIDs()[gid] || av.SGIDIndex != uint8(gid) {
				t.Fatalf("address of the sender: %+v, %v", av, err)
			}
			x.recv(100, GRHLen+8)
			must(y.qp.PostSend(SendWR{Opcode: OpSend, InlineData: []byte("answer"), AH: must(y.pd.CreateAH(av)), RemoteQPN: wc.SrcQP, RemoteQKey: dgramQKey}))
			if wc := x.wait(); wc.ByteLen != GRHLen+6 || string(x.buf[100+GRHLen:][:6]) != "answer" {
				t.Fatalf("answer: %+v", wc)
			}
		})
	}
}

// One QP sends to others on both devices, its own included, and to itself.
func TestDatagramsToMany(t *testing.T) {
	a, b := openPair(t)
	all := []*dgram{newDgram(t, a, UD), newDgram(t, a, UD), newDgram(t, b, UD), newDgram(t, b, UD)}
	for _, g := range all {
		for i := range 20 {
			g.recv(1000+i*100, 100)
		}
	}
	for i := range 20 {
		for k, g := range all {
			w := all[0].to(g, i%2, 10)
			w.SGEs, w.Flags, w.InlineData = nil, 0, []byte{byte(i), byte(k)}
			must(all[0].qp.PostSend(w))
		}
	}
	for k, g := range all {
		for i := range 20 {
			wc := g.wait()
			if got := g.buf[wc.ID+GRHLen:][:2]; wc.Status != Success || got[0] != byte(i) || got[1] != byte(k) {
				t.Fatalf("QP %d: message %d is %v of %+v", k, i, got, wc)
			}
		}
	}
}

// QP1 is a port's only once, has its number and its Q_Key, and is free again
// when its owner has gone.
func TestQP1(t *testing.T) {
	a, b := openPair(t)
	x, y := newDgram(t, a, GSI), newDgram(t, b, GSI)
	if x.qp.Number() != 1 {
		t.Fatalf("QP1 is %v", x.qp.Number())
	}
	_, err := x.pd.CreateQP(QPInitAttr{Type: GSI, SendCQ: x.cq, RecvCQ: x.cq})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "owner") {
		t.Errorf("a second QP1: %v", err)
	}
	y.recv(100, GRHLen+256)
	w := x.to(y, 0, 256)
	w.RemoteQKey = ib.QKeyGSI
	must(x.qp.PostSend(w))
	if wc := y.wait(); wc.Status != Success || wc.SrcQP != 1 || wc.PKeyIndex != 0 {
		t.Fatalf("%+v", wc)
	}
	w.Opcode = OpSendImm
	if _, err := x.qp.PostSend(w); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "allowed: SEND)") {
		t.Errorf("SEND_IMM: %v", err)
	}
	if err := x.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if q := must(x.pd.CreateQP(QPInitAttr{Type: GSI, SendCQ: x.cq, RecvCQ: x.cq})); q.Number() != 1 {
		t.Errorf("the next QP1 is %v", q.Number())
	}
}

// What can't be is refused at post, and the message says what could.
func TestPostDatagramErrors(t *testing.T) {
	a, b := openPair(t)
	x, y := newDgram(t, a, UD), newDgram(t, b, UD)
	good := x.to(y, 0, 10)
	gone := must(x.pd.CreateAH(good.AH.AV()))
	if err := gone.Destroy(); err != nil {
		t.Fatal(err)
	}
	other := must(must(a.AllocPD()).CreateAH(good.AH.AV()))
	for name, c := range map[string]struct {
		change func(*SendWR)
		is     error
		says   string
	}{
		"WRITE":         {func(w *SendWR) { w.Opcode = OpWrite }, ErrInvalid, "WRITE on a QP of type UD (allowed: SEND, SEND_IMM)"},
		"no AH":         {func(w *SendWR) { w.AH = nil }, ErrInvalid, "no AH"},
		"another PD":    {func(w *SendWR) { w.AH = other }, ErrInvalid, "another PD"},
		"a dead AH":     {func(w *SendWR) { w.AH = gone }, ErrClosed, "AH"},
		"QPN":           {func(w *SendWR) { w.RemoteQPN = 1 << 24 }, ErrInvalid, "24 bits"},
		"P_Key":         {func(w *SendWR) { w.PKeyIndex = 1 }, ErrInvalid, "allowed: 0"},
		"length":        {func(w *SendWR) { w.SGEs = []SGE{x.mr.SGE(0, 4097)} }, ErrInvalid, "the most is 4096"},
		"inline length": {func(w *SendWR) { w.InlineData, w.SGEs = make([]byte, 129), nil }, ErrInvalid, "MaxInline"},
	} {
		w := good
		c.change(&w)
		if _, err := x.qp.PostSend(w); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rc := must(x.pd.CreateQP(QPInitAttr{SendCQ: x.cq, RecvCQ: x.cq}))
	if err := rc.Connect(Endpoint{QPN: 5, GID: b.GIDs()[0]}, ConnectOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rc.PostSend(good); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "type RC") {
		t.Errorf("an AH on RC: %v", err)
	}
}

func TestAddressHandles(t *testing.T) {
	a, b := openPair(t)
	pd := must(a.AllocPD())
	for name, av := range map[string]AV{
		"no source GID": {DGID: b.GIDs()[0], SGIDIndex: 9}, "two kinds": {DGID: b.GIDs()[0], SGIDIndex: 1}, "no DGID": {},
		"two kinds, one a group": {DGID: ib.GID{0: 0xff, 1: 0x0e, 15: 1}, SGIDIndex: 1},
	} {
		if _, err := pd.CreateAH(av); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := must(pd.CreateAH(AV{DGID: b.GIDs()[0]}))
	if h.AV().HopLimit != 64 {
		t.Errorf("hop limit %d", h.AV().HopLimit)
	}
	if err := pd.Dealloc(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "1 AH") {
		t.Errorf("dealloc: %v", err)
	}
	if err := h.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := h.Destroy(); !errors.Is(err, ErrClosed) {
		t.Errorf("destroyed twice: %v", err)
	}
	if err := pd.Dealloc(); err != nil {
		t.Error(err)
	}
	if _, err := pd.CreateAH(AV{DGID: b.GIDs()[0]}); !errors.Is(err, ErrClosed) {
		t.Errorf("on a PD that is gone: %v", err)
	}
	if _, err := a.AVFromWC(&WC{Flags: WCGRH}, make([]byte, GRHLen)); !errors.Is(err, ErrInvalid) {
		t.Errorf("no header: %v", err)
	}
	if _, err := a.AVFromWC(&WC{}, make([]byte, GRHLen)); !errors.Is(err, ErrInvalid) {
		t.Errorf("no WCGRH: %v", err)
	}
}

// A send that fails stops sends; receives go on, and Modify to RTS resumes.
func TestSQE(t *testing.T) {
	a, b := openPair(t)
	x, y := newDgram(t, a, UD), newDgram(t, b, UD)
	y.recv(100, 200)
	x.recv(100, 200)
	bad := x.to(y, 0, 10)
	bad.SGEs = []SGE{x.mr.SGE(1<<16-5, 10)}
	must(x.qp.PostSend(bad, x.to(y, 0, 10)))
	if wc := x.wait(); wc.Status != LocProtErr {
		t.Fatalf("%+v", wc)
	}
	if wc := x.wait(); wc.Status != WRFlushErr {
		t.Fatalf("%+v", wc)
	}
	if s := must(x.qp.Query()).State; s != StateSQE {
		t.Fatalf("state %v", s)
	}
	must(y.qp.PostSend(y.to(x, 0, 10)))
	y.wait()
	if wc := x.wait(); wc.Status != Success || wc.Opcode != WCRecv {
		t.Fatalf("%+v", wc)
	}
	if err := x.qp.Modify(QPAttr{State: StateRTS}, AttrState); err != nil {
		t.Fatal(err)
	}
	must(x.qp.PostSend(x.to(y, 0, 10)))
	x.wait()
	if wc := y.wait(); wc.Status != Success {
		t.Fatalf("%+v", wc)
	}
}

// UC carries messages of every size, SENDs and WRITEs, with and without immediate data.
func TestUC(t *testing.T) {
	a, b := openPair(t)
	x, y := newUCEnd(t, a), newUCEnd(t, b)
	for _, e := range [][2]*dgram{{x, y}, {y, x}} {
		if err := e[0].qp.Connect(must(e[1].qp.Endpoint(0)), ConnectOptions{Access: RemoteWrite}); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range []int{0, 1, 1023, 1024, 1025, 5000, 20000} {
		copy(x.buf, pattern(n, byte(i)))
		if n > 0 {
			x.buf[n-1] = 0xff // what is waited for
		}
		for _, op := range []Opcode{OpSend, OpSendImm, OpWrite, OpWriteImm} {
			clear(y.buf)
			if op != OpWrite {
				y.recv(30000, 20000)
			}
			must(x.qp.PostSend(SendWR{Opcode: op, Flags: Signaled, SGEs: []SGE{x.mr.SGE(0, n)}, Imm: uint32(n), RemoteAddr: y.mr.IOVA(), RKey: y.mr.RKey()}))
			if wc := x.wait(); wc.Status != Success {
				t.Fatalf("%v of %d bytes: %+v", op, n, wc)
			}
			at := 0
			if op == OpSend || op == OpSendImm {
				at = 30000
			}
			if op != OpWrite {
				wc := y.wait()
				imm := op != OpSend
				if wc.Status != Success || wc.ByteLen != uint32(n) || (wc.Flags&WCWithImm != 0) != imm || imm && wc.Imm != uint32(n) || wc.SrcQP != x.qp.Number() {
					t.Fatalf("%v of %d bytes came as %+v", op, n, wc)
				}
			} else {
				for end := time.Now().Add(5 * time.Second); n > 0 && y.mr.Load8(n-1) != x.buf[n-1] && time.Now().Before(end); {
					y.cq.Poll(make([]WC, 1))
				}
			}
			if n > 0 && y.mr.Load8(at+n-1) != x.buf[n-1] || !bytes.Equal(y.buf[at:at+n], x.buf[:n]) {
				t.Fatalf("%v of %d bytes: other bytes came", op, n)
			}
		}
	}
	if _, err := x.qp.PostSend(SendWR{Opcode: OpRead}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "allowed: WRITE, WRITE_IMM, SEND, SEND_IMM") {
		t.Errorf("a READ: %v", err)
	}
}

func newUCEnd(t *testing.T, d *Device) *dgram {
	g := &dgram{t: t, dev: d, pd: must(d.AllocPD()), buf: make([]byte, 1<<16)}
	g.cq = must(d.CreateCQ(256, nil))
	g.mr = must(g.pd.RegMR(g.buf, LocalWrite|RemoteWrite))
	g.qp = must(g.pd.CreateQP(QPInitAttr{Type: UC, SendCQ: g.cq, RecvCQ: g.cq}))
	return g
}

// Only what the sender marks solicited wakes a CQ that is armed for that.
func TestSolicited(t *testing.T) {
	a, b := openPair(t)
	for _, typ := range []QPType{RC, UC, UD} {
		t.Run(typ.String(), func(t *testing.T) {
			x, y := newUCEnd(t, a), newUCEnd(t, b)
			ch := must(b.CreateCompChannel())
			y.cq = must(b.CreateCQ(64, ch))
			for _, g := range []*dgram{x, y} {
				g.qp = must(g.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: g.cq, RecvCQ: g.cq}))
			}
			w := SendWR{Opcode: OpSend, SGEs: []SGE{x.mr.SGE(0, 8)}}
			if typ == UD {
				wantNone(t, x.qp.Start(ConnectOptions{QKey: dgramQKey}), y.qp.Start(ConnectOptions{QKey: dgramQKey}))
				w = x.to(y, 0, 8)
				w.Flags = 0
			} else {
				o := ConnectOptions{Access: RemoteWrite}
				wantNone(t, x.qp.Connect(must(y.qp.Endpoint(0)), o), y.qp.Connect(must(x.qp.Endpoint(0)), o))
			}
			for i := range 4 {
				y.recv(i*100, 100)
			}
			wantNone(t, y.cq.ReqNotify(true))
			must(x.qp.PostSend(w))
			if wc := y.wait(); wc.Solicited {
				t.Fatalf("%+v", wc)
			}
			if cq, err := ch.TryWait(); cq != nil || err != nil {
				t.Fatalf("an event without a solicited message: %v %v", cq, err)
			}
			w.Flags = Solicited
			must(x.qp.PostSend(w))
			if wc := y.wait(); !wc.Solicited {
				t.Fatalf("%+v", wc)
			}
			wantRaised(t, ch, y.cq)
			if typ == UD {
				return
			}
			wantNone(t, y.cq.ReqNotify(true))
			w = SendWR{Opcode: OpWriteImm, Flags: Solicited, RemoteAddr: y.mr.IOVA(), RKey: y.mr.RKey()}
			must(x.qp.PostSend(w))
			y.wait()
			wantRaised(t, ch, y.cq)
		})
	}
}

// wantRaised waits for an event of cq: a worker raises it when it has put the completion in.
func wantRaised(t *testing.T, ch *CompChannel, cq *CQ) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if got, err := ch.Wait(ctx); got != cq || err != nil {
		t.Fatalf("no event for a solicited message: %v %v", got, err)
	}
}

func wantNone(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func openPair(t *testing.T) (a, b *Device) {
	t.Helper()
	a, b, err := OpenPair(PairOptions{})
	wantNone(t, err)
	t.Cleanup(func() { wantNone(t, a.Close(), b.Close()) })
	return a, b
}

// pattern makes n bytes that differ from those of another seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed
	}
	return b
}
