package mem

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		runRole(role)
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// recorder is an owner that notes what it is told.
type recorder struct {
	ops []Op
}

func (r *recorder) Commit(op *Op) { r.ops = append(r.ops, *op) }

func (r *recorder) statuses() []Status {
	var s []Status
	for i := range r.ops {
		s = append(s, r.ops[i].Status)
	}
	return s
}

// add adds an op of one fragment.
func add(tb testing.TB, b *Batch, o Owner, kind Kind, mr *MR, va uint64, frag []byte) *Op {
	tb.Helper()
	op := b.Add()
	if op == nil {
		tb.Fatal("the batch is full")
	}
	op.Kind, op.MR, op.VA, op.Owner = kind, mr, va, o
	op.Frag[0] = frag
	return op
}

func register(tb testing.TB, t *Table, pd *PD, sp Space, addr, iova, n uint64, acc Access) *MR {
	tb.Helper()
	mr, err := t.Register(pd, sp, addr, iova, n, acc)
	if err != nil {
		tb.Fatal(err)
	}
	return mr
}

const allAccess = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic
