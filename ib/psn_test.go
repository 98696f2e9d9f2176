package ib

import (
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

// TestPSNDistances goes over all distances, from PSNs on both sides of the wrap
// and of the middle.
func TestPSNDistances(t *testing.T) {
	for _, p := range []PSN{0, 1, 0x7fffff, 0x800000, 0x800001, 0xfffffe, 0xffffff} {
		for d := -PSNWindow; d < PSNWindow; d++ {
			q := p.Add(d)
			if q.Sub(p) != d || q.Before(p) != (d < 0) || !q.Valid() {
				t.Fatalf("%v + %d = %v: distance %d, before %v", p, d, q, q.Sub(p), q.Before(p))
			}
			// The opposite, but for the distance that has none.
			if d != -PSNWindow && (p.Sub(q) != -d || p.Before(q) != (d > 0)) {
				t.Fatalf("%v to %v: distance %d, before %v", q, p, p.Sub(q), p.Before(q))
			}
		}
	}
}

// TestPSNAll goes over all PSNs.
func TestPSNAll(t *testing.T) {
	conform.Row(t, "5.3/modulo")
	for p := PSN(0); p.Valid(); p++ {
		next := p.Next()
		if next != p.Add(1) || next.Add(-1) != p || next.Sub(p) != 1 || !p.Before(next) || next.Before(p) || p.Before(p) || p.Sub(p) != 0 {
			t.Fatalf("%v and %v", p, next)
		}
		if half := p.Add(PSNWindow); half.Sub(p) != -PSNWindow || !half.Before(p) || !p.Before(half) || p.Add(-PSNWindow) != half {
			t.Fatalf("%v and %v, half the space apart", p, half)
		}
		if next == 0 != (p == 0xffffff) {
			t.Fatalf("after %v comes %v", p, next)
		}
	}
}

// TestPSNWrap compares all pairs near the wrap with plain integers.
func TestPSNWrap(t *testing.T) {
	const near = 1500
	for i := -near; i < near; i++ {
		for j := -near; j < near; j++ {
			p, q := PSN(uint32(i)&0xffffff), PSN(uint32(j)&0xffffff)
			if p.Sub(q) != i-j || p.Before(q) != (i < j) || q.Add(i-j) != p {
				t.Fatalf("%v and %v: distance %d, want %d", p, q, p.Sub(q), i-j)
			}
		}
	}
}

func TestPSNAddLarge(t *testing.T) {
	for _, n := range []int{1 << 24, -(1 << 24), 1 << 31, -(1 << 31), 1 << 33, 5 << 40} {
		if got := PSN(5).Add(n); got != 5 {
			t.Errorf("5 + %d = %v: a multiple of 2^24 changes nothing", n, got)
		}
		if got := PSN(0xffffff).Add(n + 3); got != 2 {
			t.Errorf("0xffffff + %d = %v, want 2", n+3, got)
		}
	}
}

func TestPSNText(t *testing.T) {
	for p, want := range map[PSN]string{0: "0x000000", 0xabc: "0x000abc", 0xffffff: "0xffffff"} {
		if p.String() != want {
			t.Errorf("%q, want %q", p.String(), want)
		}
	}
	if PSN(0x1000000).Valid() {
		t.Error("25 bits are valid")
	}
}

func TestMSN(t *testing.T) {
	for m := MSN(0); m <= 0xffffff; m++ {
		if next := m.Next(); next != m+1 && !(m == 0xffffff && next == 0) {
			t.Fatalf("after %d comes %d", m, next)
		}
	}
}
