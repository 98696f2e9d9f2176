package mem

import (
	"testing"
	"time"
)

type silent struct{}

func (*silent) Commit(*Op) {}

func regionOf(tb testing.TB, b []byte) (*Table, *PD, *MR) {
	t, pd := new(Table), new(PD)
	return t, pd, register(tb, t, pd, NewBytes(b, 0), 0, 0, uint64(len(b)), allAccess)
}

// best returns the shortest time of a call of each f, of 1000 calls at a
// time, taken by turns so that all see the same disturbances.
func best(b *testing.B, fs ...func(i int)) []float64 {
	shortest := make([]float64, len(fs))
	for range b.N {
		for k, f := range fs {
			start := time.Now()
			for i := range 1000 {
				f(i)
			}
			d := float64(time.Since(start).Nanoseconds()) / 1000
			if shortest[k] == 0 || d < shortest[k] {
				shortest[k] = d
			}
		}
	}
	return shortest
}

// BenchmarkBytes1K reports what an op of 1 KiB costs beyond copy.
func BenchmarkBytes1K(b *testing.B) {
	_, _, mr := regionOf(b, make([]byte, 64<<10))
	frag, batch, o := make([]byte, 1024), NewBatch(64), new(silent)
	run := func(kind Kind, tail bool) func(int) {
		return func(i int) {
			op := batch.Add()
			op.Kind, op.Tail, op.MR, op.VA, op.Owner = kind, tail, mr, uint64(i%64<<10), o
			op.Frag[0] = frag
			batch.Run()
		}
	}
	t := best(b,
		func(i int) { copy(mr.local[i%64<<10:], frag) }, run(Scatter, false), run(Scatter, true),
		func(i int) { copy(frag, mr.local[i%64<<10:]) }, run(Gather, false), run(Nop, false))
	b.ReportMetric(t[0], "copy-ns")
	b.ReportMetric(t[1]-t[0], "scatter-over-ns")
	b.ReportMetric(t[2]-t[0], "tail-over-ns")
	b.ReportMetric(t[4]-t[3], "gather-over-ns")
	b.ReportMetric(t[5], "nop-ns")
}

func BenchmarkFind(b *testing.B) {
	t, pd, mr := regionOf(b, make([]byte, 64<<10))
	for b.Loop() {
		if t.Find(mr.Key, pd, 1024, 1024, RemoteWrite) != mr {
			b.Fatal("lost")
		}
	}
}
