package qp

import (
	"bytes"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// FuzzRequest posts one send work request with arbitrary fields to a QP of
// each type and state, and has a peer acknowledge all that it sends. The
// completion must be the one that the tables say, computed here anew from the
// fields alone: LOC_QP_OP for what the service hasn't, LOC_LEN for what is too
// long, LOC_PROT for memory that isn't there, MW_BIND for memory management that
// can't be, a flush where the queue is stopped, success else.
func FuzzRequest(f *testing.F) {
	for op := range byte(34) {
		for typ := range byte(3) {
			f.Add([]byte{typ, 2, op, byte(Signaled), 0, 0, 8, 0, 0, 0, 0, 0})
		}
	}
	f.Add([]byte{0, 2, 2, byte(Signaled | Inline), 0, 0, 0, 2, 1})        // inline, too long
	f.Add([]byte{0, 2, 4, byte(Signaled | Inline), 1, 0, 8, 0, 0})        // nothing is read inline
	f.Add([]byte{0, 2, 2, byte(Signaled), 33, 0, 8, 0, 0})                // too many elements
	f.Add([]byte{0, 2, 0, byte(Signaled), 2, 0, 255, 0, 0, 0, 255, 0, 1}) // one of no key
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= 512 {
			newAsked(t, b).run()
		}
	})
}

// TestRandomRequests posts work requests as FuzzRequest does.
func TestRandomRequests(t *testing.T) {
	r := seeded.Rand(t)
	seen := map[WCStatus]int{}
	for range rounds(20000) {
		b := make([]byte, 40)
		for i := range b {
			b[i] = byte(r.Uint32())
			if r.IntN(2) == 0 {
				b[i] %= 8
			}
		}
		seen[newAsked(t, b).run()]++
	}
	for _, s := range []WCStatus{Success, LocLenErr, LocQPOpErr, LocProtErr, WRFlushErr, MWBindErr} {
		if seen[s] == 0 {
			t.Errorf("no work request ended with %v: %v", s, seen)
		}
	}
}

// asked is a QP that gets one work request, and what may come of it.
type asked struct {
	*testQP
	s       script
	typ     Type
	where   State
	w       SendWQE
	wrong   []WCStatus // what is wrong with it
	message []byte     // what it sends
	sent    []byte     // what it has sent
}

// offered are the operations of each type, by number: IBA table 59, Annex A19.
var offered = map[Type][]WROpcode{RC: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 32}, UC: {0, 1, 2, 3}, UD: {2, 3}}

func newAsked(t *testing.T, b []byte) *asked {
	a := &asked{s: b}
	a.typ = pick(&a.s, RC, UC, UD)
	a.where = pick(&a.s, SQD, Err, RTS, RTS, RTS, RTS, RTS, RTS)
	a.testQP = newTyped(t, a.typ)
	a.cfg.Trace = nil
	a.connect(func(at *Attr) { at.QKey = testQKey })
	if a.where != RTS {
		if err := a.Modify(&Attr{State: a.where}, AttrState, a.now); err != nil {
			t.Fatal(err)
		}
	}
	a.make()
	return a
}

// make makes the work request, and notes what is wrong with it.
func (a *asked) make() {
	s := &a.s
	a.w = SendWQE{ID: 77, Opcode: WROpcode(s.next()), Flags: SendFlags(s.next()), RemoteQPN: peerQPN, RemoteQKey: 5,
		Imm: 0x1234, RKey: s.word(), Flush: Flush(s.next())}
	a.wrongIf(!slices.Contains(offered[a.typ], a.w.Opcode), LocQPOpErr)
	fetches := a.w.Opcode == WRRead || a.w.Opcode == WRCompareSwap || a.w.Opcode == WRFetchAdd
	if a.w.Flags&Inline != 0 {
		a.w.Inline = seq(pick(s, 8, 0, 1, 300, 512, 513, 600))
		a.message = a.w.Inline
		a.wrongIf(fetches, LocQPOpErr)
		a.wrongIf(len(a.w.Inline) > 512, LocLenErr)
	} else {
		a.list(fetches)
	}
	switch n := a.w.length(); a.w.Opcode {
	case WRCompareSwap, WRFetchAdd, WRAtomicWrite:
		a.wrongIf(n != 8, LocLenErr)
	case WRFlush:
		a.wrongIf(n != 0, LocLenErr)
	}
	a.wrongIf(a.w.length() > MaxMessage, LocLenErr)
	if a.typ == UD {
		a.address()
	}
	a.local()
}

func (a *asked) wrongIf(is bool, s WCStatus) {
	if is {
		a.wrong = append(a.wrong, s)
	}
}

// list makes the elements, of which some name memory that isn't there, or that
// may not be written.
func (a *asked) list(fetches bool) {
	s := &a.s
	n := int(pick(s, 1, 0, 2, 3, MaxSGE, MaxSGE+1, 40))
	readOnly := a.another(4096, mem.RemoteRead)
	a.wrongIf(n > MaxSGE, LocQPOpErr)
	for range n {
		e := SGE{Addr: memBase + uint64(s.next())*16, Length: uint32(pick(s, 8, 0, 1, 255, 256, 700, 8, 8)), LKey: a.mr.Key}
		bad := false
		switch s.next() {
		case 1:
			e.LKey, bad = e.LKey^1, true
		case 2:
			e.Addr, bad = memBase+memSize-uint64(e.Length)+1, true
		case 3:
			e.Length, bad = 1<<31, true
		case 4:
			e.Addr, e.LKey, bad = 0, readOnly.Key, fetches
		}
		a.wrongIf(bad && e.Length > 0, LocProtErr)
		if !bad && e.LKey == a.mr.Key {
			a.message = append(a.message, a.mem[e.Addr-memBase:][:e.Length]...)
		} else if !bad {
			a.message = append(a.message, make([]byte, e.Length)...)
		}
		a.w.SGEs = append(a.w.SGEs, e)
	}
}

// address gives a datagram its destination. One that is too long for a packet is
// lost, and nothing of it is looked at (C10-93.1.1).
func (a *asked) address() {
	a.w.AH = newAH()
	switch a.s.next() {
	case 1:
		a.w.AH = nil
		a.wrongIf(true, LocQPOpErr)
	case 2:
		a.w.RemoteQPN = ib.QPNMulticast + 1
		a.wrongIf(true, LocQPOpErr)
	}
	if n := a.w.length(); n > uint64(a.QP.mtu) {
		a.message = nil
		a.wrong = slices.DeleteFunc(a.wrong, func(s WCStatus) bool { return s == LocProtErr })
	}
}

// local makes what a request of memory management is about.
func (a *asked) local() {
	bad := false
	switch a.w.Opcode {
	case WRLocalInv:
		a.w.InvKey = a.window(mem.MWType2).Key()
		switch a.s.next() % 4 {
		case 1:
			a.w.InvKey, bad = a.window(mem.MWType1).Key(), true
		case 2:
			a.w.InvKey, bad = a.mr.Key, true
		case 3:
			a.w.InvKey, bad = a.s.word()<<8, true
		}
	case WRBindMW:
		wr := bindWR(1, a.window(pick(&a.s, mem.MWType1, mem.MWType2)), a.bindable(64), 0, 64, a.s.next())
		a.w.Local = wr.Local
		switch b := &wr.Local.Bind; a.s.next() % 4 {
		case 1:
			b.LKey, bad = a.mr.Key, true // which windows can't be bound to
		case 2:
			b.Length, bad = 65, true
		case 3:
			a.w.Local, bad = nil, true
		}
	case WRRegMR:
		f, err := a.keys.AllocMR(&a.pd, 1)
		if err != nil {
			a.t.Fatal(err)
		}
		a.w.Local = &Local{Reg: mem.Registration{MR: f, Access: mem.RemoteRead, PageList: mem.PageList{Size: 4096, Pages: [][]byte{make([]byte, 4096)}}}}
		switch a.s.next() % 3 {
		case 1:
			a.w.Local.Reg.Size, bad = 4097, true
		case 2:
			a.w.Local, bad = nil, true
		}
	default:
		return
	}
	// Its elements aren't looked at.
	a.wrong = slices.DeleteFunc(a.wrong, func(s WCStatus) bool { return a.typ == RC })
	a.message = nil
	a.wrongIf(bad, MWBindErr)
}

// run posts the work request, and returns how it ended.
func (a *asked) run() WCStatus {
	a.send(a.w)
	for range 1000 {
		p, ok := a.plan()
		if !ok {
			break
		}
		a.reply(p)
	}
	status := a.end()
	if status == Success && !bytes.Equal(a.sent, a.carried()) {
		a.t.Fatalf("%v: sent %d bytes %x, want %d", a.w.Opcode, len(a.sent), a.sent, len(a.carried()))
	}
	return status
}

// carried is what the packets of the work request carry.
func (a *asked) carried() []byte {
	switch a.w.Opcode {
	case WRRead, WRCompareSwap, WRFetchAdd:
		return nil
	}
	if a.where != RTS {
		return nil
	}
	return a.message
}

// reply answers a packet as a peer does that grants everything.
func (a *asked) reply(p pkt) {
	a.sent = append(a.sent, p.data...)
	h := wire.Header{Opcode: wire.RCAck, PSN: p.PSN, Syndrome: wire.SyndromeAck, MSN: 1}
	switch o := p.Opcode.Info().Operation; {
	case a.typ != RC:
	case o == wire.OpReadRequest:
		a.replyRead(p)
	case o == wire.OpFlush, o == wire.OpAtomicWrite:
		h.Opcode = wire.RCReadRespOnly
		a.accepts(h, nil)
	case o == wire.OpCompareSwap, o == wire.OpFetchAdd:
		h.Opcode = wire.RCAtomicAck
		a.accepts(h, nil)
	case p.AckReq:
		a.accepts(h, nil)
	}
}

func (a *asked) replyRead(p pkt) {
	left := int(p.Length)
	last := max(1, (left+a.mtu-1)/a.mtu) - 1
	for i := range last + 1 {
		n := min(left, a.mtu)
		left -= n
		a.accepts(wire.Header{Opcode: readResponseOpcode(i == 0, i == last), PSN: p.PSN.Add(i), Syndrome: wire.SyndromeAck, MSN: 1}, seq(n))
	}
}

// end checks the completion, and the state it leaves, and returns its status.
func (a *asked) end() WCStatus {
	wantState, signalled := a.where, a.w.Flags&Signaled != 0
	allowed := []WCStatus{Success}
	switch {
	case a.where == Err:
		allowed, signalled = []WCStatus{WRFlushErr}, true
	case a.where == SQD: // it waits
		signalled = false
	case len(a.wrong) > 0:
		allowed, signalled, wantState = a.wrong, true, a.svc.sendError
	}
	a.wantState(wantState)
	switch {
	case (a.where == SQD) != (a.sq.retired == 0):
		a.t.Fatalf("%v in %v: %d retired", a.w.Opcode, a.where, a.sq.retired)
	case !signalled && len(a.wcs) > 0, signalled && len(a.wcs) != 1:
		a.t.Fatalf("%v (flags %#x) in %v: completions %+v; wrong with it: %v", a.w.Opcode, a.w.Flags, a.where, a.wcs, a.wrong)
	case !signalled:
		return Success
	}
	c := a.wcs[0]
	if c.ID != a.w.ID || c.QPN != testQPN || !slices.Contains(allowed, c.Status) {
		a.t.Fatalf("%v (flags %#x, %d bytes) in %v: completion %+v, want one of %v", a.w.Opcode, a.w.Flags, a.w.length(), a.where, c, allowed)
	}
	return c.Status
}
