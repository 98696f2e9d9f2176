package netns

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/verbs"
)

// watch looks at the frames of a device as they pass.
type watch struct {
	mu       sync.Mutex
	to, from []byte // MAC addresses of the peer, in the last frames
}

// startWatch watches a device until the test's end.
func startWatch(t testing.TB, d *verbs.Device) *watch {
	w := &watch{}
	ctx, stop := context.WithCancel(context.Background())
	in, out := io.Pipe()
	ended := make(chan error, 2)
	go func() { ended <- d.Capture(ctx, out) }()
	go func() {
		r, err := capture.NewReader(in)
		for err == nil {
			var p *capture.Packet
			if p, err = r.Next(); err == nil {
				w.note(p)
			}
		}
		in.CloseWithError(err)
		ended <- nil
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		out.Close()
		<-ended
	})
	return w
}

func (w *watch) note(p *capture.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Direction == capture.Out {
		w.to = append(w.to[:0], p.Data[:6]...)
	} else {
		w.from = append(w.from[:0], p.Data[6:12]...)
	}
}

func (w *watch) lastTo() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.to)
}

func (w *watch) lastFrom() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.from)
}
