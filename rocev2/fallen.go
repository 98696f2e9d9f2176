package rocev2

import (
	"fmt"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// fallen stands in for a Link whose interface is gone: it receives nothing and
// loses all that is sent.
type fallen struct {
	Link
	room [wire.MaxPacketLen]byte
}

func (l *fallen) Recv([]RxFrame) int { return 0 }

func (l *fallen) Reserve(f *TxFrame, n int) bool {
	f.Frag = [2][]byte{l.room[:min(n, len(l.room))]}
	return true
}

func (l *fallen) Cancel(*TxFrame) {}
func (l *fallen) Send(*TxFrame)   {}
func (l *fallen) Flush() error    { return nil }

// endIfGone ends all QPs once the Port can send and receive no more. Whoever
// waits for a completion gets it, even with timers that never run out.
func (p *Port) endIfGone() {
	err := p.Err()
	if err == nil {
		return
	}
	for _, w := range p.workers {
		w.control(func() {
			if w.failure.Load() == nil {
				w.linkFailed(&w.sides[sideWire], err)
			}
			for q := range w.qps {
				q.core.Unreachable(clock.Now())
				w.activate(q)
			}
		})
	}
}

// linkFailed takes note that a Link is gone for good. The caller holds the
// token, and no frame is reserved.
func (w *Worker) linkFailed(s *side, err error) {
	err = fmt.Errorf("%s queue %d: %w", w.port.Name(), w.index, err)
	w.failure.Store(&err)
	s.link = &fallen{Link: s.link}
	w.port.noteChange()
}
