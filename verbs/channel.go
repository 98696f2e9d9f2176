package verbs

import (
	"context"
	"sync"
)

// CompChannel is a completion channel: it tells which armed CQs got completions. CQs may share one.
//
// The way of ibverbs: arm the CQ (ReqNotify), poll until it is empty, Wait, arm again, poll until it is empty, and so on.
type CompChannel struct {
	dev *Device

	mu     sync.Mutex
	cqs    set[*CQ] // changed under dev.mu too
	queue  []*CQ    // CQs with an event, oldest first, each once
	closed bool
	ready  chan struct{} // holds a token when queue isn't empty, or the channel is closed
}

// CreateCompChannel makes a completion channel. Its errors wrap ErrLimit or ErrClosed.
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &CompChannel{dev: d, cqs: set[*CQ]{}, ready: make(chan struct{}, 1)}
	if err := add(d, d.channels, c, limits.MaxCompChannel, "CompChannel"); err != nil {
		return nil, err
	}
	return c, nil
}

// Wait returns the next CQ with an event, waiting for one as ibv_get_cq_event does. Events need no acknowledgement. It
// returns ErrClosed when the channel or its device is gone, or the context's error.
func (c *CompChannel) Wait(ctx context.Context) (*CQ, error) {
	for {
		cq, err := c.TryWait()
		if cq != nil || err != nil {
			return cq, err
		}
		c.endLeases()
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// endLeases tells the workers of the CQs that no one polls any more.
func (c *CompChannel) endLeases() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cq := range c.cqs {
		for _, p := range *cq.pollers.Load() {
			p.EndLease()
		}
	}
}

// TryWait returns the next CQ with an event, nil when there is none now, or ErrClosed when the channel or its device is gone.
func (c *CompChannel) TryWait() (*CQ, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		if c.closed {
			c.signal()
			return nil, c.dev.errorf("wait on completion channel: %w", ErrClosed)
		}
		return nil, nil
	}
	cq := c.queue[0]
	copy(c.queue, c.queue[1:])
	c.queue = c.queue[:len(c.queue)-1]
	cq.pending = false
	if len(c.queue) > 0 {
		c.signal()
	}
	return cq, nil
}

// Ready returns a channel that can be received from when TryWait has something to say; for select. Receiving doesn't
// take the event.
func (c *CompChannel) Ready() <-chan struct{} { return c.ready }

// Destroy frees the channel; ErrBusy while CQs use it.
func (c *CompChannel) Destroy() error {
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.channels, c, "destroy completion channel"); err != nil {
		return err
	}
	if err := inUse(d, "destroy completion channel", user{len(c.cqs), "CQ"}); err != nil {
		return err
	}
	delete(d.channels, c)
	c.close()
	return nil
}

// raise queues an event of cq. An event that was not taken yet stands for the new one too.
func (c *CompChannel) raise(cq *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cq.pending {
		return
	}
	cq.pending = true
	c.queue = append(c.queue, cq)
	c.signal()
}

// admit enters a CQ. Under dev.mu.
func (c *CompChannel) admit(cq *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cqs[cq] = struct{}{}
}

// forget drops a CQ that is destroyed. Under dev.mu.
func (c *CompChannel) forget(cq *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cqs, cq)
	for i, x := range c.queue {
		if x == cq {
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return
		}
	}
}

// signal sees that ready holds a token.
func (c *CompChannel) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

func (c *CompChannel) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.signal()
}
