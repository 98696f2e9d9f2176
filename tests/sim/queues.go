package sim

import (
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
)

// countedRing is a receive queue that tells how many receives wait in it, so that the
// peer gets credits.
type countedRing struct{ *qptest.RecvQueue }

// Posted implements qp.PostedQueue.
func (c countedRing) Posted() int { return c.Waiting() }

// completions is the CQ of one queue of one end.
type completions struct {
	got   []qp.Completion
	lasts int  // LAST_WQE_REACHED, so many times
	late  bool // a completion came afterwards
}

func (c *completions) Push(cs []qp.Completion) bool {
	c.late = c.late || c.lasts > 0 && len(cs) > 0
	c.got = append(c.got, cs...)
	return true
}

func (c *completions) take() []qp.Completion {
	got := c.got
	c.got = c.got[len(c.got):]
	return got
}
