package sm

import (
	"testing"
	"time"
)

// BenchmarkLinkLoss is the work of a lost link at 3,456 hosts, and of its return.
func BenchmarkLinkLoss(b *testing.B) {
	f := fatTree(b, 24)
	bed := swept(b, f, "h0", Config{})
	agg := f.Node("agg0_0")
	for b.Loop() {
		if err := agg.Unlink(13); err != nil {
			b.Fatal(err)
		}
		bed.run(20 * time.Millisecond)
		b.StopTimer()
		if err := agg.Relink(13); err != nil {
			b.Fatal(err)
		}
		bed.run(20 * time.Millisecond)
		if !bed.m.Idle() || len(bed.snap.Missing) > 0 {
			b.Fatal(bed.snap.Missing)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(bed.m.lftBlocks), "LFTblocks")
}

// BenchmarkSweep is a whole first sweep at 3,456 hosts in memory.
func BenchmarkSweep(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		f := fatTree(b, 24)
		bed := newBed(b, f, "h0", Config{})
		b.StartTimer()
		bed.m.Start(bed.now)
		bed.sweep()
	}
}
