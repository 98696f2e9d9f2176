package verbs

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/tests/conform"
)

// Modify to ERR in a flood: each work request completes exactly once, in order per queue, and first the successes.
func TestErrInAFlood(t *testing.T) {
	conform.Row(t, "5.11/31", "bug/24")
	for round := range 10 {
		a, b := newPair(t, 1<<16, Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}, ConnectOptions{})
		const total = 400
		stop := time.Duration(round) * 100 * time.Microsecond
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; i < total; {
				n, _ := b.qp.PostRecv(RecvWR{ID: uint64(i), SGEs: []SGE{b.mr.SGE(0, 4096)}})
				if i += n; n == 0 {
					runtime.Gosched()
				}
			}
		})
		wg.Go(func() {
			for i := 0; i < total; {
				n, _ := a.qp.PostSend(SendWR{ID: uint64(i), Opcode: OpSend, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 4096)}})
				if i += n; n == 0 {
					runtime.Gosched()
				}
			}
		})
		wg.Go(func() {
			time.Sleep(stop)
			a.qp.Modify(QPAttr{State: StateErr}, AttrState)
			time.Sleep(stop)
			b.qp.Modify(QPAttr{State: StateErr}, AttrState)
		})
		sends, recvs := a.wait(t, total), b.wait(t, total)
		wg.Wait()
		checkFlood(t, "send", sends)
		checkFlood(t, "receive", recvs)
		if n := a.cq.Poll(sends) + b.cq.Poll(recvs); n != 0 {
			t.Fatalf("%d completions too many", n)
		}
	}
}

func checkFlood(t *testing.T, what string, wcs []WC) {
	t.Helper()
	flushed := false
	for i, wc := range wcs {
		if wc.ID != uint64(i) {
			var ids []uint64
			for _, wc := range wcs {
				ids = append(ids, wc.ID)
			}
			t.Fatalf("%s completion %d is of work request %d: %d", what, i, wc.ID, ids)
		}
		if flushed && wc.Status != WRFlushErr {
			t.Fatalf("%s %d: %v after a flush", what, i, wc.Status)
		}
		flushed = flushed || wc.Status != Success
	}
}

// Destroy under traffic: it returns, and nothing completes afterwards.
func TestDestroyUnderTraffic(t *testing.T) {
	conform.Row(t, "bug/53")
	a, b := newPair(t, 1<<16, Caps{MaxSendWR: 32, MaxSendSGE: 1}, ConnectOptions{})
	for round := range 20 {
		var wg sync.WaitGroup
		for _, s := range []*side{a, b} {
			peer := map[*side]*side{a: b, b: a}[s]
			wg.Go(func() {
				wcs := make([]WC, 16)
				for {
					wr := write(s, peer, 0, peer.mr.RKey())
					wr.Flags, wr.SGEs = Signaled, []SGE{s.mr.SGE(0, 1<<15)}
					if _, err := s.qp.PostSend(wr); err != nil && s.qp.gone.Load() {
						return
					}
					s.cq.Poll(wcs)
				}
			})
		}
		time.Sleep(time.Duration(round%5) * 200 * time.Microsecond)
		victim, other := a, b
		if round%2 == 1 {
			victim, other = b, a
		}
		if err := victim.qp.Destroy(); err != nil {
			t.Fatal(err)
		}
		if err := other.qp.Destroy(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for _, s := range []*side{a, b} {
			for wcs := make([]WC, 64); s.cq.Poll(wcs) > 0; {
			}
			time.Sleep(100 * time.Microsecond)
			if n := s.cq.Poll(make([]WC, 1)); n != 0 {
				t.Fatal("a completion of a QP that was destroyed")
			}
			s.qp = must(s.pd.CreateQP(QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Caps: Caps{MaxSendWR: 32, MaxSendSGE: 1}}))
		}
		connect(t, a, b, ConnectOptions{})
	}
}

// Many goroutines post to one QP while several poll its CQ.
func TestConcurrentPostAndPoll(t *testing.T) {
	const posters, each, pollers = 4, 500, 3
	a, b := newPair(t, 1<<16, Caps{MaxSendWR: 32, MaxSendSGE: 1}, ConnectOptions{})
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := 0; i < each; {
				wr := write(a, b, 8*p, b.mr.RKey())
				wr.ID, wr.Flags, wr.SGEs = uint64(p*each+i), Signaled, []SGE{a.mr.SGE(8*p, 8)}
				n, _ := a.qp.PostSend(wr)
				if i += n; n == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[uint64]int{}
	for range pollers {
		wg.Go(func() {
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				wcs := make([]WC, 5)
				n := a.cq.Poll(wcs)
				mu.Lock()
				for _, wc := range wcs[:n] {
					if seen[wc.ID]++; wc.Status != Success {
						t.Error(wc.Err())
					}
				}
				all := len(seen) == posters*each
				mu.Unlock()
				if all {
					return
				}
			}
			t.Errorf("%d of %d work requests completed; %+v", len(seen), posters*each, must(a.qp.Query()))
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("work request %d completed %d times", id, n)
		}
	}
}

// Ping-pong with both sides asleep between messages: completion channels wake them, and the workers go on by themselves.
func TestCompChannelPingPong(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const rounds = 300
	var wg sync.WaitGroup
	for i, s := range []*side{a, b} {
		s.qp.Destroy()
		ch := must(s.dev.CreateCompChannel())
		s.cq = must(s.dev.CreateCQ(16, ch))
		s.qp = must(s.pd.CreateQP(QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq}))
		must(s.dev, s.qp.ToInit(ConnectOptions{}))
		must(s.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{s.mr.SGE(0, 8)}}))
		must(s.dev, s.cq.ReqNotify(false))
		_ = i
	}
	connect(t, a, b, ConnectOptions{})
	for i, s := range []*side{a, b} {
		wg.Go(func() {
			if i == 0 {
				must(s.qp.PostSend(SendWR{Opcode: OpSend, InlineData: make([]byte, 8)}))
			}
			wcs := make([]WC, 4)
			for got := 0; got < rounds; {
				if _, err := s.cq.Channel().Wait(ctx); err != nil {
					t.Errorf("side %d after %d messages: %v", i, got, err)
					return
				}
				must(s.dev, s.cq.ReqNotify(false))
				for n := s.cq.Poll(wcs); n > 0; n = s.cq.Poll(wcs) {
					for _, wc := range wcs[:n] {
						if wc.Opcode != WCRecv || wc.Err() != nil {
							t.Errorf("%+v", wc)
						}
						if got++; got == rounds && i == 0 {
							return
						}
						must(s.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{s.mr.SGE(0, 8)}}))
						must(s.qp.PostSend(SendWR{Opcode: OpSend, InlineData: make([]byte, 8)}))
					}
				}
			}
		})
	}
	wg.Wait()
}

// A program that polls the memory a peer WRITEs, as perftest does: when the last word is there, all of it is.
func TestPollingMemory(t *testing.T) {
	const size = 4096 + 8
	a, b := newPair(t, 8192, Caps{}, ConnectOptions{})
	for round := uint64(1); round <= 200; round++ {
		for i := 0; i < size; i += 8 {
			binary.NativeEndian.PutUint64(a.buf[i:], round)
		}
		wr := write(a, b, 0, b.mr.RKey())
		wr.Flags, wr.SGEs = Signaled, []SGE{a.mr.SGE(0, size)}
		must(a.qp.PostSend(wr))
		for end := time.Now().Add(5 * time.Second); b.mr.Load64(size-8) != round; {
			if b.cq.Poll(nil); time.Now().After(end) {
				t.Fatal("the WRITE doesn't arrive")
			}
			a.cq.Poll(nil)
		}
		for i := 0; i < size; i += 8 {
			if v := binary.NativeEndian.Uint64(b.buf[i:]); v != round {
				t.Fatalf("round %d: the last word is there, but at %d stands %d", round, i, v)
			}
		}
		a.done(t)
	}
}

// This process's atomics on a region are atomic with a peer's.
func TestAtomicsWithLocalOnes(t *testing.T) {
	const each = 300
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range each {
			b.mr.Add64(0, 1)
			runtime.Gosched()
		}
	})
	for range each {
		must(a.qp.PostSend(SendWR{Opcode: OpFetchAdd, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey(), CompareAdd: 1}))
		a.done(t)
	}
	wg.Wait()
	if v := b.mr.Load64(0); v != 2*each {
		t.Errorf("%d, want %d", v, 2*each)
	}
}

func TestTrafficAllocatesNothing(t *testing.T) {
	a, b := newPair(t, 1<<16, Caps{}, ConnectOptions{})
	wcs := make([]WC, 4)
	poll := func(c *CQ) {
		for c.Poll(wcs) == 0 {
		}
	}
	if n := testing.AllocsPerRun(500, func() {
		b.qp.PostRecv(RecvWR{SGEs: []SGE{{b.mr, 0, 4096}}})
		a.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, SGEs: []SGE{{a.mr, 0, 4096}}})
		poll(b.cq)
		poll(a.cq)
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// Who has polled a receive may destroy its QP at once: the sender's message was acknowledged.
func TestDestroyAfterReceive(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	for range 100 {
		must(b.qp.PostRecv(RecvWR{SGEs: []SGE{b.mr.SGE(0, 8)}}))
		must(a.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, InlineData: make([]byte, 8)}))
		b.done(t)
		b.qp.Destroy()
		a.done(t)
		a.qp.Destroy()
		for _, s := range []*side{a, b} {
			s.qp = must(s.pd.CreateQP(QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq}))
		}
		connect(t, a, b, ConnectOptions{})
	}
}

// RESET in the middle of traffic, and a new connection: nothing of the old one shows.
func TestResetUnderTraffic(t *testing.T) {
	a, b := newPair(t, 1<<16, Caps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}, ConnectOptions{})
	for round := range uint64(50) {
		for i := range uint64(8) {
			must(b.qp.PostRecv(RecvWR{ID: round<<8 | i, SGEs: []SGE{b.mr.SGE(0, 1<<16)}}))
			must(a.qp.PostSend(SendWR{ID: round<<8 | i, Opcode: OpSend, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 1<<15)}}))
		}
		for _, s := range []*side{a, b} {
			for range s.wait(t, int(round%8)) {
			}
			if err := s.qp.Modify(QPAttr{State: StateReset}, AttrState); err != nil {
				t.Fatal(err)
			}
			if n := s.cq.Poll(make([]WC, 1)); n != 0 {
				t.Fatal("a completion after RESET")
			}
		}
		connect(t, a, b, ConnectOptions{})
		must(b.qp.PostRecv(RecvWR{ID: round, SGEs: []SGE{b.mr.SGE(0, 1<<16)}}))
		must(a.qp.PostSend(SendWR{ID: round, Opcode: OpSend, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, 100)}}))
		for _, s := range []*side{a, b} {
			if wc := s.done(t); wc.ID != round {
				t.Fatalf("round %d: %+v", round, wc)
			}
		}
	}
}

// Many QPs complete in one CQ, while several goroutines post to each: every work request completes once, in the order of
// its QP.
func TestManyQPs(t *testing.T) {
	const n, each = 12, 200
	a, b := newPair(t, 1<<16, Caps{}, ConnectOptions{})
	c := Caps{MaxSendWR: 16, MaxSendSGE: 1}
	next := map[ib.QPN]uint64{}
	var wg sync.WaitGroup
	for i := range n {
		qa := must(a.pd.CreateQP(QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Caps: c, SigAll: true}))
		qb := must(b.pd.CreateQP(QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Caps: c}))
		sa, sb := *a, *b
		sa.qp, sb.qp = qa, qb
		connect(t, &sa, &sb, ConnectOptions{})
		next[qa.Number()] = 0
		wg.Go(func() {
			for k := 0; k < each; {
				wr := write(&sa, &sb, 4096*i, b.mr.RKey())
				wr.ID, wr.SGEs = uint64(k), []SGE{a.mr.SGE(0, 1+k*20)}
				posted, _ := qa.PostSend(wr)
				if k += posted; posted == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	for _, wc := range a.wait(t, n*each) {
		if wc.Err() != nil || wc.ID != next[wc.QPN] {
			t.Fatalf("%+v, want work request %d", wc, next[wc.QPN])
		}
		next[wc.QPN]++
	}
	wg.Wait()
}
