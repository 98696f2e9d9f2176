package rocev2

import (
	"fmt"
	"sync/atomic"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/spsc"
	"github.com/urxe/urxe/rocev2/wire"
)

// PairOptions are the sizes of an in-memory link. The zero value is right for
// most uses.
type PairOptions struct {
	// Frames is how many frames may be under way in each direction, a power of
	// two; 0 means 1024.
	Frames int
	// Frag is the length in bytes of a frame's first piece; a longer packet has
	// a second. 0 means 3840, which is what AF_XDP has; at least 128, so that
	// all headers are in the first.
	Frag int
}

const (
	defaultFrames = 1024
	defaultFrag   = 3840
	minFrag       = 128 // above wire.MaxHeaderLen
	loopFrames    = 256
)

// NewPair makes two Links that are joined: what one sends, the other receives,
// in order and without loss. Frames are passed on without copying. Each end may
// be used by a goroutine of its own.
func NewPair(o PairOptions) (a, b Link, err error) {
	there, err := newMemWire(o)
	if err != nil {
		return nil, nil, err
	}
	back, _ := newMemWire(o)
	return joined(there, back), joined(back, there), nil
}

// newLoop makes a Link that is joined with itself.
func newLoop(frames int) (Link, error) {
	if frames == 0 {
		frames = loopFrames
	}
	w, err := newMemWire(PairOptions{Frames: frames})
	if err != nil {
		return nil, err
	}
	return joined(w, w), nil
}

// memWire is one direction: a pool of frames that circulate between the sender
// and the receiver. No ring can overflow, as each has room for all of them.
type memWire struct {
	there         *spsc.Ring[memFrame]
	back          *spsc.Ring[uint32]
	free          []uint32 // the sender's; last in first out: the frame in the cache first
	starved       atomic.Bool
	first, second []byte // memory of the frames' pieces
	n1, n2        int    // bytes of a piece

	sender, receiver *memLink
}

type memFrame struct {
	index  uint32
	n1, n2 uint16 // bytes of each piece
}

func newMemWire(o PairOptions) (*memWire, error) {
	if o.Frames == 0 {
		o.Frames = defaultFrames
	}
	if o.Frag == 0 {
		o.Frag = defaultFrag
	}
	if o.Frag < minFrag || o.Frag > wire.MaxPacketLen {
		return nil, fmt.Errorf("first piece of %d bytes: want %d to %d", o.Frag, minFrag, wire.MaxPacketLen)
	}
	w := &memWire{n1: o.Frag, n2: (wire.MaxPacketLen - o.Frag + 63) &^ 63}
	var err error
	if w.there, err = spsc.New[memFrame](o.Frames); err != nil {
		return nil, fmt.Errorf("in-memory link: %w", err)
	}
	w.back, _ = spsc.New[uint32](o.Frames)
	w.first, w.second = make([]byte, o.Frames*w.n1), make([]byte, o.Frames*w.n2)
	for i := o.Frames; i > 0; i-- {
		w.free = append(w.free, uint32(i-1))
	}
	return w, nil
}

// reclaim takes back the frames that the receiver has released.
func (w *memWire) reclaim() {
	for i := w.back.Front(); i != nil; i = w.back.Front() {
		w.free = append(w.free, *i)
		w.back.Pop()
	}
	w.back.Free()
	if w.receiver.closed.Load() { // no one else reads that ring any more
		for f := w.there.Front(); f != nil; f = w.there.Front() {
			w.free = append(w.free, f.index)
			w.there.Pop()
		}
		w.there.Free()
	}
}

// frame makes f the pieces of frame i, cut to n1 and n2 bytes.
func (w *memWire) frame(f *wire.Frame, i uint32, n1, n2 int) {
	at := int(i) * w.n1
	f.Frag[0], f.Frag[1] = w.first[at:at+n1:at+w.n1], nil
	if n2 > 0 {
		at = int(i) * w.n2
		f.Frag[1] = w.second[at : at+n2 : at+w.n2]
	}
}

// memLink is one end.
type memLink struct {
	in, out  *memWire
	wake     chan struct{}
	sleeping atomic.Uint32
	nap      nap
	closed   atomic.Bool
}

// memLink.sleeping
const (
	memAwake  uint32 = iota
	memFrames        // frames end the Wait, and room
	memRoom          // only room does
)

// joined makes the end that sends on out and receives on in.
func joined(out, in *memWire) *memLink {
	l := &memLink{in: in, out: out, wake: make(chan struct{}, 1)}
	out.sender, in.receiver = l, l
	return l
}

func (l *memLink) Recv(batch []RxFrame) int {
	n := 0
	for n < len(batch) {
		f := l.in.there.Front()
		if f == nil {
			break
		}
		to := &batch[n]
		l.in.frame(&to.Frame, f.index, int(f.n1), int(f.n2))
		to.Token, to.Verdict = uint64(f.index), 0
		l.in.there.Pop()
		n++
	}
	l.in.there.Free()
	return n
}

func (l *memLink) Release(batch []RxFrame) {
	for i := range batch {
		*l.in.back.Slot() = uint32(batch[i].Token)
		l.in.back.Push()
	}
	if l.in.back.Publish() && l.in.starved.Load() {
		if s := l.in.sender; s.sleeping.Load() != memAwake {
			s.Wake()
		}
	}
}

func (l *memLink) Reserve(f *TxFrame, n int) bool {
	w := l.out
	if n > w.n1+w.n2 {
		return false
	}
	if len(w.free) == 0 {
		w.starved.Store(true)
		w.reclaim()
		if len(w.free) == 0 {
			return false
		}
		w.starved.Store(false)
	}
	last := len(w.free) - 1
	i := w.free[last]
	w.free = w.free[:last]
	f.Token = uint64(i)
	w.frame(&f.Frame, i, min(n, w.n1), n-min(n, w.n1))
	return true
}

func (l *memLink) Cancel(f *TxFrame) { l.out.free = append(l.out.free, uint32(f.Token)) }

func (l *memLink) Send(f *TxFrame) {
	if l.out.receiver.closed.Load() {
		l.Cancel(f) // lost, as on a cable that was pulled
		return
	}
	*l.out.there.Slot() = memFrame{uint32(f.Token), uint16(len(f.Frag[0])), uint16(len(f.Frag[1]))}
	l.out.there.Push()
}

func (l *memLink) Flush() error {
	if l.out.there.Publish() {
		if r := l.out.receiver; r.sleeping.Load() == memFrames {
			r.Wake()
		}
	}
	l.out.reclaim()
	return nil
}

func (l *memLink) Wait(deadline clock.Time, rx bool) {
	how := memRoom
	if rx {
		how = memFrames
	}
	l.sleeping.Store(how)
	defer l.sleeping.Store(memAwake)
	if rx && !l.in.there.Empty() || l.out.starved.Load() && !l.out.back.Empty() {
		return
	}
	l.nap.until(deadline, l.wake)
}

func (l *memLink) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *memLink) Close() error {
	l.closed.Store(true)
	return nil
}
