package mem

// schedule decides which ops of a batch run together. Each group is of one
// Space and one direction, or a single atomic, and takes as many ops as may
// run now without passing another op that must come first.
type schedule struct {
	owners  []owner
	of      []int32 // number of each op's owner
	pending []bool  // ops that are in no group yet
	first   int     // no op before it is pending
	group   []int32 // the group: numbers of ops, ascending
}

type owner struct {
	id     Owner
	failed bool
	waits  int // the group that may have no more ops of this owner
}

func newSchedule(n int) schedule {
	return schedule{
		owners:  make([]owner, 0, n),
		of:      make([]int32, n),
		pending: make([]bool, n),
		group:   make([]int32, 0, n),
	}
}

// begin prepares the scheduling of ops[from:].
func (s *schedule) begin(ops []Op, from int) {
	s.owners, s.first = s.owners[:0], from
	for i := from; i < len(ops); i++ {
		s.of[i] = s.number(ops[i].Owner)
		s.pending[i] = true
	}
}

// number returns the owner's number. Ops without owner have one each.
func (s *schedule) number(o Owner) int32 {
	if o != nil {
		for i := len(s.owners) - 1; i >= 0; i-- { // bursts come from one owner
			if s.owners[i].id == o {
				return int32(i)
			}
		}
	}
	s.owners = append(s.owners, owner{id: o, waits: -1})
	return int32(len(s.owners) - 1)
}

func (s *schedule) ownerOf(i int32) *owner { return &s.owners[s.of[i]] }

// next forms the next group and reports whether there is one.
func (s *schedule) next(ops []Op) bool {
	for s.first < len(ops) && !s.pending[s.first] {
		s.first++
	}
	s.group = s.group[:0]
	var lane lane
	for i := s.first; i < len(ops); i++ {
		if !s.pending[i] {
			continue
		}
		o := s.ownerOf(int32(i))
		switch lane.admit(&ops[i], o.waits == s.first) {
		case joins:
			s.group = append(s.group, int32(i))
			s.pending[i] = false
		case later:
			o.waits = s.first
		case closes:
			return true
		}
	}
	return len(s.group) > 0
}

// lane is what the ops of a group have in common.
type lane struct {
	open  bool
	space *Process // nil: this process
	kind  Kind
}

type verdict uint8

const (
	joins  verdict = iota
	later          // it is another Space's
	closes         // neither it nor what follows may join
)

// admit decides about an op. Its owner waits if an earlier op of his does.
func (l *lane) admit(op *Op, waits bool) verdict {
	p := op.remote()
	switch {
	case op.MR == nil || op.Kind == Nop:
		if waits {
			return later
		}
		return joins
	case !l.open:
		*l = lane{open: true, space: p, kind: op.Kind}
		return joins
	case p != l.space:
		return later
	case waits:
		return closes // what follows may overlap it
	case p == nil:
		return joins // run one by one
	case op.Kind != l.kind || op.Kind.atomic():
		return closes
	}
	return joins
}
