package qp

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

const testQKey = 0x11111111

// newUD returns a datagram QP in RTS whose packets have up to 256 bytes.
func newUD(t *testing.T, typ Type) *testQP {
	tq := newTyped(t, typ)
	tq.SetMTU(ib.MTU256)
	return tq.connect(func(a *Attr) {
		a.QKey = testQKey
		if typ == GSI {
			a.QKey = ib.QKeyGSI
		}
	})
}

// newAH returns an address handle whose next hop is known.
func newAH() *AH {
	a := new(AH)
	a.SetPath(&Path{Template: *testPath})
	return a
}

// datagram is a work request of n bytes from the beginning of the memory.
func (tq *testQP) datagram(id uint64, a *AH, n int) SendWQE {
	return SendWQE{ID: id, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, n), AH: a, RemoteQPN: peerQPN, RemoteQKey: 5}
}

func udL(n int) wire.Header {
	return wire.Header{Opcode: wire.UDSendOnly, PSN: psnL(n), QKey: 5, SrcQP: testQPN}
}

func TestUDSends(t *testing.T) {
	conform.Row(t, "5.1/op-64", "5.1/op-65", "5.1/deth", "bug/6")
	tq, a := newUD(t, UD), newAH()
	tq.send(tq.datagram(1, a, 256))
	w := tq.datagram(2, a, 5)
	w.Opcode, w.Imm, w.Flags = WRSendImm, 77, Signaled|Solicited
	tq.send(w)
	w = tq.datagram(3, a, 0)
	w.Flags = Inline
	w.Inline = seq(9)
	tq.send(w)
	tq.wantPacket(udL(0), pattern[:256])
	tq.wantWC(Completion{ID: 1, Opcode: WCSend})
	h := udL(1)
	h.Opcode, h.Imm, h.SE = wire.UDSendOnlyImm, 77, true
	tq.wantPacket(h, pattern[:5])
	tq.wantWC(Completion{ID: 2, Opcode: WCSend})
	tq.wantPacket(udL(2), seq(9))
	tq.wantWC()
	tq.wantQuiet()
	if tq.sq.retired != 3 {
		t.Errorf("%d given back", tq.sq.retired)
	}
}

// With its top bit set, the QP's own Q_Key is sent.
func TestSentQKey(t *testing.T) {
	conform.Row(t, "5.7/qkey-top-bit")
	for _, c := range []struct {
		typ        Type
		asked, got ib.QKey
	}{
		{UD, 5, 5}, {UD, 0x7fffffff, 0x7fffffff}, {UD, 0x80000000, testQKey}, {UD, 0xffffffff, testQKey}, {UD, ib.QKeyGSI, testQKey},
		{GSI, ib.QKeyGSI, ib.QKeyGSI}, {GSI, 0x80000000, ib.QKeyGSI}, {GSI, 5, 5},
	} {
		tq := newUD(t, c.typ)
		w := tq.datagram(1, newAH(), 8)
		w.RemoteQKey = c.asked
		tq.send(w)
		h := udL(0)
		h.QKey = c.got
		tq.wantPacket(h, pattern[:8])
	}
}

func TestQKeyOfGSI(t *testing.T) {
	conform.Row(t, "5.7/qkey-qp1")
	tq := newTyped(t, GSI)
	a := initAttr
	a.QKey = testQKey
	if err := tq.Modify(&a, gsiService.required(Init), tq.now); err == nil {
		t.Error("QP1 took another Q_Key")
	}
	tq.wantState(Reset)
	tq = newUD(t, GSI)
	w := tq.datagram(1, newAH(), 8)
	w.Opcode = WRSendImm
	tq.send(w)
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCSend, Status: LocQPOpErr})
}

// What is longer than a packet isn't sent, and is no error.
func TestUDTooLongToSend(t *testing.T) {
	conform.Row(t, "5.8/ud-long")
	tq, a := newUD(t, UD), newAH()
	tq.send(tq.datagram(1, a, 257))
	tq.send(tq.datagram(2, a, 8))
	tq.wantPacket(udL(0), pattern[:8])
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: WCSend})
	tq.SetMTU(ib.MTU512)
	tq.send(tq.datagram(3, a, 512))
	tq.wantPacket(udL(1), pattern[:512])
	tq.wantState(RTS)
}

func TestUDSendErrors(t *testing.T) {
	conform.Row(t, "5.8/req-sqe")
	for name, c := range map[string]struct {
		status WCStatus
		change func(*SendWQE)
	}{
		"a WRITE":    {LocQPOpErr, func(w *SendWQE) { w.Opcode = WRWrite }},
		"a READ":     {LocQPOpErr, func(w *SendWQE) { w.Opcode, w.SGEs = WRRead, nil }},
		"no AH":      {LocQPOpErr, func(w *SendWQE) { w.AH = nil }},
		"no QPN":     {LocQPOpErr, func(w *SendWQE) { w.RemoteQPN = 1 << 24 }},
		"a bad lkey": {LocProtErr, func(w *SendWQE) { w.SGEs[0].LKey ^= 0x1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			tq, a := newUD(t, UD), newAH()
			tq.t = t
			tq.send(tq.datagram(1, a, 8))
			w := tq.datagram(2, a, 8)
			c.change(&w)
			tq.send(w)
			tq.send(tq.datagram(3, a, 8))
			tq.wantPacket(udL(0), pattern[:8])
			tq.wantQuiet()
			tq.wantState(SQE)
			tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: w.Opcode.operation().completion, Status: c.status},
				Completion{ID: 3, Opcode: WCSend, Status: WRFlushErr})
			if err := tq.Modify(&Attr{State: RTS}, AttrState, tq.now); err != nil {
				t.Fatal(err)
			}
			tq.send(tq.datagram(4, a, 8))
			got, _ := tq.plan()
			if got.Opcode != wire.UDSendOnly {
				t.Errorf("after SQE: %v", got)
			}
			tq.wantWC(Completion{ID: 4, Opcode: WCSend})
		})
	}
}

// Datagrams without a next hop wait; others overtake them, and complete in order.
func TestUDParks(t *testing.T) {
	tq, known, unknown := newUD(t, UD), newAH(), new(AH)
	tq.send(tq.datagram(1, unknown, 10))
	tq.send(tq.datagram(2, known, 20))
	tq.send(tq.datagram(3, unknown, 30))
	tq.send(tq.datagram(4, known, 40))
	tq.wantPacket(udL(0), pattern[:20])
	tq.wantPacket(udL(1), pattern[:40])
	tq.wantQuiet()
	tq.wantWC()
	if tq.req.parked != 2 {
		t.Errorf("%d parked", tq.req.parked)
	}
	tq.PathsChanged()
	tq.wantQuiet()
	unknown.SetPath(&Path{Template: *testPath})
	tq.PathsChanged()
	tq.wantPacket(udL(2), pattern[:10])
	tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: WCSend})
	tq.wantPacket(udL(3), pattern[:30])
	tq.wantWC(Completion{ID: 3, Opcode: WCSend}, Completion{ID: 4, Opcode: WCSend})
	tq.wantQuiet()
	if tq.req.parked != 0 {
		t.Errorf("%d parked", tq.req.parked)
	}
}

// Datagrams wait so long for a next hop, each for itself.
func TestUDGivesUp(t *testing.T) {
	tq, unknown := newUD(t, UD), new(AH)
	tq.send(tq.datagram(1, unknown, 10))
	tq.wantQuiet()
	tq.sleep(pathTimeout / 2)
	tq.send(tq.datagram(2, unknown, 20))
	tq.wantQuiet()
	tq.sleep(pathTimeout/2 - 1)
	tq.wantWC()
	tq.sleep(1)
	tq.wantWC(Completion{ID: 1, Opcode: WCSend})
	if got, want := tq.Deadline(), tq.now.Add(pathTimeout/2); got != want {
		t.Errorf("deadline %v, want %v", got, want)
	}
	unknown.SetPath(&Path{Template: *testPath})
	tq.PathsChanged()
	tq.wantPacket(udL(0), pattern[:20])
	tq.wantWC(Completion{ID: 2, Opcode: WCSend})
	if tq.cfg.Counters.Unsent != 1 {
		t.Errorf("%d unsent", tq.cfg.Counters.Unsent)
	}
}

// A failure waits for what is parked before it, and what is behind it waits too.
func TestUDFailsInOrder(t *testing.T) {
	tq, known, unknown := newUD(t, UD), newAH(), new(AH)
	tq.send(tq.datagram(1, unknown, 10))
	bad := tq.datagram(2, known, 8)
	bad.SGEs[0].LKey ^= 0x1000
	tq.send(bad)
	tq.send(tq.datagram(3, known, 8))
	tq.wantQuiet()
	tq.wantWC()
	tq.wantState(RTS)
	unknown.SetPath(&Path{Template: *testPath})
	tq.PathsChanged()
	got, _ := tq.plan()
	if !bytes.Equal(got.data, pattern[:10]) {
		t.Errorf("sent %v", got)
	}
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: WCSend, Status: LocProtErr},
		Completion{ID: 3, Opcode: WCSend, Status: WRFlushErr})
	tq.wantState(SQE)
	if tq.req.parked != 0 {
		t.Errorf("%d parked", tq.req.parked)
	}
}

// A datagram to this port's own address wants a frame of the loop.
func TestUDLoop(t *testing.T) {
	tq, out, own := newUD(t, UD), newAH(), new(AH)
	own.SetPath(&Path{Template: *testPath, Loop: true})
	tq.send(tq.datagram(1, own, 10))
	tq.send(tq.datagram(2, out, 20))
	for _, c := range []struct{ loop, planned, elsewhere bool }{
		{false, false, true}, {true, true, false}, {true, false, true}, {false, true, false}, {false, false, false}, {true, false, false},
	} {
		p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{make([]byte, 1000)}}, Loop: c.loop}
		planned := tq.Plan(tq.now, &p, tq.batch)
		tq.batch.Run()
		if planned != c.planned || p.Elsewhere != c.elsewhere {
			t.Errorf("%+v: planned %v, elsewhere %v", c, planned, p.Elsewhere)
		}
	}
	tq.wantWC(Completion{ID: 1, Opcode: WCSend}, Completion{ID: 2, Opcode: WCSend})
}

// SQD waits for what is parked, and begins nothing.
func TestUDDrain(t *testing.T) {
	tq, known, unknown := newUD(t, UD), newAH(), new(AH)
	tq.send(tq.datagram(1, unknown, 10))
	tq.wantQuiet()
	if err := tq.Modify(&Attr{State: SQD, SQDAsyncNotify: true}, AttrState|AttrSQDAsyncNotify, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.send(tq.datagram(2, known, 20))
	tq.wantQuiet()
	tq.wantEvents()
	tq.sleep(pathTimeout)
	tq.wantEvents(EventSQDrained)
	tq.wantWC(Completion{ID: 1, Opcode: WCSend})
	if err := tq.Modify(&Attr{State: RTS}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantPacket(udL(0), pattern[:20])
}

// packetOf makes a packet as it arrives from another host.
func packetOf(t *testing.T, f wire.Flow, h wire.Header, data []byte) *wire.Packet {
	t.Helper()
	var tm wire.Template
	tm.Set(&f)
	frame := wire.Frame{Frag: [2][]byte{make([]byte, wire.MaxPacketLen)}}
	to := tm.Emit(&frame, &h, len(data))
	copy(to[0], data)
	tm.Seal(&frame)
	p := new(wire.Packet)
	if v := wire.Parse(p, &frame); v != wire.Accepted {
		t.Fatalf("the frame is %v", v)
	}
	return p
}

// grhFor is what must be in the 40 bytes before the payload of p.
func grhFor(p *wire.Packet) []byte {
	h := bytes.Clone(p.IPHeader())
	return append(make([]byte, GRHLen-len(h)), h...)
}

// arrives hands the QP a packet from another host, and returns its GRH.
func (tq *testQP) arrives(f wire.Flow, h wire.Header, data []byte) (wire.Verdict, []byte) {
	tq.t.Helper()
	p := packetOf(tq.t, f, h, data)
	grh := grhFor(p)
	v := tq.Handle(p, tq.now, tq.batch)
	tq.batch.Run()
	return v, grh
}

var (
	flow4 = wire.Flow{Src: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, Dst: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, TClass: 0x68, HopLimit: 9}
	flow6 = wire.Flow{Src: ib.GID{0: 0xfd, 15: 2}, Dst: ib.GID{0: 0xfd, 15: 1}, TClass: 0x68, HopLimit: 9, FlowLabel: 0x12345}
)

func udP(op wire.Opcode) wire.Header {
	return wire.Header{Opcode: op, PKey: ib.PKeyDefault, DestQP: testQPN, PSN: 4711, QKey: testQKey, SrcQP: 0xabcdef}
}

// The 40 bytes of GRH come first: an IPv6 header, or an IPv4 header in the last 20.
func TestUDReceives(t *testing.T) {
	conform.Row(t, "5.1/op-64", "5.1/op-65", "5.3/ud", "5.8/ud-grh", "bug/9")
	for name, f := range map[string]wire.Flow{"IPv4": flow4, "IPv6": flow6} {
		t.Run(name, func(t *testing.T) {
			tq := newUD(t, UD)
			tq.t = t
			tq.recv(1, 0x1000, 40+256)
			tq.recv(2, 0x2000, 40+256)
			tq.rq.recvs[1].SGEs = append(append(tq.local(0x2000, 39), tq.local(0x2100, 3)...), tq.local(0x2200, 300)...)
			tq.recv(3, 0x3000, 40)
			v, grh := tq.arrives(f, udP(wire.UDSendOnly), seq(256))
			tq.wantVerdict(wire.Accepted, v)
			tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 296, SrcQP: 0xabcdef, Flags: WCGRH})
			tq.wantMem(0x1000, append(grh, seq(256)...))
			h := udP(wire.UDSendOnlyImm)
			h.Imm, h.SE, h.PSN, h.AckReq = 77, true, 1, true // neither PSN nor AckReq count
			v, grh = tq.arrives(f, h, seq(100))
			tq.wantVerdict(wire.Accepted, v)
			tq.wantWC(Completion{ID: 2, Opcode: WCRecv, ByteLen: 140, SrcQP: 0xabcdef, Flags: WCGRH | WCWithImm, Imm: 77, Solicited: true})
			tq.wantMem(0x2000, grh[:39])
			tq.wantMem(0x2100, append(grh[39:], seq(2)...))
			tq.wantMem(0x2200, seq(100)[2:])
			tq.arrives(f, udP(wire.UDSendOnly), nil)
			tq.wantWC(Completion{ID: 3, Opcode: WCRecv, ByteLen: 40, SrcQP: 0xabcdef, Flags: WCGRH})
			tq.wantQuiet()
		})
	}
}

// By its checksum programs know an IPv4 header: it is right, even if the
// packet's wasn't.
func TestUDChecksumOfIPv4(t *testing.T) {
	tq := newUD(t, UD)
	tq.recv(1, 0x1000, 100)
	p := packetOf(t, flow4, udP(wire.UDSendOnly), seq(4))
	grh := grhFor(p)
	p.IPHeader()[10] ^= 0x55
	tq.wantVerdict(wire.Accepted, tq.Handle(p, tq.now, tq.batch))
	tq.batch.Run()
	tq.wantMem(0x1000, grh)
}

// What doesn't fit is dropped; the receive is there for the next one.
func TestUDDrops(t *testing.T) {
	conform.Row(t, "5.7/qkey", "5.11/24", "bug/30")
	tq := newUD(t, UD)
	v, _ := tq.arrives(flow4, udP(wire.UDSendOnly), seq(8))
	tq.wantVerdict(wire.DropRNR, v)
	tq.recv(1, 0x1000, 40+8)
	v, _ = tq.arrives(flow4, udP(wire.UDSendOnly), seq(9))
	tq.wantVerdict(wire.DropTooLong, v)
	v, _ = tq.arrives(flow4, udP(wire.UDSendOnly), seq(257))
	tq.wantVerdict(wire.DropLength, v)
	for _, k := range []ib.QKey{0, testQKey + 1, 0x91111111, ib.QKeyGSI} {
		h := udP(wire.UDSendOnly)
		h.QKey = k
		v, _ = tq.arrives(flow4, h, seq(8))
		tq.wantVerdict(wire.DropQKey, v)
	}
	for _, op := range []wire.Opcode{wire.RCSendOnly, wire.UCSendOnly, wire.RCAck} {
		v, _ = tq.arrives(flow4, udP(op), nil)
		tq.wantVerdict(wire.DropTransport, v)
	}
	tq.wantWC()
	tq.wantState(RTS)
	v, grh := tq.arrives(flow4, udP(wire.UDSendOnly), seq(8))
	tq.wantVerdict(wire.Accepted, v)
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, ByteLen: 48, SrcQP: 0xabcdef, Flags: WCGRH})
	tq.wantMem(0x1000, append(grh, seq(8)...))
	tq.wantQuiet()
}

func TestUDBadReceive(t *testing.T) {
	for name, spoil := range map[string]func(tq *testQP, w *RecvWQE){
		"no key for the header": func(_ *testQP, w *RecvWQE) { w.SGEs[0].LKey ^= 0x1000 },
		"no key for the payload": func(tq *testQP, w *RecvWQE) {
			w.SGEs = append(tq.local(0, 40), SGE{Addr: memBase, Length: 100, LKey: 1})
		},
		"too many elements": func(tq *testQP, w *RecvWQE) { w.SGEs = make([]SGE, MaxSGE+1) },
	} {
		t.Run(name, func(t *testing.T) {
			tq := newUD(t, UD)
			tq.t = t
			tq.recv(1, 0x1000, 100)
			tq.recv(2, 0x1000, 100)
			spoil(tq, tq.rq.recvs[0])
			v, _ := tq.arrives(flow4, udP(wire.UDSendOnly), seq(8))
			tq.wantVerdict(wire.DropRejected, v)
			tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocProtErr}, Completion{ID: 2, Opcode: WCRecv, Status: WRFlushErr})
			tq.wantState(Err)
		})
	}
}

// A list of the most elements takes a datagram byte by byte.
func TestUDOpsFit(t *testing.T) {
	tq := newUD(t, UD)
	var list []SGE
	for i := range MaxSGE - 1 {
		list = append(list, tq.local(0x1000+i, 1)...)
	}
	tq.rq.recvs = append(tq.rq.recvs, &RecvWQE{ID: 1, SGEs: append(list, tq.local(0x1000+MaxSGE-1, 296)...)})
	free := tq.batch.Free()
	p := packetOf(t, flow6, udP(wire.UDSendOnly), seq(256))
	grh := grhFor(p)
	tq.wantVerdict(wire.Accepted, tq.Handle(p, tq.now, tq.batch))
	if used := free - tq.batch.Free(); used > HandleOps {
		t.Errorf("%d ops", used)
	}
	tq.batch.Run()
	tq.wantMem(0x1000, grh[:MaxSGE-1])
}

func TestUDMemoryGone(t *testing.T) {
	tq := newUD(t, UD)
	tq.recv(1, 0x1000, 100)
	tq.wantVerdict(wire.Accepted, tq.Handle(packetOf(t, flow4, udP(wire.UDSendOnly), seq(8)), tq.now, tq.batch))
	tq.keys.Deregister(tq.mr)
	tq.batch.Run()
	tq.wantWC(Completion{ID: 1, Opcode: WCRecv, Status: LocProtErr})
	tq.wantState(Err)
}

// The attributes that each transition must have and may have, of each type
// (IBA 11.2.5.2, table 92; Linux's ib_modify_qp_is_ok).
func TestTransitionsOfTypes(t *testing.T) {
	type attrs map[string][2]AttrMask
	const conn = AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState
	const ud = AttrCurState | AttrQKey
	for typ, want := range map[Type]attrs{
		UC: {
			"RESET INIT": {AttrPKeyIndex | AttrPort | AttrAccess, 0}, "INIT INIT": {0, AttrPKeyIndex | AttrPort | AttrAccess},
			"INIT RTR": {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrAltPath | AttrAccess | AttrPKeyIndex},
			"RTR RTS":  {AttrSQPSN, conn}, "RTS RTS": {0, conn}, "RTS SQD": {0, AttrSQDAsyncNotify},
			"SQD RTS": {0, conn}, "SQD SQD": {0, conn | AttrAV | AttrPKeyIndex}, "SQE RTS": {0, AttrCurState | AttrAccess},
		},
		UD: {
			"RESET INIT": {AttrPKeyIndex | AttrPort | AttrQKey, 0}, "INIT INIT": {0, AttrPKeyIndex | AttrPort | AttrQKey},
			"INIT RTR": {0, AttrPKeyIndex | AttrQKey}, "RTR RTS": {AttrSQPSN, ud}, "RTS RTS": {0, ud}, "RTS SQD": {0, AttrSQDAsyncNotify},
			"SQD RTS": {0, ud}, "SQD SQD": {0, AttrPKeyIndex | AttrQKey}, "SQE RTS": {0, ud},
		},
		GSI: {
			"RESET INIT": {AttrPKeyIndex | AttrQKey, 0}, "INIT INIT": {0, AttrPKeyIndex | AttrQKey},
			"INIT RTR": {0, AttrPKeyIndex | AttrQKey}, "RTR RTS": {AttrSQPSN, ud}, "RTS RTS": {0, ud}, "RTS SQD": {0, AttrSQDAsyncNotify},
			"SQD RTS": {0, ud}, "SQD SQD": {0, AttrPKeyIndex | AttrQKey}, "SQE RTS": {0, ud},
		},
	} {
		got := attrs{}
		for k, v := range typ.service().legal {
			got[fmt.Sprintf("%v %v", k[0], k[1])] = [2]AttrMask{v.required, v.optional}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", typ, d)
		}
	}
}
