package qp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// FuzzResponder gives a responder of RC the packets of a script, and compares all that
// comes of each with what a responder made of the tables alone says.
func FuzzResponder(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(randomBytes(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= 4096 {
			fight(t, b, map[string]int{})
		}
	})
}

// The same of random scripts, which must have met each outcome that the tables have.
func TestResponderAgainstTheTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	met, scripts := map[string]int{}, 3000
	if testing.Short() {
		scripts = 600
	}
	for range scripts {
		fight(t, randomBytes(r), met)
	}
	for o := range refOps {
		if met[fmt.Sprintf("accepted %#02x", o)] == 0 {
			t.Errorf("opcode %#02x was never accepted", o)
		}
	}
	for _, what := range []string{"ahead, told", "ahead, silent", "SEND or WRITE again", "READ again", "READ again, a part", "atomic again", "not saved",
		"RNR", "no more", "NAK 0x61", "NAK 0x62", "NAK 0x63", "receive in use", "too long", "class J"} {
		if met[what] == 0 {
			t.Errorf("never met: %s", what)
		}
	}
}

// fight has duels until the script has ended, and counts in met what they had.
func fight(t *testing.T, s script, met map[string]int) {
	for len(s) > 0 {
		d := newDuel(t, s)
		d.ref.met = met
		d.run()
		s = d.s
	}
}

func randomBytes(r *rand.Rand) []byte {
	b := make([]byte, 50+r.IntN(600))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// refOp is a row of the table of opcodes (IBA 9.2.1).
type refOp struct {
	kind         byte // s SEND, w WRITE, r READ, a atomic, p ATOMIC WRITE, f FLUSH
	starts, ends bool
	imm, inv     bool
}

var refOps = map[byte]refOp{
	0x00: {kind: 's', starts: true}, 0x01: {kind: 's'}, 0x02: {kind: 's', ends: true}, 0x03: {kind: 's', ends: true, imm: true},
	0x04: {kind: 's', starts: true, ends: true}, 0x05: {kind: 's', starts: true, ends: true, imm: true},
	0x06: {kind: 'w', starts: true}, 0x07: {kind: 'w'}, 0x08: {kind: 'w', ends: true}, 0x09: {kind: 'w', ends: true, imm: true},
	0x0a: {kind: 'w', starts: true, ends: true}, 0x0b: {kind: 'w', starts: true, ends: true, imm: true},
	0x0c: {kind: 'r', starts: true, ends: true}, 0x13: {kind: 'a', starts: true, ends: true}, 0x14: {kind: 'a', starts: true, ends: true},
	0x16: {kind: 's', ends: true, inv: true}, 0x17: {kind: 's', starts: true, ends: true, inv: true},
	0x1c: {kind: 'f', starts: true, ends: true}, 0x1d: {kind: 'p', starts: true, ends: true},
}

const refMTU = 256

// refRegion is a region of the peer's, as the keys lead to it.
type refRegion struct {
	base   uint64
	rights mem.Access
	bytes  []byte
}

// refSaved is a READ or atomic that can be answered again.
type refSaved struct {
	h     wire.Header
	first ib.PSN
	n     int // of PSNs
	msn   ib.MSN
	orig  uint64
}

// refResponder is a responder as the tables have it (IBA 9.7.4, IBA 9.7.5, IBA 9.9.3), of
// one packet after the other, each answered at once.
type refResponder struct {
	epsn    ib.PSN
	msn     ib.MSN
	told    bool // the peer knows by a NAK what is expected
	dead    bool
	access  mem.Access
	granted int
	regions map[uint32]*refRegion
	// closable is the key that a SEND may invalidate, 0 when one has.
	closable uint32
	recvs    []*RecvWQE // not complete
	open     byte       // kind of the message in progress, 0 for none
	got      uint64     // bytes of it
	into     []byte     // WRITE: where the rest goes
	size     uint64
	saved    []refSaved

	verdict wire.Verdict // of the packet, and what came of it:
	sent    []pkt
	wcs     []Completion
	events  []Event
	met     map[string]int
}

func (r *refResponder) meet(what string) { r.met[what]++ }

// take takes a packet.
func (r *refResponder) take(h wire.Header, data []byte) {
	r.sent, r.wcs, r.events = nil, nil, nil
	op, known := refOps[byte(h.Opcode)]
	switch d := h.PSN.Sub(r.epsn); {
	case r.dead:
		r.verdict = wire.DropQPState
	case d > 0:
		r.verdict = wire.DropOutOfOrder
		if r.told {
			r.meet("ahead, silent")
			return
		}
		r.meet("ahead, told")
		r.told = true
		r.answer(0x11, r.epsn, r.msn, 0x60, 0, nil)
	case d < 0:
		r.again(h, op)
	case !known:
		r.refuse(0x61, EventQPReqErr, RemInvReqErr)
	default:
		r.execute(h, op, data)
	}
}

func (r *refResponder) answer(op byte, psn ib.PSN, msn ib.MSN, syndrome byte, orig uint64, data []byte) {
	h := wire.Header{Opcode: wire.Opcode(op), PSN: psn, MSN: msn, Syndrome: wire.Syndrome(syndrome), Orig: orig}
	if op == 0x0e { // has no AETH
		h.MSN, h.Syndrome = 0, 0
	}
	r.sent = append(r.sent, pkt{h, data})
}

// respond answers a READ, or a part of one.
func (r *refResponder) respond(h *wire.Header, msn ib.MSN) {
	data := []byte{}
	if h.Length > 0 {
		g := r.regions[h.RKey]
		data = g.bytes[h.VA-g.base:][:h.Length]
	}
	n := refPackets(h.Length)
	for i := range n {
		op := map[[2]bool]byte{{true, true}: 0x10, {true, false}: 0x0d, {false, false}: 0x0e, {false, true}: 0x0f}[[2]bool{i == 0, i == n-1}]
		k := min(len(data), refMTU)
		r.answer(op, h.PSN.Add(i), msn, 0x1f, 0, bytes.Clone(data[:k]))
		data = data[k:]
	}
}

func refPackets(n uint32) int { return max(1, (int(n)+refMTU-1)/refMTU) }

// again takes a packet behind the expected one.
func (r *refResponder) again(h wire.Header, op refOp) {
	if op.kind == 's' || op.kind == 'w' {
		r.meet("SEND or WRITE again")
		r.verdict = wire.DropDuplicate
		if h.AckReq || h.Opcode.Info().Place.Ends() {
			r.answer(0x11, r.epsn.Add(-1), r.msn, 0x1f, 0, nil)
		}
		return
	}
	r.verdict = wire.DropNoReplay
	for i := len(r.saved) - 1; i >= 0; i-- {
		s := &r.saved[i]
		skip := h.PSN.Sub(s.first)
		if skip < 0 || skip >= s.n {
			continue
		}
		bytesSkipped := uint32(skip * refMTU)
		if h.Opcode != s.h.Opcode || h.RKey != s.h.RKey || h.VA != s.h.VA+uint64(bytesSkipped) ||
			op.kind == 'r' && h.Length > s.h.Length-bytesSkipped {
			break
		}
		r.verdict = wire.DropDuplicate
		switch {
		case op.kind != 'r':
			r.meet("atomic again")
			r.result(op, s)
		case skip > 0 || h.Length < s.h.Length:
			r.meet("READ again, a part")
			r.respond(&h, s.msn)
		default:
			r.meet("READ again")
			r.respond(&h, s.msn)
		}
		return
	}
	r.meet("not saved")
}

// result answers an atomic, an ATOMIC WRITE or a FLUSH.
func (r *refResponder) result(op refOp, s *refSaved) {
	if op.kind == 'a' {
		r.answer(0x12, s.first, s.msn, 0x1f, s.orig, nil)
		return
	}
	r.answer(0x10, s.first, s.msn, 0x1f, 0, nil)
}

// execute takes the expected packet.
func (r *refResponder) execute(h wire.Header, op refOp, data []byte) {
	n := len(data)
	switch {
	case op.starts != (r.open == 0), !op.starts && op.kind != r.open,
		!op.ends && n != refMTU, n > refMTU, !op.starts && n == 0:
		r.refuse(0x61, EventQPReqErr, RemInvReqErr)
		return
	}
	switch op.kind {
	case 's':
		r.send(h, op, data)
	case 'w':
		r.write(h, op, data)
	default:
		r.once(h, op, data)
	}
}

// done moves on by a packet that was executed, and acknowledges it if it asks for that.
func (r *refResponder) done(h *wire.Header, op refOp) {
	r.meet(fmt.Sprintf("accepted %#02x", byte(h.Opcode)))
	r.verdict, r.told = wire.Accepted, false
	r.epsn = h.PSN.Next()
	if op.ends {
		r.msn, r.open = r.msn.Next(), 0
	}
	if h.AckReq {
		r.answer(0x11, h.PSN, r.msn, 0x1f, 0, nil)
	}
}

func (r *refResponder) notReady() {
	r.meet("RNR")
	r.verdict, r.told = wire.DropRNR, true
	r.answer(0x11, r.epsn, r.msn, 0x20|12, 0, nil)
}

func (r *refResponder) send(h wire.Header, op refOp, data []byte) {
	if len(r.recvs) == 0 {
		r.notReady()
		return
	}
	w := r.recvs[0]
	if op.starts {
		r.open, r.got = 's', 0
	}
	s := w.SGEs[0]
	g := r.regions[s.LKey]
	switch end := r.got + uint64(len(data)); {
	case end > uint64(s.Length):
		r.meet("too long")
		r.refuse(0x61, 0, LocLenErr)
		return
	case g == nil && len(data) > 0:
		r.refuse(0x63, 0, LocProtErr)
		return
	case g != nil:
		copy(g.bytes[s.Addr-g.base+r.got:], data)
	}
	r.got += uint64(len(data))
	if op.inv && h.InvKey != r.closable {
		r.meet("class J")
		r.verdict = wire.Accepted
		r.end(RemInvReqErr)
		return
	}
	if op.inv {
		r.invalidate(h.InvKey)
	}
	if op.ends {
		r.complete(&h, op, WCRecv)
	}
	r.done(&h, op)
}

// invalidate closes the one region that peers may: its key leads nowhere, and READs by it
// are not answered again.
func (r *refResponder) invalidate(key uint32) {
	delete(r.regions, key)
	r.closable = 0
	for i := range r.saved {
		if s := &r.saved[i]; s.h.RKey == key && s.h.Opcode == 0x0c {
			s.n = 0
		}
	}
}

// complete completes the oldest receive with the message.
func (r *refResponder) complete(h *wire.Header, op refOp, what WCOpcode) {
	c := Completion{ID: r.recvs[0].ID, Opcode: what, ByteLen: uint32(r.got), SrcQP: peerQPN, Solicited: h.SE}
	switch {
	case op.imm:
		c.Flags, c.Imm = WCWithImm, h.Imm
	case op.inv:
		c.Flags, c.Imm = WCWithInv, h.InvKey
	}
	r.wcs = append(r.wcs, c)
	r.recvs = r.recvs[1:]
}

// find returns the memory of a range that a peer names, or nil.
func (r *refResponder) find(key uint32, va, n uint64, need mem.Access) []byte {
	g := r.regions[key]
	if g == nil || g.rights&need != need || va < g.base || va-g.base > uint64(len(g.bytes)) || n > uint64(len(g.bytes))-(va-g.base) {
		return nil
	}
	return g.bytes[va-g.base:]
}

func (r *refResponder) write(h wire.Header, op refOp, data []byte) {
	was := r.open
	if op.starts {
		r.open, r.got, r.size, r.into = 'w', 0, uint64(h.Length), nil
		switch {
		case h.Length > 1<<31, r.access&mem.RemoteWrite == 0:
			r.refuse(0x61, EventQPReqErr, RemInvReqErr)
			return
		case h.Length > 0:
			if r.into = r.find(h.RKey, h.VA, r.size, mem.RemoteWrite); r.into == nil {
				r.refuse(0x62, EventQPAccessErr, LocAccessErr)
				return
			}
		}
	}
	end := r.got + uint64(len(data))
	if end > r.size || op.ends != (end == r.size) {
		r.refuse(0x61, EventQPReqErr, RemInvReqErr)
		return
	}
	if op.imm && len(r.recvs) == 0 {
		r.open = was
		r.notReady()
		return
	}
	copy(r.into[min(r.got, uint64(len(r.into))):], data)
	r.got = end
	if op.imm {
		r.complete(&h, op, WCRecvWriteImm)
	}
	r.done(&h, op)
}

// once takes what is executed once and answered by a response of its own.
func (r *refResponder) once(h wire.Header, op refOp, data []byte) {
	s := refSaved{h: h, first: h.PSN, n: 1}
	var at []byte
	valid, need, length := r.granted > 0, mem.Access(0), uint64(8)
	switch op.kind {
	case 'r':
		need, length, s.n = mem.RemoteRead, uint64(h.Length), refPackets(h.Length)
		valid = valid && h.Length <= 1<<31
	case 'a':
		need, valid = mem.RemoteAtomic, valid && h.VA%8 == 0
	case 'p':
		need, valid = mem.RemoteWrite, valid && h.VA%8 == 0 && h.Length == 8 && len(data) == 8
	case 'f':
		need, length = map[uint32]mem.Access{1: mem.FlushGlobal, 2: mem.FlushPersistent, 3: mem.FlushGlobal | mem.FlushPersistent}[h.Flush&0xf], uint64(h.Length)
		valid = valid && need != 0 && h.Flush>>4&3 < 2
	}
	if !valid || r.access&need != need {
		r.refuse(0x61, EventQPReqErr, RemInvReqErr)
		return
	}
	switch va := h.VA; {
	case op.kind == 'r' && length == 0:
	case op.kind == 'f' && h.Flush>>4&3 == 1:
		if g := r.regions[h.RKey]; g != nil {
			at = r.find(h.RKey, g.base, 0, need)
		}
	default:
		at = r.find(h.RKey, va, length, need)
	}
	if at == nil && (op.kind != 'r' || length > 0) {
		r.refuse(0x62, EventQPAccessErr, LocAccessErr)
		return
	}
	switch op.kind {
	case 'a':
		s.orig = binary.NativeEndian.Uint64(at)
		next := s.orig + h.Swap
		if h.Opcode == 0x13 {
			if next = s.orig; next == h.Compare {
				next = h.Swap
			}
		}
		binary.NativeEndian.PutUint64(at, next)
	case 'p':
		copy(at, data)
	}
	h.AckReq = false // the response is its acknowledgement
	r.done(&h, op)
	r.epsn, s.msn = h.PSN.Add(s.n), r.msn
	if r.saved = append(r.saved, s); len(r.saved) > r.granted {
		r.meet("no more")
		r.saved = r.saved[1:]
	}
	if op.kind == 'r' {
		r.respond(&h, s.msn)
	} else {
		r.result(op, &s)
	}
}

// refuse ends the connection by a NAK. A receive in use ends with a status; where there
// is none, there is an event.
func (r *refResponder) refuse(syndrome byte, e Event, status WCStatus) {
	r.meet(fmt.Sprintf("NAK %#02x", syndrome))
	r.verdict = wire.DropRejected
	r.answer(0x11, r.epsn, r.msn, syndrome, 0, nil)
	if r.open != 's' {
		r.events = []Event{e}
		status = WRFlushErr
	} else {
		r.meet("receive in use")
	}
	r.end(status)
}

// end completes all receives: the first with a status, the others flushed.
func (r *refResponder) end(status WCStatus) {
	for _, w := range r.recvs {
		r.wcs = append(r.wcs, Completion{ID: w.ID, Opcode: WCRecv, Status: status})
		status = WRFlushErr
	}
	r.recvs, r.dead = nil, true
}

// duel is a QP and the reference, who get the same.
type duel struct {
	*testQP
	s       script
	ref     *refResponder
	keys    []uint32
	real    map[uint32][]byte // memory of the QP's regions
	serial  uint64
	history []pkt
	page    []byte // memory of the region that can be closed, and what it must be
	pageRef []byte
}

func newDuel(t *testing.T, b []byte) *duel {
	d := &duel{s: b, real: map[uint32][]byte{}}
	granted := pick[uint8](&d.s, 4, 4, 4, 1, 2, 0)
	access := pick(&d.s, initAttr.Access|mem.FlushGlobal, initAttr.Access|mem.FlushGlobal|mem.FlushPersistent, initAttr.Access, mem.RemoteRead, 0)
	d.testQP = newQP(t, func(a *Attr) { a.Access, a.MaxDestRdAtomic = access, granted })
	d.cfg.Trace = nil
	d.ref = &refResponder{epsn: peerPSN, granted: int(granted), access: access, regions: map[uint32]*refRegion{}, met: map[string]int{}}
	d.add(d.mr)
	d.add(d.another(2048, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic|mem.FlushGlobal))
	d.add(d.another(2048, mem.RemoteRead))
	d.keys = append(d.keys, d.mr.Key^1)
	d.addClosable()
	return d
}

// addClosable adds a region that work requests register.
func (d *duel) addClosable() {
	f, err := d.testQP.keys.AllocMR(&d.pd, 1)
	if err != nil {
		d.t.Fatal(err)
	}
	page, rights := make([]byte, 2048), mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic
	if err := d.testQP.keys.FastRegister(&mem.Registration{MR: f, Access: rights, PageList: mem.PageList{Size: 4096, Pages: [][]byte{page}}}, &d.pd); err != nil {
		d.t.Fatal(err)
	}
	d.ref.closable = f.Key()
	d.keys = append(d.keys, f.Key())
	d.ref.regions[f.Key()] = &refRegion{0, rights, make([]byte, len(page))}
	d.page, d.pageRef = page, d.ref.regions[f.Key()].bytes
}

func (d *duel) add(m *mem.MR) {
	d.keys, d.real[m.Key] = append(d.keys, m.Key), m.Bytes()
	d.ref.regions[m.Key] = &refRegion{m.IOVA, m.Access, bytes.Clone(m.Bytes())}
}

func (d *duel) run() {
	for len(d.s) > 0 && !d.ref.dead {
		switch kind := d.s.next() % 16; {
		case kind < 4:
			d.postReceive()
		case kind < 7 && len(d.history) > 0:
			d.repeat()
		default:
			d.give(d.request())
		}
	}
	d.give(d.request()) // in ERR, or where the script has ended
}

func (d *duel) postReceive() {
	d.serial++
	size := pick[uint32](&d.s, 0, 4, 300, 600, 1000)
	w := &RecvWQE{ID: d.serial, SGEs: []SGE{{Addr: memBase + uint64(d.s.next())*8, Length: size, LKey: d.mr.Key}}}
	if d.s.next()%32 == 1 {
		w.SGEs[0].LKey ^= 1
	}
	d.rq.recvs, d.ref.recvs = append(d.rq.recvs, w), append(d.ref.recvs, w)
}

// repeat is a packet that was sent before, as it was or nearly so.
func (d *duel) repeat() {
	p := d.history[int(d.s.next())%len(d.history)]
	switch d.s.next() % 8 {
	case 0: // from its second packet on
		p.PSN, p.VA, p.Length = p.PSN.Next(), p.VA+refMTU, max(p.Length, refMTU)-refMTU
	case 1: // … and more than there is
		p.PSN, p.VA = p.PSN.Next(), p.VA+refMTU
	case 4:
		p.Length /= 2
	case 2:
		p.VA += 8
	case 3:
		p.RKey ^= 1
	}
	d.give(p)
}

// request is one of the peer's requests, more often than not one that may come.
func (d *duel) request() pkt {
	var ops []byte
	for o := range refOps {
		ops = append(ops, o)
	}
	slices.Sort(ops)
	o, polite := ops[int(d.s.next())%len(ops)], d.s.next()
	if d.ref.open != 0 && polite%8 != 0 { // what goes on with the message
		o = map[byte][]byte{'s': {0x01, 0x02, 0x03, 0x16}, 'w': {0x07, 0x08, 0x09, 0x07}}[d.ref.open][polite>>3&3]
	} else if polite == 0xff {
		o = pick[byte](&d.s, 0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f)
	}
	op := refOps[o]
	h := wire.Header{Opcode: wire.Opcode(o), PSN: d.ref.epsn, RKey: d.keys[pick(&d.s, 0, 0, 0, 0, 1, 1, 2, 3, 4, 4)], Imm: uint32(d.s.next())}
	if h.InvKey = d.ref.closable; h.InvKey == 0 || polite%16 == 1 {
		h.InvKey = d.mr.Key
	}
	if op.inv && h.InvKey == d.mr.Key && polite%4 != 1 {
		h.Opcode = map[byte]wire.Opcode{0x16: 0x02, 0x17: 0x04}[o] // which would end all
		op = refOps[byte(h.Opcode)]
	}
	if k := d.s.next(); k < 32 {
		h.PSN = h.PSN.Add(pick(&d.s, 1, 2, 7, -1, -2, -300, ib.PSNWindow-1, -ib.PSNWindow))
	}
	flags := d.s.next()
	h.AckReq, h.SE = flags&1 != 0, flags&2 != 0
	n := d.length(op)
	h.VA = uint64(d.s.next()) * 8
	if g := d.ref.regions[h.RKey]; g != nil {
		h.VA += g.base
	}
	h.Length = d.total(op, n)
	h.Flush = pick[uint32](&d.s, 1, 1, 0x11, 2, 0, 0x21, 5)
	h.Swap, h.Compare = uint64(d.s.next()), uint64(d.s.next())
	if flags&0xf0 == 0xf0 {
		h.VA += pick[uint64](&d.s, 4, 1<<20, ^uint64(0)-100)
	}
	if op.kind != 's' && op.kind != 'w' && op.kind != 'p' && op.kind != 0 {
		n = 0
	}
	return pkt{h, seq(n)}
}

// length is that of a payload.
func (d *duel) length(op refOp) int {
	switch left := int(d.ref.size - d.ref.got); {
	case d.s.next() < 16:
		return pick(&d.s, 0, 1, refMTU-1, refMTU, refMTU+1)
	case op.kind == 'p':
		return 8
	case !op.ends:
		return refMTU
	case op.kind == 'w' && !op.starts:
		return min(max(left, 1), refMTU)
	}
	return int(d.s.next())
}

// total is what a RETH says of the length.
func (d *duel) total(op refOp, n int) uint32 {
	switch {
	case d.s.next() < 12:
		return pick[uint32](&d.s, 0, 1<<31, 1<<31+1, 1<<32-1, uint32(n)+1)
	case op.kind == 'p':
		return 8
	case op.kind == 'r' || op.kind == 'f':
		return pick[uint32](&d.s, 0, 8, 256, 257, 700, 1024)
	case !op.ends:
		return uint32(n) + pick[uint32](&d.s, 1, 200, 256, 300)
	}
	return uint32(n)
}

// give hands both the packet, and compares what came of it.
func (d *duel) give(p pkt) {
	if op, known := refOps[byte(p.Opcode)]; known && !op.ends && len(p.data)%4 != 0 {
		p.data = p.data[:len(p.data)&^3] // Parse wouldn't let it through
	}
	if p.Opcode.Valid() && !p.Opcode.Info().Payload {
		p.data = nil
	}
	d.history = append(d.history, p)
	d.ref.take(p.Header, p.data)
	if v := d.gets(p.Header, p.data); v != d.ref.verdict {
		d.t.Fatalf("%v: %v, the tables say %v", p, v, d.ref.verdict)
	}
	var sent []pkt
	for q, ok := d.plan(); ok; q, ok = d.plan() {
		sent = append(sent, pkt{q.Header, bytes.Clone(q.data)})
	}
	d.wantSame(p, "answers", d.ref.sent, sent)
	for i := range d.ref.wcs {
		c := &d.ref.wcs[i]
		c.QPN = testQPN
		c.Solicited = c.Solicited || c.Status != Success
	}
	d.wantSame(p, "completions", d.ref.wcs, d.wcs)
	d.wantSame(p, "events", d.ref.events, d.events)
	d.wcs, d.events = nil, nil
	if dead := d.State() == Err; dead != d.ref.dead {
		d.t.Fatalf("%v: the QP is in %v", p, d.State())
	}
	if !bytes.Equal(d.page, d.pageRef) {
		d.t.Fatalf("%v: the memory that can be closed isn't what the tables make it", p)
	}
	for key, b := range d.real {
		if !bytes.Equal(b, d.ref.regions[key].bytes) {
			d.t.Fatalf("%v: the memory of key %#x isn't what the tables make it", p, key)
		}
	}
}

func (d *duel) wantSame(p pkt, what string, want, got any) {
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pkt{}), cmp.Comparer(bytes.Equal)); diff != "" {
		d.t.Fatalf("%v: %s (- the tables, + the QP):\n%s", p, what, diff)
	}
}
