package mem

import "testing"

type silent struct{}

func (*silent) Commit(*Op) {}

func BenchmarkCopy1K(b *testing.B) {
	src, dst := make([]byte, 1024), make([]byte, 64<<10)
	b.SetBytes(1024)
	for i := 0; b.Loop(); i++ {
		copy(dst[i%64<<10:], src)
	}
}

func BenchmarkBytes1K(b *testing.B) {
	for _, kind := range []Kind{Gather, Scatter} {
		b.Run(map[Kind]string{Gather: "gather", Scatter: "scatter"}[kind], func(b *testing.B) {
			var t Table
			pd := new(PD)
			mr, err := t.Register(pd, NewBytes(make([]byte, 64<<10), 0), 0, 0, 64<<10, LocalWrite|RemoteWrite)
			if err != nil {
				b.Fatal(err)
			}
			frag, batch, o := make([]byte, 1024), NewBatch(64), new(silent)
			b.SetBytes(1024)
			for i := 0; b.Loop(); i++ {
				op := batch.Add()
				op.Kind, op.MR, op.VA, op.Owner = kind, mr, uint64(i%64<<10), o
				op.Frag[0] = frag
				batch.Run()
			}
		})
	}
}

func BenchmarkFind(b *testing.B) {
	var t Table
	pd := new(PD)
	mr, _ := t.Register(pd, NewBytes(make([]byte, 64<<10), 0), 0, 0, 64<<10, LocalWrite|RemoteWrite)
	for b.Loop() {
		if t.Find(mr.Key, pd, 1024, 1024, RemoteWrite) != mr {
			b.Fatal("lost")
		}
	}
}
