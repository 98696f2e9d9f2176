package hostile

import (
	"bytes"
	"testing"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/wire"
)

// link is a rocev2.Link whose other end is the test. It keeps account of every
// frame that the worker holds.
type link struct {
	t       testing.TB
	arrived [][]byte
	lent    map[uint64]received
	tokens  uint64
	held    int // reserved frames
	cut     int // bytes of a received frame's first piece
	sent    [][]byte
	room    int // frames that may be sent until the test takes them; 0: no limit
}

// received is a frame that the worker holds: its bytes before and now.
type received struct{ before, now []byte }

func newLink(t testing.TB) *link { return &link{t: t, lent: map[uint64]received{}, cut: 3840} }

func (l *link) Recv(batch []rocev2.RxFrame) int {
	n := min(len(batch), len(l.arrived))
	for i, b := range l.arrived[:n] {
		l.tokens++
		l.lent[l.tokens] = received{bytes.Clone(b), b}
		batch[i] = rocev2.RxFrame{Token: l.tokens}
		first := min(l.cut, len(b))
		batch[i].Frag[0] = b[:first:first]
		if len(b) > first {
			batch[i].Frag[1] = b[first:]
		}
	}
	l.arrived = l.arrived[n:]
	return n
}

func (l *link) Release(batch []rocev2.RxFrame) {
	for i := range batch {
		f, ok := l.lent[batch[i].Token]
		if !ok {
			l.t.Fatalf("frame %d was released twice", batch[i].Token)
		}
		if !bytes.Equal(f.before, f.now) {
			l.t.Fatalf("a received frame was changed from\n%x to\n%x", f.before, f.now)
		}
		delete(l.lent, batch[i].Token)
	}
}

func (l *link) Reserve(f *rocev2.TxFrame, n int) bool {
	if l.room > 0 && len(l.sent)+l.held >= l.room {
		return false
	}
	l.held++
	b := bytes.Repeat([]byte{0xa5}, n)
	first := min(n, l.cut)
	f.Frag = [2][]byte{b[:first:first]}
	if n > first {
		f.Frag[1] = b[first:]
	}
	return true
}

func (l *link) Cancel(*rocev2.TxFrame) { l.held-- }

func (l *link) Send(f *rocev2.TxFrame) {
	l.held--
	l.sent = append(l.sent, append(bytes.Clone(f.Frag[0]), f.Frag[1]...))
}

// take returns what was sent since the last time.
func (l *link) take() (packets []reply) {
	for _, b := range l.sent {
		f := wire.Frame{Frag: [2][]byte{b}}
		var p wire.Packet
		if v := wire.Parse(&p, &f); v != wire.Accepted {
			l.t.Fatalf("the port sent a packet that is %v: %x", v, b)
		}
		if got, want := b[len(b)-4:], icrc(b); !bytes.Equal(got, want) {
			l.t.Fatalf("the port sent a packet with ICRC %x, want %x", got, want)
		}
		packets = append(packets, reply{p.Header, string(p.Payload[0]) + string(p.Payload[1])})
	}
	l.sent = nil
	return packets
}

// reply is a packet that the port sent.
type reply struct {
	wire.Header
	data string
}

func (l *link) Flush() error          { return nil }
func (l *link) Wait(clock.Time, bool) {}
func (l *link) Wake()                 {}
func (l *link) Close() error          { return nil }

// check fails when the worker still holds frames.
func (l *link) check() {
	if len(l.lent) > 0 || l.held > 0 {
		l.t.Fatalf("%d received and %d reserved frames were never given back", len(l.lent), l.held)
	}
}
