package verbs

import (
	"fmt"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
)

// maxMessage is the longest message in bytes (C9-92).
const maxMessage = qp.MaxMessage

const allFlags = Fence | Signaled | Solicited | Inline

// PostSend posts send work requests in order and returns how many were accepted: all of them, or those before the first
// that can't be, which the error is about. A QP takes them in RTS, SQD (they wait) and ERR (they are flushed). A work
// request that is signalled or fails makes a completion, and its slot is free when that was polled; the slot of another
// is free when it has ended. wrs and the lists it points to may be reused at once; the memory of MRs may not before the
// completion.
//
// Its errors wrap ErrState, ErrQueueFull (the rest may be posted when completions have been polled), ErrClosed, or
// ErrInvalid for a work request that could never run. Keys, rights and ranges are checked when it runs: see WC.Status.
//
// PostSend doesn't wait. It doesn't allocate unless it fails, or for OpBindMW and OpRegMR.
func (q *QP) PostSend(wrs ...SendWR) (n int, err error) {
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	if err := q.maySend(); err != nil {
		return 0, err
	}
	room := min(q.sq.room(), len(wrs))
	for n < room && err == nil {
		if err = q.fillSend(n, &wrs[n]); err == nil {
			n++
		}
	}
	switch {
	case err != nil:
		err = q.errorf("post send, %s: %w", nth(n, len(wrs), wrs[n].ID), err)
	case n < len(wrs):
		err = q.errSQFull
	}
	if n > 0 {
		q.sq.publish(n)
		q.engine.Kick()
	}
	return n, err
}

// PostRecv posts receive work requests in order and returns how many were accepted, with the errors of PostSend. A QP takes
// them in every state but RESET. Each makes exactly one completion, unless the QP is reset or destroyed before.
func (q *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	if err := q.mayRecv(); err != nil {
		return 0, err
	}
	room := min(q.rq.room(), len(wrs))
	for n < room && err == nil {
		if err = q.fillRecv(n, &wrs[n]); err == nil {
			n++
		}
	}
	switch {
	case err != nil:
		err = q.errorf("post recv, %s: %w", nth(n, len(wrs), wrs[n].ID), err)
	case n < len(wrs):
		err = q.errRQFull
	}
	if n > 0 {
		q.rq.publish(n)
		q.engine.Doorbell() // a QP in ERR has to flush them
	}
	return n, err
}

// nth says which of a list of work requests the one at index n is, for errors.
func nth(n, of int, id uint64) string {
	return fmt.Sprintf("work request %d of %d (wr_id %d)", n+1, of, id)
}

// fillSend checks a work request and writes it to the k-th free slot.
func (q *QP) fillSend(k int, wr *SendWR) error {
	wqe, sges, inline := q.sq.slot(k)
	if err := checkSend(wr); err != nil {
		return err
	}
	if err := q.checkService(wr); err != nil {
		return err
	}
	*wqe = qp.SendWQE{
		ID: wr.ID, Opcode: wr.Opcode, Flags: wr.Flags, Imm: wr.Imm, RemoteAddr: wr.RemoteAddr, RKey: wr.RKey,
		CompareAdd: wr.CompareAdd, Swap: wr.Swap, InvKey: wr.InvKey, Length: wr.Length,
	}
	switch {
	case isLocal(wr.Opcode):
		return q.fillLocal(wqe, wr)
	case wr.Opcode == OpFlush:
		wqe.Flush = wr.Flush | qp.FlushGlobal
	}
	if wr.AH != nil {
		wqe.AH, wqe.RemoteQPN, wqe.RemoteQKey, wqe.PKeyIndex = wr.AH.engine.Handle(), wr.RemoteQPN, wr.RemoteQKey, wr.PKeyIndex
	}
	if wr.Flags&Inline != 0 || wr.InlineData != nil {
		wqe.Flags |= Inline
		return q.fillInline(wqe, wr, inline)
	}
	var total int64
	var err error
	if wqe.SGEs, total, err = q.dev.fillSGEs(sges, wr.SGEs); err != nil {
		return err
	}
	return q.checkLength(wr.Opcode, total)
}

// fillInline copies the payload of an inline work request into the slot.
func (q *QP) fillInline(wqe *qp.SendWQE, wr *SendWR, room []byte) error {
	switch {
	case wr.Opcode == OpRead || isAtomic(wr.Opcode):
		return fmt.Errorf("%w: %v can't be inline: it brings data here (inline: what SENDs or WRITEs)", ErrInvalid, wr.Opcode)
	case wr.InlineData != nil && len(wr.SGEs) != 0:
		return fmt.Errorf("%w: both InlineData and SGEs: want one of them", ErrInvalid)
	case len(wr.InlineData) > cap(room):
		return fmt.Errorf("%w: %d bytes of inline data: the QP takes %d (MaxInline)", ErrInvalid, len(wr.InlineData), cap(room))
	}
	room = append(room, wr.InlineData...)
	for i := range wr.SGEs {
		s := &wr.SGEs[i]
		b, err := q.dev.bytesOf(i, s)
		if err != nil {
			return err
		}
		if len(b) > cap(room)-len(room) {
			return fmt.Errorf("%w: more inline data than the QP takes: %d bytes (MaxInline)", ErrInvalid, cap(room))
		}
		room = append(room, b...)
	}
	wqe.Inline = room
	return q.checkLength(wr.Opcode, int64(len(room)))
}

// fillRecv checks a work request and writes it to the k-th free slot.
func (q *QP) fillRecv(k int, wr *RecvWR) error {
	wqe, sges := q.rq.slot(k)
	*wqe = qp.RecvWQE{SGEs: sges}
	return q.dev.fillRecv(wqe, wr)
}

// fillRecv checks a receive work request and writes it to a slot, whose SGEs have room.
func (d *Device) fillRecv(wqe *qp.RecvWQE, wr *RecvWR) error {
	sges, total, err := d.fillSGEs(wqe.SGEs, wr.SGEs)
	if err == nil && total > maxMessage {
		err = errTooLong(total)
	}
	wqe.ID, wqe.SGEs = wr.ID, sges
	return err
}

// fillSGEs translates a scatter-gather list into a slab and returns it with the sum of its lengths.
func (d *Device) fillSGEs(to []qp.SGE, from []SGE) ([]qp.SGE, int64, error) {
	if len(from) > cap(to) {
		return nil, 0, fmt.Errorf("%w: %d scatter-gather elements: the queue takes %d", ErrInvalid, len(from), cap(to))
	}
	var total int64
	for i := range from {
		s := &from[i]
		if s.MR == nil && s.Length == 0 {
			continue
		}
		if err := d.checkSGE(i, s); err != nil {
			return nil, 0, err
		}
		r := s.MR.now.Load()
		to = append(to, qp.SGE{Addr: r.iova + uint64(s.Offset), Length: uint32(s.Length), LKey: r.key})
		total += int64(s.Length)
	}
	return to, total, nil
}

// checkSGE checks what can't be left to the moment when the work request runs.
func (d *Device) checkSGE(i int, s *SGE) error {
	switch {
	case s.MR == nil:
		return fmt.Errorf("%w: SGE %d: no MR for %d bytes", ErrInvalid, i, s.Length)
	case s.MR.dev != d:
		return fmt.Errorf("%w: SGE %d: its MR is of device %s", ErrInvalid, i, s.MR.dev.name)
	case s.Offset < 0 || s.Length < 0:
		return fmt.Errorf("%w: SGE %d: offset %d, length %d: must not be negative", ErrInvalid, i, s.Offset, s.Length)
	case int64(s.Length) > maxMessage:
		return errTooLong(int64(s.Length))
	}
	return nil
}

// bytesOf returns the bytes of an SGE of an inline work request.
func (d *Device) bytesOf(i int, s *SGE) ([]byte, error) {
	if s.MR == nil && s.Length == 0 {
		return nil, nil
	}
	if err := d.checkSGE(i, s); err != nil {
		return nil, err
	}
	buf := s.MR.Bytes()
	if s.Length > len(buf) || s.Offset > len(buf)-s.Length {
		return nil, fmt.Errorf("%w: SGE %d: bytes %d to %d of an MR of %d", ErrInvalid, i, s.Offset, s.Offset+s.Length, len(buf))
	}
	return buf[s.Offset : s.Offset+s.Length], nil
}

// checkSend checks what doesn't depend on the QP.
func checkSend(wr *SendWR) error {
	switch {
	case !wr.Opcode.Valid():
		return fmt.Errorf("%w: opcode %d: there is no such operation", ErrInvalid, uint8(wr.Opcode))
	case wr.Flags&^allFlags != 0:
		return fmt.Errorf("%w: send flags 0x%x (allowed: Fence, Signaled, Solicited, Inline: 0x%x)", ErrInvalid, uint8(wr.Flags), uint8(allFlags))
	case isWord(wr.Opcode) && wr.RemoteAddr%8 != 0:
		return fmt.Errorf("%w: %v at remote address 0x%x: must be a multiple of 8", ErrInvalid, wr.Opcode, wr.RemoteAddr)
	}
	return nil
}

// checkService checks what the type of the QP asks for.
func (q *QP) checkService(wr *SendWR) error {
	t := q.init.Type
	switch {
	case !t.Offers(wr.Opcode):
		return fmt.Errorf("%w: %v on a QP of type %v (allowed: %s)", ErrInvalid, wr.Opcode, t, offers(t))
	case !t.Datagram() && wr.AH != nil:
		return fmt.Errorf("%w: an AH on a QP of type %v, which has one peer (allowed: none)", ErrInvalid, t)
	case t.Datagram():
		return q.checkDestination(wr)
	}
	return nil
}

// checkDestination checks where a datagram is to go.
func (q *QP) checkDestination(wr *SendWR) error {
	switch {
	case wr.AH == nil:
		return fmt.Errorf("%w: no AH: each work request of a QP of type %v says where it goes", ErrInvalid, q.init.Type)
	case wr.AH.pd != q.pd:
		return fmt.Errorf("%w: the AH is of another PD than the QP", ErrInvalid)
	case wr.AH.gone.Load():
		return fmt.Errorf("the AH is %w", ErrClosed)
	case !wr.RemoteQPN.Valid():
		return fmt.Errorf("%w: remote QPN 0x%x (it has 24 bits)", ErrInvalid, uint32(wr.RemoteQPN))
	case wr.AH.engine.Handle().Multicast != (wr.RemoteQPN == ib.QPNMulticast): // IBA 9.6.1
		return fmt.Errorf("%w: remote QPN %v with an AH to %v: %v is for multicast groups, and only that", ErrInvalid,
			wr.RemoteQPN, wr.AH.AV().DGID, ib.QPNMulticast)
	case wr.PKeyIndex != 0:
		return q.checkPKeyIndex(int(wr.PKeyIndex))
	}
	return nil
}

// checkPKeyIndex checks an index that isn't 0.
func (q *QP) checkPKeyIndex(i int) error {
	n := len(q.dev.engine.PKeys())
	switch {
	case q.init.Type != GSI:
		return fmt.Errorf("%w: P_Key index %d: a QP of type %v sends with the P_Key of its attribute (allowed: 0)", ErrInvalid, i, q.init.Type)
	case i >= n:
		return fmt.Errorf("%w: P_Key index %d: the table has %d entries (allowed: 0 to %d)", ErrInvalid, i, n, n-1)
	}
	return nil
}

// offers lists the opcodes that QPs of a type take.
func offers(t QPType) string {
	var names []string
	for o := Opcode(0); o <= OpRegMR; o++ {
		if t.Offers(o) {
			names = append(names, o.String())
		}
	}
	return strings.Join(names, ", ")
}

// checkLength checks the length of a message.
func (q *QP) checkLength(op Opcode, n int64) error {
	switch {
	case q.init.Type.Datagram() && n > int64(q.dev.engine.ActiveMTU().Bytes()):
		return fmt.Errorf("%w: a datagram of %d bytes: the most is %d, the port's active MTU", ErrInvalid, n, q.dev.engine.ActiveMTU().Bytes())
	case n > maxMessage:
		return errTooLong(n)
	case isWord(op) && n != 8:
		return fmt.Errorf("%w: %v with %d bytes of local memory: want 8", ErrInvalid, op, n)
	case op == OpFlush && n != 0:
		return fmt.Errorf("%w: %v with %d bytes of local memory: it has no payload; see SendWR.Length", ErrInvalid, op, n)
	}
	return nil
}

// isLocal reports whether op is done at this side alone.
func isLocal(op Opcode) bool { return op == OpBindMW || op == OpLocalInv || op == OpRegMR }

// isWord reports whether op is about 8 bytes at a multiple of 8.
func isWord(op Opcode) bool { return isAtomic(op) || op == OpAtomicWrite }

func isAtomic(op Opcode) bool { return op == OpCompareSwap || op == OpFetchAdd }

func errTooLong(n int64) error {
	return fmt.Errorf("%w: a message of %d bytes: the most is %d (2^31, MaxMsgSize)", ErrInvalid, n, int64(maxMessage))
}
