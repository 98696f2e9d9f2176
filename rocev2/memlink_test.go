package rocev2

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

func mustPair(t testing.TB, o PairOptions) (a, b Link) {
	t.Helper()
	a, b, err := NewPair(o)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestPairRefusesBadSizes(t *testing.T) {
	for _, o := range []PairOptions{{Frames: 3}, {Frames: -1}, {Frag: 10}, {Frag: 1 << 20}} {
		if _, _, err := NewPair(o); err == nil {
			t.Errorf("a pair with %+v was made", o)
		}
	}
}

// Frames of all lengths pass, cut where they should be.
func TestPairPassesFrames(t *testing.T) {
	for _, frag := range []int{128, 1000, defaultFrag, wire.MaxPacketLen} {
		a, b := mustPair(t, PairOptions{Frames: 4, Frag: frag})
		for _, n := range []int{1, 127, 128, 129, 3839, 3840, 3841, 3843, wire.MaxPacketLen} {
			want := make([]byte, n)
			fill(want, uint64(n))
			var f TxFrame
			if !a.Reserve(&f, wire.MaxPacketLen) {
				t.Fatal("no frame")
			}
			first := copy(f.Frag[0], want)
			f.Frag[0], f.Frag[1] = f.Frag[0][:first], f.Frag[1][:copy(f.Frag[1], want[first:])]
			a.Send(&f)
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			var rx [4]RxFrame
			if got := b.Recv(rx[:]); got != 1 {
				t.Fatalf("%d frames arrived, want 1", got)
			}
			if got := append(bytes.Clone(rx[0].Frag[0]), rx[0].Frag[1]...); !bytes.Equal(got, want) || len(rx[0].Frag[0]) != min(n, frag) {
				t.Errorf("frag %d: %d bytes arrived as %d and %d", frag, n, len(rx[0].Frag[0]), len(rx[0].Frag[1]))
			}
			b.Release(rx[:1])
		}
		var f TxFrame
		if a.Reserve(&f, wire.MaxPacketLen+100) {
			t.Error("a frame was given that is longer than any packet")
		}
	}
}

func TestPairIsBounded(t *testing.T) {
	a, b := mustPair(t, PairOptions{Frames: 4})
	var f [5]TxFrame
	for i := range 4 {
		if !a.Reserve(&f[i], 100) {
			t.Fatalf("frame %d of 4 was refused", i)
		}
	}
	if a.Reserve(&f[4], 100) {
		t.Fatal("a fifth frame of 4")
	}
	a.Cancel(&f[3])
	for i := range 3 {
		a.Send(&f[i])
	}
	a.Flush()
	var rx [8]RxFrame
	if n := b.Recv(rx[:]); n != 3 {
		t.Fatalf("%d frames arrived, want 3", n)
	}
	if !a.Reserve(&f[3], 100) || a.Reserve(&f[4], 100) {
		t.Fatal("frames that the receiver has are not to be had")
	}
	b.Release(rx[:3])
	if !a.Reserve(&f[4], 100) {
		t.Fatal("a released frame is to be had")
	}
}

// What is sent to an end that was closed is lost, and its frames aren't.
func TestPairWithAClosedEnd(t *testing.T) {
	a, b := mustPair(t, PairOptions{Frames: 4})
	b.Close()
	for i := range 100 {
		var f TxFrame
		if !a.Reserve(&f, 100) {
			t.Fatalf("no frame for packet %d", i)
		}
		a.Send(&f)
		a.Flush()
	}
}

func TestPairWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := mustPair(t, PairOptions{Frames: 1})
		waited := func(until clock.Time, rx bool, meanwhile func()) time.Duration {
			start := time.Now()
			go func() {
				time.Sleep(time.Millisecond)
				meanwhile()
			}()
			b.Wait(until, rx)
			return time.Since(start)
		}
		in := func(d time.Duration) clock.Time { return clock.Now().Add(d) }
		var f TxFrame
		frame := func() {
			a.Reserve(&f, 100)
			a.Send(&f)
			a.Flush()
		}
		if d := waited(in(5*time.Millisecond), true, func() {}); d != 5*time.Millisecond {
			t.Errorf("the deadline came after %v, want 5ms", d)
		}
		if d := waited(clock.Never, true, b.Wake); d != time.Millisecond {
			t.Errorf("Wake ended the Wait after %v, want 1ms", d)
		}
		b.Wake()
		if d := waited(clock.Never, true, func() {}); d != 0 {
			t.Errorf("an earlier Wake ended the Wait after %v, want 0", d)
		}
		time.Sleep(time.Millisecond)
		if d := waited(clock.Never, true, frame); d != time.Millisecond {
			t.Errorf("a frame ended the Wait after %v, want 1ms", d)
		}
		if d := waited(in(5*time.Millisecond), false, func() {}); d != 5*time.Millisecond {
			t.Errorf("a frame that waits ended a Wait for other things after %v, want 5ms", d)
		}
		// Room to send.
		var g TxFrame
		if !b.Reserve(&g, 100) {
			t.Fatal("no frame")
		}
		b.Send(&g)
		b.Flush()
		if b.Reserve(&g, 100) {
			t.Fatal("two frames of one")
		}
		var rx [1]RxFrame
		a.Recv(rx[:])
		if d := waited(clock.Never, false, func() { a.Release(rx[:]) }); d != time.Millisecond {
			t.Errorf("room to send ended the Wait after %v, want 1ms", d)
		}
	})
}
