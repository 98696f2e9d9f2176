package qp

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// request is a send work request under way.
type request struct {
	wqe     *SendWQE
	op      *operation
	first   uint64 // sequence number of its first packet
	packets uint64
	length  uint64     // bytes of the message
	since   clock.Time // of a datagram: when it was parked
	stage   stage      // of a datagram

	resumed  bool  // a READ of which a part was asked for again
	done     bool  // an operation of this side alone, which has been done
	held     uint8 // bytes of a READ in orig
	silences uint8 // probes in the middle of a READ
	// orig is what an atomic found, in host byte order; of a READ, the last bytes,
	// held back until all others are there. It is last, and not cleared, since the
	// end of a request is in the next one's cache line.
	orig [8]byte
}

func (r *request) end() uint64 { return r.first + r.packets }

func (r *request) isRead() bool { return r.wqe.Opcode == WRRead }

func (r *request) isAtomic() bool { return r.op.atomic }

// responds reports whether the request is answered by a response of its own,
// with data or without, not by an ACK.
func (r *request) responds() bool { return r.op.responds }

// take gets the next work request into the ring, if there is one, and reports
// whether cur now stands at a request.
func (q *QP) take() bool {
	r := &q.req
	if r.cur != r.tail {
		return true
	}
	if int(r.tail-r.oldest) == len(r.ring) {
		return false
	}
	if r.dry {
		return false
	}
	w := q.cfg.SQ.Next()
	if w == nil {
		r.dry = q.cfg.Rings
		return false
	}
	t := r.at(r.tail)
	t.wqe, t.op, t.first, t.length = w, w.Opcode.operation(), r.high, w.length()
	t.since, t.stage, t.resumed, t.done, t.held, t.silences = 0, 0, false, false, 0, 0
	switch {
	case t.op.local != nil:
		t.packets = 0
	case t.isAtomic():
		t.packets = 1
	default:
		t.packets = q.packets(t.length)
	}
	r.tail++
	return true
}

// checkRequest says why a request can't be sent at all.
func (q *QP) checkRequest(t *request) WCStatus {
	w := t.wqe
	switch {
	case !q.svc.offers.has(w.Opcode), t.responds() && q.attr.MaxRdAtomic == 0, t.op.fetches && w.Flags&Inline != 0:
		return LocQPOpErr
	case q.svc.datagram && (w.AH == nil || !w.RemoteQPN.Valid()), q.cfg.Type == GSI && int(w.PKeyIndex) >= len(q.cfg.PKeys),
		q.svc.datagram && w.AH.Multicast != (w.RemoteQPN == ib.QPNMulticast): // IBA 9.6.1
		return LocQPOpErr
	case t.length > MaxMessage, w.Flags&Inline != 0 && len(w.Inline) > q.cfg.Caps.MaxInline,
		t.op.word && t.length != 8, t.op.bare && t.length != 0:
		return LocLenErr
	case len(w.SGEs) > MaxSGE:
		return LocQPOpErr
	}
	if !t.op.fetches {
		return Success
	}
	for i := range w.SGEs { // what is asked for must have a place to go to
		s := &w.SGEs[i]
		if s.Length > 0 && q.cfg.Keys.Find(s.LKey, q.cfg.PD, s.Addr, uint64(s.Length), mem.LocalWrite) == nil {
			return LocProtErr
		}
	}
	return Success
}

// requestHeader fills in the opcode and the extended headers of packet index of
// t, and returns the bytes of its payload.
func (q *QP) requestHeader(t *request, index uint64, h *wire.Header) int {
	w, off := t.wqe, index*uint64(q.mtu)
	h.RKey, h.VA, h.Imm = w.RKey, w.RemoteAddr+off, w.Imm
	h.InvKey = w.InvKey
	switch w.Opcode {
	case WRFlush:
		h.Opcode, h.Flush, h.Length = wire.RCFlush, uint32(w.Flush), w.Length
		return 0
	case WRRead:
		h.Opcode, h.Length = wire.RCReadRequest, uint32(t.length-off)
		return 0
	case WRCompareSwap:
		h.Opcode, h.Compare, h.Swap = wire.RCCompareSwap, w.CompareAdd, w.Swap
		return 0
	case WRFetchAdd:
		h.Opcode, h.Swap = wire.RCFetchAdd, w.CompareAdd
		return 0
	}
	place := placeOf(index, t.packets)
	h.Opcode, h.Length = t.op.packets[place]|wire.Opcode(q.svc.transport), uint32(t.length)
	// Only packets that can raise an event carry the solicited bit (C9-7).
	h.SE = place.Ends() && w.Flags&Solicited != 0 && t.op.receives
	return int(min(t.length-off, uint64(q.mtu)))
}

// placeOf returns where packet index of n stands.
func placeOf(index, n uint64) (p wire.Place) {
	if index == 0 {
		p |= wire.First
	}
	if index == n-1 {
		p |= wire.Last
	}
	return p
}
