// Package decode prints the RoCEv2 packets of a capture, a line each, and
// checks their ICRCs, which neither tcpdump nor Wireshark does.
package decode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/rocev2/wire"
)

// Options say what is printed; the zero value will do.
type Options struct {
	Absolute bool // the time of day, UTC, in place of the seconds since the first packet
}

// Counts are the packets of a capture, by what they turned out to be.
type Counts struct {
	Packets   int // all
	RoCE      int // whole RoCEv2 packets with the right ICRC, rxe's for a FLUSH included
	RxeFlush  int // of these, FLUSHes with rxe's ICRC
	BadICRC   int // RoCEv2 packets with a wrong ICRC
	Malformed int // RoCEv2 packets that a receiver would drop for something else
	Cut       int // RoCEv2 packets that the capture holds only the beginning of
	Other     int // anything else
}

// ErrBadICRC says that packets had wrong ICRCs.
var ErrBadICRC = errors.New("a packet with a wrong ICRC")

// File decodes the capture at path, or what stdin holds if path is "-", and
// prints a line for each RoCEv2 packet and a summary. The error is ErrBadICRC
// (by errors.Is) when an ICRC is wrong. When the capture is damaged, all that
// stands before the damage is printed, and the error is a *capture.DamageError
// (by errors.As); it can be both.
func File(w io.Writer, path string, stdin io.Reader, o Options) error {
	r, err := open(path, stdin)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := Run(w, r, o)
	if _, e := fmt.Fprintln(w, n); e != nil {
		return e
	}
	return err
}

func open(path string, stdin io.Reader) (*capture.Reader, error) {
	if path == "-" {
		return capture.NewReader(stdin)
	}
	return capture.Open(path)
}

// Run is File on a capture that is open, without the summary, which it returns.
// From a live capture each line is written before the next packet is waited for.
func Run(w io.Writer, r *capture.Reader, o Options) (Counts, error) {
	d := decoder{w: bufio.NewWriter(w), absolute: o.Absolute}
	err := d.run(r)
	if e := d.w.Flush(); e != nil {
		return d.n, e
	}
	if d.n.BadICRC > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d of %d packets", ErrBadICRC, d.n.BadICRC, d.n.Packets))
	}
	return d.n, err
}

// String gives the summary.
func (n Counts) String() string {
	s := fmt.Sprintf("%d packets: %d RoCEv2 with the right ICRC", n.Packets, n.RoCE)
	for _, c := range []struct {
		n    int
		what string
	}{
		{n.RxeFlush, "of them FLUSH with rxe's own ICRC"}, {n.BadICRC, "with a wrong ICRC"}, {n.Malformed, "malformed"},
		{n.Cut, "cut short by the capture"}, {n.Other, "others"},
	} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return s
}

type decoder struct {
	w        *bufio.Writer
	n        Counts
	absolute bool
	start    time.Time // of the first packet that has a time
	line     []byte
	frame    []byte // of a packet that the capture cut, made whole
	p        wire.Packet
}

func (d *decoder) run(r *capture.Reader) error {
	for {
		if r.Buffered() == 0 {
			d.w.Flush() // an error comes back with the next write
		}
		c, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if d.n.Packets++; d.start.IsZero() {
			d.start = c.Time
		}
		if !d.decode(c) {
			d.n.Other++
			continue
		}
		d.line = append(d.line, '\n')
		if _, err := d.w.Write(d.line); err != nil {
			return err
		}
	}
}

// decode makes the line of c, unless it is no RoCEv2 packet.
func (d *decoder) decode(c *capture.Packet) bool {
	cut := len(c.Data) < c.Length
	f := wire.Frame{Frag: [2][]byte{c.Data}}
	if cut {
		f.Frag[0] = d.whole(c)
	}
	v := wire.Parse(&d.p, &f)
	if v == wire.DropNotRoCE || v == wire.DropFragment {
		return false
	}
	d.prefix(c)
	switch {
	case cut && (v == wire.Accepted || v == wire.DropICRC) && d.p.HeaderLen() <= len(c.Data):
		d.n.Cut++
		d.packet()
		d.printf("  icrc not captured: %d of %d bytes", len(c.Data), c.Length)
	case cut:
		d.n.Cut++
		d.printf("  headers not captured: %d of %d bytes", len(c.Data), c.Length)
	case v == wire.Accepted || v == wire.DropICRC:
		d.packet()
		d.icrc(v)
	default:
		d.n.Malformed++
		d.printf("  %v  malformed: %v", d.p.Opcode, v)
	}
	if c.Comment != "" {
		d.printf("  # %s", oneLine(c.Comment))
	}
	return true
}

// longestFrame is as much of a frame as is made whole: no RoCEv2 packet is longer.
const longestFrame = 1 << 16

// whole returns the frame of c with zeros in place of what was not captured.
func (d *decoder) whole(c *capture.Packet) []byte {
	d.frame = append(d.frame[:0], c.Data...)
	return append(d.frame, make([]byte, max(0, min(c.Length, longestFrame)-len(c.Data)))...)
}

// oneLine keeps a comment, which may be anybody's, to its line, and from steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func (d *decoder) icrc(v wire.Verdict) {
	switch got, want := wire.ICRC(&d.p); {
	case v == wire.Accepted:
		d.n.RoCE++
		d.printf("  icrc ok")
	case wire.RxeFlushHolds(&d.p):
		d.n.RoCE++
		d.n.RxeFlush++
		d.printf("  icrc rxe-flush")
	default:
		d.n.BadICRC++
		d.printf("  icrc BAD got 0x%08x want 0x%08x", got, want)
	}
}

func (d *decoder) printf(format string, args ...any) { d.line = fmt.Appendf(d.line, format, args...) }
