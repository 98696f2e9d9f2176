package verbs

import (
	"fmt"
	"testing"
)

// What a message costs over the link in memory: both sides run on this goroutine.
func BenchmarkMessage(b *testing.B) {
	for _, op := range []Opcode{OpSend, OpWrite, OpRead} {
		for _, size := range []int{8, 1024, 65536} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) { benchmarkMessage(b, op, size) })
		}
	}
}

func benchmarkMessage(bm *testing.B, op Opcode, size int) {
	const depth = 16
	a, b := newPair(bm, 1<<17, Caps{MaxSendWR: depth, MaxRecvWR: 2 * depth, MaxSendSGE: 1, MaxRecvSGE: 1}, ConnectOptions{})
	wr := SendWR{Opcode: op, Flags: Signaled, SGEs: []SGE{a.mr.SGE(0, size)}, RemoteAddr: b.mr.IOVA(), RKey: b.mr.RKey()}
	recv := RecvWR{SGEs: []SGE{b.mr.SGE(0, size)}}
	if op == OpSend {
		for range 2 * depth {
			must(b.qp.PostRecv(recv))
		}
	}
	bm.SetBytes(int64(size))
	bm.ReportAllocs()
	bm.ResetTimer()
	wcs := make([]WC, depth)
	for posted, done := 0, 0; done < bm.N; {
		for ; posted < bm.N && posted-done < depth; posted++ {
			must(a.qp.PostSend(wr))
		}
		done += a.cq.Poll(wcs)
		for range b.cq.Poll(wcs) {
			must(b.qp.PostRecv(recv))
		}
	}
	bm.StopTimer()
	bm.ReportMetric(float64(a.dev.Stats().Counters["sent_pkts"])/float64(bm.N), "pkts/op")
}
