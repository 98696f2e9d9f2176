package rocev2

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/rocev2/wire"
)

// Sink is told of every frame that a Port receives and sends. Calls come from
// any worker, under its token: they must not block, nor keep the frame.
type Sink interface {
	Received(f *wire.Frame, v wire.Verdict)
	Sent(f *wire.Frame)
}

// sinks are the sinks of a Port.
type sinks struct {
	mu   sync.Mutex // guards changes
	list atomic.Pointer[[]Sink]
}

// Capture attaches s. The function that it returns detaches it: when that has
// returned, s is not called any more.
func (p *Port) Capture(s Sink) (detach func()) {
	p.sinks.change(func(list []Sink) []Sink { return append(slices.Clone(list), s) })
	return func() {
		p.sinks.change(func(list []Sink) []Sink {
			return slices.DeleteFunc(slices.Clone(list), func(x Sink) bool { return x == s })
		})
		p.Barrier() // sinks are called within Steps
	}
}

func (s *sinks) change(f func([]Sink) []Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Sink
	if old := s.list.Load(); old != nil {
		list = *old
	}
	if list = f(list); len(list) == 0 {
		s.list.Store(nil)
		return
	}
	s.list.Store(&list)
}
