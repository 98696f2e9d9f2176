// Package lid hands out LIDs. A port keeps its LIDs across sweeps and restarts:
// they are written to guid2lid, OpenSM's file of that name, and a GUID's range
// stays reserved while its port is away.
package lid

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/urxe/urxe/ib"
)

// Range is the LIDs of one port, both ends included.
type Range struct{ Min, Max ib.LID }

// Size returns the number of LIDs.
func (r Range) Size() int { return int(r.Max) - int(r.Min) + 1 }

func (r Range) valid() bool { return r.Min.Unicast() && r.Max.Unicast() && r.Min <= r.Max }

// Table knows who has which LID. The zero value is empty; it is not safe for
// concurrent use.
type Table struct {
	byGUID map[ib.GUID]Range
	owner  map[ib.LID]ib.GUID
	next   ib.LID // where the search for free LIDs begins
	dirty  bool
}

// Want is a port that needs LIDs.
type Want struct {
	GUID ib.GUID
	LMC  uint8  // it gets 1<<LMC of them, the first a multiple of that (IBA 3.5.10)
	Have ib.LID // the base LID that the port has now; 0 is none
}

// Get returns the LIDs of a GUID.
func (t *Table) Get(g ib.GUID) (Range, bool) {
	r, ok := t.byGUID[g]
	return r, ok
}

// Owner returns the GUID that has a LID.
func (t *Table) Owner(l ib.LID) (ib.GUID, bool) {
	g, ok := t.owner[l]
	return g, ok
}

// Dirty reports whether the table differs from what was last read or written.
func (t *Table) Dirty() bool { return t.dirty }

// Assign gives every port its range. Who is in the table keeps it; then ports
// that came with a LID that nobody claims keep that; the others get the lowest
// free ones. Notes tell of ports that had to change theirs. When LIDs run out,
// the ranges of GUIDs not wanted now are taken back; when that isn't enough
// either, the ports left over are returned in an error, and have none.
func (t *Table) Assign(wants []Want) (notes []string, err error) {
	var left []Want
	for _, w := range wants {
		if r, ok := t.byGUID[w.GUID]; !ok || r.Size() != 1<<w.LMC || int(r.Min)&(1<<w.LMC-1) != 0 {
			t.drop(w.GUID)
			left = append(left, w)
		} else if w.Have != 0 && w.Have != r.Min {
			notes = append(notes, fmt.Sprintf("port GUID 0x%016x has LID %d and gets its own again, %d", uint64(w.GUID), w.Have, r.Min))
		}
	}
	left, keep := t.keep(left)
	return append(notes, keep...), t.fill(left, wants)
}

// keep lets ports stay with the LID they came with.
func (t *Table) keep(wants []Want) (left []Want, notes []string) {
	for _, w := range wants {
		r := Range{w.Have, w.Have + 1<<w.LMC - 1}
		switch {
		case w.Have == 0:
		case !r.valid() || int(w.Have)&(1<<w.LMC-1) != 0:
			notes = append(notes, fmt.Sprintf("port GUID 0x%016x has LID %d, which is no base of %d LIDs", uint64(w.GUID), w.Have, 1<<w.LMC))
		case t.free(r):
			t.put(w.GUID, r)
			continue
		default:
			notes = append(notes, fmt.Sprintf("port GUID 0x%016x has LID %d, which belongs to another port", uint64(w.GUID), w.Have))
		}
		left = append(left, w)
	}
	return left, notes
}

func (t *Table) fill(left, all []Want) error {
	var none []ib.GUID
	for _, w := range left {
		r, ok := t.search(w.LMC)
		if !ok {
			t.reclaim(all)
			r, ok = t.search(w.LMC)
		}
		if ok {
			t.put(w.GUID, r)
		} else {
			none = append(none, w.GUID)
		}
	}
	if len(none) > 0 {
		return fmt.Errorf("out of LIDs: %d ports have none, the first of them 0x%016x", len(none), uint64(none[0]))
	}
	return nil
}

// search finds the lowest free range.
func (t *Table) search(lmc uint8) (Range, bool) {
	size := ib.LID(1) << lmc
	for min := max(t.next, 1); min+size-1 < ib.LIDMulticastFirst; min++ {
		min = (min + size - 1) &^ (size - 1)
		if r := (Range{min, min + size - 1}); r.valid() && t.free(r) {
			if lmc == 0 {
				t.next = min
			}
			return r, true
		}
	}
	return Range{}, false
}

func (t *Table) free(r Range) bool {
	for l := r.Min; l <= r.Max; l++ {
		if _, taken := t.owner[l]; taken {
			return false
		}
	}
	return true
}

func (t *Table) put(g ib.GUID, r Range) {
	if t.byGUID == nil {
		t.byGUID, t.owner = map[ib.GUID]Range{}, map[ib.LID]ib.GUID{}
	}
	t.byGUID[g] = r
	for l := r.Min; l <= r.Max; l++ {
		t.owner[l] = g
	}
	t.dirty = true
}

func (t *Table) drop(g ib.GUID) {
	r, ok := t.byGUID[g]
	if !ok {
		return
	}
	delete(t.byGUID, g)
	for l := r.Min; l <= r.Max; l++ {
		delete(t.owner, l)
	}
	t.next = min(t.next, r.Min)
	t.dirty = true
}

// reclaim takes back the ranges of GUIDs that are not there now.
func (t *Table) reclaim(all []Want) {
	here := map[ib.GUID]bool{}
	for _, w := range all {
		here[w.GUID] = true
	}
	for g := range t.byGUID {
		if !here[g] {
			t.drop(g)
		}
	}
	t.next = 0
}

// sorted returns the GUIDs by ascending LID.
func (t *Table) sorted() []ib.GUID {
	guids := make([]ib.GUID, 0, len(t.byGUID))
	for g := range t.byGUID {
		guids = append(guids, g)
	}
	slices.SortFunc(guids, func(a, b ib.GUID) int { return cmp.Compare(t.byGUID[a].Min, t.byGUID[b].Min) })
	return guids
}
