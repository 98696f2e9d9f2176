package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/urxe/urxe/rocev2/qp"
)

// sendCompleted takes a completion of the send queue: it must be the next that
// was asked for, or tell of an error.
func (e *end) sendCompleted(c *qp.Completion) {
	if c.QPN != e.qp.Number() {
		e.violation("a completion of QP %v", c.QPN)
		return
	}
	for len(e.posted) > 0 {
		w := e.posted[0]
		e.posted = e.posted[1:]
		// Also when a receive has failed: what the peer acknowledged before is done.
		silent := w.wqe.Flags&qp.Signaled == 0 && e.broke == qp.Success
		if silent && w.id != c.ID {
			e.succeeded(w) // by the order of completions
			continue
		}
		switch {
		case w.id != c.ID:
			e.violation("completion of send %d, want %d", c.ID, w.id)
		case c.Status == qp.Success:
			e.checkSuccess(w, c)
			e.succeeded(w)
		default:
			e.failed(c.Status)
		}
		return
	}
	e.violation("completion of send %d, which was completed before or never posted", c.ID)
}

var completionOf = [...]qp.WCOpcode{
	qp.WRWrite: qp.WCWrite, qp.WRWriteImm: qp.WCWrite, qp.WRSend: qp.WCSend, qp.WRSendImm: qp.WCSend,
	qp.WRRead: qp.WCRead, qp.WRCompareSwap: qp.WCCompareSwap, qp.WRFetchAdd: qp.WCFetchAdd,
	qp.WRLocalInv: qp.WCLocalInv, qp.WRBindMW: qp.WCBindMW, qp.WRSendInv: qp.WCSend,
}

// fetches reports whether op brings something.
func fetches(op qp.WROpcode) bool {
	return op == qp.WRRead || op == qp.WRCompareSwap || op == qp.WRFetchAdd
}

func (e *end) checkSuccess(w *work, c *qp.Completion) {
	responds := fetches(w.wqe.Opcode)
	switch {
	case e.broken:
		e.violation("send %d succeeded after an error", w.id)
	case w.bad:
		e.violation("send %d succeeded, though it could not", w.id)
	case w.wqe.Flags&qp.Signaled == 0:
		e.violation("send %d completed, though it wasn't signalled", w.id)
	case c.Opcode != completionOf[w.wqe.Opcode]:
		e.violation("send %d (%v) completed as %v", w.id, w.wqe.Opcode, c.Opcode)
	case responds && c.ByteLen != uint32(w.length):
		e.violation("send %d brought %d bytes, want %d", w.id, c.ByteLen, w.length)
	}
}

// succeeded checks what a READ or atomic brought.
func (e *end) succeeded(w *work) {
	if w.wqe.Opcode == qp.WRBindMW {
		e.didBind(w)
	}
	if !fetches(w.wqe.Opcode) {
		return
	}
	got := e.buf[w.place : w.place+w.length]
	e.free = append(e.free, w.place)
	switch w.wqe.Opcode {
	case qp.WRRead:
		for i := range got {
			if got[i] != w.want[i] && !w.dirty[i] {
				e.violation("READ %d: byte %d of %d is %#x, want %#x", w.id, i, w.length, got[i], w.want[i])
				return
			}
		}
	case qp.WRCompareSwap:
		if v := binary.NativeEndian.Uint64(got); v != w.found && e.pair.fate == lives {
			e.violation("CMP_SWAP %d found %#x, want %#x", w.id, v, w.found)
		}
	case qp.WRFetchAdd:
		v, h := binary.NativeEndian.Uint64(got), e.peer.host
		if h.founds[w.word][v] {
			e.violation("FETCH_ADD %d found %d, as another did before", w.id, v)
		}
		h.founds[w.word][v] = true
	}
}

// failed takes a completion with an error: the first may be of any kind that
// the connection's fate has, what follows is flushed.
func (e *end) failed(s qp.WCStatus) {
	if e.broken {
		if s != qp.WRFlushErr {
			e.violation("a send completed with %v after an error; want a flush", s)
		}
		return
	}
	e.broken, e.broke = true, s
	if e.pair.phase == working && !e.pair.fate.allows(e, s) {
		e.violation("a send completed with %v", s)
	}
}

// recvCompleted takes a completion of the receive queue: it must be of the
// oldest receive and have the peer's next message in it.
func (e *end) recvCompleted(c *qp.Completion) {
	received := e.received(c)
	if received == nil {
		return
	}
	if c.Status != qp.Success {
		e.recvFailed(c)
		return
	}
	if len(e.incoming) == 0 {
		e.violation("receive %d completed without a message", c.ID)
		return
	}
	w := e.incoming[0]
	e.incoming = e.incoming[1:]
	e.checkMessage(w, c, received)
}

// received returns the bytes of the receive that c is of, nil if there is none.
func (e *end) received(c *qp.Completion) []byte {
	if e.pool != nil {
		return e.pool.completed(c)
	}
	if len(e.places) == 0 {
		e.violation("completion of receive %d, which was completed before or never posted", c.ID)
		return nil
	}
	place := e.places[0]
	e.places = e.places[1:]
	return e.buf[place : place+e.slot]
}

func (e *end) recvFailed(c *qp.Completion) {
	if !e.pair.fate.allowsRecv(e, c.Status) && (e.pair.phase == working || c.Status != qp.WRFlushErr) {
		e.violation("receive %d completed with %v", c.ID, c.Status)
	}
	e.broken = true
}

// checkMessage compares a message received with the one that was sent.
func (e *end) checkMessage(w *work, c *qp.Completion, received []byte) {
	op := w.wqe.Opcode
	imm := op == qp.WRSendImm || op == qp.WRWriteImm
	wantOp := qp.WCRecv
	if op == qp.WRWriteImm {
		wantOp = qp.WCRecvWriteImm
	}
	switch {
	case c.Opcode != wantOp:
		e.violation("message %d (%v) came as %v", w.id, op, c.Opcode)
	case c.ByteLen != uint32(w.length):
		e.violation("message %d came with %d bytes, want %d", w.id, c.ByteLen, w.length)
	case imm != (c.Flags&qp.WCWithImm != 0), imm && c.Imm != w.wqe.Imm:
		e.violation("message %d came with immediate data %#x (flags %#x), want %#x", w.id, c.Imm, c.Flags, w.wqe.Imm)
	case c.Solicited != (w.wqe.Flags&qp.Solicited != 0):
		e.violation("message %d came with solicited=%v", w.id, c.Solicited)
	case c.SrcQP != e.peer.qp.Number():
		e.violation("message %d came from QP %v", w.id, c.SrcQP)
	case op != qp.WRWriteImm && !bytes.Equal(received[:w.length], w.data):
		e.violation("message %d came with other bytes", w.id)
	}
	if op == qp.WRSendInv {
		e.wasInvalidated(w, c)
	}
}

// checkMemory compares the window with the model, when the connection lived.
func (e *end) checkMemory() {
	if e.pair.fate != lives {
		return
	}
	for _, w := range e.posted {
		if w.wqe.Flags&qp.Signaled != 0 {
			e.violation("send %d has not completed", w.id)
			return
		}
		e.succeeded(w) // the last ones, unsignalled
	}
	e.posted = nil
	binary.NativeEndian.PutUint64(e.window, e.casWord)
	if got := e.buf[e.windowAt:]; !bytes.Equal(got, e.window) {
		i := 0
		for got[i] == e.window[i] {
			i++
		}
		e.violation("byte %d of the window is %#x, want %#x", i, got[i], e.window[i])
	}
	if len(e.incoming) > 0 {
		e.violation("%d messages have not come", len(e.incoming))
	}
}

// checkQueues checks, at the end, that every work request was given back and
// had its completion.
func (e *end) checkQueues() {
	switch {
	case e.sq.Pending() > 0 || e.rq.Pending() > 0:
		e.violation("%d sends and %d receives were never given back", e.sq.Pending(), e.rq.Pending())
	case len(e.places) > 0:
		e.violation("%d receives have not completed", len(e.places))
	}
	for _, w := range e.posted {
		if w.wqe.Flags&qp.Signaled != 0 || e.broken && e.broke != qp.Success {
			e.violation("send %d has not completed", w.id)
			return
		}
	}
}

// check checks what all connections to a host have done together.
func (h *host) check(w *world) {
	if sha256.Sum256(h.table) != h.tableSum {
		w.net.violation("%s: what may only be read was written", h.name)
	}
	for i := range h.adds {
		if got := binary.NativeEndian.Uint64(h.counters[8*i:]); got != h.adds[i] {
			w.net.violation("%s: counter %d is %d after %d FETCH_ADDs", h.name, i, got, h.adds[i])
		}
		for v := range h.founds[i] {
			if v >= h.adds[i] {
				w.net.violation("%s: a FETCH_ADD found %d at counter %d, which got to %d", h.name, v, i, h.adds[i])
			}
		}
	}
	for _, l := range h.links {
		l.check()
	}
}
