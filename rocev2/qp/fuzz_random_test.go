package qp

import (
	"math/rand/v2"
	"testing"

	"github.com/urxe/urxe/internal/seeded"
)

// rounds is how many scripts a random test runs.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestRandomScripts runs scripts of FuzzQP whose steps make sense more often
// than not: these go deeper than bytes that a fuzzer finds in seconds.
func TestRandomScripts(t *testing.T) {
	r := seeded.Rand(t)
	for range rounds(3000) {
		z := newFuzzed(t, politeScript(r))
		z.cfg.Trace = nil
		for len(z.s) > 0 {
			z.step()
			z.check()
		}
		z.end()
	}
}

// TestRandomPairs runs scripts of FuzzPair, of which any bytes are one. They meet all
// that RC offers, but for registrations, and windows in use.
func TestRandomPairs(t *testing.T) {
	r := seeded.Rand(t)
	met := map[string]int{}
	for range rounds(2000) {
		b := make([]byte, 20+r.IntN(600))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p := newDuo(t, b)
		for _, e := range p.ends {
			e.cfg.Trace = nil
		}
		for len(p.s) > 0 {
			p.step()
		}
		p.settle()
		for _, e := range p.ends {
			e.check()
			for _, w := range e.sq.sends {
				met[w.Opcode.operation().name]++
				if w.RKey == e.peer.window.key && w.Opcode == WRRead {
					met["READ by a window"]++
				}
			}
		}
	}
	for o := range WROpcode(64) {
		if name := o.operation().name; rcService.offers.has(o) && o != WRRegMR && met[name] == 0 {
			t.Errorf("no %s", name)
		}
	}
	t.Log(met)
}

// politeScript makes a script: a QP is connected, and then mostly well used.
func politeScript(r *rand.Rand) []byte {
	below := func(n int) byte { return byte(r.IntN(n)) }
	b := []byte{below(4), below(4), stepConnect, below(4), below(4), below(3), below(3), below(4), below(4), below(3), below(3), below(4), below(4), below(3), below(3)}
	element := func() []byte { return []byte{below(200), below(250), below(252)} }
	for range 5 + r.IntN(60) {
		switch r.IntN(14) {
		case 0, 1, 2:
			b = append(b, stepSend, below(7), below(256)&^8, 1, below(3)/2*1, below(200), below(250), below(252))
			if r.IntN(40) == 0 {
				b[len(b)-7] = 8 // an operation that there isn't
			}
		case 3:
			b = append(append(b, stepRecv, 2, below(4)/3), append(element(), element()...)...)
		case 4, 5:
			b = append(b, stepMessage, below(2), below(5), below(2), below(200), below(255), below(4)/3)
		case 6:
			b = append(b, stepRequest, []byte{0x0c, 0x0c, 0x13, 0x14}[r.IntN(4)], 0, []byte{0, 1, 4}[r.IntN(3)], below(200), below(256), below(5), 2, 0, 0)
		case 7: // a duplicate, or one ahead
			b = append(b, stepRequest, []byte{0x0a, 0x0c, 0x13, 0x14}[r.IntN(4)], 252+below(6), below(2), below(200), below(256), below(5), 2, 0, 0)
		case 8, 9:
			b = append(b, stepResponse, []byte{0x11, 0x11, 0x11, 0x0d, 0x0e, 0x0f, 0x10, 0x12}[r.IntN(8)], below(4),
				[]byte{0x1f, 0x1f, 0x1f, 0x60, 0x21, 0x62}[min(5, r.IntN(20)/3)], 0, 1, 0)
		case 10, 11:
			b = append(b, stepPlan, below(8))
		case 12:
			b = append(b, [][]byte{{stepExpire, 0}, {stepRun}, {stepBurst}, {stepMemory}, {stepPath, 0}}[r.IntN(5)]...)
		case 13:
			if r.IntN(10) == 0 {
				b = append(b, stepPath, 1)
			}
		}
	}
	return b
}
