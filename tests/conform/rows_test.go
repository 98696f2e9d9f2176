package conform

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/urxe/urxe/rocev2/wire"
)

// Every opcode there is, every code and every case has its row.
func TestNothingIsLeftOut(t *testing.T) {
	known, err := known()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"5.1/op-other", "5.4/detection", "5.4/retries"}
	for o := range 256 {
		if o := wire.Opcode(o); o.Valid() || o.Transport() == wire.RC {
			want = append(want, fmt.Sprintf("5.1/op-%02x", uint8(o)))
		}
	}
	for i := range 32 {
		want = append(want, fmt.Sprintf("5.2/credit-%d", i), fmt.Sprintf("5.2/rnr-%d", i), fmt.Sprintf("5.4/timeout-%d", i),
			fmt.Sprintf("5.11/%d", i+1))
	}
	for _, i := range []int{
		1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21, 22, 24, 25, 26, 27, 28, 30, 31, 33, 34, 36, 37, 38,
		39, 40, 41, 42, 44, 45, 46, 47, 48, 49, 50, 51, 53, 54, 57, 59, 60, 61, 62, 63, 64, 65, 66,
	} {
		want = append(want, fmt.Sprintf("bug/%d", i))
	}
	for _, id := range want {
		if known[id] == nil {
			t.Errorf("no row %s", id)
		}
	}
}

func TestParseRowsRefuses(t *testing.T) {
	for _, text := range []string{
		"a | b | c", "## t\na | b", "## t\na | b | c | d | e", "## t\na | b | c\na | b | c", "## t\na", "a",
	} {
		if _, err := parseRows(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// The document says what the source claims.
func TestDocumentIsCurrent(t *testing.T) {
	want, err := Markdown("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/conformance.md")
	if err != nil || string(got) != want {
		t.Fatalf("docs/conformance.md isn't what the claims of the tests make of it (%v): run go generate ./tests/conform", err)
	}
}

func TestMarkdown(t *testing.T) {
	for _, c := range []struct {
		row    row
		claims []claim
		want   string
	}{
		{row{cannot: "why"}, nil, "can't apply: why"},
		{row{}, nil, "**open**"},
		{row{}, []claim{{"x", "a/b", "TestC"}, {"x", "a/d", ""}}, "`a/b` TestC, `a/d`"},
	} {
		if got := shownBy(&c.row, c.claims); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	text, err := Markdown(t.TempDir())
	if err != nil || !strings.Contains(text, "0 are claimed by tests") {
		t.Errorf("without tests: %v", err)
	}
}
