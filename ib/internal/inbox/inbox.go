// Package inbox is the half of a mad.Port that receives, for transports that
// have no queue and no timers of their own: a bounded queue, and the requests
// under way with their deadlines.
package inbox

import (
	"sync"
	"time"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// Inbox is safe for concurrent use.
type Inbox struct {
	resend func(*mad.Packet)
	limit  int

	mu      sync.Mutex
	filled  sync.Cond
	ring    []mad.Packet // Its length is a power of two.
	head    int          // The oldest packet.
	n       int
	trans   mad.Transactions
	again   []mad.Packet // What the timer sends again, outside the lock.
	timer   *time.Timer
	armed   clock.Time // When the timer fires; clock.Never when it is not set.
	dropped uint64
	err     error
}

// New returns an Inbox that holds up to limit packets that nobody asked for,
// beside the answers to requests. resend sends a request once more.
func New(limit int, resend func(*mad.Packet)) *Inbox {
	b := &Inbox{resend: resend, limit: limit, ring: make([]mad.Packet, 16), armed: clock.Never}
	b.filled.L = &b.mu
	return b
}

// Begin starts the transaction of p, which is about to be sent, if it wants an answer.
func (b *Inbox) Begin(p *mad.Packet) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if p.Timeout <= 0 {
		return nil
	}
	if err := b.trans.Add(p, clock.Now()); err != nil {
		return err
	}
	b.arm()
	return nil
}

// Cancel forgets a request that could not be sent.
func (b *Inbox) Cancel(p *mad.Packet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Timeout > 0 {
		b.trans.Cancel(p.Key())
	}
}

// Deliver takes a packet that came in. Answers to nothing are dropped: they
// came twice, or too late. Only RMPP goes on after a request was answered.
func (b *Inbox) Deliver(p *mad.Packet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := p.MAD()
	answers := m.Method()&mad.Response != 0 && b.trans.Answer(m)
	switch {
	case answers: // There are no more of them than there were requests.
	case m.Method()&mad.Response != 0 && !m.IsRMPP():
		return
	case b.n >= b.limit:
		b.dropped++
		return
	}
	p.Err = nil
	b.push(p)
}

// Put takes a packet that something else has matched with its request;
// unsolicited ones are dropped when the queue is full.
func (b *Inbox) Put(p *mad.Packet, unsolicited bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if unsolicited && b.n >= b.limit {
		b.dropped++
		return
	}
	b.push(p)
}

func (b *Inbox) push(p *mad.Packet) {
	if b.n == len(b.ring) {
		b.grow()
	}
	b.ring[(b.head+b.n)&(len(b.ring)-1)] = *p
	b.n++
	if b.n == 1 {
		b.filled.Broadcast()
	}
}

func (b *Inbox) grow() {
	ring := make([]mad.Packet, 2*len(b.ring))
	k := copy(ring, b.ring[b.head:])
	copy(ring[k:], b.ring[:b.head])
	b.ring, b.head = ring, 0
}

// Recv waits for packets and moves them to ps.
func (b *Inbox) Recv(ps []mad.Packet) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.n == 0 && b.err == nil && len(ps) > 0 {
		b.filled.Wait()
	}
	if b.n == 0 {
		return 0, b.err
	}
	k := min(len(ps), b.n)
	for i := range k {
		ps[i] = b.ring[(b.head+i)&(len(b.ring)-1)]
	}
	b.head = (b.head + k) & (len(b.ring) - 1)
	b.n -= k
	return k, nil
}

// Dropped returns how many packets were lost because the queue was full.
func (b *Inbox) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Close ends all waiting with err.
func (b *Inbox) Close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	if b.timer != nil {
		b.timer.Stop()
	}
	b.filled.Broadcast()
}

// arm sets the timer to the earliest deadline. A timer that fires too early
// costs less than one that is moved with each answer.
func (b *Inbox) arm() {
	d := b.trans.Deadline()
	if d >= b.armed || b.err != nil {
		return
	}
	b.armed = d
	wait := max(0, d.Sub(clock.Now()))
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, b.expire)
		return
	}
	b.timer.Reset(wait)
}

func (b *Inbox) expire() {
	b.mu.Lock()
	b.armed = clock.Never
	b.again = b.again[:0]
	b.trans.Expire(clock.Now(), func(p *mad.Packet) { b.again = append(b.again, *p) }, b.push)
	again := b.again
	b.again = nil
	b.arm()
	b.mu.Unlock()
	for i := range again {
		b.resend(&again[i])
	}
	b.mu.Lock()
	b.again = again
	b.mu.Unlock()
}
