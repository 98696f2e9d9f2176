package rocev2

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/rocev2/wire"
)

// A capture has all frames, in order, both ways, with what became of them.
func TestRecord(t *testing.T) {
	p := newPeer(t)
	e := newEndpoint(t, p.port, 1000, 4)
	if err := e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	stop, done := make(chan struct{}), make(chan error)
	go func() { done <- p.port.Record(&out, stop) }()
	for p.port.sinks.list.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	h := wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 100, AckReq: true}
	e.recv(1, 0, 100)
	p.send(h, 8, nil)
	now := settle(t, 1, nil, p.port)
	p.send(h, 8, func(f *wire.Frame) { f.Frag[0][60] ^= 1 })
	now = settle(t, now, nil, p.port)
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.send(h, 8, nil) // after the end
	settle(t, now, nil, p.port)

	r, err := capture.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		pkt, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(pkt.Direction.String()+" "+pkt.Comment))
	}
	want := "out | in accepted | in dropped: icrc_error"
	if g := strings.Join(got, " | "); g != want && g != "in accepted | out | in dropped: icrc_error" {
		t.Errorf("captured %q, want %q or the first two the other way round", g, want)
	}
}

// Of a frame that is longer than any of ours, the capture has the beginning, and says so.
func TestLongFrameInCapture(t *testing.T) {
	const long = 2 * 3840
	r := newRecorder()
	r.Received(&wire.Frame{Frag: [2][]byte{bytes.Repeat([]byte{1}, long/2), bytes.Repeat([]byte{2}, long/2)}}, wire.DropTruncated)
	out := drain(t, r)
	in, err := capture.NewReader(out)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := in.Next(); err != nil || p.Length != long || len(p.Data) >= long || len(p.Data) < wire.MaxPacketLen {
		t.Errorf("%d bytes of %d, %v", len(p.Data), p.Length, err)
	}
}

// drain returns the capture of what a recorder has.
func drain(t *testing.T, r *recorder) *bytes.Buffer {
	t.Helper()
	out := new(bytes.Buffer)
	c, err := capture.NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddInterface("x"); err != nil {
		t.Fatal(err)
	}
	if err := r.rest(c, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// blockedWriter takes nothing until it is released.
type blockedWriter struct{ release chan struct{} }

func (w *blockedWriter) Write(b []byte) (int, error) {
	<-w.release
	return len(b), nil
}

// A reader that takes nothing costs frames in the capture, and nothing else.
func TestSlowCaptureDropsAndCounts(t *testing.T) {
	r := newRecorder()
	f := &wire.Frame{Frag: [2][]byte{make([]byte, 60), make([]byte, 20)}}
	for range recordFrames {
		r.Sent(f)
	}
	for range 5 {
		r.Received(f, wire.DropICRC)
	}
	drain(t, r)
	r.Received(f, wire.Accepted)
	rec := <-r.full
	if rec.missed != 5 || rec.n1 != 60 || rec.n2 != 20 {
		t.Errorf("missed %d, pieces %d and %d; want 5, 60, 20", rec.missed, rec.n1, rec.n2)
	}
	if n := testing.AllocsPerRun(100, func() { r.Received(f, wire.Accepted); r.free <- <-r.full }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// Traffic goes on while a capture's reader is stuck.
func TestStuckCaptureHoldsUpNothing(t *testing.T) {
	a, b := newPorts(t, true, 1, PairOptions{})
	x, y := newEndpoint(t, a, 1<<22, 16), newEndpoint(t, b, 1<<22, 16)
	join(t, x, y, ib.MTU1024)
	w := &blockedWriter{make(chan struct{})}
	stop, done := make(chan struct{}), make(chan error)
	go func() { done <- a.Record(w, stop) }()
	x.write(1, y, 0, 1<<22) // 4096 packets
	settle(t, 1, nil, a, b)
	wantCompletions(t, &x.cq, 1)
	close(w.release)
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
