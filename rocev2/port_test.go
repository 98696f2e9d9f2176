package rocev2

import (
	"encoding/json"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
)

func TestNewPortRefuses(t *testing.T) {
	if _, err := NewPort(Config{Name: "a"}); err == nil {
		t.Error("a port without links was made")
	}
	l, _ := mustPair(t, PairOptions{})
	if _, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: &FixedNet{}, LoopFrames: 3}); err == nil {
		t.Error("a port with 3 loop frames was made")
	}
}

// QP numbers are random, not the management ones, and rest after their use.
func TestQPNumbers(t *testing.T) {
	l, _ := mustPair(t, PairOptions{})
	p := newPort(t, "a", true, "10.0.0.1", l)
	seen := make(map[ib.QPN]bool)
	ascending := 0
	var last ib.QPN
	for range 300 {
		e := newEndpoint(t, p, 10, 1)
		n := e.Number()
		if n < 2 || n >= ib.QPNMulticast || seen[n] {
			t.Fatalf("QP number %v, given out before: %v", n, seen[n])
		}
		if n > last {
			ascending++
		}
		seen[n], last = true, n
		e.Destroy()
		e.Destroy()
	}
	if ascending < 75 || ascending > 225 {
		t.Errorf("%d of 300 numbers are above the one before: not random", ascending)
	}
	if _, err := p.CreateQP(QPInit{}); err == nil {
		t.Error("a QP of nothing was made")
	}
	e := newEndpoint(t, p, 10, 1)
	i := QPInit{PD: e.mr.PD, SQ: &e.sq, RQ: &e.rq, SendCQ: &e.cq, RecvCQ: &e.cq, Number: e.Number()}
	if _, err := p.CreateQP(i); err == nil {
		t.Error("a number was given out twice")
	}
	if i.Number = 1; true {
		if _, err := p.CreateQP(i); err == nil {
			t.Error("QP1 was given out")
		}
	}
}

// QPs spread over the workers.
func TestQPsSpread(t *testing.T) {
	a, _ := newPorts(t, true, 4, PairOptions{})
	n := make(map[*Worker]int)
	for range 12 {
		n[newEndpoint(t, a, 10, 1).Worker()]++
	}
	for _, w := range a.Workers() {
		if n[w] != 3 {
			t.Errorf("worker %d has %d QPs of 12, want 3", w.Index(), n[w])
		}
	}
}

// mute is a Link that can't send.
type mute struct{ Link }

func (mute) CanSend() bool { return false }

// No QP lives where it couldn't send.
func TestQPsLiveWhereTheyCanSend(t *testing.T) {
	x, _ := mustPair(t, PairOptions{})
	y, _ := mustPair(t, PairOptions{})
	p := newPort(t, "a", true, "10.0.0.1", mute{x}, y)
	for range 3 {
		if w := newEndpoint(t, p, 10, 1).Worker(); w.Index() != 1 {
			t.Errorf("a QP lives on worker %d, which can't send", w.Index())
		}
	}
}

// Pollers, goroutines, posts and the control plane at once.
func TestEverythingAtOnce(t *testing.T) {
	a, b := newCrossed(t, false, PairOptions{Frames: 256})
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, p := range []*Port{a, b} {
					for _, w := range p.Workers() {
						w.Poll()
					}
				}
				runtime.Gosched()
			}
		})
	}
	others.Go(func() { // other QPs come and go
		for {
			select {
			case <-stop:
				return
			default:
			}
			e := newEndpoint(t, a, 100, 4)
			if err := e.connect(5, gid("10.0.0.2"), ib.MTU256); err != nil {
				t.Error(err)
			}
			e.sq.Post(&qp.SendWQE{Opcode: qp.WRWrite, SGEs: e.sge(0, 100)})
			e.Doorbell()
			e.Query()
			a.Counters()
			a.Drops()
			b.Barrier()
			a.noteChange()
			e.Destroy()
			time.Sleep(time.Millisecond)
		}
	})
	var xs, ys []*endpoint
	for i := range 4 {
		x, y := newEndpoint(t, a, 1<<16, 64), newEndpoint(t, b, 1<<16, 64)
		join(t, x, y, ib.MTU1024)
		fill(x.buf, uint64(i))
		xs, ys = append(xs, x), append(ys, y)
	}
	for round := range 10 {
		for i, x := range xs {
			for k := range 8 {
				x.write(uint64(round), ys[i], k<<13, 1<<13)
			}
		}
		for _, x := range xs {
			await(t, &x.cq, 8)
		}
	}
	close(stop)
	others.Wait()
	b.Barrier()
	for i, x := range xs {
		wantSame(t, "WRITE", x.buf, ys[i].buf)
	}
}

// Close ends goroutines, and leaves calls that come later harmless.
func TestCloseAndAfter(t *testing.T) {
	before := runtime.NumGoroutine()
	l, _ := mustPair(t, PairOptions{})
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: &FixedNet{Addresses: []ib.GID{gid("10.0.0.1")}}})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, p, 100, 4)
	if err := e.connect(5, gid("10.0.0.2"), ib.MTU256); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
	e.send(1, 0, 10)
	e.Worker().Poll()
	if e.Worker().Step(1) {
		t.Error("a closed worker works")
	}
	p.Barrier()
	p.Stats()
	e.Destroy()
	if _, err := p.CreateQP(QPInit{PD: e.mr.PD, SQ: &e.sq, RQ: &e.rq, SendCQ: &e.cq, RecvCQ: &e.cq}); err == nil {
		t.Error("a closed port made a QP")
	}
}

func TestStatsAreJSON(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 1000, 4), newEndpoint(t, b, 1000, 4)
	join(t, x, y, ib.MTU1024)
	x.write(1, y, 0, 1000)
	settle(t, 1, nil, a, b)
	text, err := json.Marshal(a.Stats())
	if err != nil {
		t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Device != "a" || s.Link != "mem" || s.Counters["sent_pkts"] != 1 || s.GIDs[0] != "::ffff:10.0.0.1" || s.QPs != 1 {
		t.Errorf("stats %s", text)
	}
}
