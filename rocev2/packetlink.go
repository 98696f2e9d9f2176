package rocev2

import (
	"errors"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/xdp"
	"github.com/urxe/urxe/xdp/afpacket"
)

// packetLink is a Link over an AF_PACKET socket.
type packetLink struct {
	s     *afpacket.Socket
	alarm alarm
}

func newPacketLink(s *afpacket.Socket) (*packetLink, error) {
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &packetLink{s: s, alarm: a}, nil
}

func (l *packetLink) Recv(batch []RxFrame) int {
	for n := range batch {
		b, slot, ok := l.s.Recv()
		if !ok {
			return n
		}
		batch[n] = RxFrame{Token: uint64(slot)}
		batch[n].Frag[0] = b
	}
	return len(batch)
}

func (l *packetLink) Release(batch []RxFrame) {
	for i := range batch {
		l.s.Release(uint32(batch[i].Token))
	}
}

func (l *packetLink) Reserve(f *TxFrame, n int) bool {
	b, i, ok := l.s.Reserve(n)
	if ok {
		f.Token, f.Frag = uint64(i), [2][]byte{b}
	}
	return ok
}

func (l *packetLink) Cancel(f *TxFrame) { l.s.Cancel(uint32(f.Token)) }

func (l *packetLink) Send(f *TxFrame) { l.s.Send(uint32(f.Token), len(f.Frag[0])) }

// Flush sees that the kernel sends. While the interface is down, frames are lost.
func (l *packetLink) Flush() error {
	if err := l.s.Flush(); !errors.Is(err, xdp.ErrLinkDown) {
		return err
	}
	return nil
}

func (l *packetLink) Wait(deadline clock.Time, rx bool) {
	bell, timeout, passed := l.alarm.set(deadline, l.s.Stuck())
	if passed {
		return
	}
	if err := l.s.Wait(timeout, rx, bell); err != nil {
		time.Sleep(time.Millisecond) // it is closed: the caller finds out
	}
}

func (l *packetLink) Wake() { l.s.Wake() }

func (l *packetLink) Close() error { return errors.Join(l.s.Close(), l.alarm.close()) }
