// Package oslog writes a subnet manager's log in the lines of OpenSM, which
// people's scripts know, or as JSON. Every line is written at once.
package oslog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/urxe/urxe/sm"
)

// Log is where events go. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	path   string // empty is standard output
	out    *os.File
	prefix string
	limit  int64 // bytes at which the file begins anew; 0 is never
	size   int64
	flags  sm.Level
	logger *slog.Logger
}

// Options say what is written, and where. The zero value writes errors and
// information to standard output.
type Options struct {
	Path   string   // "" or "stdout" is standard output
	Flags  sm.Level // the levels written; 0 is errors and information
	Prefix string   // before each line's text
	MaxMB  int      // 0 is no limit
	Erase  bool     // what an older log holds
	JSON   bool
}

// Open opens a log.
func Open(o Options) (*Log, error) {
	l := &Log{path: o.Path, prefix: o.Prefix, limit: int64(o.MaxMB) << 20, flags: o.Flags}
	if l.flags == 0 {
		l.flags = sm.LevelError | sm.LevelInfo
	}
	if l.path == "stdout" || l.path == "-" {
		l.path = ""
	}
	if err := l.open(o.Erase); err != nil {
		return nil, err
	}
	var h slog.Handler = &lines{l}
	if o.JSON {
		h = slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug - 100})
	}
	l.logger = slog.New(h)
	return l, nil
}

func (l *Log) open(erase bool) error {
	if l.path == "" {
		l.out = os.Stdout
		return nil
	}
	mode := os.O_APPEND
	if erase {
		mode = os.O_TRUNC
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	if st, err := f.Stat(); err == nil {
		l.size = st.Size()
	}
	l.out = f
	return nil
}

// Reopen opens the file anew, after it was moved away.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.out
	if err := l.open(false); err != nil {
		return err
	}
	if old != os.Stdout {
		return old.Close()
	}
	return nil
}

// Write puts one line into the file.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 && l.size+int64(len(b)) > l.limit && l.out != os.Stdout {
		if err := l.out.Truncate(0); err != nil {
			return 0, err
		}
		l.size = 0
	}
	n, err := l.out.Write(b)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == os.Stdout {
		return nil
	}
	return l.out.Close()
}

// Event writes an event, if its level is one of those written. Events for the
// system log always are.
func (l *Log) Event(e sm.Event) {
	if e.Level&(l.flags|sm.LevelSys) == 0 {
		return
	}
	attrs := []slog.Attr{slog.Int("level_mask", int(e.Level)), slog.String("where", e.Where)}
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", e.Code))
	}
	l.logger.LogAttrs(context.Background(), severity(e.Level), e.Text, attrs...)
}

func severity(l sm.Level) slog.Level {
	switch l {
	case sm.LevelError:
		return slog.LevelError
	case sm.LevelInfo, sm.LevelSys:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// lines is the handler for OpenSM's form:
//
//	Nov 29 22:47:01 304033 [3CA5D6C0] 0x02 -> SUBNET UP
//	Nov 29 22:47:01 304033 [3CA5D6C0] 0x01 -> request: ERR 6001: …
//
// The number in brackets is OpenSM's thread; here it is the process.
type lines struct{ l *Log }

func (h *lines) Enabled(context.Context, slog.Level) bool { return true }
func (h *lines) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *lines) WithGroup(string) slog.Handler            { return h }

func (h *lines) Handle(_ context.Context, r slog.Record) error {
	var mask int64
	var where, code string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "level_mask":
			mask = a.Value.Int64()
		case "where":
			where = a.Value.String()
		case "code":
			code = a.Value.String()
		}
		return true
	})
	text := r.Message
	if code != "" {
		text = fmt.Sprintf("%s: ERR %s: %s", where, code, text)
	}
	_, err := io.WriteString(h.l, Line(r.Time, os.Getpid(), sm.Level(mask), h.l.prefix+text))
	return err
}

// Line gives a line of OpenSM's log.
func Line(t time.Time, thread int, level sm.Level, text string) string {
	return fmt.Sprintf("%s %06d [%08X] 0x%02x -> %s\n", t.Format("Jan 02 15:04:05"), t.Nanosecond()/1000, thread, uint8(level), text)
}
