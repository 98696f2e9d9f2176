package sim

import (
	"github.com/urxe/urxe/rocev2/qp"
)

// sendRing and recvRing are the work queues of an end; they check that work
// requests are taken and given back in order.
type sendRing struct {
	wqes    []*qp.SendWQE
	taken   int
	retired int
}

func (s *sendRing) Next() *qp.SendWQE {
	if s.taken == len(s.wqes) {
		return nil
	}
	s.taken++
	return s.wqes[s.taken-1]
}

func (s *sendRing) Retire() {
	if s.retired == s.taken {
		panic("a send work request was retired that had not been taken")
	}
	s.wqes[s.retired] = nil
	s.retired++
}

func (s *sendRing) pending() int { return len(s.wqes) - s.retired }

type recvRing struct {
	wqes    []*qp.RecvWQE
	taken   int
	retired int
}

func (s *recvRing) Next() *qp.RecvWQE {
	if s.taken == len(s.wqes) {
		return nil
	}
	s.taken++
	return s.wqes[s.taken-1]
}

func (s *recvRing) Retire(*qp.RecvWQE) {
	if s.retired == s.taken {
		panic("a receive was retired that had not been taken")
	}
	s.wqes[s.retired] = nil
	s.retired++
}

func (s *recvRing) pending() int { return len(s.wqes) - s.retired }

// countedRing is a recvRing that tells how many receives wait in it, so that the
// peer gets credits.
type countedRing struct{ *recvRing }

// Posted implements qp.PostedQueue.
func (c countedRing) Posted() int { return len(c.wqes) - c.taken }

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
