package verbs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
)

// Lists of up to 32 elements, many of no bytes, of messages around the edges of
// packets and frames, by queues of one slot: the bytes arrive, and none beside them.
func TestOddLists(t *testing.T) {
	r := seeded.Rand(t)
	for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU1024, ib.MTU4096} {
		caps := Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 32, MaxRecvSGE: 32}
		a, b := newPair(t, 1<<16, caps, ConnectOptions{PathMTU: mtu})
		for range 300 {
			n := oddLength(r, mtu.Bytes())
			oddMessage(t, r, a, b, n)
		}
	}
}

// oddLength returns a length near an edge.
func oddLength(r *rand.Rand, mtu int) int {
	edges := []int{0, 8, mtu, 2 * mtu, 3840, 3840 - 54, 3840 - 70, 4096, 4 * mtu}
	return min(max(0, edges[r.IntN(len(edges))]+r.IntN(9)-4), 1<<14)
}

// oddList cuts n bytes of mr from off on into up to 32 elements.
func oddList(r *rand.Rand, mr *MR, off, n int) (list []SGE) {
	for parts := 1 + r.IntN(32); parts > 1; parts-- {
		k := 0
		if r.IntN(2) == 0 {
			k = r.IntN(min(n, 1+r.IntN(1000)) + 1)
		}
		if k == 0 && r.IntN(2) == 0 {
			list = append(list, SGE{})
			continue
		}
		list = append(list, mr.SGE(off, k))
		off, n = off+k, n-k
	}
	return append(list, mr.SGE(off, n))
}

func oddMessage(t *testing.T, r *rand.Rand, a, b *side, n int) {
	t.Helper()
	from, to := r.IntN(64), r.IntN(64)
	fill(a.buf, r.Uint64())
	fill(b.buf, r.Uint64())
	src, dst := a.buf[from:from+n], b.buf
	wantDst := bytes.Clone(b.buf)
	copy(wantDst[to:], src)
	wr := SendWR{Flags: Signaled, SGEs: oddList(r, a.mr, from, n), RemoteAddr: b.mr.IOVA() + uint64(to), RKey: b.mr.RKey()}
	switch r.IntN(3) {
	case 0:
		wr.Opcode = OpSend
		must(b.qp.PostRecv(RecvWR{SGEs: oddList(r, b.mr, to, n)}))
	case 1:
		wr.Opcode = OpWrite
	case 2:
		wr.Opcode = OpRead
		dst, wantDst = a.buf, bytes.Clone(a.buf)
		copy(wantDst[from:], b.buf[to:to+n])
	}
	must(a.qp.PostSend(wr))
	a.done(t)
	if wr.Opcode == OpSend {
		if wc := b.done(t); int(wc.ByteLen) != n {
			t.Fatalf("%d bytes received of %d", wc.ByteLen, n)
		}
	}
	if wr.Opcode == OpWrite { // read after a completion that follows it
		wr.Opcode, wr.SGEs = OpRead, nil
		must(a.qp.PostSend(wr))
		a.done(t)
	}
	if !bytes.Equal(dst, wantDst) {
		t.Fatalf("%v of %d bytes from %d to %d: other bytes", wr.Opcode, n, from, to)
	}
}
