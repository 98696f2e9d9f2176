package netns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

const qkey = 0x1234

// newDatagramSide makes a UD QP that is ready.
func newDatagramSide(t testing.TB, d *verbs.Device) *side {
	t.Helper()
	s := &side{dev: d, chn: must(d.CreateCompChannel()), pd: must(d.AllocPD()), buf: make([]byte, 8192)}
	s.cq = must(d.CreateCQ(256, s.chn))
	s.mr = must(s.pd.RegMR(s.buf, verbs.LocalWrite))
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UD, SendCQ: s.cq, RecvCQ: s.cq}))
	if err := s.qp.Start(verbs.ConnectOptions{QKey: qkey}); err != nil {
		t.Fatal(err)
	}
	return s
}

// A datagram to an address that nobody has waits for the kernel to find out. It
// holds up the completions behind it, which come in order, but no packet; after
// a second it counts as lost.
func TestDatagramToNobody(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	a, b := newDatagramSide(t, devs[0]), newDatagramSide(t, devs[1])
	must(b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 200)}}))
	nobody := p.Ends[1].V4.As4()
	nobody[3] = 200
	send := func(id uint64, to netip.Addr) verbs.SendWR {
		av := verbs.AV{DGID: ib.GIDFromAddr(to), SGIDIndex: uint8(gidIndex(a.dev, p.Ends[0].V4))}
		return verbs.SendWR{ID: id, Opcode: verbs.OpSend, Flags: verbs.Signaled, InlineData: []byte("hello"), AH: must(a.pd.CreateAH(av)),
			RemoteQPN: b.qp.Number(), RemoteQKey: qkey}
	}
	start := time.Now()
	must(a.qp.PostSend(send(1, netip.AddrFrom4(nobody)), send(2, p.Ends[1].V4)))
	wc := b.done(t, 1)[0]
	if took := time.Since(start); wc.ByteLen != verbs.GRHLen+5 || wc.SrcQP != a.qp.Number() || took > 900*time.Millisecond {
		t.Errorf("received %+v after %v", wc, took)
	}
	if got := string(b.buf[verbs.GRHLen:][:5]); got != "hello" {
		t.Errorf("received %q", got)
	}
	for i, wc := range a.done(t, 2) {
		if wc.ID != uint64(i+1) {
			t.Errorf("completion %d is of work request %d", i, wc.ID)
		}
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("the datagram to nobody was given up after %v", took)
	}
	if n := a.dev.Stats().Counters["unsent"]; n != 1 {
		t.Errorf("%d datagrams were given up, want 1", n)
	}
}
