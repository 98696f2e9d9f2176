package rocev2

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/internal/spsc"
	"github.com/urxe/urxe/rocev2/wire"
)

// handover carries packets from the worker that received them to the home
// worker of their QP, and their frames back.
type handover struct {
	from, to *Worker
	there    *spsc.Ring[loan]
	back     *spsc.Ring[returned]
	lent     int // frames that are there or on their way; from's
}

// loan is a parsed packet in its frame.
type loan struct {
	frame RxFrame
	pkt   wire.Packet
	side  uint8  // of the lender: where the frame goes back to
	share uint16 // its number in the lender's shares; 0: no other worker has the frame
}

type returned struct {
	frame RxFrame
	side  uint8
	share uint16
}

// shares are the frames that a worker has lent to several others at once: such
// a frame may go when the last of them gave it back.
type shares struct {
	list [maxLent + 1]share // by number, from 1
	free []uint16
}

type share struct {
	holders int
	verdict wire.Verdict // of the copies that are done
}

func newShares() (s shares) {
	for i := len(s.list); i > 0; i-- {
		s.free = append(s.free, uint16(i))
	}
	return s
}

// take returns the number of a share that no one holds. There is one, since each
// that is in use has a loan.
func (s *shares) take() uint16 {
	last := len(s.free) - 1
	id := s.free[last]
	s.free = s.free[:last]
	s.list[id-1] = share{}
	return id
}

// isBack takes a frame back from one holder, and reports whether he was the last.
func (s *shares) isBack(r *returned) bool {
	if r.share == 0 {
		return true
	}
	x := &s.list[r.share-1]
	x.holders--
	x.verdict = either(x.verdict, r.frame.Verdict)
	if x.holders > 0 {
		return false
	}
	r.frame.Verdict = x.verdict
	s.free = append(s.free, r.share)
	return true
}

const (
	loans = 256 // of one worker to another
	// maxLent is the most frames that a worker has lent altogether: so many
	// that a Link with 1024 can go on receiving.
	maxLent = 512
)

func newHandover(from, to *Worker) *handover {
	there, _ := spsc.New[loan](loans)
	back, _ := spsc.New[returned](loans) // never full: lent is at most loans
	return &handover{from: from, to: to, there: there, back: back}
}

// lend passes the worker's current packet to its QP's home, by its number if it
// is lent to others, too; false if there is no room.
func (w *Worker) lend(home *Worker, f *RxFrame, side uint8, share uint16) bool {
	h := w.out[home.index]
	l := h.there.Slot()
	if l == nil || h.lent == loans || w.lent == maxLent {
		return false
	}
	l.frame, l.pkt, l.side, l.share = *f, w.pkt, side, share
	h.there.Push()
	h.lent++
	w.lent++
	return true
}

// passOn shows what was lent to its takers.
func (w *Worker) passOn() {
	for _, h := range w.out {
		if h != nil && h.there.Publish() {
			h.to.nudge()
		}
	}
}

// takeLoans handles packets that other workers received for QPs of this one.
func (w *Worker) takeLoans(now clock.Time) (worked bool) {
	for _, h := range w.in {
		if h == nil {
			continue
		}
		w.awaited = w.awaited || h.from.late.Load() // first: if it isn't, what it had to lend is there
		n := 0
		for l := h.there.Front(); l != nil && n < burst; l = h.there.Front() {
			w.takeLoan(l, now)
			r := h.back.Slot()
			r.frame, r.side, r.share = l.frame, l.side, l.share
			h.back.Push()
			h.there.Pop()
			n++
		}
		w.fullLoans = w.fullLoans || n == burst
		if n > 0 {
			w.batch.Run() // before the frames may go
			h.there.Free()
			h.back.Publish()
			if h.from.starved.Load() {
				h.from.nudge()
			}
			worked = true
		}
	}
	return worked
}

func (w *Worker) takeLoan(l *loan, now clock.Time) {
	l.pkt.Frame = &l.frame.Frame
	if l.pkt.DestQP == ib.QPNMulticast {
		l.frame.Verdict = w.copies(&l.pkt, w.port.groups.find(keyOf(&l.pkt)).on(w), l.side, now)
		return
	}
	v := wire.DropNoQP                                        // it was destroyed meanwhile
	if q := w.find(l.pkt.DestQP); q != nil && q.worker == w { // QP1 may have been made again, elsewhere
		v = w.deliver(q, &l.pkt, now)
	}
	w.judge(&l.frame, v)
}

// reclaim releases lent frames that came back.
func (w *Worker) reclaim() {
	for _, h := range w.out {
		if h != nil && h.lent > 0 {
			w.lent -= h.reclaim(w.rx[:])
		}
	}
}

// reclaim takes the loans that came back, releases the frames that no one else
// has, by way of batch, and returns how many loans there were.
func (h *handover) reclaim(batch []RxFrame) (n int) {
	var held int
	var side uint8
	for r := h.back.Front(); ; r = h.back.Front() {
		if held > 0 && (r == nil || r.side != side || held == len(batch)) {
			h.from.release(h.from.sides[side].link, batch[:held])
			held = 0
		}
		if r == nil {
			break
		}
		if h.from.shares.isBack(r) {
			batch[held], side = r.frame, r.side
			held++
		}
		h.back.Pop()
		n++
	}
	h.back.Free()
	h.lent -= n
	return n
}

// dissolve gives all lent frames back when both workers have stopped.
func (h *handover) dissolve() {
	var batch [burst]RxFrame
	h.reclaim(batch[:])
	for l := h.there.Front(); l != nil; l = h.there.Front() {
		r := returned{l.frame, l.side, l.share}
		r.frame.Verdict = wire.DropHandover
		if h.from.shares.isBack(&r) {
			batch[0] = r.frame
			h.from.release(h.from.sides[r.side].link, batch[:1])
		}
		h.there.Pop()
	}
	h.there.Free()
}

// starve takes note that a frame of the loop was wanted and there was none: it
// may be lent, and who gives it back wakes this worker.
func (w *Worker) starve() { w.starved.Store(true) }

// isFed reports whether frames came back since one was missed.
func (w *Worker) isFed() bool {
	if !w.starved.Load() {
		return false
	}
	for _, h := range w.out {
		if h != nil && !h.back.Empty() {
			return true
		}
	}
	return false
}

// hasLoans reports whether other workers wait for this one.
func (w *Worker) hasLoans() bool {
	for _, h := range w.in {
		if h != nil && !h.there.Empty() {
			return true
		}
	}
	return false
}
