package verbs

import (
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
)

// CQ is a completion queue.
type CQ struct {
	dev     *Device
	channel *CompChannel             // nil: none
	pollers atomic.Pointer[[]poller] // of the QPs that complete here
	polled  map[poller]int           // those, and of how many queues; under dev.mu
	ready   atomic.Int64             // completions that can be polled

	mu         sync.Mutex // the one lock of the data path: once a burst, once a poll
	depth      int
	qps        map[ib.QPN]*QP // that complete here; changed under dev.mu too
	ring       []WC
	head, tail uint
	armed      armed
	overrun    bool

	pending bool // an event waits in the channel; under channel.mu
}

// armed is what a CQ raises its next event for.
type armed uint8

const (
	notArmed armed = iota
	solicitedOnly
	nextCompletion
)

// CreateCQ makes a completion queue for at least depth completions; CQ.Depth says how many. Make it as deep as all work
// requests that may complete before you poll. The channel, which may be nil, gets the events that ReqNotify asks for. Its
// errors wrap ErrInvalid (a depth beyond DeviceAttr, a channel of another device), ErrLimit or ErrClosed.
func (d *Device) CreateCQ(depth int, channel *CompChannel) (*CQ, error) {
	switch {
	case depth < 1 || depth > limits.MaxCQE:
		return nil, d.errorf("create CQ: %w: depth %d (allowed: 1 to %d, MaxCQE)", ErrInvalid, depth, limits.MaxCQE)
	case channel != nil && channel.dev != d:
		return nil, d.errorf("create CQ: %w: the completion channel is of device %s", ErrInvalid, channel.dev.name)
	}
	c := &CQ{dev: d, channel: channel, depth: depth, qps: map[ib.QPN]*QP{}, polled: map[poller]int{}}
	c.ring = newCompletionRing(depth)
	c.pollers.Store(&[]poller{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if channel != nil {
		if err := stillIn(d, d.channels, channel, "create CQ: completion channel"); err != nil {
			return nil, err
		}
	}
	if err := add(d, d.cqs, c, limits.MaxCQ, "CQ"); err != nil {
		return nil, err
	}
	if channel != nil {
		channel.admit(c)
	}
	return c, nil
}

func newCompletionRing(depth int) []WC { return make([]WC, 1<<bits.Len(uint(depth-1))) }

// Depth returns how many completions the queue holds.
func (c *CQ) Depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.depth
}

// Resize makes the queue one for at least depth completions, as ibv_resize_cq does. Those in it stay, in their order; the
// transport and pollers may go on meanwhile. Its errors wrap ErrInvalid (beyond DeviceAttr, or fewer than are in it now),
// ErrCQOverrun, as a queue that has lost completions stays as it is, or ErrClosed; then nothing has changed.
func (c *CQ) Resize(depth int) error {
	d := c.dev
	if depth < 1 || depth > limits.MaxCQE {
		return d.errorf("resize CQ: %w: depth %d (allowed: 1 to %d, MaxCQE)", ErrInvalid, depth, limits.MaxCQE)
	}
	ring := newCompletionRing(depth)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.cqs, c, "resize CQ"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int(c.head - c.tail)
	switch {
	case c.overrun:
		return d.errorf("resize CQ of depth %d: %w: destroy it", c.depth, ErrCQOverrun)
	case n > depth:
		return d.errorf("resize CQ of depth %d: %w: depth %d, and %d completions wait in it", c.depth, ErrInvalid, depth, n)
	}
	for i := range n {
		ring[i] = *c.at(c.tail + uint(i))
	}
	c.ring, c.depth, c.tail, c.head = ring, depth, 0, uint(n)
	return nil
}

// Channel returns the completion channel, nil when there is none.
func (c *CQ) Channel() *CompChannel { return c.channel }

// Poll takes up to len(wcs) completions, oldest first, and returns how many it got. It frees their slots in their queues.
// It doesn't wait. When it finds none it runs the transport on this goroutine, so that a loop of Poll needs no other
// thread; call it often then, or not for long: the transport goes on by itself 50 µs after the last Poll.
//
// Poll doesn't allocate.
func (c *CQ) Poll(wcs []WC) int {
	if n := c.drain(wcs); n > 0 || len(wcs) == 0 {
		return n
	}
	for _, p := range *c.pollers.Load() {
		p.Poll()
	}
	return c.drain(wcs)
}

// drain takes the completions that are there.
func (c *CQ) drain(wcs []WC) int {
	if c.ready.Load() == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(wcs), int(c.head-c.tail))
	for i := range n {
		wcs[i] = *c.at(c.tail)
		c.tail++
	}
	c.ready.Add(-int64(n))
	c.free(wcs[:n])
	return n
}

func (c *CQ) at(i uint) *WC { return &c.ring[i&uint(len(c.ring)-1)] }

// free frees the slots of the queues that the completions are of.
func (c *CQ) free(wcs []WC) {
	for i := 0; i < len(wcs); {
		q := c.qps[wcs[i].QPN]
		var sends, recvs int
		for num := wcs[i].QPN; i < len(wcs) && wcs[i].QPN == num; i++ {
			if wcs[i].Opcode&WCRecv != 0 {
				recvs++
			} else {
				sends++
			}
		}
		if q != nil {
			q.sq.free(sends)
			q.freeRecvs(recvs)
		}
	}
}

// purge drops the completions of a QP that is reset or destroyed, as if they were polled.
func (c *CQ) purge(num ib.QPN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.tail
	for from := c.tail; from != c.head; from++ {
		i := from & uint(len(c.ring)-1)
		if c.ring[i].QPN == num {
			c.free(c.ring[i : i+1])
			continue
		}
		*c.at(to) = c.ring[i]
		to++
	}
	c.ready.Add(-int64(c.head - to))
	c.head = to
}

// ReqNotify arms the CQ: the next completion that is added raises one event in the channel; with solicited, only one
// that the sender marked Solicited, or an error. Completions that are already there raise none, so poll once more after
// it. A CQ that is armed for every completion stays so (IBA 11.4.2.2).
func (c *CQ) ReqNotify(solicited bool) error {
	if c.channel == nil {
		return c.dev.errorf("request notification: %w: the CQ has no completion channel", ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !solicited:
		c.armed = nextCompletion
	case c.armed == notArmed:
		c.armed = solicitedOnly
	}
	return nil
}

// Err returns ErrCQOverrun, with context, when completions were lost; else nil.
func (c *CQ) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.overrun {
		return nil
	}
	return c.dev.errorf("CQ of depth %d: %w: make it deeper, or poll more often", c.depth, ErrCQOverrun)
}

// Destroy frees the completion queue; ErrBusy while QPs use it.
func (c *CQ) Destroy() error {
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.cqs, c, "destroy CQ"); err != nil {
		return err
	}
	if err := inUse(d, "destroy CQ", user{len(c.qps), "QP"}); err != nil {
		return err
	}
	delete(d.cqs, c)
	if c.channel != nil {
		c.channel.forget(c)
	}
	d.events.withdraw(Event{CQ: c})
	return nil
}

// attach enters a QP that completes here. Under dev.mu.
func (c *CQ) attach(q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q.num] = q
	if c.polled[q.poller]++; c.polled[q.poller] == 1 {
		c.listPollers()
	}
}

// detach undoes attach. Under dev.mu.
func (c *CQ) detach(q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.qps, q.num)
	if c.polled[q.poller]--; c.polled[q.poller] == 0 {
		delete(c.polled, q.poller)
		c.listPollers()
	}
}

// listPollers makes the list of workers that Poll runs.
func (c *CQ) listPollers() {
	list := slices.Collect(maps.Keys(c.polled))
	c.pollers.Store(&list)
}

// sink is a CQ as the transport sees it: a rocev2.CQ.
type sink CQ

// Push adds the completions of a burst. It returns false when they don't all fit: the queue is overrun for good.
func (s *sink) Push(cs []qp.Completion) bool {
	c := (*CQ)(s)
	c.mu.Lock()
	was := c.overrun
	raise := c.add(cs)
	overrun := c.overrun
	c.mu.Unlock()
	if raise {
		c.channel.raise(c)
	}
	if overrun && !was {
		c.dev.events.push(Event{Type: EventCQErr, CQ: c})
	}
	return !overrun
}

// add puts completions into the ring and reports whether an event is due.
func (c *CQ) add(cs []qp.Completion) (raise bool) {
	n := 0
	for i := range cs {
		if c.overrun = c.overrun || int(c.head-c.tail) == c.depth; c.overrun {
			raise = c.armed != notArmed
			c.lose(cs[i:])
			break
		}
		*c.at(c.head) = WC(cs[i])
		c.head++
		n++
		raise = raise || c.armed == nextCompletion || c.armed == solicitedOnly && cs[i].Solicited
	}
	if raise {
		c.armed = notArmed
	}
	c.ready.Add(int64(n))
	return raise
}

// lose frees the slots of completions that there is no room for: an SRQ is not lost with a CQ.
func (c *CQ) lose(cs []qp.Completion) {
	for i := range cs {
		wc := [1]WC{WC(cs[i])}
		c.free(wc[:])
	}
}
