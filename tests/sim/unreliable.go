package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// talker is a QP of type UC or UD, and the application that uses it. What it
// sends may be lost. What comes must be whole, and of UC in order and once at
// most; of UD as often at most as copies of it were on the wire.
type talker struct {
	w     *world
	host  *host
	name  string
	r     *rand.Rand
	typ   qp.Type
	mtu   ib.MTU
	qp    *rocev2.QP
	sq    qptest.SendQueue
	rq    qptest.RecvQueue
	pool  *pool // instead of rq, if there is one
	sends completions
	recvs completions

	psn    ib.PSN
	peers  []*talker    // UC: one
	ahs    []*rocev2.AH // UD: to each of peers, then to each of groups
	member [2]bool      // UD: of groups; it may leave
	left   [2]bool      // … and then it did
	block  bool         // it gets nothing that it sends to groups itself

	// buf holds what is sent, a slot for each message; then places for receives,
	// then, of UC, the slots that the peer WRITEs to.
	buf      []byte
	mr       *mem.MR
	slot     int
	total    int // messages to be sent
	recvAt   int
	windowAt int

	next     int // message
	posted   []*message
	receives []receive // posted, in order
	wake     clock.Time
	phase    phase
	stopped  bool // the send queue: a send failed
	lastID   uint64
}

// message is one of a talker, and what has become of it.
type message struct {
	id        uint64
	from, to  *talker // to is nil if it goes to a group:
	group     int
	wqe       *qp.SendWQE
	data      []byte
	wrongKey  bool        // it must not arrive
	bad       bool        // its memory isn't there: it must fail
	completed bool        // in success, or not signalled
	unsent    bool        // it was flushed, and must not arrive
	copies    map[int]int // that were on the wire, by the host where they went
	came      map[*talker]int
}

// groups are the multicast groups that datagrams go to.
var groups = [2]ib.GID{
	{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3},
	{0: 0xff, 1: 0x0e, 14: 0x42, 15: 0x42},
}

type receive struct {
	id        uint64
	off, room int
}

const (
	talkerMessages = 40
	talkerKey      = 0x1234
	shortest       = 100 // bytes of a datagram that every receive has room for
)

// elements names n bytes at off of a region by one to three elements.
func elements(r *rand.Rand, mr *mem.MR, off, n int) (list []qp.SGE) {
	for range r.IntN(3) {
		k := r.IntN(n + 1)
		list = append(list, qp.SGE{Addr: mr.IOVA + uint64(off), Length: uint32(k), LKey: mr.Key})
		off, n = off+k, n-k
	}
	return append(list, qp.SGE{Addr: mr.IOVA + uint64(off), Length: uint32(n), LKey: mr.Key})
}

// newTalkers makes an unreliable connection, and a few datagram QPs.
func (w *world) newTalkers() error {
	w.messages = map[uint64]*message{}
	if err := w.newConnection(); err != nil {
		return err
	}
	return w.newCrowd()
}

func (w *world) randomHost() *host { return w.hosts[w.r.IntN(len(w.hosts))] }

func (w *world) newConnection() error {
	var ends []*talker
	mtu := ib.MTU256 + ib.MTU(w.r.IntN(3))
	for range 2 {
		t, err := w.newTalker(qp.UC, mtu)
		if err != nil {
			return err
		}
		ends = append(ends, t)
	}
	v6 := w.r.IntN(2)
	for i, t := range ends {
		t.peers = []*talker{ends[1-i]}
		if err := t.connect(v6); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) newCrowd() error {
	var all []*talker
	for range 2 + w.r.IntN(2) {
		t, err := w.newTalker(qp.UD, ib.MTU1024)
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	for _, t := range all {
		t.peers = all
		for _, p := range all {
			v6 := w.r.IntN(2)
			a, err := t.host.port.CreateAH(qp.AV{DGID: gidOf(p.host.index(), v6 == 1), SGIDIndex: uint8(v6)})
			if err != nil {
				return err
			}
			t.ahs = append(t.ahs, a)
		}
		if err := errors.Join(t.meet(), t.start()); err != nil {
			return err
		}
	}
	return nil
}

// meet attaches a talker to some of the groups.
func (t *talker) meet() error {
	for i, g := range groups {
		a, err := t.host.port.CreateAH(qp.AV{DGID: g, SGIDIndex: uint8(i)})
		if err != nil {
			return err
		}
		t.ahs = append(t.ahs, a)
		if t.member[i] = t.r.IntN(3) > 0; t.member[i] {
			if err := t.qp.AttachMcast(g, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave now and then detaches a talker from a group: then nothing may come from
// there any more.
func (t *talker) leave() {
	i := t.r.IntN(len(groups))
	if t.typ != qp.UD || !t.member[i] || t.left[i] || t.r.IntN(50) > 0 {
		return
	}
	if err := t.qp.DetachMcast(groups[i], 0); err != nil {
		t.violation("detach: %v", err)
	}
	for _, c := range t.recvs.take() {
		t.recvCompleted(&c)
	}
	t.left[i] = true
}

func (w *world) newTalker(typ qp.Type, mtu ib.MTU) (t *talker, err error) {
	t = &talker{w: w, host: w.randomHost(), r: w.r, typ: typ, mtu: mtu, total: talkerMessages, wake: w.now, psn: ib.PSN(w.r.Uint32() & 0xffffff),
		block: w.r.IntN(4) == 0}
	if w.r.IntN(3) == 0 { // soon it wraps
		t.psn = ib.PSN(0xffffff - w.r.Uint32N(100))
	}
	t.name = fmt.Sprintf("%v %d on %s", typ, len(w.talkers), t.host.name)
	t.slot = 3*mtu.Bytes() + 8
	places := t.total
	if typ == qp.UD {
		t.slot, places = qp.GRHLen+1000, 4*t.total
	}
	t.recvAt = t.total * t.slot
	t.windowAt = t.recvAt + places*t.slot
	t.buf = make([]byte, t.windowAt)
	if typ == qp.UC {
		t.buf = make([]byte, t.windowAt+t.total*t.slot)
	}
	if t.mr, err = t.host.register(t.r, nil, t.buf, mem.LocalWrite|mem.RemoteWrite); err != nil {
		return nil, err
	}
	init := rocev2.QPInit{
		Type: typ, PD: t.host.pd, SQ: &t.sq, RQ: &t.rq, SendCQ: &t.sends, RecvCQ: &t.recvs,
		Caps:  qp.Caps{MaxSendWR: 16, MaxRecvWR: 4 * t.total, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128},
		Trace: w.trace.hook(), BlockSelfMcastLB: t.block,
	}
	t.pool = w.poolFor(t.host)
	t.pool.use(&init, &t.recvs)
	t.qp, err = t.host.port.CreateQP(init)
	w.talkers = append(w.talkers, t)
	return t, err
}

// connect takes an end of UC to RTS.
func (t *talker) connect(gid int) error {
	p := t.peers[0]
	for _, s := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, Port: 1, Access: mem.RemoteWrite}, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess},
		{qp.Attr{State: qp.RTR, PathMTU: t.mtu, DestQPN: p.qp.Number(), RQPSN: p.psn,
			AV: qp.AV{DGID: gidOf(p.host.index(), gid == 1), SGIDIndex: uint8(gid)}}, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN},
		{qp.Attr{State: qp.RTS, SQPSN: t.psn}, qp.AttrSQPSN},
	} {
		if err := t.qp.Modify(&s.a, s.mask|qp.AttrState); err != nil {
			return err
		}
	}
	return t.postReceives(t.total)
}

// start takes a datagram QP to RTS.
func (t *talker) start() error {
	for _, s := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, Port: 1, QKey: talkerKey}, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey},
		{qp.Attr{State: qp.RTR}, 0}, {qp.Attr{State: qp.RTS, SQPSN: t.psn}, qp.AttrSQPSN},
	} {
		if err := t.qp.Modify(&s.a, s.mask|qp.AttrState); err != nil {
			return err
		}
	}
	return t.postReceives(4 * t.total)
}

// postReceives posts n receives, of UD now and then one that is too short for most.
func (t *talker) postReceives(n int) error {
	if t.pool != nil {
		return nil
	}
	for i := range n {
		r := receive{uint64(i), t.recvAt + i*t.slot, t.slot}
		if t.typ == qp.UD && t.r.IntN(20) == 0 {
			r.room = qp.GRHLen + shortest
		}
		t.receives = append(t.receives, r)
		t.rq.Post(&qp.RecvWQE{ID: r.id, SGEs: elements(t.r, t.mr, r.off, r.room)})
	}
	t.qp.Doorbell()
	return nil
}

// act polls and posts. It reports whether it did anything.
func (t *talker) act() (worked bool) {
	for _, c := range t.sends.take() {
		t.sendCompleted(&c)
		worked = true
	}
	for _, c := range t.recvs.take() {
		t.recvCompleted(&c)
		worked = true
	}
	if t.w.now < t.wake || t.phase != working {
		return worked
	}
	t.resume()
	t.leave()
	for n := t.r.IntN(5); n > 0 && t.next < t.total && t.sq.Pending() < 16 && !t.stopped; n-- {
		t.post()
		worked = true
	}
	t.wake = t.w.now.Add(time.Duration(t.r.Int64N(int64(30 * time.Microsecond))))
	if t.next == t.total && !t.stopped {
		t.wake = clock.Never
	}
	return worked
}

// resume takes a QP out of SQE when all that was posted is flushed.
func (t *talker) resume() {
	if !t.stopped || t.sq.Pending() > 0 {
		return
	}
	if err := t.qp.Modify(&qp.Attr{State: qp.RTS, CurState: qp.SQE}, qp.AttrState|qp.AttrCurState); err != nil {
		t.violation("back to RTS: %v", err)
	}
	t.stopped = false
}

// post posts the next message.
func (t *talker) post() {
	off, n := t.next*t.slot, t.length()
	i := t.r.IntN(len(t.peers))
	m := &message{id: uint64(len(t.w.messages) + 1), from: t, to: t.peers[i], data: t.buf[off : off+n],
		copies: map[int]int{}, came: map[*talker]int{}}
	t.w.messages[m.id] = m
	fill(m.data, t.r)
	binary.LittleEndian.PutUint64(m.data, m.id)
	m.wqe = &qp.SendWQE{ID: m.id, Opcode: qp.WRSend, Imm: uint32(m.id), SGEs: elements(t.r, t.mr, off, n)}
	if t.r.IntN(4) > 0 {
		m.wqe.Flags |= qp.Signaled
	}
	if t.r.IntN(4) == 0 {
		m.wqe.Flags |= qp.Solicited
	}
	if n <= 128 && t.r.IntN(2) == 0 {
		m.wqe.Flags |= qp.Inline
		m.wqe.Inline = m.data
	} else if t.r.IntN(40) == 0 {
		m.wqe.SGEs, m.bad = []qp.SGE{{Addr: m.wqe.SGEs[0].Addr, Length: uint32(n), LKey: t.mr.Key ^ 1}}, true
	}
	if t.typ == qp.UD {
		t.address(m, i)
	} else {
		m.wqe.Opcode = []qp.WROpcode{qp.WRSend, qp.WRSendImm, qp.WRWrite, qp.WRWriteImm}[t.r.IntN(4)]
		m.wqe.RemoteAddr, m.wqe.RKey = m.to.mr.IOVA+uint64(m.to.windowAt+off), m.to.mr.Key
	}
	t.next++
	t.w.posts++
	t.posted = append(t.posted, m)
	t.sq.Post(m.wqe)
	t.qp.Doorbell()
}

// length is that of a message, which begins with its id.
func (t *talker) length() int {
	if t.typ == qp.UD {
		return 8 + t.r.IntN(1000-8+1)
	}
	mtu := t.mtu.Bytes()
	n := t.r.IntN(3*mtu + 1)
	if t.r.IntN(2) == 0 {
		n = mtu*t.r.IntN(4) + t.r.IntN(5) - 2
	}
	return max(8, min(n, 3*mtu))
}

// address makes m a datagram to a peer, now and then with a wrong Q_Key.
func (t *talker) address(m *message, peer int) {
	m.wqe.Opcode = []qp.WROpcode{qp.WRSend, qp.WRSendImm}[t.r.IntN(2)]
	m.wqe.AH, m.wqe.RemoteQPN, m.wqe.RemoteQKey = t.ahs[peer].Handle(), m.to.qp.Number(), talkerKey
	if t.r.IntN(3) == 0 {
		m.to, m.group = nil, t.r.IntN(len(groups))
		m.wqe.AH, m.wqe.RemoteQPN = t.ahs[len(t.peers)+m.group].Handle(), ib.QPNMulticast
	}
	switch t.r.IntN(20) {
	case 0:
		m.wqe.RemoteQKey, m.wrongKey = talkerKey+1, true
	case 1:
		m.wqe.RemoteQKey = 0x80000001 // stands for the QP's own
	}
}

// sendCompleted takes a completion of the send queue: the next one, and a
// success unless the message was bad or one before it was.
func (t *talker) sendCompleted(c *qp.Completion) {
	for len(t.posted) > 0 {
		m := t.posted[0]
		t.posted = t.posted[1:]
		switch silent := m.wqe.Flags&qp.Signaled == 0 && !m.bad && !t.stopped && t.phase == working; {
		case silent && m.id != c.ID:
			m.completed = true
			continue
		case m.id != c.ID:
			t.violation("completion of send %d, want %d", c.ID, m.id)
		case t.stopped || t.phase != working:
			m.unsent = true
			if c.Status != qp.WRFlushErr {
				t.violation("send %d behind a failure: %v", m.id, c.Status)
			}
		case m.bad:
			t.stopped, m.unsent = true, true
			t.wake = t.w.now
			if c.Status != qp.LocProtErr {
				t.violation("send %d of memory that isn't there: %v", m.id, c.Status)
			}
		case silent || c.Status != qp.Success:
			t.violation("send %d (signalled: %v): %v", m.id, !silent, c.Status)
		default:
			m.completed = true
		}
		return
	}
	t.violation("completion of send %d, which was completed before or never posted", c.ID)
}

// recvCompleted takes a completion of the receive queue: it must be of the
// oldest receive and have a whole message in it.
func (t *talker) recvCompleted(c *qp.Completion) {
	received := t.received(c)
	if received == nil {
		return
	}
	if t.phase != working {
		if c.Status != qp.WRFlushErr {
			t.violation("receive %d at the end: %v", c.ID, c.Status)
		}
		return
	}
	if c.Status == qp.RemInvReqErr && t.typ == qp.UC && t.pool != nil {
		t.w.trace.met["receive of the SRQ lost with its message"]++
		return
	}
	data, id := received, uint64(c.Imm)
	if c.Opcode == qp.WCRecv {
		data = data[:min(int(c.ByteLen), len(data))]
	}
	if t.typ == qp.UD {
		data = data[min(qp.GRHLen, len(data)):]
	}
	if c.Opcode == qp.WCRecv && len(data) >= 8 {
		id = binary.LittleEndian.Uint64(data)
	}
	m := t.w.messages[id]
	if c.Status != qp.Success || m == nil {
		t.violation("receive %d: %v, of message %d", c.ID, c.Status, id)
		return
	}
	if c.Opcode == qp.WCRecvWriteImm {
		data = t.written(m)
	}
	m.came[t]++
	t.checkMessage(m, c, data)
}

// received returns the bytes of the receive that c is of, nil if there is none.
func (t *talker) received(c *qp.Completion) []byte {
	if t.pool != nil {
		return t.pool.completed(c)
	}
	if len(t.receives) == 0 || t.receives[0].id != c.ID {
		t.violation("completion of receive %d, which isn't the oldest", c.ID)
		return nil
	}
	r := t.receives[0]
	t.receives = t.receives[1:]
	return t.buf[r.off : r.off+r.room]
}

// written returns what m has written to the window.
func (t *talker) written(m *message) []byte {
	at := int(m.wqe.RemoteAddr - t.mr.IOVA)
	return t.buf[at : at+len(m.data)]
}

func (t *talker) checkMessage(m *message, c *qp.Completion, data []byte) {
	op, from := m.wqe.Opcode, t.peers[0]
	imm := op == qp.WRSendImm || op == qp.WRWriteImm
	wantOp := qp.WCRecv
	if op == qp.WRWriteImm {
		wantOp = qp.WCRecvWriteImm
	}
	want := uint32(len(m.data))
	if t.typ == qp.UD {
		want += qp.GRHLen
	}
	switch {
	case !m.isFor(t) || m.wrongKey || m.unsent || m.bad:
		t.violation("message %d came, and must not: %+v", m.id, m)
	case c.Opcode != wantOp || c.ByteLen != want || imm != (c.Flags&qp.WCWithImm != 0) || imm && c.Imm != m.wqe.Imm:
		t.violation("message %d (%v, %d bytes) came as %+v", m.id, op, len(m.data), *c)
	case c.Solicited != (m.wqe.Flags&qp.Solicited != 0):
		t.violation("message %d came with solicited=%v", m.id, c.Solicited)
	case !bytes.Equal(data, m.data):
		t.violation("message %d came with other bytes", m.id)
	case t.typ == qp.UC && (m.id <= t.lastID || c.SrcQP != from.qp.Number()):
		t.violation("message %d of %v came after %d", m.id, c.SrcQP, t.lastID)
	case t.typ == qp.UD && m.came[t] > m.copies[t.host.index()]+m.looped(t):
		t.violation("message %d came %d times, of %d copies", m.id, m.came[t], m.copies[t.host.index()]+m.looped(t))
	case t.typ == qp.UD && c.Flags&qp.WCGRH == 0:
		t.violation("message %d came without a GRH", m.id)
	}
	t.lastID = m.id
}

// isFor reports whether t may get m now.
func (m *message) isFor(t *talker) bool {
	if m.to != nil {
		return m.to == t
	}
	return t.member[m.group] && !t.left[m.group] && !(t == m.from && t.block)
}

// looped returns how many copies of m never were on a wire.
func (m *message) looped(t *talker) int {
	if m.from.host == t.host {
		return 1
	}
	return 0
}

// onWire counts a copy of a datagram.
func (w *world) onWire(p *wire.Packet, host int) {
	if p.Opcode.Transport() != wire.UD || p.Len < 8 {
		return
	}
	b := append(append([]byte(nil), p.Payload[0]...), p.Payload[1]...)
	if m := w.messages[binary.LittleEndian.Uint64(b)]; m != nil {
		m.copies[host]++
	}
}

// finish checks what has come, moves the QP to ERR, and then checks that every
// work request came back. It reports true when all is over.
func (t *talker) finish() bool {
	switch t.phase {
	case working:
		t.checkEnd()
		t.phase, t.wake = flushing, clock.Never
		if err := t.qp.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
			t.violation("to ERR: %v", err)
		}
	case flushing:
		t.phase = over
		t.pool.checkLast(&t.recvs, t.name)
		if t.sq.Pending() > 0 || t.rq.Pending() > 0 || len(t.receives) > 0 {
			t.violation("%d sends and %d receives were never given back, %d receives not completed", t.sq.Pending(), t.rq.Pending(), len(t.receives))
		}
	}
	return t.phase == over
}

// checkEnd checks that everything was posted and is complete, that without
// faults of the network all has come, and that WRITEs wrote nothing else.
func (t *talker) checkEnd() {
	if t.next < t.total || t.sq.Pending() > 0 {
		t.violation("%d of %d posted, %d under way", t.next, t.total, t.sq.Pending())
	}
	f := &t.w.net.f
	// Two queues of an interface know nothing of each other's order.
	lossless := t.pool == nil && f.lossless() && f.reorder == 0 && f.jitter == 0 && len(t.host.links) == 1
	for _, m := range t.w.messages {
		if t.typ == qp.UD {
			t.checkDatagram(m)
		}
		if m.to != t || t.typ != qp.UC {
			continue
		}
		if lossless && m.came[t] == 0 && !m.bad && !m.unsent && m.wqe.Opcode != qp.WRWrite {
			t.violation("message %d (%v) has not come", m.id, m.wqe.Opcode)
		}
		if m.wqe.Opcode == qp.WRWrite || m.wqe.Opcode == qp.WRWriteImm {
			t.checkWritten(m)
		}
	}
	t.posted = nil // not signalled
}

// checkDatagram checks that m has come if nothing was in its way: it was not lost,
// every receive has room for it, and there always was one.
func (t *talker) checkDatagram(m *message) {
	f := &t.w.net.f
	lossless := f.lossless() && t.rq.Pending() > 0
	if lossless && m.isFor(t) && m.came[t] == 0 && len(m.data) <= shortest && !m.wrongKey && !m.bad && !m.unsent {
		t.violation("message %d (group: %v) has not come", m.id, m.to == nil)
	}
}

// checkWritten checks that each byte of m's place is m's or untouched.
func (t *talker) checkWritten(m *message) {
	for i, b := range t.written(m) {
		if b != 0 && b != m.data[i] {
			t.violation("WRITE %d: byte %d of %d is %#x, want %#x or 0", m.id, i, len(m.data), b, m.data[i])
			return
		}
	}
}

func (t *talker) violation(format string, args ...any) {
	t.w.net.violation("%s: %s", t.name, fmt.Sprintf(format, args...))
}
