package hostile

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// frames is how many a random test sends.
func frames(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// Bytes without sense are dropped without a trace.
func TestRandomFrames(t *testing.T) {
	rnd := seeded.Rand(t)
	r := newRig(t, ib.MTU256)
	r.play(qp.RTS, reading)
	good := r.victim.sends(0).bytes()
	for range frames(50_000) {
		b := make([]byte, rnd.IntN(400))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		copy(b, good[:[]int{0, 14, 34, 42, 54}[rnd.IntN(5)]]) // as far as it is right
		o := r.deliver(b, nil)
		r.want("random bytes", o, silent(o.Verdict, qp.RTS))
		if o.Verdict == wire.Accepted {
			t.Fatalf("frame %x was accepted", b)
		}
	}
}

// Packets whose ICRC is right, and little else: nothing outside of the region
// that the peer may write changes, and nothing completes twice.
func TestRandomPackets(t *testing.T) {
	rnd := seeded.Rand(t)
	r := newRig(t, ib.MTU256)
	lives := 0
	var p *posts
	for range frames(60_000) {
		if p == nil || r.victim.Query().State == qp.Err {
			p = r.revive(scene(rnd.IntN(int(numScenes))))
			lives++
		}
		b := r.mutant(rnd)
		before := bytes.Clone(r.victim.mem[:readAt])
		o := r.deliver(b, func(m []byte) { copy(m, r.victim.mem[:readAt]) })
		if o.Verdict != wire.Accepted && o.Verdict != wire.DropRejected && !bytes.Equal(before, r.victim.mem[:readAt]) {
			t.Fatalf("frame %x was dropped (%v) and changed memory", b, o.Verdict)
		}
		p.check(t, b, &o)
	}
	t.Logf("%d lives", lives)
}

// posts are the work requests of a life of the victim.
type posts struct{ done map[uint64]bool }

func (r *rig) revive(sc scene) *posts {
	r.play(qp.RTS, sc)
	for id := range uint64(5) {
		r.victim.recv(100+id, recvOff, 700)
	}
	r.victim.post(qp.SendWQE{ID: 50, Opcode: qp.WRSend, SGEs: r.victim.sge(localOff, 600)})
	r.step()
	r.link.take()
	return &posts{map[uint64]bool{}}
}

// check checks the completions: each comes once, and with the end of the QP
// all are there.
func (p *posts) check(t *testing.T, b []byte, o *outcome) {
	for _, c := range o.WC {
		if p.done[c.ID] {
			t.Fatalf("frame %x: work request %d completed twice", b, c.ID)
		}
		p.done[c.ID] = true
	}
	want := []uint64{1, 2, 100, 101, 102, 103, 104, 50}
	for _, id := range want {
		if o.State == qp.Err && !p.done[id] {
			t.Fatalf("frame %x: in ERR, and work request %d is not complete", b, id)
		}
	}
}

// mutant makes a packet that may be good, changes some of its bits, and makes
// the ICRC right.
func (r *rig) mutant(rnd *rand.Rand) []byte {
	x := cell{r: r, op: byte(rnd.IntN(0x20)), state: qp.RTS, len: least}
	switch r.victim.typ {
	case qp.UC:
		x.op = 0x20 + byte(rnd.IntN(12))
	case qp.UD:
		x.op = 0x64 + byte(rnd.IntN(2))
	}
	o := opcodes[x.op]
	x.len += o.ext
	switch o.payload {
	case full:
		x.len += r.mtu.Bytes()
	case some, undefined:
		x.len += 4 * rnd.IntN(r.mtu.Bytes()/4+1)
		x.pad = min(rnd.IntN(4), x.len-least-o.ext)
	}
	b := x.frame()
	// Where the victim is: some PSNs near those that are expected.
	psn := uint32(r.victim.Query().RQPSN)
	if isResponse(x.op) {
		psn = firstSQ
	}
	be.PutUint32(b[bthAt+8:], (psn+uint32(rnd.IntN(8)/3))&0xffffff|uint32(rnd.IntN(2))<<31)
	for range rnd.IntN(3) {
		b[bthAt+rnd.IntN(len(b)-bthAt)] ^= 1 << rnd.IntN(8)
	}
	return seal(b)
}
