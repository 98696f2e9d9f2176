package golden

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// scene is what the packets of a capture don't show of the QP that refuses a
// request; INDEX.txt tells.
type scene struct {
	xor     uint32     // the request's key is that of the region, but for this
	short   bool       // the region ends in the middle of the range
	right   bool       // the region doesn't give the right
	qpRight bool       // the QP doesn't
	window  mem.MWType // keys are of windows of windowSize bytes from the lowest address used on
	recv    int        // bytes of the receives; 0: as many as come
	badRecv bool       // their memory isn't there

	recvErr qp.WCStatus // what the receive of the refused message ends with

	flowLabel uint32 // of the address vector
}

var scenes = map[string]scene{
	"nak_write_rkey":      {xor: 0x5a},
	"nak_write_index":     {xor: 0x70000000},
	"nak_read_rkey":       {xor: 0x5a},
	"nak_atomic_rkey":     {xor: 0x5a},
	"atomic_write_rkey":   {xor: 0x5a},
	"flush_rkey":          {xor: 0x5a},
	"nak_write_bounds":    {short: true},
	"flush_bounds":        {short: true},
	"nak_write_perm":      {right: true},
	"nak_read_perm":       {right: true},
	"nak_atomic_perm":     {right: true},
	"flush_perm":          {right: true},
	"flush_persist":       {right: true},
	"nak_write_qp":        {qpRight: true},
	"nak_read_qp":         {qpRight: true},
	"nak_atomic_qp":       {qpRight: true},
	"nak_op":              {badRecv: true, recvErr: qp.LocProtErr},
	"nak_send_long":       {recv: 32, recvErr: qp.LocLenErr},
	"nak_send_long_multi": {recv: 1500, recvErr: qp.LocLenErr},
	"send_imm_tc6a_fl":    {flowLabel: 0x54321},
	"mw1":                 {window: mem.MWType1},
	"mw2":                 {window: mem.MWType2},
}

// sceneOf returns that of a capture: k612_nak_op_v4.pcap is one of nak_op.
func sceneOf(name string) scene {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "k612_"), "_v")
	name = strings.TrimSuffix(name, "_vlan5")
	return scenes[name]
}

// stage is the QP that a talk is with, its queues, and its memory as far as the
// talk shows it.
type stage struct {
	*bench
	*talk
	scene  scene
	qp     *rocev2.QP
	mtu    ib.MTU
	pd     *mem.PD
	sq     qptest.SendQueue
	rq     qptest.RecvQueue
	cq     completions
	areas  []*area
	keys   map[uint32]uint32 // of the capture: ours
	rights map[uint32]mem.Access
	inbox  *mem.MR // where receives go
	into   []byte
	rnr    map[*packet]bool

	message []byte // the one that is coming
	at      uint64 // … and where its next packet is written to
}

// area is a piece of memory. Where its bytes are the peer's, by has the key that
// they were written by.
type area struct {
	base  uint64
	bytes []byte
	by    []uint32
}

const inboxSize = 1 << 17

// newStage sets up the QP of a talk.
func newStage(t *testing.T, name string, k *talk) *stage {
	t.Helper()
	flow := reverse(k.packets[0].flow)
	if !k.packets[0].request() {
		flow = k.packets[0].flow
	}
	if k.group() { // of which the host is any other than the sender
		flow.Src = flow.Dst
		flow.Src[15] ^= 0x80
	}
	s := &stage{bench: newBench(t, flow), talk: k, scene: sceneOf(name), mtu: k.mtu(), pd: new(mem.PD),
		keys: map[uint32]uint32{}, rights: map[uint32]mem.Access{}, into: make([]byte, inboxSize)}
	var timer uint8
	s.rnr, timer = k.rnr()
	s.createQP(timer)
	s.layOut()
	s.inbox = s.register(s.into, 0, 0, inboxSize, mem.LocalWrite)
	return s
}

func (s *stage) register(b []byte, base, at, n uint64, a mem.Access) *mem.MR {
	s.t.Helper()
	mr, err := s.port.Keys().Register(s.pd, mem.NewBytes(b, base), at, at, n, a)
	if err != nil {
		s.t.Fatal(err)
	}
	return mr
}

var typeOf = map[wire.Transport]qp.Type{wire.RC: qp.RC, wire.UC: qp.UC, wire.UD: qp.UD}

// createQP makes the QP and takes it to RTS.
func (s *stage) createQP(rnrTimer uint8) {
	s.t.Helper()
	typ := typeOf[s.transport]
	if s.qpn == 1 {
		typ = qp.GSI
	}
	init := rocev2.QPInit{Type: typ, PD: s.pd, SQ: &s.sq, RQ: &s.rq, SendCQ: &s.cq, RecvCQ: &s.cq, Number: s.qpn,
		Caps: qp.Caps{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1}, SigAll: true}
	if s.group() {
		init.Number = 0
	}
	var err error
	if s.qp, err = s.port.CreateQP(init); err != nil {
		s.t.Fatal(err)
	}
	access := mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic | mem.FlushGlobal | mem.FlushPersistent
	if s.scene.qpRight {
		access &^= need(s.requests()[0])
	}
	first := s.requests()[0]
	a := qp.Attr{Port: 1, Access: access, QKey: first.QKey, PathMTU: s.mtu, DestQPN: s.peerQPN, RQPSN: first.PSN,
		MaxRdAtomic: 16, MaxDestRdAtomic: qp.MaxRdAtomic, MinRNRTimer: rnrTimer, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		AV: s.vector(s.flowBack(), s.scene)}
	if err := start(s.qp, typ, a); err != nil {
		s.t.Fatal(err)
	}
	if s.group() {
		if err := s.qp.AttachMcast(s.host, 0); err != nil {
			s.t.Fatal(err)
		}
	}
}

// flowBack is that of the answers.
func (s *stage) flowBack() wire.Flow {
	if r := s.responses(); len(r) > 0 {
		return r[0].flow
	}
	return reverse(s.packets[0].flow)
}

// ours is a request of the capture with our keys, which are random.
func (s *stage) ours(p *packet) *packet {
	c := *p
	if key, ok := s.keys[p.RKey]; ok {
		c.RKey = key
	}
	if key, ok := s.keys[p.InvKey]; ok {
		c.InvKey = key
	}
	return &c
}

// replay has the QP answer the requests of the talk. It returns the answers,
// and of the requests that were dropped what for.
func (s *stage) replay() (answers []*packet, drops map[wire.Verdict]int) {
	s.t.Helper()
	drops = map[wire.Verdict]int{}
	expected := s.requests()[0].PSN
	for i, p := range s.packets {
		if !p.request() {
			continue
		}
		inTurn := s.transport != wire.RC || p.PSN == expected
		if inTurn && !s.rnr[p] {
			s.prepare(p, s.packets[i+1:])
			expected = p.PSN.Add(psns(p, s.mtu))
		}
		v, sent := s.give(s.ours(p))
		if v != wire.Accepted {
			drops[v]++
		} else {
			s.arrived(p)
		}
		answers = append(answers, sent...)
	}
	return answers, drops
}

// arrived checks what an accepted request has done to memory and receives.
func (s *stage) arrived(p *packet) {
	s.t.Helper()
	i := p.Opcode.Info()
	if i.Place.Starts() {
		s.message, s.at = nil, p.VA
	}
	s.message = append(s.message, p.payload...)
	if i.Operation == wire.OpWrite && len(p.payload) > 0 {
		a := s.area(s.at)
		if got := a.bytes[s.at-a.base:][:len(p.payload)]; !bytes.Equal(got, p.payload) {
			s.t.Errorf("packet %d: its bytes aren't at %#x", p.n, s.at)
		}
		s.at += uint64(len(p.payload))
	}
	if i.Place.Ends() && (i.Operation == wire.OpSend || i.Ext.Has(wire.ExtImmDt)) {
		s.received(p)
	}
}

// received checks the completion of a message's receive.
func (s *stage) received(last *packet) {
	s.t.Helper()
	if len(s.cq.got) == 0 {
		s.t.Errorf("packet %d: its message didn't complete a receive", last.n)
		return
	}
	c, n, got := s.cq.got[0], len(s.message), s.into
	s.cq.got = s.cq.got[1:]
	if s.transport == wire.UD {
		n, got = n+qp.GRHLen, got[qp.GRHLen:]
	}
	want := qp.Completion{ID: c.ID, ByteLen: uint32(n), QPN: s.qp.Number(), SrcQP: s.peerQPN, Opcode: qp.WCRecv, Solicited: last.SE}
	i := last.Opcode.Info()
	switch {
	case s.transport == wire.UD:
		want.SrcQP, want.VLAN, want.Flags = last.SrcQP, last.flow.VLAN, qp.WCGRH
	case i.Operation == wire.OpWrite:
		want.Opcode = qp.WCRecvWriteImm
	}
	switch {
	case i.Ext.Has(wire.ExtImmDt):
		want.Imm, want.Flags = last.Imm, want.Flags|qp.WCWithImm
	case i.Ext.Has(wire.ExtIETH):
		want.Imm, want.Flags = s.keys[last.InvKey], want.Flags|qp.WCWithInv
	}
	if c != want {
		s.t.Errorf("packet %d: completion %+v, want %+v", last.n, c, want)
	}
	if i.Operation == wire.OpSend && !bytes.Equal(got[:len(s.message)], s.message) {
		s.t.Errorf("packet %d: other bytes have arrived", last.n)
	}
}

// prepare does what the application of the host must have done before p came.
func (s *stage) prepare(p *packet, later []*packet) {
	switch i := p.Opcode.Info(); {
	case i.Operation == wire.OpSend && i.Place.Starts(), i.Operation == wire.OpWrite && i.Ext.Has(wire.ExtImmDt):
		s.postReceive()
	case i.Operation == wire.OpReadRequest:
		n := psns(p, s.mtu)
		for _, r := range later {
			if d := r.PSN.Sub(p.PSN); !r.request() && d >= 0 && d < n && r.Opcode != wire.RCAck {
				s.store(p.RKey, p.VA+uint64(d*s.mtu.Bytes()), r.payload)
			}
		}
	case i.Ext.Has(wire.ExtAtomicETH):
		for _, r := range later {
			if r.Opcode == wire.RCAtomicAck && r.PSN == p.PSN {
				s.store(p.RKey, p.VA, binary.NativeEndian.AppendUint64(nil, r.Orig))
				break
			}
		}
	}
	s.note(p)
}

func (s *stage) postReceive() {
	w := &qp.RecvWQE{ID: uint64(s.rq.Waiting()), SGEs: []qp.SGE{{Length: inboxSize, LKey: s.inbox.Key}}}
	if s.scene.recv > 0 {
		w.SGEs[0].Length = uint32(s.scene.recv)
	}
	if s.scene.badRecv {
		w.SGEs[0].LKey ^= 1
	}
	s.rq.Post(w)
	s.qp.Doorbell()
}

// store writes what the application of the host must have, as the peer finds it
// there by key. What the peer wrote by that key itself stands.
func (s *stage) store(key uint32, va uint64, b []byte) {
	for i := range b {
		a := s.area(va)
		if at := va - a.base + uint64(i); a.by[at] != key {
			a.bytes[at] = b[i]
		}
	}
}

// note marks what the peer writes by p.
func (s *stage) note(p *packet) {
	switch p.Opcode.Info().Operation {
	case wire.OpWrite, wire.OpAtomicWrite, wire.OpCompareSwap, wire.OpFetchAdd:
		lo, hi := span(p)
		for va := lo; va < hi; va++ {
			if a := s.area(va); a != nil {
				a.by[va-a.base] = p.RKey
			}
		}
	}
}
