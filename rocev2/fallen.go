package rocev2

import (
	"fmt"

	"github.com/urxe/urxe/rocev2/wire"
)

// fallen stands in for a Link whose interface is gone: it receives nothing and
// loses all that is sent, so that the QPs find out by their timers.
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

// linkFailed takes note that a Link is gone for good. The caller holds the
// token, and no frame is reserved.
func (w *Worker) linkFailed(s *side, err error) {
	err = fmt.Errorf("%s queue %d: %w", w.port.Name(), w.index, err)
	w.failure.Store(&err)
	s.link = &fallen{Link: s.link}
	w.port.noteChange()
}
