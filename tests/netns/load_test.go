package netns

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/verbs"
)

// Of a load: the bytes of a WRITE, and how many are in flight.
const (
	chunk  = 24<<10 + 5
	chunks = 8
)

// load WRITEs from one side to the other, compares what arrived, and goes on with
// something else, until it is stopped or a request fails.
type load struct {
	from, to *side
	stopping atomic.Bool
	done     atomic.Int64 // messages that were compared
	ended    chan struct{}
	err      error // valid when ended
	tag      uint64
}

// startLoad makes a load over two connected sides, which nothing else uses.
func startLoad(t testing.TB, from, to *side) *load {
	l := &load{from: from, to: to, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = l.run(t)
	}()
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) run(t testing.TB) error {
	for k := range chunks {
		l.next(t, k)
	}
	for left := chunks; left > 0; {
		wcs, err := l.from.collect(1, 2*patience)
		if err != nil {
			return err
		}
		if err := wcs[0].Err(); err != nil {
			return err
		}
		at := int(wcs[0].ID) * chunk
		settle(l.to)
		if !bytes.Equal(l.from.buf[at:at+chunk], l.to.buf[at:at+chunk]) {
			return fmt.Errorf("WRITE %d arrived changed", l.done.Load())
		}
		l.done.Add(1)
		if l.stopping.Load() {
			left--
			continue
		}
		l.next(t, int(wcs[0].ID))
	}
	return nil
}

// next WRITEs new bytes at the k-th place.
func (l *load) next(t testing.TB, k int) {
	l.tag++
	fill(l.from.buf[k*chunk:(k+1)*chunk], l.tag)
	l.from.write(t, l.to, uint64(k), k*chunk, chunk)
}

// progresses waits until n more messages have arrived.
func (l *load) progresses(t testing.TB, n int64) {
	t.Helper()
	target := l.done.Load() + n
	for end := time.Now().Add(patience); l.done.Load() < target; time.Sleep(time.Millisecond) {
		select {
		case <-l.ended:
			t.Fatalf("the load ended: %v", l.err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the load makes no progress: %d messages of %d in %v; %+v", l.done.Load()-target+n, n, patience, l.from.dev.Stats())
		}
	}
}

// stop ends the load, when all is answered, and returns what went wrong.
func (l *load) stop() error {
	l.stopping.Store(true)
	<-l.ended
	return l.err
}

// fails waits for the load to fail and returns the status of the request that did.
func (l *load) fails(t testing.TB) verbs.WCStatus {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(2 * patience):
		t.Fatalf("the load neither ends nor fails; %+v", l.from.dev.Stats())
	}
	var failed *verbs.CompletionError
	if !errors.As(l.err, &failed) {
		t.Fatalf("the load ended by %v, which is no failed request", l.err)
	}
	return failed.WC.Status
}

// loaded connects two sides and starts a load between them.
func loaded(t testing.TB, a, b *side, o verbs.ConnectOptions) *load {
	t.Helper()
	connect(t, a, b, o)
	l := startLoad(t, a, b)
	l.progresses(t, 10)
	return l
}
