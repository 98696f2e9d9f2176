package rocev2

import "github.com/urxe/urxe/rocev2/wire"

// Where many QPs are active, what is known of each has left the caches by the
// time its next packet comes or goes. To fetch it costs more than the protocol
// does, unless the processor can fetch that of many QPs at a time: so a burst's
// QPs are touched before the first of them is served.

// fewQPs stay in the caches without this.
const fewQPs = 64

// warmReceived touches the QPs that n received frames are for.
func (w *Worker) warmReceived(n int) {
	if len(w.qps) <= fewQPs {
		return
	}
	var ids [burst]uint32
	for i := range n {
		ids[i] = uint32(wire.PeekDestQP(&w.rx[i].Frame))
		w.touched += w.port.qps.Touch(ids[i])
	}
	k := 0
	for _, id := range ids[:n] {
		if q := w.port.qps.Get(id); q != nil && q.worker == w {
			w.near[k] = q
			k++
		}
	}
	w.touch(k)
}

// warmReady touches the QPs of s that have their turns next.
func (w *Worker) warmReady(s *side) {
	if len(w.qps) <= fewQPs {
		return
	}
	k := 0
	for q := s.ready.head; q != nil && k < burst; q = q.next {
		w.near[k] = q
		k++
	}
	w.touch(k)
}

// touch reads from each cache line of what serving the first n of near needs. What
// is reached by way of something else has its turn when that of all is on its way.
func (w *Worker) touch(n int) {
	var sum uint64
	for _, q := range w.near[:n] {
		sum += q.touch()
	}
	for _, q := range w.near[:n] {
		sum += q.core.Touch() + w.timers.touch(q)
	}
	for _, q := range w.near[:n] {
		sum += q.core.TouchRequests(q.posted)
	}
	w.touched += sum
	clear(w.near[:n]) // a destroyed QP is to be forgotten
}

func (q *QP) touch() uint64 {
	return uint64(q.number) + uint64(q.ack.since) + uint64(q.template.Touch())
}
