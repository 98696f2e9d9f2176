package cc

import (
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

const us = clock.Time(time.Microsecond)

// state is what a Limiter shows.
type state struct {
	rate, target Rate
	alpha        Fraction
	phase        Phase
}

func (l *Limiter) state(p *Params) state { return state{l.Rate(p), l.target, l.alpha, l.Phase(p)} }

// step is what happens to a Limiter at a time, and what it must show then.
type step struct {
	at   clock.Time
	cnp  bool
	sent int
	want state
}

func play(t *testing.T, p Params, steps []step) {
	t.Helper()
	p = p.WithDefaults()
	var l Limiter
	for _, s := range steps {
		switch {
		case s.cnp:
			l.CNP(s.at, &p)
		case s.sent > 0:
			l.Sent(s.sent, s.at, &p)
		default:
			l.Ready(s.at, &p)
		}
		if got := l.state(&p); got != s.want {
			t.Fatalf("at %d us: %+v, want %+v", s.at/us, got, s.want)
		}
	}
}

// The paper's sequence on a line of 100 Gb/s, worked out by hand: every 55 µs α
// loses a 256th, rounded up, and the rate goes half way to the target.
func TestCutsAndRecovery(t *testing.T) {
	play(t, Params{LineRate: 100 * Gbps}, []step{
		{at: 0, want: state{100 * Gbps, 0, 0, Unlimited}},
		{at: 1000 * us, cnp: true, want: state{50 * Gbps, 100 * Gbps, 1 << 20, FastRecovery}},
		{at: 1054 * us, want: state{50 * Gbps, 100 * Gbps, 1 << 20, FastRecovery}},
		{at: 1055 * us, want: state{75 * Gbps, 100 * Gbps, 1044480, FastRecovery}},
		{at: 1110 * us, want: state{87.5e9, 100 * Gbps, 1040400, FastRecovery}},
		// The third event, and a CNP at once: 93.75 × (1 − 0.988327/2).
		{at: 1165 * us, cnp: true, want: state{47422170640, 93.75e9, 1036384, FastRecovery}},
		{at: 1220 * us, want: state{70586085320, 93.75e9, 1032336, FastRecovery}},
		{at: 1275 * us, want: state{82168042660, 93.75e9, 1028304, FastRecovery}},
		{at: 1330 * us, want: state{87959021330, 93.75e9, 1024288, FastRecovery}},
		{at: 1385 * us, want: state{90854510665, 93.75e9, 1020287, FastRecovery}},
		{at: 1440 * us, want: state{92302255332, 93.75e9, 1016302, AdditiveIncrease}}, // the fifth was fast recovery's last
		{at: 1495 * us, want: state{93046127666, 93.79e9, 1012333, AdditiveIncrease}},
		{at: 1605 * us, want: state{93654031916, 93.87e9, 1004441, AdditiveIncrease}}, // two at once
	})
}

// The other kind of event is so many bytes. Hyper increase begins when more than F
// of both have come: here F is 1.
func TestBytesAndHyperIncrease(t *testing.T) {
	p := Params{LineRate: 100 * Gbps, Threshold: 1, Bytes: 10_000, AI: 100 * Mbps, HAI: 1 * Gbps, Timer: 100 * time.Microsecond,
		AlphaPeriod: time.Hour}
	const a = 1 << 20
	play(t, p, []step{
		{at: 0, cnp: true, want: state{50 * Gbps, 100 * Gbps, a, FastRecovery}},
		{at: 0, cnp: true, want: state{25 * Gbps, 50 * Gbps, a, FastRecovery}},
		{at: 1 * us, sent: 9_999, want: state{25 * Gbps, 50 * Gbps, a, FastRecovery}},
		{at: 2 * us, sent: 1, want: state{37.5e9, 50 * Gbps, a, AdditiveIncrease}},
		{at: 3 * us, sent: 10_000, want: state{43.8e9, 50.1e9, a, AdditiveIncrease}},
		{at: 100 * us, want: state{47 * Gbps, 50.2e9, a, AdditiveIncrease}},            // bytes 2, timer 1
		{at: 200 * us, want: state{48.65e9, 50.3e9, a, HyperIncrease}},                 // 2 and 2
		{at: 300 * us, want: state{49.975e9, 51.3e9, a, HyperIncrease}},                // 2 and 3
		{at: 301 * us, sent: 10_500, want: state{51.1375e9, 52.3e9, a, HyperIncrease}}, // 3 and 3, 500 bytes over
		{at: 302 * us, sent: 9_500, want: state{52.21875e9, 53.3e9, a, HyperIncrease}},
		{at: 303 * us, cnp: true, want: state{26.109375e9, 52.21875e9, a, FastRecovery}},
		{at: 304 * us, sent: 9_999, want: state{26.109375e9, 52.21875e9, a, FastRecovery}}, // counted anew
	})
}

// With mlx5's parameters a second CNP within 4 µs doesn't cut, and a second cut
// before any increase leaves the target.
func TestMLX5(t *testing.T) {
	p := MLX5
	p.LineRate, p.AlphaPeriod = 100*Gbps, time.Hour
	play(t, p, []step{
		// 100 × (1 − 1023/2048)
		{at: 10 * us, cnp: true, want: state{50048828125, 100 * Gbps, 1047557, FastRecovery}},
		{at: 13 * us, cnp: true, want: state{50048828125, 100 * Gbps, 1047562, FastRecovery}},
		// 50.048828125 × (1 − 0.999033/2), the target is that of the first
		{at: 14 * us, cnp: true, want: state{25048613316, 100 * Gbps, 1047567, FastRecovery}},
		{at: 314 * us, want: state{62524306658, 100 * Gbps, 1047567, AdditiveIncrease}},
		{at: 315 * us, cnp: true, want: state{31292235567, 62524306658, 1047572, FastRecovery}},
	})
}

// Back at the line's rate nothing is limited, and the next CNP is a first one.
func TestReturnToTheLine(t *testing.T) {
	play(t, Params{LineRate: 1 * Gbps}, []step{
		{at: 0, cnp: true, want: state{500 * Mbps, 1 * Gbps, 1 << 20, FastRecovery}},
		{at: 3 * 55 * us, want: state{937.5e6, 1 * Gbps, 1036336, FastRecovery}},
		{at: 4 * 55 * us, want: state{1 * Gbps, 0, 0, Unlimited}}, // less than AI is lacking
		{at: 1e9, cnp: true, want: state{500 * Mbps, 1 * Gbps, 1 << 20, FastRecovery}},
	})
}

// Bytes alone bring a rate back, too, and nothing is left of the way.
func TestReturnByBytes(t *testing.T) {
	p := Params{LineRate: 1 * Gbps, Bytes: 1000}.WithDefaults()
	var l Limiter
	l.CNP(0, &p)
	l.Sent(3999, 0, &p)
	if l.Phase(&p) != FastRecovery || l.bytes != 999 {
		t.Errorf("after three events: %v, %d bytes", l.Phase(&p), l.bytes)
	}
	l.Sent(2001, 0, &p)
	if l.limited || l.bytes != 0 || l.Ready(7, &p) != 7 {
		t.Errorf("after four: %+v", l)
	}
}

func TestLongIdleness(t *testing.T) {
	play(t, Params{LineRate: 400 * Gbps, AI: 1}, []step{
		{at: 0, cnp: true, want: state{200 * Gbps, 400 * Gbps, 1 << 20, FastRecovery}},
		{at: 3600e9, want: state{400 * Gbps, 0, 0, Unlimited}},
	})
}

// However many CNPs come, some rate is left, and it is won back.
func TestMinRate(t *testing.T) {
	p := Params{}.WithDefaults()
	var l Limiter
	for i := range clock.Time(100) {
		l.CNP(i*50*us, &p)
	}
	if l.Rate(&p) != 1*Mbps {
		t.Errorf("%d b/s, want the least, 1 Mb/s", l.Rate(&p))
	}
	now := clock.Time(5000 * us)
	for l.Phase(&p) != Unlimited && now < 1e9 {
		now += 55 * us
		l.Ready(now, &p)
	}
	if l.Rate(&p) != 10*Gbps {
		t.Errorf("%d b/s after a second, want the line's", l.Rate(&p))
	}
}

// Frames leave at the rate, whenever the worker comes, and a pause isn't made up
// for but for a few frames.
func TestPace(t *testing.T) {
	p := Params{LineRate: 10 * Gbps, Timer: time.Hour, AlphaPeriod: time.Hour}.WithDefaults()
	var l Limiter
	if at := l.Ready(5, &p); at != 5 {
		t.Errorf("without a limit: %d", at)
	}
	l.CNP(5, &p)                    // 5 Gb/s: 1000 bytes in 1.6 µs
	for i := range clock.Time(50) { // the worker comes every 10 µs
		now := 1_000_000 + i*10_000
		for l.Ready(now, &p) <= now {
			l.Sent(1000, now, &p)
			l.bytes++ // counts the frames, as the parameters leave it alone
		}
	}
	frames := int(l.bytes) / 1001
	if want := (50*10_000 - 10_000) / 1600; frames < want || frames > want+slack/1000+1 {
		t.Errorf("%d frames of 1000 bytes in 490 µs at 5 Gb/s, want %d and a burst of %d at most", frames, want, slack/1000)
	}
}

func TestNotifier(t *testing.T) {
	p := Params{}.WithDefaults()
	var n Notifier
	sent := 0
	for now := 1000 * us; now < 2000*us; now += us {
		if n.Marked(now, &p) {
			sent++
			if (now-1000*us)%(50*us) != 0 {
				t.Errorf("a CNP at %d us", now/us)
			}
		}
	}
	if sent != 20 {
		t.Errorf("%d CNPs in a millisecond of marks, want 20", sent)
	}
	if n.Marked(2000*us-1, &p) || !n.Marked(5000*us, &p) {
		t.Error("a mark after a pause is told at once, one within the interval isn't")
	}
}

func TestDefaults(t *testing.T) {
	p := Params{AI: 100 * Mbps}.WithDefaults()
	want := Params{LineRate: 10 * Gbps, CNPInterval: 50 * time.Microsecond, G: 4096, AlphaPeriod: 55 * time.Microsecond,
		InitialAlpha: One, MinRate: Mbps, Timer: 55 * time.Microsecond, Bytes: 10e6, Threshold: 5, AI: 100 * Mbps, HAI: Gbps}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	if m := MLX5.WithDefaults(); m.LineRate != 10*Gbps || m.G != 5120 || m.InitialAlpha != 1047552 {
		t.Errorf("mlx5: %+v", m)
	}
	if p.WithDefaults() != p {
		t.Error("defaults change what is set")
	}
}

func TestNoAllocation(t *testing.T) {
	p := MLX5.WithDefaults()
	var l Limiter
	var n Notifier
	now := clock.Time(0)
	if a := testing.AllocsPerRun(1000, func() {
		now += 7 * us
		if n.Marked(now, &p) {
			l.CNP(now, &p)
		}
		l.Sent(4096, now, &p)
		now = l.Ready(now, &p)
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func TestPhaseNames(t *testing.T) {
	seen := map[string]bool{}
	for p := Unlimited; p <= HyperIncrease; p++ {
		seen[p.String()] = true
	}
	if len(seen) != 4 || !seen["fast recovery"] {
		t.Error(seen)
	}
}
