package lid

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
)

func TestAssign(t *testing.T) {
	var tb Table
	notes, err := tb.Assign([]Want{{GUID: 1}, {GUID: 2, LMC: 2}, {GUID: 3, Have: 2}, {GUID: 4, Have: 2}, {GUID: 5, LMC: 1, Have: 7}})
	if err != nil || len(notes) != 2 {
		t.Fatal(notes, err)
	}
	for g, want := range map[ib.GUID]Range{1: {1, 1}, 2: {4, 7}, 3: {2, 2}, 4: {3, 3}, 5: {8, 9}} {
		if r, ok := tb.Get(g); !ok || r != want {
			t.Errorf("GUID %d has %v: want %v", g, r, want)
		}
	}
	// A LID that changed behind our back is put right, a changed LMC gets a new range.
	notes, _ = tb.Assign([]Want{{GUID: 1, Have: 9}, {GUID: 3, LMC: 1}})
	if r, _ := tb.Get(3); len(notes) != 1 || r.Size() != 2 || r.Min%2 != 0 {
		t.Errorf("range %v, notes %v", r, notes)
	}
}

func TestLIDsRunOut(t *testing.T) {
	var tb Table
	wants := make([]Want, 0xbfff)
	for i := range wants {
		wants[i].GUID = ib.GUID(i + 1)
	}
	if _, err := tb.Assign(wants); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Assign(append(wants, Want{GUID: 0x999999})); err == nil || !strings.Contains(err.Error(), "0x0000000000999999") {
		t.Error(err)
	}
	// Those that left give theirs back.
	if _, err := tb.Assign(append(wants[1:], Want{GUID: 0x999999})); err != nil {
		t.Error(err)
	}
	if r, _ := tb.Get(0x999999); r.Min != 1 {
		t.Errorf("got %v: want the LID of the one that left", r)
	}
}

func TestFile(t *testing.T) {
	var a, b Table
	if _, err := a.Assign([]Want{{GUID: 0x2c9030000001234}, {GUID: 7, LMC: 1}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "guid2lid")
	if err := a.Save(path); err != nil || a.Dirty() {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	if want := "0x02c9030000001234 0x0001 0x0001\n\n0x0000000000000007 0x0002 0x0003\n\n"; string(text) != want {
		t.Errorf("%q: want %q", text, want)
	}
	if notes, err := b.Load(path); err != nil || len(notes) > 0 || b.Dirty() {
		t.Fatal(notes, err)
	}
	if r, _ := b.Get(7); r != (Range{2, 3}) {
		t.Error(r)
	}
	if notes, err := b.Load(path + ".none"); err != nil || notes != nil {
		t.Error("a missing file must be no error:", err)
	}
}

func TestBadLines(t *testing.T) {
	var tb Table
	notes, err := tb.Read(strings.NewReader("# x\n0x1 0x1 0x1\n0x2 0x1 0x1\nfoo 0x2 0x2\n0x3 0x3\n0x4 0xc000 0xc000\n0x5 0x3 0x4\n0x1 0x9 0x9\n0x6 0x2 0x3\n"))
	if err != nil || len(notes) != 6 {
		t.Errorf("%d notes, %v: %q", len(notes), err, notes)
	}
	if r, ok := tb.Get(6); !ok || r.Min != 2 {
		t.Error("the good line behind the bad ones got lost")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("0x0000000000100001 0x0001 0x0001\n\n"))
	f.Add([]byte("0x1 0x4 0x7\n0x2 0xbfff 0xffff\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tb Table
		_, _ = tb.Read(bytes.NewReader(b))
		for g, r := range tb.byGUID {
			for l := r.Min; l <= r.Max; l++ {
				if o, _ := tb.Owner(l); o != g {
					t.Fatalf("LID %d is owned by %v and in the range of %v", l, o, g)
				}
			}
		}
	})
}
