package mad

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// ClientOptions are how a Client asks. The zero value is usable.
type ClientOptions struct {
	Timeout time.Duration // Of each try: 500 ms when 0.
	Retries int           // 3 when 0; none when negative.
	// Other gets the packets that answer none of the client's requests: traps,
	// and what others ask. It is called by the client's reader and must not wait.
	Other func(*Packet)
}

// StatusError is the Err of an answer that has a status other than OK.
type StatusError struct {
	Status Status
	Asked  string // What was asked.
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: %v", e.Asked, e.Status) }

// Client asks through a Port and hands each caller its own answer, long ones
// put together by RMPP. It alone receives from the Port while it is open. All
// methods are safe for concurrent use.
type Client struct {
	port Port
	opt  ClientOptions

	mu      sync.Mutex
	lastTID uint32
	waiting map[uint32]chan Message
	rmpp    RMPP
	timer   *time.Timer
	err     error
	done    chan struct{}
}

// NewClient begins to receive from a port. Close closes the port, too.
func NewClient(p Port, o ClientOptions) *Client {
	if o.Timeout == 0 {
		o.Timeout = 500 * time.Millisecond
	}
	if o.Retries == 0 {
		o.Retries = 3
	}
	o.Retries = max(0, o.Retries)
	c := &Client{port: p, opt: o, waiting: map[uint32]chan Message{}, done: make(chan struct{})}
	c.timer = time.AfterFunc(time.Hour, c.expire)
	go c.read()
	return c
}

// Do sends a request and waits for its answer, which may be a long one. The
// client sets the TID, and the Timeout and Retries if they are 0. An answer of
// another status than OK comes with a *StatusError.
func (c *Client) Do(ctx context.Context, req *Packet) (Message, error) {
	p := *req
	if p.Timeout == 0 {
		p.Timeout, p.Retries = c.opt.Timeout, c.opt.Retries
	}
	answer, err := c.begin(&p)
	if err != nil {
		return Message{}, err
	}
	defer c.end(p.Key())
	if err := c.port.Send(&p); err != nil {
		return Message{}, err
	}
	select {
	case m := <-answer:
		return m, verdict(&p, &m)
	case <-ctx.Done():
		return Message{}, fmt.Errorf("%v: %w", &p, ctx.Err())
	case <-c.done:
		return Message{}, c.err
	}
}

// verdict says what is wrong with an answer.
func verdict(asked *Packet, m *Message) error {
	switch {
	case m.Err != nil:
		return fmt.Errorf("%v: %w", asked, m.Err)
	case m.MAD().Status() != StatusOK:
		return &StatusError{Status: m.MAD().Status(), Asked: asked.String()}
	}
	return nil
}

// begin gives a request a TID and a place for its answer.
func (c *Client) begin(p *Packet) (<-chan Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	for taken := true; taken; {
		c.lastTID++
		_, taken = c.waiting[c.lastTID]
	}
	p.MAD().SetTID(uint64(c.lastTID))
	answer := make(chan Message, 1)
	c.waiting[c.lastTID] = answer
	return answer, nil
}

func (c *Client) end(key uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, key)
}

// read takes packets until the port is closed or broken.
func (c *Client) read() {
	ps := make([]Packet, 64)
	for {
		n, err := c.port.Recv(ps)
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.timer.Stop()
			c.mu.Unlock()
			close(c.done)
			return
		}
		for i := range ps[:n] {
			c.take(&ps[i])
		}
	}
}

// take hands a packet to who waits for it.
func (c *Client) take(p *Packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rmpp.Handle(p, clock.Now()) {
		c.run()
		return
	}
	if (p.Err != nil || p.MAD().IsResponse()) && c.give(p.Key(), Message{Packet: *p, Bytes: append([]byte(nil), p.MAD().Data()...)}) {
		return
	}
	if c.opt.Other != nil && p.Err == nil {
		c.opt.Other(p)
	}
}

// give answers a request, unless nobody waits any more.
func (c *Client) give(key uint32, m Message) bool {
	answer, ok := c.waiting[key]
	if ok {
		select {
		case answer <- m:
		default: // It has its answer; this one came twice.
		}
	}
	return ok
}

// run sends what RMPP has to send, and hands over what it has put together.
func (c *Client) run() {
	var out Packet
	for c.rmpp.Next(&out) {
		if err := c.port.Send(&out); err != nil && !errors.Is(err, ErrClosed) {
			break // It is lost, as packets may be; the other side asks again.
		}
	}
	for m, ok := c.rmpp.Message(); ok; m, ok = c.rmpp.Message() {
		c.give(m.Key(), m)
	}
	if d := c.rmpp.Deadline(); d != clock.Never && c.err == nil {
		c.timer.Reset(max(0, d.Sub(clock.Now())))
	}
}

func (c *Client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rmpp.Expire(clock.Now())
	c.run()
}

// Close closes the port; callers under way get ErrClosed.
func (c *Client) Close() error {
	err := c.port.Close()
	<-c.done
	return err
}

// Records cuts the records of a table out of an answer: one each stride.
func (m *Message) Records() [][]byte {
	stride := m.MAD().RecordStride()
	if stride == 0 {
		return nil
	}
	var records [][]byte
	for b := m.Bytes; len(b) >= stride; b = b[stride:] {
		records = append(records, b[:stride:stride])
	}
	return records
}
