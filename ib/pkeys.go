package ib

import (
	"fmt"
	"strings"
)

// PKeyTable is the P_Key table of a port: the partitions that it is in. QPs name
// its entries by their index (IBA 10.9.2).
type PKeyTable []PKey

// Check says what is wrong with a table that is to be a port's: no entry, one
// that names no partition, or one that is there twice. The keys of a full and of
// a limited member of one partition are two.
func (t PKeyTable) Check() error {
	if len(t) == 0 {
		return fmt.Errorf("a P_Key table without an entry (without partitions it is %v alone)", PKeyDefault)
	}
	seen := make(map[PKey]int, len(t))
	for i, k := range t {
		if k&^pkeyFull == 0 {
			return fmt.Errorf("P_Key %v at index %d names no partition: the low 15 bits are 1 to 0x7fff", k, i)
		}
		if first, twice := seen[k]; twice {
			return fmt.Errorf("P_Key %v is in the table twice, at indices %d and %d", k, first, i)
		}
		seen[k] = i
	}
	return nil
}

// String lists the keys, as in "0xffff,0x8001".
func (t PKeyTable) String() string {
	var s []string
	for _, k := range t {
		s = append(s, k.String())
	}
	return strings.Join(s, ",")
}

// Find returns the index of the entry that packets with key k pass: that of a
// full member, or else of a limited one.
func (t PKeyTable) Find(k PKey) (index int, ok bool) {
	for i, e := range t {
		if !k.Matches(e) {
			continue
		}
		if e.Full() {
			return i, true
		}
		if !ok {
			index, ok = i, true
		}
	}
	return index, ok
}
