package mad

import (
	"fmt"

	"github.com/urxe/urxe/internal/clock"
)

// Transactions keeps the requests under way and their deadlines, for a Port
// whose transport has no timers of its own. It is not safe for concurrent use.
type Transactions struct {
	byKey map[uint32]*transaction
	queue clock.Timers[*transaction]
	free  []*transaction
}

type transaction struct {
	Packet
	timer clock.Timer[*transaction]
	left  int // Retries.
}

// Len returns how many requests are under way.
func (t *Transactions) Len() int { return t.queue.Len() }

// Add begins the transaction of p, which is about to be sent.
func (t *Transactions) Add(p *Packet, now clock.Time) error {
	key := p.Key()
	if _, dup := t.byKey[key]; dup {
		return fmt.Errorf("TID 0x%08x: a request with it is under way", key)
	}
	if t.byKey == nil {
		t.byKey = map[uint32]*transaction{}
	}
	x := t.alloc()
	x.Packet = *p
	x.left = p.Retries
	t.byKey[key] = x
	t.queue.Set(&x.timer, now.Add(p.Timeout))
	return nil
}

// Answer ends the transaction that m answers, and reports whether there was one.
func (t *Transactions) Answer(m MAD) bool {
	x, ok := t.byKey[uint32(m.TID())]
	if !ok || x.MAD().Class() != m.Class() || x.MAD().Attribute() != m.Attribute() {
		return false
	}
	t.end(x)
	return true
}

// Cancel ends the transaction of a request that could not be sent.
func (t *Transactions) Cancel(key uint32) {
	if x, ok := t.byKey[key]; ok {
		t.end(x)
	}
}

// Deadline returns when Expire has work; clock.Never while nothing is under way.
func (t *Transactions) Deadline() clock.Time { return t.queue.Next() }

// Expire calls resend for each request whose time is up and that has retries
// left, and failed for the others, which end and have Err set. What the two
// get is valid during the call.
func (t *Transactions) Expire(now clock.Time, resend, failed func(p *Packet)) {
	for x, due := t.queue.Due(now); due; x, due = t.queue.Due(now) {
		if x.left > 0 {
			x.left--
			t.queue.Set(&x.timer, now.Add(x.Timeout))
			resend(&x.Packet)
			continue
		}
		t.queue.Set(&x.timer, clock.Never)
		x.Err = ErrTimeout
		failed(&x.Packet)
		t.end(x)
	}
}

func (t *Transactions) alloc() *transaction {
	if n := len(t.free); n > 0 {
		x := t.free[n-1]
		t.free = t.free[:n-1]
		return x
	}
	x := new(transaction)
	x.timer.Of = x
	return x
}

func (t *Transactions) end(x *transaction) {
	t.queue.Set(&x.timer, clock.Never)
	delete(t.byKey, x.Key())
	t.free = append(t.free, x)
}
