package mem

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/urxe/urxe/rocev2/wire"
)

// FastMR is a region that work requests register and invalidate, many times
// over: each time with other memory and another key, whose index stays. Its
// memory is this process's: ibverbs has no such work request that a program of
// another could post.
type FastMR struct {
	slot
	table *Table
	max   int
}

// MaxPages is the most pages that a FastMR may be made for.
const MaxPages = 512

// AllocMR adds a FastMR of at most maxPages pages; it isn't registered yet.
func (t *Table) AllocMR(pd *PD, maxPages int) (*FastMR, error) {
	if maxPages < 1 || maxPages > MaxPages {
		return nil, fmt.Errorf("allocate memory region: %d pages (allowed: 1 to %d, MaxFastRegPages)", maxPages, MaxPages)
	}
	f := &FastMR{slot{kind: fastRegion, pd: pd}, t, maxPages}
	if err := t.add(&f.slot); err != nil {
		return nil, fmt.Errorf("allocate memory region: %w", err)
	}
	return f, nil
}

// Dealloc removes the region, registered or not; ErrBound while windows are
// bound to it. When it returns, nothing touches its memory.
func (f *FastMR) Dealloc() error {
	if err := f.table.free(&f.slot); err != nil {
		return fmt.Errorf("deallocate memory region: %w", err)
	}
	return nil
}

// Key returns the present lkey and rkey, or while the region isn't registered
// the last ones.
func (f *FastMR) Key() uint32 { return f.table.keyOf(&f.slot) }

// PageList is memory in pieces, which a region makes one range of. All but the
// first and the last have Size bytes, a power of 2 from 4096 on; those may have
// less.
type PageList struct {
	Size  int
	Pages [][]byte
}

// Registration is what a FastMR is to be: the pages, known to work requests and
// peers from IOVA on.
type Registration struct {
	MR     *FastMR
	Key    uint8 // the low byte of its keys from then on
	IOVA   uint64
	Access Access
	PageList
}

// FastRegister registers r.MR, which must be free, by a work request of a QP of
// pd. Its error says what can't be; then nothing has changed.
func (t *Table) FastRegister(r *Registration, pd *PD) error {
	if err := t.fastRegister(r, pd); err != nil {
		return fmt.Errorf("fast registration: %w", err)
	}
	return nil
}

func (t *Table) fastRegister(r *Registration, pd *PD) error {
	f := r.MR
	switch {
	case f == nil || f.table != t:
		return errors.New("no region of this device given")
	case f.pd != pd:
		return errors.New("the region is of another protection domain than the QP")
	case len(r.Pages) > f.max:
		return fmt.Errorf("%d pages: the region was made for %d", len(r.Pages), f.max)
	}
	length, err := r.PageList.check()
	if err == nil {
		err = checkRange(r.IOVA, length, r.Access)
	}
	if err != nil {
		return err
	}
	v := &MR{IOVA: r.IOVA, Length: length, Access: r.Access, rights: r.Access | byLKey, more: new(more)}
	r.PageList.attach(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.gone:
		return errStale
	case f.view != nil:
		return errors.New("the region is registered: invalidate it first")
	}
	t.enter(&f.slot, v, r.Key)
	return nil
}

// check returns the bytes of the pages, or says what is wrong with them.
func (p *PageList) check() (length uint64, err error) {
	if p.Size < 4096 || bits.OnesCount(uint(p.Size)) != 1 {
		return 0, fmt.Errorf("page size %d (allowed: powers of 2 from 4096 on)", p.Size)
	}
	for i, page := range p.Pages {
		outer := i == 0 || i == len(p.Pages)-1
		if n := len(page); n == 0 || n > p.Size || n < p.Size && !outer {
			return 0, fmt.Errorf("page %d of %d has %d bytes, the page size is %d: only the first and the last may have less, and none more", i+1, len(p.Pages), n, p.Size)
		}
		length += uint64(len(page))
	}
	return length, nil
}

// attach makes v, whose Length is set, refer to the pages. The list may be
// reused.
func (p *PageList) attach(v *MR) {
	v.addr = Address(p.Pages[0])
	if v.local = p.inOne(int(v.Length)); v.local == nil {
		v.more.pages = &pages{size: p.Size, first: len(p.Pages[0]), list: append([][]byte(nil), p.Pages...)}
	}
}

// inOne returns the n bytes of all pages as one slice, or nil if they don't
// follow each other in the memory that the first was cut from.
func (p *PageList) inOne(n int) []byte {
	if cap(p.Pages[0]) < n {
		return nil
	}
	all := p.Pages[0][:n:n]
	at := 0
	for _, page := range p.Pages {
		if &all[at] != &page[0] {
			return nil
		}
		at += len(page)
	}
	return all
}

// pages is memory in pieces: first bytes, then size bytes each. It begins skip
// bytes in.
type pages struct {
	size, first int
	skip        uint64
	list        [][]byte
}

// from returns the memory from off on.
func (p *pages) from(off uint64) *pages {
	q := *p
	q.skip += off
	return &q
}

// at returns the bytes from off to the end of their page.
func (p *pages) at(off uint64) []byte {
	off += p.skip
	if off < uint64(p.first) {
		return p.list[0][off:]
	}
	off -= uint64(p.first)
	return p.list[1+off/uint64(p.size)][off%uint64(p.size):]
}

// accessPages does what the op says to the n bytes at off, page by page. An
// atomic's word lies in one, or can't be had.
func (op *Op) accessPages(p *pages, off uint64, n int) bool {
	if op.Kind.atomic() {
		m := p.at(off)
		return len(m) >= n && op.access(m[:n])
	}
	part := *op
	for done := 0; done < n; {
		m := p.at(off + uint64(done))
		m = m[:min(len(m), n-done)]
		part.Tail = op.Tail && done+len(m) == n
		part.Frag = [2][]byte{}
		wire.CutTo(&part.Frag, &op.Frag, done, len(m))
		part.access(m)
		done += len(m)
	}
	return true
}
