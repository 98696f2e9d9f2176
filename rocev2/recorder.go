package rocev2

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// recordFrames is how many frames may wait for a slow reader of a capture.
const recordFrames = 2048

// record is a copy of a frame.
type record struct {
	at      time.Time
	dir     capture.Direction
	comment string
	missed  uint64 // frames before this one that found no room
	n1, n2  int
	length  int // of the frame: one longer than any of ours is cut
	bytes   [wire.MaxPacketLen + 64]byte
}

// recorder is a Sink that copies frames for a writer. All records are made
// beforehand; a frame that finds none is missed and counted, so that a slow
// reader never holds up a worker.
type recorder struct {
	free, full chan *record
	missed     atomic.Uint64
	verdicts   [wire.NumVerdicts]string
}

func newRecorder() *recorder {
	r := &recorder{free: make(chan *record, recordFrames), full: make(chan *record, recordFrames)}
	for _, rec := range make([]*record, recordFrames) {
		rec = new(record)
		r.free <- rec
	}
	for v := range r.verdicts {
		r.verdicts[v] = "dropped: " + wire.Verdict(v).String()
	}
	r.verdicts[wire.Accepted] = "accepted"
	return r
}

// Received implements Sink.
func (r *recorder) Received(f *wire.Frame, v wire.Verdict) {
	r.add(capture.In, f, r.verdicts[v])
}

// Sent implements Sink.
func (r *recorder) Sent(f *wire.Frame) { r.add(capture.Out, f, "") }

func (r *recorder) add(dir capture.Direction, f *wire.Frame, comment string) {
	select {
	case rec := <-r.free:
		rec.at, rec.dir, rec.comment = clock.Wall(), dir, comment
		rec.n1 = copy(rec.bytes[:], f.Frag[0])
		rec.n2 = copy(rec.bytes[rec.n1:], f.Frag[1])
		rec.length = f.Len()
		rec.missed = r.missed.Swap(0)
		r.full <- rec // has room for all records
	default:
		r.missed.Add(1)
	}
}

// Record writes a capture of all frames that the Port receives and sends from
// now on to out, as pcapng with the verdict as a comment, until stop is closed
// or out fails: then it returns why. Frames that out was too slow for are missing;
// the next one says how many.
func (p *Port) Record(out io.Writer, stop <-chan struct{}) error {
	r := newRecorder()
	detach := p.Capture(r) // first: who has read the header misses nothing
	defer detach()
	c, iface, err := p.beginCapture(out)
	for err == nil {
		select {
		case rec := <-r.full:
			err = r.write(c, iface, rec)
		case <-stop:
			detach()
			return r.rest(c, iface)
		}
	}
	return fmt.Errorf("%s: capture: %w", p.Name(), err)
}

func (p *Port) beginCapture(out io.Writer) (c *capture.Writer, iface int, err error) {
	if c, err = capture.NewWriter(out); err == nil {
		iface, err = c.AddInterface(p.Name())
	}
	return c, iface, err
}

// write writes a record, and flushes when it was the last for now.
func (r *recorder) write(c *capture.Writer, iface int, rec *record) error {
	comment := rec.comment
	if rec.missed > 0 {
		comment = fmt.Sprintf("%s (%d frames before this one are missing)", comment, rec.missed)
	}
	frame := [2][]byte{rec.bytes[:rec.n1], rec.bytes[rec.n1 : rec.n1+rec.n2]}
	err := c.Write(iface, rec.at, rec.dir, frame, rec.length, comment)
	r.free <- rec
	if err == nil && len(r.full) == 0 {
		err = c.Flush()
	}
	return err
}

// rest writes what was recorded before the Sink was detached.
func (r *recorder) rest(c *capture.Writer, iface int) error {
	for {
		select {
		case rec := <-r.full:
			if err := r.write(c, iface, rec); err != nil {
				return err
			}
		default:
			return c.Flush()
		}
	}
}
