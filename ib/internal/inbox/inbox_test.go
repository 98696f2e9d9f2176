package inbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urxe/urxe/ib/mad"
)

func request(tid uint64, timeout time.Duration, retries int) *mad.Packet {
	p := &mad.Packet{Addr: mad.Direct, Timeout: timeout, Retries: retries}
	_ = p.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, nil)
	p.MAD().SetTID(tid)
	return p
}

func answer(tid uint64) *mad.Packet {
	p := request(tid, 0, 0)
	p.MAD().Respond(mad.StatusOK)
	return p
}

func trap(tid uint64) *mad.Packet {
	p := &mad.Packet{}
	p.MAD().Init(mad.ClassSubnLID, mad.MethodTrap, mad.AttrNotice, 0)
	p.MAD().SetTID(tid)
	return p
}

// Packets come out in the order in which they came in, while the ring grows
// and wraps.
func TestOrder(t *testing.T) {
	b := New(1000, nil)
	next, sent := uint64(0), uint64(0)
	ps := make([]mad.Packet, 7)
	for round := range 200 {
		for range round % 13 {
			b.Deliver(trap(sent))
			sent++
		}
		if next == sent {
			continue
		}
		n, err := b.Recv(ps[:1+round%7])
		if err != nil {
			t.Fatal(err)
		}
		for i := range ps[:n] {
			if ps[i].MAD().TID() != next {
				t.Fatalf("got %d, want %d", ps[i].MAD().TID(), next)
			}
			next++
		}
	}
}

// What nobody asked for is bounded; what was asked for always has room.
func TestBound(t *testing.T) {
	b := New(10, nil)
	for i := range uint64(5) {
		if err := b.Begin(request(i, time.Hour, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(25) {
		b.Deliver(trap(1000 + i))
	}
	for i := range uint64(5) {
		b.Deliver(answer(i))
		b.Deliver(answer(i)) // It came twice: once is enough.
	}
	b.Put(trap(1), true)
	if d := b.Dropped(); d != 16 {
		t.Errorf("%d dropped, want 16", d)
	}
	ps := make([]mad.Packet, 100)
	if n, err := b.Recv(ps); n != 15 || err != nil {
		t.Errorf("%d packets, %v, want 15", n, err)
	}
}

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var resent []time.Duration
		b := New(10, func(*mad.Packet) { resent = append(resent, time.Since(begin)) })
		for _, p := range []*mad.Packet{request(1, 30*time.Millisecond, 2), request(2, 20*time.Millisecond, 0), request(3, time.Hour, 0)} {
			if err := b.Begin(p); err != nil {
				t.Fatal(err)
			}
		}
		ps := make([]mad.Packet, 4)
		for _, want := range []struct {
			tid uint64
			at  time.Duration
		}{{2, 20 * time.Millisecond}, {1, 90 * time.Millisecond}} {
			n, err := b.Recv(ps)
			if err != nil || n != 1 || ps[0].MAD().TID() != want.tid || !errors.Is(ps[0].Err, mad.ErrTimeout) || time.Since(begin) != want.at {
				t.Errorf("after %v: %d packets, TID %d, %v; want TID %d after %v", time.Since(begin), n, ps[0].MAD().TID(), ps[0].Err, want.tid, want.at)
			}
		}
		if len(resent) != 2 || resent[0] != 30*time.Millisecond || resent[1] != 60*time.Millisecond {
			t.Errorf("sent again after %v", resent)
		}
		b.Cancel(request(3, time.Hour, 0))
		b.Deliver(answer(3))
		b.Close(mad.ErrClosed)
		if n, err := b.Recv(ps); n != 0 || !errors.Is(err, mad.ErrClosed) {
			t.Errorf("after Close: %d, %v", n, err)
		}
	})
}

// A Recv that waits ends when the inbox is closed, and Begin is refused then.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10, nil)
		done := make(chan error)
		go func() {
			_, err := b.Recv(make([]mad.Packet, 1))
			done <- err
		}()
		synctest.Wait()
		gone := errors.New("gone")
		b.Close(gone)
		b.Close(mad.ErrClosed)
		if err := <-done; !errors.Is(err, gone) {
			t.Errorf("Recv: %v", err)
		}
		if err := b.Begin(request(1, time.Second, 0)); !errors.Is(err, gone) {
			t.Errorf("Begin: %v", err)
		}
	})
}
