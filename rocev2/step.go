package rocev2

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// planned is a packet whose payload may still have to be gathered.
type planned struct {
	pkt   qp.TxPacket
	frame TxFrame
	q     *QP
	link  Link // that the frame is of

	copied bool    // it goes to a group with members on this port:
	copy   TxFrame // the loop's, for them
}

// reserved says for what the frame of the next planned packet is reserved.
type reserved struct {
	side *side // nil: it isn't
	room int   // as asked for
}

// step is one round. The caller holds the token. Its work is bounded, whatever
// peers and posters do: a burst each way and side, and as many timers.
func (w *Worker) step(now clock.Time) (worked bool) {
	w.now, w.moved, w.crossed, w.awaited = now, 0, false, false
	if w.overrun.Load() && w.overrun.CompareAndSwap(true, false) {
		w.meetOverrun()
		worked = true
	}
	w.bells.take(func(q *QP) {
		q.posted = true
		w.activate(q)
		worked = true
	})
	if w.starved.Load() {
		w.starved.Store(false)
	}
	w.reclaim()
	for i := range w.sides {
		if w.sides[i].used {
			worked = w.receive(uint8(i), now) || worked
		}
	}
	worked = w.takeLoans(now) || worked
	w.publish() // before sending: programs may wait for what arrived
	worked = w.expire(now) || worked
	for i := range w.sides {
		if s := &w.sides[i]; s.used || s.ready.n > 0 || s.waiting.n > 0 {
			worked = w.transmit(s, now) || worked
		}
	}
	w.publish()
	return worked || w.crossed
}

// receive takes a burst of frames from a side.
func (w *Worker) receive(from uint8, now clock.Time) bool {
	link := w.sides[from].link
	n := link.Recv(w.rx[:])
	w.fullWire = w.fullWire || from == sideWire && n == burst // the loop has no more than a burst
	if n == 0 {
		w.sides[from].used = from == sideWire
		return false
	}
	w.moved += n
	w.warmReceived(n)
	w.parser.Admits = w.gate.of(from)
	kept := 0
	for i := range n {
		f := &w.rx[i]
		w.traffic.rcvdPkts++
		w.traffic.rcvdBytes += uint64(f.Len())
		if !w.takeFrame(f, from, now) {
			continue
		}
		if kept < i {
			w.rx[kept] = *f
		}
		kept++
	}
	w.batch.Run() // before the frames may go
	w.release(link, w.rx[:kept])
	w.passOn()
	return true
}

// takeFrame handles a received frame. It reports false if the frame was lent to
// another worker, which then judges it.
func (w *Worker) takeFrame(f *RxFrame, from uint8, now clock.Time) bool {
	v := w.parser.Parse(&w.pkt, &f.Frame)
	if v == wire.DropICRC {
		v = w.rxeFlush()
	}
	if v == wire.Accepted {
		switch q := w.find(w.pkt.DestQP); {
		case w.pkt.DestQP == ib.QPNMulticast:
			return w.multicast(f, from, now)
		case q == nil:
			v = wire.DropNoQP
		case q.worker == w:
			v = w.deliver(q, &w.pkt, now)
		case w.lend(q.worker, f, from, 0):
			return false
		default:
			v = wire.DropHandover
		}
	}
	w.judge(f, v)
	return true
}

// judge sets what became of a frame, and counts it.
func (w *Worker) judge(f *RxFrame, v wire.Verdict) {
	f.Verdict = v
	w.drops[v]++
}

// deliver gives a packet to its QP, which lives here.
func (w *Worker) deliver(q *QP, p *wire.Packet, now clock.Time) wire.Verdict {
	w.recent = q
	if v := q.admits(p); v != wire.Accepted {
		return v
	}
	if p.Opcode == wire.CongestionNotify {
		w.notified(q, now)
		return wire.Accepted
	}
	if p.TClass&ecnMask == ecnCE {
		w.marked(q, now)
	}
	if w.batch.Free() < qp.HandleOps {
		w.batch.Run()
	}
	v := q.core.Handle(p, now, w.batch)
	if w.batch.Immediate() {
		w.batch.Run()
	}
	q.ack.came(p.Opcode, v)
	w.activate(q)
	return v
}

// mostBehind is how many bursts the frames of a queue are.
const mostBehind = 4096 / burst

// noteBehind counts the Steps on end in which a burst was full, and tells the workers
// whom this one lends to if it was of the wire.
func (w *Worker) noteBehind(now clock.Time) {
	if w.fullWire || w.fullLoans {
		w.behind++
	} else {
		w.behind = 0
	}
	if late := w.isLate() && w.fullWire; late != w.late.Load() {
		w.late.Store(late)
	}
	w.fullWire, w.fullLoans = false, false
	switch {
	case !w.awaited:
		w.awaitedSince = 0
	case w.awaitedSince == 0:
		w.awaitedSince = now
	}
}

// isLate reports whether frames may wait to be received, as when the worker had
// no processor for some time. It doesn't say so for more of them than a queue
// has: for a flood no timer waits for ever.
func (w *Worker) isLate() bool { return w.behind > 0 && w.behind <= mostBehind }

const (
	// longestAwait is how long on end timers wait for workers that are late.
	longestAwait = 10 * time.Millisecond
	// awaitPause is how long before it is looked again whether they still are: a
	// worker that waits in vain leaves them the processor.
	awaitPause = 20 * time.Microsecond
)

// holdsUp returns until when timers that wait for answers wait on, as such may have to
// be received yet, here or by a worker that will lend them; 0: they don't.
func (w *Worker) holdsUp(now clock.Time) clock.Time {
	switch {
	case w.isLate():
		return now + 1
	case w.awaited && now.Sub(w.awaitedSince) < longestAwait:
		return now.Add(awaitPause)
	}
	return 0
}

// expire lets timers run out, at most a burst of them. Those that wait for an answer
// do so in the first Step after which none may be there unseen.
func (w *Worker) expire(now clock.Time) (worked bool) {
	w.noteBehind(now)
	until := w.holdsUp(now)
	for range burst {
		q := w.timers.due(now)
		if q == nil {
			break
		}
		if until != 0 && q.core.Prolong(now, until) {
			continue
		}
		q.core.Expire(now)
		w.activate(q)
		worked = true
	}
	return worked
}

// activate puts q in the line of those who may send.
func (w *Worker) activate(q *QP) {
	if q.where != isReady {
		w.queue(q)
	}
}

func (w *Worker) queue(q *QP) {
	if q.dead.Load() {
		return
	}
	w.deactivate(q)
	q.where = isReady
	w.sides[q.side].ready.push(q)
}

// deactivate takes q out of the line. Its deadline says when it is back.
func (w *Worker) deactivate(q *QP) {
	s := &w.sides[q.side]
	switch q.where {
	case isReady:
		s.ready.remove(q)
	case isWaiting:
		s.waiting.remove(q)
	}
	q.where = idle
}

// transmit lets the QPs of a side have their turns until a burst is made, no
// one has anything to send, or there is no room to send.
func (w *Worker) transmit(s *side, now clock.Time) (worked bool) {
	if s.waiting.n > 0 {
		w.endWaits(s, now)
	}
	w.warmReady(s)
	s.full = false
	sent := 0
	for sent < burst && !s.full && s.ready.head != nil {
		sent += w.turn(s, s.ready.head, now, min(quantum, burst-sent))
	}
	if sent > 0 {
		s.used = true
		w.moved += sent
		w.dispatch()
	}
	w.cancelSpare()
	w.cancelCopy()
	// Without a packet, too: what the device did not take last time waits.
	if err := s.link.Flush(); err != nil {
		w.linkFailed(s, err)
	}
	return sent > 0
}

// turn lets q send up to n packets, and puts it where it belongs then.
func (w *Worker) turn(s *side, q *QP, now clock.Time, n int) (sent int) {
	if q.posted {
		q.posted = false
		q.core.Posted()
	}
	q.core.HoldAcks(w.ackMayWait(q, now, ackTime))
	room := q.core.FrameRoom()
	for sent < n {
		if w.mustWait(q, now, sent) {
			w.wait(s, q, now)
			return sent
		}
		if w.batch.Free() < qp.PlanOps {
			w.dispatch()
		}
		if !w.reserve(s, room) || !w.reserveCopy(q, room) {
			s.full = true // q stays the first in line
			return sent
		}
		slot := &w.tx[w.ntx]
		slot.pkt.Frame, slot.pkt.Loop = &slot.frame.Frame, s == &w.sides[sideLoop]
		if !q.core.Plan(now, &slot.pkt, w.batch) {
			w.stepBack(q, slot.pkt.Elsewhere)
			return sent
		}
		w.spend(q, &slot.pkt, now)
		slot.q, slot.link = q, s.link
		if slot.pkt.Multicast {
			w.addCopy(slot)
		}
		w.spare.side = nil
		w.ntx++
		sent++
		if w.ntx == burst || w.batch.Immediate() {
			w.dispatch()
		}
	}
	s.ready.remove(q)
	s.ready.push(q)
	return sent
}

// stepBack takes q, which has nothing to send now, out of the line; elsewhere says
// that it has, but by the other side.
func (w *Worker) stepBack(q *QP, elsewhere bool) {
	w.deactivate(q)
	q.ack.since, q.ack.again = 0, false // nothing is owed any more
	w.timers.set(q, q.core.Deadline())
	if elsewhere {
		w.changeSide(q)
	}
}

// changeSide has q, whose next datagram goes by the other side, wait there.
func (w *Worker) changeSide(q *QP) {
	q.side = sideWire + sideLoop - q.side
	w.activate(q)
	w.crossed = true
}

// reserve sees that the next packet has a frame with room for n bytes.
func (w *Worker) reserve(s *side, n int) bool {
	if w.spare.side == s && w.spare.room >= n {
		return true
	}
	w.cancelSpare()
	if !s.link.Reserve(&w.tx[w.ntx].frame, n) {
		if s == &w.sides[sideLoop] {
			w.starve()
		}
		return false
	}
	w.spare.side, w.spare.room = s, n
	return true
}

func (w *Worker) cancelSpare() {
	if s := w.spare.side; s != nil {
		s.link.Cancel(&w.tx[w.ntx].frame)
		w.spare.side = nil
	}
}

// dispatch fetches the payloads of the planned packets and sends those that
// came to be.
func (w *Worker) dispatch() {
	w.batch.Run()
	for i := range w.ntx {
		slot := &w.tx[i]
		if slot.pkt.Void {
			slot.link.Cancel(&slot.frame)
			w.endCopy(slot)
			w.activate(slot.q) // it may owe a NAK now, and have had its turn
			continue
		}
		if slot.frame.Len() > w.longest && !slot.pkt.Loop {
			slot.link.Cancel(&slot.frame)
			slot.pkt.Void = true
			w.endCopy(slot)
			w.traffic.tooLong++ // lost, as in a network with such an MTU on the way
			continue
		}
		slot.pkt.Path.Seal(&slot.frame.Frame)
		w.traffic.sentPkts++
		w.traffic.sentBytes += uint64(slot.frame.Len())
		w.endCopy(slot)
		w.send(slot.link, &slot.frame)
	}
	if w.spare.side != nil && w.ntx > 0 {
		w.tx[0].frame = w.tx[w.ntx].frame
	}
	w.ntx = 0
}

// send sends a frame, and tells the sinks.
func (w *Worker) send(l Link, f *TxFrame) {
	if list := w.port.sinks.list.Load(); list != nil {
		for _, s := range *list {
			s.Sent(&f.Frame)
		}
	}
	l.Send(f)
}

// release gives received frames back, whose verdicts are known by now, and tells
// the sinks.
func (w *Worker) release(l Link, batch []RxFrame) {
	if list := w.port.sinks.list.Load(); list != nil {
		for i := range batch {
			for _, s := range *list {
				s.Received(&batch[i].Frame, batch[i].Verdict)
			}
		}
	}
	l.Release(batch)
}
