package hostile

import (
	"fmt"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// A message whose middle is lost: one NAK with the PSN that is expected, and
// the rest again makes it whole.
func TestLostMiddle(t *testing.T) {
	conform.Row(t, "5.11/2", "5.3/resp-ahead")
	r := newRig(t, ib.MTU256)
	v := r.victim
	v.enter(qp.RTS)
	v.recv(1, recvOff, 700)
	data := pattern(700)
	packets := [][]byte{v.request(0x00, 0, nil, data[:256]).bytes(), v.request(0x01, 1, nil, data[256:512]).bytes(),
		v.request(0x02, 2, nil, data[512:]).bytes()}
	first := v.request(0x00, 0, nil, data[:256])
	first.ackReq = false
	put := func(from, to int) func([]byte) {
		return func(m []byte) { copy(m[recvOff+from:], data[from:to]) }
	}
	r.want("first", r.deliver(first.bytes(), put(0, 256)), outcome{Verdict: wire.Accepted, State: qp.RTS})
	nak := outcome{Verdict: wire.DropOutOfOrder, State: qp.RTS, Sent: []reply{answer(wire.RCAck, firstRQ+1, 0x60, 0)}}
	r.want("last", r.deliver(packets[2], nil), nak)
	nak.Sent = nil
	r.want("last, again", r.deliver(packets[2], nil), nak)
	r.deliver(packets[1], put(256, 512))
	w := wc(1, qp.WCRecv, qp.Success)
	w.ByteLen, w.SrcQP = 700, peerQPN
	r.want("the rest", r.deliver(packets[2], put(512, 700)), outcome{Verdict: wire.Accepted, State: qp.RTS,
		Sent: []reply{answer(wire.RCAck, firstRQ+2, 0x1f, 1)}, WC: []qp.Completion{w}})
}

// READ of 5000 bytes at path MTU 1024: five responses over five PSNs.
func TestReadOfFivePackets(t *testing.T) {
	conform.Row(t, "5.11/4", "5.3/width")
	r := newRig(t, ib.MTU1024)
	v := r.victim
	v.enter(qp.RTS)
	var want []reply
	for i, o := range []wire.Opcode{0x0d, 0x0e, 0x0e, 0x0e, 0x0f} {
		a := answer(o, firstRQ+uint32(i), 0x1f, 1)
		if o == 0x0e {
			a.Syndrome, a.MSN = 0, 0
		}
		a.data = string(v.model[1024*i : min(1024*i+1024, 5000)])
		want = append(want, a)
	}
	o := r.deliver(v.request(0x0c, 0, reth(base, v.mr.Key, 5000), nil).bytes(), nil)
	r.want("READ", o, outcome{Verdict: wire.Accepted, State: qp.RTS, Sent: want})
	// The next request comes after all five.
	o = r.deliver(v.request(0x0c, 5, reth(base, v.mr.Key, 0), nil).bytes(), nil)
	r.want("READ of nothing", o, outcome{Verdict: wire.Accepted, State: qp.RTS, Sent: []reply{answer(0x10, firstRQ+5, 0x1f, 2)}})
}

// asks has the victim SEND 8 bytes and takes the packet.
func (r *rig) asks(change func(toRTS *qp.Attr)) {
	r.t.Helper()
	v := r.victim
	v.enter(qp.Init)
	_, toRTR, toRTS := v.attrs()
	change(&toRTS)
	v.modify(toRTR, rtrMask)
	v.modify(toRTS, rtsMask)
	v.post(qp.SendWQE{ID: requestID, Opcode: qp.WRSend, SGEs: v.sge(localOff, 8)})
	r.step()
	r.wantSends(1)
}

// wantSends says how many packets the victim must have sent.
func (r *rig) wantSends(n int) {
	r.t.Helper()
	if p := r.link.take(); len(p) != n {
		r.t.Fatalf("%d packets sent, want %d: %+v", len(p), n, p)
	}
}

// RNR NAKs of several codes and retry counts: not before the time, as often as
// allowed, and then the end.
func TestRNR(t *testing.T) {
	conform.Row(t, "5.11/12")
	wait := map[byte]time.Duration{0: 655360 * time.Microsecond, 1: 10 * time.Microsecond,
		12: 640 * time.Microsecond, 31: 491520 * time.Microsecond}
	r := newRig(t, ib.MTU256)
	for code, d := range wait {
		for _, retries := range []uint8{0, 1, 6, 7} {
			r.asks(func(a *qp.Attr) { a.RNRRetry = retries })
			rounds := int(retries)
			if retries == 7 {
				rounds = 50 // for ever
			}
			rnr := r.victim.response(0x11, 0, aeth(0x20|code, 0), nil).bytes()
			for range rounds {
				r.want("RNR NAK", r.deliver(rnr, nil), outcome{Verdict: wire.Accepted, State: qp.RTS})
				r.sleep(d - 1)
				r.wantSends(0)
				r.sleep(1)
				r.wantSends(1)
			}
			if retries == 7 {
				continue
			}
			r.want("the last RNR NAK", r.deliver(rnr, nil), outcome{Verdict: wire.Accepted, State: qp.Err,
				WC: []qp.Completion{wc(requestID, qp.WCSend, qp.RNRRetryExcErr)}})
		}
	}
}

// A QP that waits for a receiver that is never ready can be ended.
func TestEndInRNRWait(t *testing.T) {
	conform.Row(t, "bug/12")
	r := newRig(t, ib.MTU256)
	forever := func(a *qp.Attr) { a.RNRRetry = 7 }
	rnr := func() []byte { return r.victim.response(0x11, 0, aeth(0x20, 0), nil).bytes() }
	r.asks(forever)
	r.deliver(rnr(), nil)
	r.victim.modify(qp.Attr{State: qp.Err}, qp.AttrState)
	r.sleep(time.Second)
	if cs := r.victim.cq.got; len(cs) != 1 || cs[0].Status != qp.WRFlushErr {
		t.Fatalf("completions %+v", cs)
	}
	r.wantSends(0)
	r.asks(forever)
	r.deliver(rnr(), nil)
	r.victim.Destroy()
	r.sleep(time.Second)
	r.wantSends(0)
	if cs := r.victim.cq.got; len(cs) != 0 {
		t.Fatalf("completions after the end: %+v", cs)
	}
}

// Every syndrome, in answer to a SEND.
func TestSyndromes(t *testing.T) {
	conform.Row(t, "5.11/13", "5.2/nak-60", "5.2/nak-61", "5.2/nak-62", "5.2/nak-63")
	r := newRig(t, ib.MTU256)
	for s := range 256 {
		r.asks(func(*qp.Attr) {})
		want := silent(wire.DropUnexpected, qp.RTS) // reserved
		end := func(status qp.WCStatus) outcome {
			return outcome{Verdict: wire.Accepted, State: qp.Err,
				WC: []qp.Completion{wc(requestID, qp.WCSend, status)}}
		}
		switch {
		case s < 0x20: // ACK, with any credits
			want = outcome{Verdict: wire.Accepted, State: qp.RTS, WC: []qp.Completion{wc(requestID, qp.WCSend, qp.Success)}}
		case s < 0x40: // RNR NAK
			want = outcome{Verdict: wire.Accepted, State: qp.RTS}
		case s == 0x60:
			again := answer(wire.RCSendOnly, firstSQ, 0, 0)
			again.AckReq, again.data = true, string(r.victim.mem[localOff:localOff+8])
			want = outcome{Verdict: wire.Accepted, State: qp.RTS, Sent: []reply{again}}
		case s == 0x61:
			want = end(qp.RemInvReqErr)
		case s == 0x62:
			want = end(qp.RemAccessErr)
		case s == 0x63:
			want = end(qp.RemOpErr)
		}
		r.want(fmt.Sprintf("syndrome %#02x", s), r.deliver(r.victim.response(0x11, 0, aeth(byte(s), 1), nil).bytes(), nil), want)
	}
}

// Silence ends a connection after one more timeout than there are retries; the third
// and later ones are as long as they may be.
func TestSilence(t *testing.T) {
	conform.Row(t, "5.11/14", "5.4/retries")
	r := newRig(t, ib.MTU256)
	timeout := func(i uint8) time.Duration { return 4096 << 14 << min(i, 2) }
	for retries := range uint8(8) {
		r.asks(func(a *qp.Attr) { a.RetryCnt = retries })
		for i := range retries {
			r.sleep(timeout(i) - 1)
			r.wantSends(0)
			r.sleep(1)
			r.wantSends(1)
		}
		if r.victim.Query().State != qp.RTS {
			t.Fatal("ended too early")
		}
		r.sleep(timeout(retries))
		cs := r.victim.cq.got
		if r.victim.Query().State != qp.Err || len(cs) != 1 || cs[0].Status != qp.RetryExcErr {
			t.Fatalf("retry count %d: state %v, completions %+v", retries, r.victim.Query().State, cs)
		}
	}
}

// Lengths and addresses that a sum of 32 or 64 bits can't hold.
func TestGreatLengths(t *testing.T) {
	conform.Row(t, "5.11/20")
	r := newRig(t, ib.MTU256)
	v := r.victim
	for _, c := range []struct {
		va     uint64
		length int
		nak    byte
	}{
		{base, 1 << 31, 0x62}, // the longest there is, beyond the region
		{base, 1<<31 + 1, 0x61},
		{base, 1<<32 - 1, 0x61},
		{base - 1, 8, 0x62},
		{base + readAt - 7, 8, 0x62},
		{base + readAt, 1, 0x62}, // the region after it has another key
		{^uint64(0), 8, 0x62},
		{^uint64(0) - 7, 8, 0x62},
		{0, 8, 0x62},
		{^uint64(0) - base, 1 << 31, 0x62},
	} {
		for _, op := range []byte{0x0c, 0x06, 0x0a} {
			data := []byte(nil)
			switch {
			case op == 0x06 && c.length > 256:
				data = pattern(256)
			case op == 0x0a && c.length < 256:
				data = pattern(c.length)
			case op != 0x0c:
				continue
			}
			v.enter(qp.RTS)
			event := qp.EventQPAccessErr
			if c.nak == 0x61 {
				event = qp.EventQPReqErr
			}
			o := r.deliver(v.request(op, 0, reth(c.va, v.mr.Key, c.length), data).bytes(), nil)
			r.want(fmt.Sprintf("%#02x: %d bytes at %#x", op, c.length, c.va), o, outcome{Verdict: wire.DropRejected, State: qp.Err,
				Events: []qp.Event{event}, Sent: []reply{answer(wire.RCAck, firstRQ, c.nak, 0)}})
		}
	}
}

// The two ends use different path MTUs.
func TestMTUMismatch(t *testing.T) {
	conform.Row(t, "5.11/30", "bug/41")
	for _, c := range []struct{ ours, theirs ib.MTU }{{ib.MTU256, ib.MTU1024}, {ib.MTU1024, ib.MTU256}} {
		r := newRig(t, c.ours)
		v := r.victim
		v.enter(qp.RTS)
		v.recv(1, recvOff, 4096)
		o := r.deliver(v.request(0x00, 0, nil, pattern(c.theirs.Bytes())).bytes(), nil)
		r.want("SEND first", o, outcome{Verdict: wire.DropRejected, State: qp.Err, Events: []qp.Event{qp.EventQPReqErr},
			Sent: []reply{answer(wire.RCAck, firstRQ, 0x61, 0)}, WC: []qp.Completion{wc(1, qp.WCRecv, qp.WRFlushErr)}})
		v.enter(qp.RTS)
		v.post(qp.SendWQE{ID: 2, Opcode: qp.WRRead, SGEs: v.sge(localOff, 3000), RKey: 1})
		r.step()
		r.wantSends(1)
		o = r.deliver(v.response(0x0d, 0, aeth(0x1f, 1), pattern(c.theirs.Bytes())).bytes(), nil)
		w := wc(2, qp.WCRead, qp.BadRespErr)
		w.ByteLen = 3000
		r.want("READ response", o, outcome{Verdict: wire.DropUnexpected, State: qp.Err, WC: []qp.Completion{w}})
	}
}

// A QP that is moved to ERR while packets pour in: every work request completes
// once, in order, and what comes later is nothing to it.
func TestErrInAFlood(t *testing.T) {
	conform.Row(t, "5.11/31", "bug/24")
	for taken := range 40 {
		r := newRig(t, ib.MTU256)
		v := r.victim
		v.enter(qp.RTS)
		for id := range uint64(100) {
			v.recv(1000+id, recvOff, recvLen)
			v.post(qp.SendWQE{ID: id, Opcode: qp.WROpcode(id % 7), SGEs: v.sge(localOff, 8), RKey: 1})
		}
		for n := range 40 {
			if n == taken {
				r.step()
				v.modify(qp.Attr{State: qp.Err}, qp.AttrState)
			}
			r.link.arrived = append(r.link.arrived, v.sends(n).bytes())
		}
		r.step()
		var sends, recvs uint64
		for i, c := range v.cq.got {
			next, ok := &sends, c.Status == qp.WRFlushErr
			if c.ID >= 1000 {
				next, ok = &recvs, c.Status == qp.Success == (c.ID-1000 < uint64(taken))
			}
			if c.ID%1000 != *next || !ok {
				t.Fatalf("%d taken; completion %d is %+v", taken, i, c)
			}
			*next++
		}
		if sends != 100 || recvs != 100 || v.sq.Retired() != 100 || v.rq.Retired() != 100 {
			t.Fatalf("%d taken: %d sends and %d receives completed, %d and %d retired", taken, sends, recvs, v.sq.Retired(), v.rq.Retired())
		}
	}
}

// A long READ through a transmit queue of 16 frames: all of it comes, in order,
// without the peer asking again.
func TestReadThroughASmallQueue(t *testing.T) {
	conform.Row(t, "bug/18")
	r := newRig(t, ib.MTU256)
	v := r.victim
	v.enter(qp.RTS)
	r.link.room = 16
	const n = 8000
	r.link.arrived = [][]byte{v.request(0x0c, 0, reth(base, v.mr.Key, n), nil).bytes()}
	var got string
	for range 100 {
		r.port.Workers()[0].Step(r.now)
		for _, p := range r.link.take() {
			if want := ib.PSN((firstRQ + len(got)/256) & 0xffffff); p.PSN != want {
				t.Fatalf("PSN %v, want %v", p.PSN, want)
			}
			got += p.data
		}
	}
	if got != string(v.mem[:n]) {
		t.Fatalf("%d bytes came, want %d, or they differ", len(got), n)
	}
}

// The number of READs granted is changed while READs are under way: these are
// answered, and the new number is kept.
func TestFewerReadsGranted(t *testing.T) {
	conform.Row(t, "bug/27")
	for _, granted := range []uint8{0, 1, 5} {
		r := newRig(t, ib.MTU256)
		v := r.victim
		v.enter(qp.SQD)
		r.link.room = 1 // nothing more goes out until it is taken
		for n := range 2 {
			r.link.arrived = append(r.link.arrived, v.request(0x0c, 2*n, reth(base, v.mr.Key, 512), nil).bytes())
		}
		r.port.Workers()[0].Step(r.now)
		v.modify(qp.Attr{MaxDestRdAtomic: granted}, qp.AttrMaxDestRdAtomic)
		sent := r.link.take()
		r.link.room = 0
		r.step()
		if sent = append(sent, r.link.take()...); len(sent) != 4 {
			t.Fatalf("%d granted: %d responses, want 4: %+v", granted, len(sent), sent)
		}
		o := r.deliver(v.request(0x0c, 4, reth(base, v.mr.Key, 4), nil).bytes(), nil)
		if refused := o.Verdict == wire.DropRejected; refused != (granted == 0) {
			t.Fatalf("%d granted: the next is %v", granted, o.Verdict)
		}
	}
}

// A SEND that asks to invalidate what it may not takes its receive with an
// error and ends the QP, and is answered by nothing; what came before it is
// acknowledged.
func TestBadInvalidate(t *testing.T) {
	conform.Row(t, "5.8/resp-invalidate")
	r := newRig(t, ib.MTU256)
	v := r.victim
	for name, key := range map[string]func() uint32{
		"a region's key":           func() uint32 { return v.mr.Key },
		"the bystander's":          r.bystander.freshKey,
		"nobody's":                 func() uint32 { return v.mr.Key ^ 0x5a00 },
		"an old one":               func() uint32 { return v.freshKey() ^ 1 },
		"one that was invalidated": v.spentKey,
	} {
		r.play(qp.RTS, idle)
		k := key()
		first := wc(1, qp.WCRecv, qp.Success)
		first.ByteLen, first.SrcQP = 4, peerQPN
		r.want(name, r.deliver(v.request(0x04, 0, nil, []byte("good")).bytes(), func(m []byte) { copy(m[recvOff:], "good") }),
			outcome{Verdict: wire.Accepted, State: qp.RTS, Sent: []reply{answer(wire.RCAck, firstRQ, 0x1f, 1)}, WC: []qp.Completion{first}})
		f := v.request(0x17, 1, be.AppendUint32(nil, k), []byte("evil"))
		r.want(name, r.deliver(f.bytes(), func(m []byte) { copy(m[recv2Off:], "evil") }),
			outcome{Verdict: wire.Accepted, State: qp.Err, WC: []qp.Completion{wc(2, qp.WCRecv, qp.RemInvReqErr)}})
		r.want(name+", repeated", r.deliver(f.bytes(), nil), silent(wire.DropQPState, qp.Err))
	}
}
