package oslog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/sm"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, o Options) (*Log, string) {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "usm.log")
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, o.Path
}

func TestLine(t *testing.T) {
	at := time.Date(2026, 11, 9, 22, 47, 1, 304033000, time.Local)
	got := Line(at, 0x3ca5d6c0, sm.LevelInfo, "SUBNET UP")
	if want := "Nov 09 22:47:01 304033 [3CA5D6C0] 0x02 -> SUBNET UP\n"; got != want {
		t.Errorf("%q: want %q", got, want)
	}
}

func TestEvents(t *testing.T) {
	l, path := open(t, Options{Prefix: "ib0: "})
	l.Event(sm.Event{Level: sm.LevelInfo, Where: "sweep", Text: "SUBNET UP"})
	l.Event(sm.Event{Level: sm.LevelVerbose, Where: "sweep", Text: "not asked for"})
	l.Event(sm.Event{Level: sm.LevelError, Code: "6001", Where: "request", Text: "x does not answer"})
	l.Event(sm.Event{Level: sm.LevelSys, Text: "Exiting SM"})
	want := regexp.MustCompile(`^\w{3} \d\d \d\d:\d\d:\d\d \d{6} \[[0-9A-F]{8}\] 0x02 -> ib0: SUBNET UP
.* 0x01 -> ib0: request: ERR 6001: x does not answer
.* 0x80 -> ib0: Exiting SM
$`)
	if got := read(t, path); !want.MatchString(got) {
		t.Errorf("log:\n%s", got)
	}
}

func TestJSON(t *testing.T) {
	l, path := open(t, Options{JSON: true})
	l.Event(sm.Event{Level: sm.LevelError, Code: "6001", Where: "request", Text: "x"})
	var m map[string]any
	if err := json.Unmarshal([]byte(read(t, path)), &m); err != nil || m["code"] != "6001" || m["msg"] != "x" || m["level"] != "ERROR" {
		t.Errorf("%v, %v", m, err)
	}
}

func TestReopenAndLimits(t *testing.T) {
	l, path := open(t, Options{MaxMB: 1})
	l.Event(sm.Event{Level: sm.LevelInfo, Text: "one"})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Event(sm.Event{Level: sm.LevelInfo, Text: "two"})
	if strings.Contains(read(t, path), "one") || !strings.Contains(read(t, path), "two") {
		t.Error("the new file has not just what came after it was opened")
	}
	for range 20 {
		l.Event(sm.Event{Level: sm.LevelInfo, Text: strings.Repeat("x", 100<<10)})
	}
	if st, _ := os.Stat(path); st.Size() > 1<<20 {
		t.Errorf("%d bytes: want at most 1 MB", st.Size())
	}
	l2, _ := open(t, Options{Path: path, Erase: true})
	l2.Event(sm.Event{Level: sm.LevelInfo, Text: "fresh"})
	if got := read(t, path); strings.Contains(got, "xxx") {
		t.Error("the old log was not erased")
	}
	if _, err := Open(Options{Path: filepath.Join(t.TempDir(), "no", "such", "dir")}); err == nil {
		t.Error("opened a log in a directory that is not there")
	}
}
