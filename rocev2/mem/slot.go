package mem

import (
	"errors"
	"fmt"
)

// slot is an index of the table whose key comes and goes by work requests.
//
//	            bind, REG_MR
//	  ┌───► FREE ───────────► VALID ───┐ of a window of type 1:
//	  │      ▲  │ ▲             │  ▲   │ bound anew
//	alloc    │  │ └─────────────┘  └───┘
//	  │      │  │  invalidate; type 1: bound to nothing; type 2: its QP is destroyed
//	INVALID ◄───┴─ dealloc, also of VALID
//
// (IBA 10.6.2, 10.6.7). While it isn't VALID its index leads to an MR
// that is dead from the start.
type slot struct {
	kind slotKind
	pd   *PD
	idle MR     // stands in the table while the slot is FREE
	key  uint32 // the present or the last one; under Table.mu, as is all below
	view *MR    // what the key leads to; nil: FREE
	gone bool   // INVALID
}

type slotKind uint8

const (
	fastRegion slotKind = iota // of a FastMR
	window1                    // of an MW
	window2
)

var slotNames = [...]string{fastRegion: "fast-registration region", window1: "window of type 1", window2: "window of type 2"}

// errStale is of an operation on what was deallocated.
var errStale = errors.New("it was deallocated")

// add gives s an index.
func (t *Table) add(s *slot) error {
	if s.pd == nil {
		return errors.New("no protection domain given")
	}
	s.idle.PD, s.idle.more = s.pd, &more{slot: s}
	s.idle.dead.Store(true)
	if err := t.insert(&s.idle); err != nil {
		return err
	}
	s.key = s.idle.Key
	return nil
}

// keyOf returns the key of s.
func (t *Table) keyOf(s *slot) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.key
}

// slotOf returns the slot that key, which must be its present or last one, and
// pd allow. Under mu.
func (t *Table) slotOf(key uint32, pd *PD) (*slot, error) {
	m := t.mrs.Get(key >> keyByteBits)
	switch {
	case m == nil:
		return nil, fmt.Errorf("key %#x: nothing has it", key)
	case m.more == nil:
		return nil, fmt.Errorf("key %#x is of a region that no work request may change", key)
	}
	s := m.more.slot
	switch {
	case s.key != key:
		return nil, fmt.Errorf("key %#x: the key of this %s is %#x", key, slotNames[s.kind], s.key)
	case s.pd != pd:
		return nil, fmt.Errorf("key %#x is of another protection domain", key)
	}
	return s, nil
}

// enter makes v what the key of s leads to, with the key's low byte. Under mu;
// the view before has been left.
func (t *Table) enter(s *slot, v *MR, b uint8) {
	s.key = s.key&^keyByteMask | uint32(b)
	v.Key, v.PD, v.more.slot = s.key, s.pd, s
	if v.more.parent != nil {
		v.more.parent.windows++
	}
	t.own(s, v.more.only)
	s.view = v
	t.mrs.Replace(s.key>>keyByteBits, v)
}

// leave ends what the key of s leads to, if anything. Under mu; drain waits
// for the ops on it.
func (t *Table) leave(s *slot) (was *MR) {
	was = s.view
	if was == nil {
		return &s.idle
	}
	was.dead.Store(true)
	if was.more.parent != nil {
		was.more.parent.windows--
	}
	t.disown(s, was.more.only)
	s.view = nil
	t.mrs.Replace(s.key>>keyByteBits, &s.idle)
	return was
}

// own notes that s is bound for the peer of one QP, if it is. Under mu.
func (t *Table) own(s *slot, by Owner) {
	if by == nil {
		return
	}
	if t.owned == nil {
		t.owned = map[Owner]map[*slot]struct{}{}
	}
	if t.owned[by] == nil {
		t.owned[by] = map[*slot]struct{}{}
	}
	t.owned[by][s] = struct{}{}
}

// disown undoes own. Under mu.
func (t *Table) disown(s *slot, by Owner) {
	delete(t.owned[by], s)
	if len(t.owned[by]) == 0 {
		delete(t.owned, by)
	}
}

// FreeOwned frees the windows of type 2 that a QP has bound, when it is
// destroyed: no peer can come by it any more, and the windows may be bound by
// another QP, or their regions go (2B of IBA 10.6.7). When it returns, none of
// their keys reaches memory.
func (t *Table) FreeOwned(by Owner) {
	t.mu.Lock()
	var was []*MR
	for s := range t.owned[by] {
		was = append(was, t.leave(s))
	}
	t.mu.Unlock()
	for _, m := range was {
		m.drain()
	}
}

// free makes s INVALID.
func (t *Table) free(s *slot) error {
	was, err := t.remove(s)
	if err == nil {
		was.drain()
	}
	return err
}

func (t *Table) remove(s *slot) (*MR, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.gone:
		return nil, errStale
	case s.view != nil && s.view.windows > 0:
		return nil, ErrBound
	}
	was := t.leave(s)
	s.gone = true
	t.mrs.Delete(s.key >> keyByteBits)
	return was, nil
}

// Invalidate is the local invalidate of a window of type 2 or a
// fast-registration region. When it returns, no peer and no work request
// reaches the memory by that key. What is FREE already stays so.
func (t *Table) Invalidate(key uint32, pd *PD) error {
	return t.invalidate(key, pd, func(*slot) error { return nil })
}

// InvalidateRemote is Invalidate as the peer of a QP asks for it, in a SEND
// with invalidate: what peers can't use, or not by this QP, they can't
// invalidate (IBA 9.4.1.1.1, o10-37.2.26).
func (t *Table) InvalidateRemote(rkey uint32, pd *PD, by Owner) error {
	return t.invalidate(rkey, pd, func(s *slot) error {
		switch v := s.view; {
		case v == nil:
			return errors.New("it is free")
		case v.more.only != nil && v.more.only != by:
			return errors.New("it is bound to another QP")
		case v.rights&remoteAccess == 0:
			return errors.New("it gives peers no right")
		}
		return nil
	})
}

func (t *Table) invalidate(key uint32, pd *PD, check func(*slot) error) error {
	t.mu.Lock()
	s, err := t.slotOf(key, pd)
	var was *MR
	if err == nil {
		err = s.mayBeFreed()
	}
	if err == nil {
		err = check(s)
	}
	if err == nil {
		was = t.leave(s)
	}
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("invalidate key %#x: %w", key, err)
	}
	was.drain()
	return nil
}

// mayBeFreed says why s can't be invalidated. Under Table.mu.
func (s *slot) mayBeFreed() error {
	switch {
	case s.kind == window1: // o10-37.2.26
		return errors.New("a window of type 1 can't be invalidated: bind it with length 0")
	case s.view != nil && s.view.windows > 0:
		return ErrBound
	}
	return nil
}
