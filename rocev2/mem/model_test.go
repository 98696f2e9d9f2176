package mem

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/seeded"
)

// The model of a batch: its ops one after the other, on plain memory whose
// pages can be read, written, or not.

const modelPages = 16

type modelSpace struct {
	Space
	base  uint64
	child *child // nil: Bytes
	real  []byte // Bytes
	mem   []byte
	prot  [modelPages]int
}

// reach returns how many of the n bytes at off can be accessed so.
func (s *modelSpace) reach(off, n, prot int) int {
	for i := 0; i < n; i += pageSize - (off+i)%pageSize {
		if s.prot[(off+i)/pageSize]&prot != prot {
			return i
		}
	}
	return n
}

// run does op, whose bytes are data, and reports whether it can. What a Scatter
// can't finish, it has begun.
func (s *modelSpace) run(op *Op, data []byte) bool {
	off := int(op.MR.Addr(op.VA) - s.base)
	switch op.Kind {
	case Gather:
		copy(data, s.mem[off:])
		return s.reach(off, len(data), unix.PROT_READ) == len(data)
	case Scatter:
		n := s.reach(off, len(data), unix.PROT_WRITE)
		copy(s.mem[off:off+n], data)
		return n == len(data)
	}
	if s.reach(off, 8, unix.PROT_READ) < 8 {
		return false
	}
	op.Orig = binary.NativeEndian.Uint64(s.mem[off:])
	v, store := op.apply(op.Orig)
	if !store {
		return true
	}
	n := s.reach(off, 8, unix.PROT_WRITE)
	copy(s.mem[off:off+n], binary.NativeEndian.AppendUint64(nil, v))
	return n == 8
}

// change gives a page of another process another protection, or takes it away.
func (s *modelSpace) change(r *rand.Rand) {
	if s.child == nil {
		return
	}
	page, prot := r.IntN(modelPages), []int{0, unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE}[r.IntN(3)]
	if s.prot[page] == 0 {
		s.child.Tell("map %d %d", page*pageSize, pageSize)
		clear(s.mem[page*pageSize:][:pageSize])
	}
	if prot == 0 {
		s.child.Tell("unmap %d %d", page*pageSize, pageSize)
	} else {
		s.child.Tell("protect %d %d %d", page*pageSize, pageSize, prot)
	}
	s.prot[page] = prot
}

func (s *modelSpace) check(t *testing.T) {
	t.Helper()
	for first := 0; first < modelPages; first++ {
		end := first
		for end < modelPages && s.prot[end] != 0 {
			end++
		}
		if got := s.bytes(first*pageSize, (end-first)*pageSize); !bytes.Equal(got, s.mem[first*pageSize:end*pageSize]) {
			t.Errorf("memory of pages %d to %d isn't as it should be", first, end-1)
		}
		first = end
	}
}

// bytes returns what the memory holds.
func (s *modelSpace) bytes(off, n int) []byte {
	switch {
	case n == 0:
		return nil
	case s.child == nil:
		return s.real[off : off+n]
	}
	return s.child.bytes(off, n)
}

func newModelSpaces(t *testing.T) []*modelSpace {
	var spaces []*modelSpace
	for i := range 3 {
		s := &modelSpace{mem: make([]byte, modelPages*pageSize)}
		for p := range s.prot {
			s.prot[p] = unix.PROT_READ | unix.PROT_WRITE
		}
		if i == 0 {
			s.real, s.base = make([]byte, modelPages*pageSize), 0x7000
			s.Space = NewBytes(s.real, s.base)
		} else {
			s.child = startChild(t)
			s.Space, s.base = s.child.process(), s.child.addr
		}
		spaces = append(spaces, s)
	}
	return spaces
}

// modelRun is one batch.
type modelRun struct {
	t      *testing.T
	r      *rand.Rand
	bytes  *rand.ChaCha8
	spaces []*modelSpace
	of     map[*MR]*modelSpace
	mrs    []*MR
	owners []*recorder
	ops    []Op // as added
	data   [][]byte
}

func (m *modelRun) register(tab *Table) {
	for range 1 + m.r.IntN(8) {
		s := m.spaces[m.r.IntN(len(m.spaces))]
		// Regions are registered while all is well, so take the memory's word.
		off := m.r.IntN(len(s.mem) - 1)
		n := 1 + m.r.IntN(len(s.mem)-off)
		mr, err := tab.Register(new(PD), s.Space, s.base+uint64(off), m.r.Uint64()>>1, uint64(n), 0)
		if err != nil {
			continue // a hole
		}
		m.mrs, m.of[mr] = append(m.mrs, mr), s
	}
}

func (m *modelRun) add(b *Batch) {
	op := b.Add()
	op.Kind = []Kind{Nop, Gather, Gather, Gather, Scatter, Scatter, Scatter, Scatter, CompareSwap, FetchAdd, Store}[m.r.IntN(11)]
	op.Tail = m.r.IntN(3) == 0
	op.MR = m.mrs[m.r.IntN(len(m.mrs))]
	op.Swap, op.Compare = m.r.Uint64N(3), m.r.Uint64N(3)
	m.place(op)
	n := op.size()
	data := make([]byte, n)
	if op.Kind == Gather || op.Kind == Scatter {
		m.bytes.Read(data)
		cut := m.r.IntN(n + 1)
		op.Frag[0], op.Frag[1] = data[:cut:cut], data[cut:]
	}
	o := m.owners[m.r.IntN(len(m.owners))]
	op.Owner, op.Note.N = o, uint32(len(m.ops))
	m.ops, m.data = append(m.ops, *op), append(m.data, bytes.Clone(data))
}

// place chooses a range: mostly the one after the last op's, so that they
// merge.
func (m *modelRun) place(op *Op) {
	n := 1 << m.r.IntN(13)
	if m.r.IntN(8) == 0 {
		n = 0
	}
	op.VA = op.MR.IOVA + m.r.Uint64N(op.MR.Length)
	if len(m.ops) > 0 && m.r.IntN(4) > 0 {
		last := &m.ops[len(m.ops)-1]
		op.MR, op.VA = last.MR, last.VA+uint64(last.size())
	}
	if end := op.MR.IOVA + op.MR.Length; m.r.IntN(10) > 0 && op.VA+uint64(n) > end {
		op.VA = end - min(uint64(n), op.MR.Length)
		n = int(end - op.VA)
	}
	if op.Kind == Gather || op.Kind == Scatter {
		op.Frag[0] = make([]byte, n)
	}
}

// expect runs the model and compares.
func (m *modelRun) expect() {
	failed := map[Owner]bool{}
	told := map[Owner]int{}
	for i := range m.ops {
		want := &m.ops[i]
		switch {
		case failed[want.Owner]:
			want.Status = Discarded
		case want.Kind == Nop:
		case want.MR.Dead() || !want.MR.contains(want.VA, uint64(want.size())) ||
			!m.of[want.MR].run(want, m.data[i]):
			want.Status, failed[want.Owner] = Fault, true
		}
		o := want.Owner.(*recorder)
		if told[o] == len(o.ops) {
			m.t.Fatalf("op %d wasn't committed", i)
		}
		got := &o.ops[told[o]]
		told[o]++
		m.compare(i, want, got)
	}
	for o, n := range told {
		if len(o.(*recorder).ops) != n {
			m.t.Errorf("an owner was told of %d ops, had %d", len(o.(*recorder).ops), n)
		}
	}
}

func (m *modelRun) compare(i int, want, got *Op) {
	if got.Note != want.Note || got.Status != want.Status {
		m.t.Errorf("op %d: got op %d with status %d, want status %d", i, got.Note.N, got.Status, want.Status)
		return
	}
	if want.Status != OK {
		return
	}
	if want.Kind == Gather && !bytes.Equal(bytes.Join(got.Frag[:], nil), m.data[i]) {
		m.t.Errorf("op %d gathered other bytes than were there", i)
	}
	if want.Kind.atomic() && got.Orig != want.Orig {
		m.t.Errorf("op %d: the atomic returned %#x, want %#x", i, got.Orig, want.Orig)
	}
}

func TestBatchAgainstModel(t *testing.T) {
	r := seeded.Rand(t)
	random := rand.NewChaCha8([32]byte{byte(r.Uint32())})
	spaces := newModelSpaces(t)
	batches := map[bool]*Batch{true: NewBatch(64), false: NewBatch(64)}
	batches[true].Guard(10 * time.Second)
	batches[false].Guard(0)
	for round := 0; round < 100 && !t.Failed(); round++ {
		var tab Table
		m := modelRun{t: t, r: r, bytes: random, spaces: spaces, of: map[*MR]*modelSpace{}}
		for range 1 + r.IntN(6) {
			m.owners = append(m.owners, new(recorder))
		}
		for len(m.mrs) == 0 {
			m.register(&tab)
		}
		b := batches[r.IntN(2) == 0]
		for range 1 + r.IntN(64) {
			m.add(b)
		}
		if len(m.mrs) > 1 && r.IntN(3) == 0 {
			tab.Deregister(m.mrs[0])
		}
		if r.IntN(2) == 0 {
			spaces[1+r.IntN(2)].change(r)
		}
		m.runAndCheck(b)
	}
	batches[true].Close()
}

func (m *modelRun) runAndCheck(b *Batch) {
	b.Run()
	if b.Free() != 64 {
		m.t.Errorf("%d places free after Run", b.Free())
	}
	m.expect()
	for _, s := range m.spaces {
		s.check(m.t)
	}
}
