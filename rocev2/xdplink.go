package rocev2

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/xdp"
)

// xdpLink is a Link over an AF_XDP socket.
type xdpLink struct {
	s    *xdp.Socket
	rx   slab // received packets, by the Token of their frame
	tx   slab // reserved ones
	recv [burst]xdp.Packet
	give [burst]xdp.Packet

	alarm    alarm
	starved  atomic.Bool
	down     bool   // the interface is: what is sent is lost
	overflow []byte // room for frames that will be lost
}

// lostToken marks a frame that is lost when it is sent.
const lostToken = ^uint64(0)

func newXDPLink(s *xdp.Socket, rxFrames int) (*xdpLink, error) {
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &xdpLink{
		s: s, rx: newSlab(rxFrames), tx: newSlab(2 * burst), alarm: a, overflow: make([]byte, 2*4096),
	}, nil
}

// slab keeps packets while the worker has their frames.
type slab struct {
	packets []xdp.Packet
	free    []uint32
}

func newSlab(n int) slab {
	s := slab{packets: make([]xdp.Packet, n)}
	for i := n; i > 0; i-- {
		s.free = append(s.free, uint32(i-1))
	}
	return s
}

func (s *slab) put(p *xdp.Packet) (token uint64) {
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.packets[i] = *p
	return uint64(i)
}

func (s *slab) take(token uint64) *xdp.Packet {
	s.free = append(s.free, uint32(token))
	return &s.packets[token]
}

// CanSend reports whether the queue has a TX side.
func (l *xdpLink) CanSend() bool { return l.s.CanSend() }

func (l *xdpLink) Recv(batch []RxFrame) int {
	n := l.s.Recv(l.recv[:min(len(batch), burst, len(l.rx.free))])
	for i := range n {
		p := &l.recv[i]
		batch[i] = RxFrame{Token: l.rx.put(p)}
		batch[i].Frag = p.Frag
	}
	return n
}

func (l *xdpLink) Release(batch []RxFrame) {
	for len(batch) > 0 {
		n := min(len(batch), burst)
		for i := range n {
			l.give[i] = *l.rx.take(batch[i].Token)
		}
		l.s.Release(l.give[:n])
		batch = batch[n:]
	}
}

func (l *xdpLink) Reserve(f *TxFrame, n int) bool {
	if len(l.tx.free) == 0 {
		return false
	}
	var p xdp.Packet
	if !l.s.Reserve(&p, n) {
		if l.down && n <= len(l.overflow) {
			f.Token = lostToken
			f.Frag = [2][]byte{l.overflow[:n:n]}
			return true
		}
		l.setStarved(true)
		return false
	}
	l.setStarved(false)
	f.Token, f.Frag = l.tx.put(&p), p.Frag
	return true
}

func (l *xdpLink) setStarved(is bool) {
	if l.starved.Load() != is {
		l.starved.Store(is)
	}
}

func (l *xdpLink) Cancel(f *TxFrame) {
	if f.Token != lostToken {
		l.s.Unreserve(l.tx.take(f.Token))
	}
}

func (l *xdpLink) Send(f *TxFrame) {
	if f.Token == lostToken {
		return
	}
	p := l.tx.take(f.Token)
	p.Frag = f.Frag
	l.s.Send(p)
}

// Flush sees that the kernel sends. While the interface is down, frames are
// lost once the TX ring is full.
func (l *xdpLink) Flush() error {
	err := l.s.Flush()
	if l.down = errors.Is(err, xdp.ErrLinkDown); l.down {
		return nil
	}
	return err
}

func (l *xdpLink) Wait(deadline clock.Time, rx bool) {
	bell, timeout, passed := l.alarm.set(deadline, l.starved.Load())
	if passed {
		return
	}
	extra := [1]unix.PollFd{bell}
	if err := l.s.Wait(timeout, rx, extra[:]); err != nil {
		time.Sleep(time.Millisecond) // it is gone, or closed: the caller finds out
	}
}

func (l *xdpLink) Wake() { l.s.Wake() }

func (l *xdpLink) Close() error { return errors.Join(l.s.Close(), l.alarm.close()) }
