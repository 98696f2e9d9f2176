package sm

import (
	"runtime"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/internal/seeded"
)

// TestLarge brings up 11,664 hosts and 1,620 switches, 58,320 switch ports, in
// memory, then takes a link and a switch away.
func TestLarge(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: run with -long")
	}
	f := fatTree(t, 36)
	b := newBed(t, f, "h0", Config{})
	start := time.Now()
	b.m.Start(b.now)
	b.sweep()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	p := b.m.Progress()
	t.Logf("%d nodes up in %v with %d MADs, heap with the fabric %d MB: %v", p.Nodes, time.Since(start), p.Sent, m.HeapAlloc>>20, b.snap.Routing.Report)
	if len(b.snap.Missing) > 0 || len(b.snap.ByLID) != 11664+1620 {
		t.Fatalf("%d LIDs, missing %q", len(b.snap.ByLID), b.snap.Missing)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a link lost", func() error { return f.Node("agg0_0").Unlink(20) }},
		{"a link back", func() error { return f.Node("agg0_0").Relink(20) }},
		{"a switch lost", func() error { f.Node("core7").Fail(); return nil }},
	} {
		start, sent := time.Now(), b.m.Progress().Sent
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		b.run(5 * time.Second)
		if !b.m.Idle() || len(b.snap.Missing) > 0 {
			t.Fatalf("%s: missing %q", step.what, b.snap.Missing)
		}
		t.Logf("%s: %v, %d MADs, %d of %d LFT blocks", step.what, time.Since(start), b.m.Progress().Sent-sent, b.m.lftBlocks, 1620*208)
	}
}

// TestLargeWithLoss: 3,456 hosts, and a tenth of all MADs lost each way.
func TestLargeWithLoss(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: run with -long")
	}
	f := fatTree(t, 24)
	f.Seed(seeded.Seed(t))
	f.SetLosses(fabric.Loss{Requests: 0.1, Answers: 0.1})
	b := newBed(t, f, "h0", Config{})
	start, began := time.Now(), b.now
	b.m.Start(b.now)
	b.sweep()
	b.run(time.Minute)
	p := b.m.Progress()
	t.Logf("%d nodes in %v of fabric time, %v of ours; %d MADs, %d lost", p.Nodes, b.now.Sub(began)-time.Minute, time.Since(start), p.Sent, p.Lost)
	f.SetLosses()
	b.run(time.Minute)
	b.up()
}
