package mem

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// runScheduled runs the ops from number from on, of which some are on other
// processes' memory.
func (b *Batch) runScheduled(from int) {
	s := &b.sched
	ops := b.ops[:b.n]
	s.begin(ops, from)
	for i := range s.owners {
		s.owners[i].failed = b.hasFailed(s.owners[i].id)
	}
	for s.next(ops) {
		b.runGroup()
		for _, i := range s.group {
			commit(&ops[i])
		}
	}
}

func (b *Batch) runGroup() {
	group := b.sched.group
	for len(group) > 0 {
		op := &b.ops[group[0]]
		n := 1
		switch p := op.remote(); {
		case b.sched.ownerOf(group[0]).failed:
			op.Status = Discarded
		case p == nil:
			b.settle(group[0], op.execute())
		case op.Kind.atomic():
			b.settle(group[0], b.atomic(p, op))
		default:
			b.holdAll(group)
			n = b.transfer(p, group)
			b.releaseAll(group)
		}
		group = group[n:]
	}
}

// holdAll keeps the memory of a group in use. What has ended already isn't
// reachable, held or not.
func (b *Batch) holdAll(group []int32) {
	for _, i := range group {
		if m := b.ops[i].MR; m != nil && m.more != nil {
			m.more.users.Add(1)
		}
	}
}

func (b *Batch) releaseAll(group []int32) {
	for _, i := range group {
		if m := b.ops[i].MR; m != nil {
			m.release()
		}
	}
}

// settle records how an op went that was run by itself.
func (b *Batch) settle(i int32, ok bool) {
	if !ok {
		b.ops[i].Status = Fault
		b.sched.ownerOf(i).failed = true
	}
}

// transfer moves the bytes of the first ops of the group by one call, and
// returns how many ops are settled: all those up to the first that failed.
func (b *Batch) transfer(p *Process, group []int32) int {
	if !b.ops[group[0]].reachable() || !p.alive() {
		b.settle(group[0], false)
		return 1
	}
	c := b.newCall(p, b.ops[group[0]].Kind == Scatter)
	n := b.load(c, group)
	if c.size == 0 {
		return n
	}
	if !b.complete(p, c) {
		b.failAll(group[:n])
		return n
	}
	return b.credit(c, group[:n])
}

// load adds ops to the call, as many as fit, and returns how many it went
// through. It stops before an op that is known to fail: that one's turn comes
// when what its owner did before is settled.
func (b *Batch) load(c *vmCall, group []int32) int {
	for n, i := range group {
		op := &b.ops[i]
		switch {
		case b.sched.ownerOf(i).failed:
			op.Status = Discarded
		case !op.reachable() || !c.fits(op.size()):
			return n
		default:
			c.add(op)
		}
	}
	return len(group)
}

// credit shares out what the call moved, and returns how many ops are settled.
func (b *Batch) credit(c *vmCall, group []int32) int {
	at := 0
	for n, i := range group {
		op := &b.ops[i]
		if op.Status == Discarded {
			continue
		}
		if at+op.size() > c.moved {
			b.settle(i, false)
			return n + 1
		}
		c.deliver(op.Frag[0], at)
		c.deliver(op.Frag[1], at+len(op.Frag[0]))
		at += op.size()
	}
	return len(group)
}

// failAll is for a call of which nothing is known but that it failed.
func (b *Batch) failAll(group []int32) {
	for _, i := range group {
		if b.sched.ownerOf(i).failed {
			b.ops[i].Status = Discarded
		} else {
			b.settle(i, b.ops[i].size() == 0)
		}
	}
}

// reachable reports whether the op is within a region that is still there.
func (op *Op) reachable() bool {
	m, n := op.MR, op.size()
	if m == nil || op.Kind == Nop {
		return n == 0
	}
	return op.Kind <= Store && !m.Dead() && m.contains(op.VA, uint64(n)) && !m.proc.Dead()
}

// words serialises the atomics on other processes' memory, by process and
// address: two regions, or two Processes, may share a word.
var words [256]struct {
	sync.Mutex
	_ [56]byte // one cache line each
}

func stripe(pid int, addr uint64) int {
	return int((uint64(pid)<<32 ^ addr>>3) * 0x9e3779b97f4a7c15 >> 56)
}

// atomic reads, changes and writes the word of an atomic.
func (b *Batch) atomic(p *Process, op *Op) bool {
	if !op.MR.hold() {
		return false
	}
	defer op.MR.release()
	if !op.reachable() || !p.alive() {
		return false
	}
	addr := op.MR.Addr(op.VA)
	lo, hi := stripe(p.pid, addr), stripe(p.pid, addr+7)
	if lo > hi {
		lo, hi = hi, lo
	}
	words[lo].Lock()
	defer words[lo].Unlock()
	if hi != lo { // a misaligned word
		words[hi].Lock()
		defer words[hi].Unlock()
	}
	old, ok := b.readWord(p, addr)
	if !ok {
		return false
	}
	op.Orig = old
	v, store := op.apply(old)
	return !store || b.writeWord(p, addr, v)
}

func (b *Batch) readWord(p *Process, addr uint64) (v uint64, ok bool) {
	c := b.newCall(p, false)
	c.addBytes(addr, b.word[:])
	if !b.complete(p, c) || c.moved != len(b.word) {
		return 0, false
	}
	c.deliver(b.word[:], 0)
	return binary.NativeEndian.Uint64(b.word[:]), true
}

func (b *Batch) writeWord(p *Process, addr, v uint64) bool {
	binary.NativeEndian.PutUint64(b.word[:], v)
	c := b.newCall(p, true)
	c.addBytes(addr, b.word[:])
	return b.complete(p, c) && c.moved == len(b.word)
}

// complete makes the call and reports whether c.moved can be trusted.
func (b *Batch) complete(p *Process, c *vmCall) bool {
	if !b.do(p, c) {
		return false
	}
	if c.err == unix.ESRCH {
		p.Abandon()
	}
	if c.err == unix.EFAULT {
		c.moved = 0
	}
	return c.err == nil || c.err == unix.EFAULT
}
