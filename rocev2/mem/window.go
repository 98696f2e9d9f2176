package mem

import (
	"errors"
	"fmt"
)

// MWType is the type of a memory window, numbered as ibv_mw_type.
type MWType uint8

// The types. One of type 1 is for the peers of all QPs of its protection
// domain, and may be bound again while it is bound. One of type 2 is for the
// peer of the QP that bound it and must be invalidated first; the protection
// domain of the QP must be that of the window, too (2B of IBA 10.6.7).
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// MW is a memory window: a key that opens a part of a region to peers for as
// long as it is bound.
type MW struct {
	slot
	table *Table
}

// AllocMW adds a window that is bound to nothing.
func (t *Table) AllocMW(pd *PD, typ MWType) (*MW, error) {
	kind := map[MWType]slotKind{MWType1: window1, MWType2: window2}[typ]
	if kind == 0 {
		return nil, fmt.Errorf("allocate memory window: type %d (allowed: 1 and 2)", typ)
	}
	w := &MW{slot{kind: kind, pd: pd}, t}
	if err := t.add(&w.slot); err != nil {
		return nil, fmt.Errorf("allocate memory window: %w", err)
	}
	return w, nil
}

// Dealloc removes the window, bound or not. When it returns, no peer reaches
// memory by it.
func (w *MW) Dealloc() error {
	if err := w.table.free(&w.slot); err != nil {
		return fmt.Errorf("deallocate memory window: %w", err)
	}
	return nil
}

// Type returns the type.
func (w *MW) Type() MWType {
	if w.kind == window1 {
		return MWType1
	}
	return MWType2
}

// Key returns the present rkey, or while the window is bound to nothing the
// last one.
func (w *MW) Key() uint32 { return w.table.keyOf(&w.slot) }

// Bind is what a window is to open: [Addr, Addr+Length) of the region that LKey
// names. No bytes close a window of type 1.
type Bind struct {
	MW           *MW    // nil: RKey names it
	RKey         uint32 // the window's, as it is
	Key          uint8  // the low byte of its rkey from then on
	LKey         uint32
	Addr, Length uint64
	Access       Access
}

// Bind binds a window, by a work request of the QP by, which is of pd. Its
// error says what can't be (IBA 10.6.7, C10-72 to C10-75); then nothing has
// changed.
func (t *Table) Bind(b *Bind, pd *PD, by Owner) error {
	was, err := t.bind(b, pd, by)
	if err != nil {
		return fmt.Errorf("bind memory window: %w", err)
	}
	was.drain()
	return nil
}

func (t *Table) bind(b *Bind, pd *PD, by Owner) (was *MR, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.windowOf(b, pd)
	if err == nil {
		err = s.mayBind(b)
	}
	if err != nil {
		return nil, err
	}
	if b.Length == 0 { // type 1
		was = t.leave(s)
		s.key = s.key&^keyByteMask | uint32(b.Key)
		return was, nil
	}
	parent := t.Find(b.LKey, pd, b.Addr, b.Length, MWBind)
	if err := checkParent(parent, b); err != nil {
		return nil, err
	}
	v := parent.window(b)
	if s.kind == window2 {
		v.more.only = by
	}
	was = t.leave(s)
	t.enter(s, v, b.Key)
	return was, nil
}

// windowOf returns the window that is to be bound. Under mu.
func (t *Table) windowOf(b *Bind, pd *PD) (*slot, error) {
	w := b.MW
	switch {
	case w == nil:
		return t.slotOf(b.RKey, pd)
	case w.table != t:
		return nil, errors.New("the window is of another device")
	case w.gone:
		return nil, errStale
	case w.pd != pd:
		return nil, errors.New("the window is of another protection domain")
	}
	return &w.slot, nil
}

// mayBind says why the window can't be bound so, whatever the region. Under Table.mu.
func (s *slot) mayBind(b *Bind) error {
	const allowed = remoteAccess | ZeroBased
	switch {
	case s.kind == fastRegion:
		return errors.New("it is no window")
	case b.Access&^(allowed|Optional) != 0:
		return fmt.Errorf("access %v (allowed: %v)", b.Access, allowed)
	case s.kind == window1 && b.Access&ZeroBased != 0:
		return errors.New("ZERO_BASED is for windows of type 2")
	case s.kind == window2 && s.view != nil:
		return errors.New("a window of type 2 that is bound must be invalidated first")
	case s.kind == window2 && b.Length == 0:
		return errors.New("length 0: only a window of type 1 is closed so; invalidate this one")
	}
	return nil
}

// checkParent says why a window can't be opened on a region.
func checkParent(m *MR, b *Bind) error {
	switch {
	case m == nil:
		return fmt.Errorf("no region with key %#x, MW_BIND and the range %#x+%#x in this protection domain", b.LKey, b.Addr, b.Length)
	case m.Access&ZeroBased != 0:
		return errors.New("the region is zero-based")
	case b.Access&(RemoteWrite|RemoteAtomic) != 0 && m.Access&LocalWrite == 0: // C10-75
		return fmt.Errorf("access %v of a region without LOCAL_WRITE", b.Access)
	}
	return nil
}

// window returns the part of m that b says.
func (m *MR) window(b *Bind) *MR {
	off := b.Addr - m.IOVA
	v := &MR{IOVA: b.Addr, Length: b.Length, Access: b.Access, rights: b.Access, addr: m.Addr(b.Addr), proc: m.proc, more: &more{parent: m}}
	if b.Access&ZeroBased != 0 {
		v.IOVA = 0
	}
	switch {
	case m.local != nil:
		v.local = m.local[off : off+b.Length : off+b.Length]
	case m.more != nil && m.more.pages != nil:
		v.more.pages = m.more.pages.from(off)
	}
	return v
}
