package hostile

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// Frames of all kinds, good ones too, on any queue of a port of three: each has
// one verdict, wherever its QP lives, and every frame goes back to its queue.
func TestVerdictsAddUp(t *testing.T) {
	rnd := seeded.Rand(t)
	r := newRig(t, ib.MTU256, newLink(t), newLink(t))
	const rounds = 300
	total := uint64(0)
	for range rounds {
		if s := r.victim.Query().State; s != qp.RTS {
			r.revive(scene(rnd.IntN(int(numScenes))))
		}
		burst := rnd.IntN(30)
		if rnd.IntN(20) == 0 {
			burst = 2000 // more than a hand-over ring holds
		}
		for range burst {
			b := r.mutant(rnd)
			switch rnd.IntN(4) {
			case 0:
				b = r.victim.sends(0).bytes() // seen before, or the next
			case 1:
				b = b[:rnd.IntN(len(b)+1)]
			}
			l := r.links[rnd.IntN(len(r.links))]
			l.arrived = append(l.arrived, bytes.Clone(b))
			total++
		}
		for range rnd.IntN(20) { // the victim's worker is the slowest
			r.port.Workers()[1+rnd.IntN(2)].Step(r.now)
		}
		r.step()
		for _, l := range r.links {
			l.check()
			l.take()
		}
	}
	sum := uint64(0)
	for _, n := range r.port.Drops() {
		sum += n
	}
	if got := r.port.Counters().RcvdPkts; got != total || sum != total {
		t.Fatalf("%d frames sent, %d counted, %d verdicts", total, got, sum)
	}
	for _, v := range []wire.Verdict{wire.Accepted, wire.DropNotRoCE, wire.DropTruncated, wire.DropHandover, wire.DropRejected} {
		if r.port.Drops()[v] == 0 {
			t.Errorf("no frame was %v", v)
		}
	}
	t.Logf("%d frames, verdicts %v", total, r.port.Drops())
}
