package mem

import "time"

// Batch collects ops and runs them. It belongs to one worker.
type Batch struct {
	ops    []Op
	n      int
	soon   bool    // see Settle
	failed []Owner // whose later ops of this run are discarded

	// For ops on other processes' memory.
	sched  schedule
	limit  time.Duration // how long a call may take
	helper *helper       // makes the calls, if there is a limit
	direct *vmCall       // the call, if there is none
	word   [8]byte
}

// NewBatch makes a batch with room for n ops. One that ran ops on another
// process's memory wants Close.
func NewBatch(n int) *Batch {
	return &Batch{
		ops:    make([]Op, n),
		failed: make([]Owner, 0, n),
		sched:  newSchedule(n),
		limit:  DefaultLimit,
	}
}

// Add returns a zeroed op at the end of the batch, to be filled in, or nil when
// the batch is full: Run, then Add again. The op is valid until then.
func (b *Batch) Add() *Op {
	if b.n == len(b.ops) {
		return nil
	}
	op := &b.ops[b.n]
	b.n++
	*op = Op{}
	return op
}

// Free returns the number of ops that still fit.
func (b *Batch) Free() int { return len(b.ops) - b.n }

// Settle says that whether ops may be added next depends on the commits of those
// added so far, as a key does that one of them invalidates: Immediate is true.
func (b *Batch) Settle() { b.soon = true }

// Immediate reports whether the ops added so far should run before more are
// added: Settle was called, or all are on memory of this process, so that nothing
// is won by collecting more.
func (b *Batch) Immediate() bool {
	if b.soon {
		return true
	}
	for i := range b.ops[:b.n] {
		if b.ops[i].remote() != nil {
			return false
		}
	}
	return true
}

// Run runs all ops and calls each one's Owner.Commit, which must not add to the
// batch. The batch is empty afterwards.
//
// Ops of one owner, ops on overlapping ranges, and an atomic and the ops of its
// Space before and after it run in the order they were added; others may not.
// After an owner's first op that isn't OK its later ones aren't run but
// committed as Discarded; a failed Scatter may have written some of its bytes.
func (b *Batch) Run() {
	for i := range b.ops[:b.n] {
		op := &b.ops[i]
		if op.remote() != nil {
			b.runScheduled(i)
			break
		}
		b.runLocal(op)
		commit(op)
	}
	b.reset()
}

func commit(op *Op) {
	if op.Owner != nil {
		op.Owner.Commit(op)
	}
}

func (b *Batch) reset() {
	b.n, b.soon = 0, false
	if len(b.failed) > 0 {
		clear(b.failed)
		b.failed = b.failed[:0]
	}
}

func (b *Batch) runLocal(op *Op) {
	if len(b.failed) > 0 && b.hasFailed(op.Owner) {
		op.Status = Discarded
		return
	}
	if !op.execute() {
		b.fail(op)
	}
}

func (b *Batch) fail(op *Op) {
	op.Status = Fault
	if op.Owner != nil {
		b.failed = append(b.failed, op.Owner)
	}
}

func (b *Batch) hasFailed(o Owner) bool {
	for _, f := range b.failed {
		if f == o {
			return true
		}
	}
	return false
}
