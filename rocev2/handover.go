package rocev2

import (
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
	side  uint8 // of the lender: where the frame goes back to
}

type returned struct {
	frame RxFrame
	side  uint8
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

// lend passes the worker's current packet to its QP's home; false if there is no room.
func (w *Worker) lend(home *Worker, f *RxFrame, side uint8) bool {
	h := w.out[home.index]
	l := h.there.Slot()
	if l == nil || h.lent == loans || w.lent == maxLent {
		return false
	}
	l.frame, l.pkt, l.side = *f, w.pkt, side
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
		n := 0
		for l := h.there.Front(); l != nil && n < burst; l = h.there.Front() {
			l.pkt.Frame = &l.frame.Frame
			v := wire.DropNoQP // it was destroyed meanwhile
			if q := w.find(l.pkt.DestQP); q != nil {
				v = w.deliver(q, &l.pkt, now)
			}
			w.judge(&l.frame, v)
			r := h.back.Slot()
			r.frame, r.side = l.frame, l.side
			h.back.Push()
			h.there.Pop()
			n++
		}
		if n > 0 {
			w.batch.Run() // before the frames may go
			h.there.Free()
			h.back.Publish()
			worked = true
		}
	}
	return worked
}

// reclaim releases lent frames that came back.
func (w *Worker) reclaim() {
	for _, h := range w.out {
		if h != nil && h.lent > 0 {
			w.lent -= h.reclaim(w.rx[:])
		}
	}
}

// reclaim releases the frames that came back, by way of batch, and returns how many.
func (h *handover) reclaim(batch []RxFrame) (n int) {
	var held int
	var side uint8
	for r := h.back.Front(); ; r = h.back.Front() {
		if held > 0 && (r == nil || r.side != side || held == len(batch)) {
			h.from.release(h.from.sides[side].link, batch[:held])
			n += held
			held = 0
		}
		if r == nil {
			break
		}
		batch[held], side = r.frame, r.side
		held++
		h.back.Pop()
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
		batch[0] = l.frame
		batch[0].Verdict = wire.DropHandover
		h.from.release(h.from.sides[l.side].link, batch[:1])
		h.there.Pop()
	}
	h.there.Free()
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
