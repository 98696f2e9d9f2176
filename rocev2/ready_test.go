package rocev2

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestDoorbellsKeepOrder(t *testing.T) {
	var d doorbells
	qps := make([]*QP, 5)
	for i := range qps {
		qps[i] = &QP{number: 2}
		d.ring(qps[i])
		d.ring(qps[0]) // it is there already
	}
	i := 0
	d.take(func(q *QP) {
		if q != qps[i] {
			t.Fatalf("the QP in place %d is another one", i)
		}
		i++
	})
	if i != len(qps) || d.any() {
		t.Fatalf("%d QPs were taken; some are left: %v", i, d.any())
	}
}

// Every ring after which nothing was taken is seen.
func TestDoorbellsLoseNothing(t *testing.T) {
	const ringers, rings = 4, 20_000
	var d doorbells
	qps := make([]*QP, 3)
	for i := range qps {
		qps[i] = new(QP)
	}
	posted := make([]atomic.Int64, len(qps))
	seen := make([]int64, len(qps))
	look := func(q *QP) {
		for i := range qps {
			if qps[i] == q {
				seen[i] = posted[i].Load()
			}
		}
	}
	var wg sync.WaitGroup
	for range ringers {
		wg.Go(func() {
			for k := range rings {
				posted[k%len(qps)].Add(1)
				d.ring(qps[k%len(qps)])
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		d.take(look)
	}
	d.take(look)
	for i := range qps {
		if n := posted[i].Load(); seen[i] != n {
			t.Errorf("QP %d: %d posts, %d seen", i, n, seen[i])
		}
	}
}
