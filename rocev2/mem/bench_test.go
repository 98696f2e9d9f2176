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

// BenchmarkProcess1K reports the cost of a 1 KiB packet to and from another
// process, alone and in bursts of 64, to one range and to scattered ones; and
// that of the bare system call, alone and for the burst.
func BenchmarkProcess1K(b *testing.B) {
	for name, limit := range modes {
		b.Run(name, func(b *testing.B) {
			c := startChild(b)
			var tab Table
			mr := register(b, &tab, new(PD), c.process(), c.addr, 0, uint64(childPages*pageSize), allAccess)
			frag, batch, o := make([]byte, 64<<10), NewBatch(64), new(silent)
			batch.Guard(limit)
			defer batch.Close()
			burst := func(kind Kind, packets int, stride uint64) func(int) {
				return func(i int) {
					if i%64 != 0 { // best makes 1000 calls: 16 bursts will do
						return
					}
					for k := range packets {
						op := batch.Add()
						op.Kind, op.MR, op.VA, op.Owner = kind, mr, uint64(k)*stride, o
						op.Frag[0] = frag[k<<10:][:1024]
					}
					batch.Run()
				}
			}
			bare := func(packets int) func(int) {
				call := newVMCall(64, false)
				call.begin(mr.proc, true)
				for k := range packets {
					call.addBytes(c.addr+uint64(k)<<10, frag[k<<10:][:1024])
				}
				return func(i int) {
					if i%64 == 0 {
						call.do()
					}
				}
			}
			t := best(b,
				burst(Scatter, 1, 0), burst(Scatter, 64, 1024), burst(Scatter, 64, 3000),
				burst(Gather, 1, 0), burst(Gather, 64, 1024), burst(Gather, 64, 3000),
				bare(1), bare(64))
			per := func(ns float64, packets int) float64 { return ns * 1000 / 16 / float64(packets) }
			for i, kind := range []string{"scatter", "gather"} {
				b.ReportMetric(per(t[3*i], 1), kind+"-single-ns")
				b.ReportMetric(per(t[3*i+1], 64), kind+"-burst-ns")
				b.ReportMetric(per(t[3*i+2], 64), kind+"-scattered-ns")
			}
			b.ReportMetric(per(t[6], 1), "bare-single-ns")
			b.ReportMetric(per(t[7], 64), "bare-burst-ns")
		})
	}
}
