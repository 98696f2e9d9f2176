package lid

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib"
)

// Read takes guid2lid: lines of a port GUID and its lowest and highest LID, in
// hexadecimal; empty lines and those that begin with # are skipped. Entries
// that make no sense, or claim what an earlier one has, are left out and named
// in notes with their line: a bad line must not cost the others their LIDs.
func (t *Table) Read(r io.Reader) (notes []string, err error) {
	s := bufio.NewScanner(r)
	line := 1
	for ; s.Scan(); line++ {
		text := strings.TrimSpace(s.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if why := t.entry(text); why != "" {
			notes = append(notes, fmt.Sprintf("line %d: %s", line, why))
		}
	}
	t.dirty = len(notes) > 0
	if s.Err() != nil {
		err = fmt.Errorf("line %d: %w", line, s.Err())
	}
	return notes, err
}

func (t *Table) entry(text string) (why string) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return fmt.Sprintf("%q: want a GUID and two LIDs", text)
	}
	g, err := ib.ParseGUID(f[0])
	lo, errLo := strconv.ParseUint(f[1], 0, 16)
	hi, errHi := strconv.ParseUint(f[2], 0, 16)
	r := Range{ib.LID(lo), ib.LID(hi)}
	switch {
	case err != nil || g == 0:
		return fmt.Sprintf("%q is no GUID", f[0])
	case errLo != nil || errHi != nil || !r.valid() || r.Size() > 128 || r.Size()&(r.Size()-1) != 0 || int(r.Min)%r.Size() != 0:
		return fmt.Sprintf("%s to %s are no LIDs of one port", f[1], f[2])
	case !t.free(r):
		return fmt.Sprintf("LIDs %d to %d of %v belong to another GUID already", r.Min, r.Max, g)
	}
	if _, dup := t.byGUID[g]; dup {
		return fmt.Sprintf("GUID %v is there twice", g)
	}
	t.put(g, r)
	return ""
}

// Write writes the table as guid2lid, in the form of OpenSM.
func (t *Table) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, g := range t.sorted() {
		r := t.byGUID[g]
		fmt.Fprintf(b, "0x%016x 0x%04x 0x%04x\n\n", uint64(g), uint16(r.Min), uint16(r.Max))
	}
	return b.Flush()
}

// Load reads a guid2lid file. That there is none is no error.
func (t *Table) Load(path string) (notes []string, err error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if notes, err = t.Read(f); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return notes, err
}

// Save writes a guid2lid file in one step: a crash leaves the old one whole.
func (t *Table) Save(path string) error {
	f, err := os.CreateTemp(dir(path), ".guid2lid-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = t.Write(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		t.dirty = false
	}
	return err
}

func dir(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i+1]
	}
	return "."
}
