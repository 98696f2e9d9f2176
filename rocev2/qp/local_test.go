package qp

import (
	"testing"
	"time"

	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// window allocates a window of the test's PD.
func (tq *testQP) window(typ mem.MWType) *mem.MW {
	tq.t.Helper()
	w, err := tq.keys.AllocMW(&tq.pd, typ)
	if err != nil {
		tq.t.Fatal(err)
	}
	return w
}

// bindable is a region of n bytes that windows can be bound to; peers know its
// first byte by address 0.
func (tq *testQP) bindable(n int) *mem.MR {
	return tq.another(n, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic|mem.MWBind)
}

// bindWR is a work request that binds w to n bytes at off of mr, with the low
// byte b of the key.
func bindWR(id uint64, w *mem.MW, mr *mem.MR, off, n int, b uint8) SendWQE {
	return SendWQE{ID: id, Opcode: WRBindMW, Flags: Signaled, Local: &Local{Bind: mem.Bind{
		RKey: w.Key(), Key: b, LKey: mr.Key, Addr: uint64(off), Length: uint64(n),
		Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic,
	}}}
}

// to is a request with a RETH or AtomicETH for a key.
func to(o wire.Opcode, n int, key uint32, va uint64, length int) wire.Header {
	h := req(o, n)
	h.RKey, h.VA, h.Length = key, va, uint32(length)
	return h
}

func TestBindOpensAWindow(t *testing.T) {
	conform.Row(t, "5.8/mw-type2", "5.7/rkey-range")
	for _, typ := range []mem.MWType{mem.MWType1, mem.MWType2} {
		tq := newQP(t, nil)
		w, mr := tq.window(typ), tq.bindable(1000)
		tq.send(bindWR(1, w, mr, 100, 50, 7))
		tq.wantQuiet()
		tq.wantWC(Completion{ID: 1, Opcode: WCBindMW})
		key := w.Key()
		if uint8(key) != 7 {
			t.Fatalf("key %#x, want one that ends in 7", key)
		}
		tq.accepts(ackReq(to(wire.RCWriteOnly, 0, key, 100, 50)), seq(50))
		tq.wantPacket(ackP(0, 1), nil)
		if got := mr.Bytes()[100:150]; string(got) != string(seq(50)) {
			t.Errorf("the bytes went elsewhere: % x", got)
		}
		tq.accepts(to(wire.RCReadRequest, 1, key, 140, 10), nil)
		tq.wantPacket(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(1), Syndrome: wire.SyndromeAck, MSN: 2}, mr.Bytes()[140:150])
		add := to(wire.RCFetchAdd, 2, key, 104, 0)
		add.Length, add.Swap = 0, 1
		tq.accepts(add, nil)
		if got, _ := tq.plan(); got.Opcode != wire.RCAtomicAck {
			t.Fatalf("the atomic was answered by %v", got)
		}
		tq.wantVerdict(wire.DropRejected, tq.gets(to(wire.RCWriteOnly, 3, key, 101, 50), seq(50)))
		tq.wantPacket(nakP(3, wire.NakRemoteAccess, 3), nil)
	}
}

// Each kind of request is refused by a window that lacks its right, and by one
// of type 2 that another QP has bound.
func TestWindowIsChecked(t *testing.T) {
	conform.Row(t, "5.8/mw-type2", "5.8/resp-access")
	requests := map[string]struct {
		op   wire.Opcode
		need mem.Access
	}{
		"WRITE":        {wire.RCWriteOnly, mem.RemoteWrite},
		"READ":         {wire.RCReadRequest, mem.RemoteRead},
		"FETCH_ADD":    {wire.RCFetchAdd, mem.RemoteAtomic},
		"ATOMIC_WRITE": {wire.RCAtomicWrite, mem.RemoteWrite},
	}
	const all = mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic
	for name, x := range requests {
		for _, c := range []struct {
			what    string
			typ     mem.MWType
			acc     mem.Access
			foreign bool
			ok      bool
		}{
			{"all rights", mem.MWType2, all, false, true},
			{"all rights but the one", mem.MWType2, all &^ x.need, false, false},
			{"another QP's", mem.MWType2, all, true, false},
			{"type 1, bound by another QP", mem.MWType1, all, true, true},
		} {
			t.Run(name+", "+c.what, func(t *testing.T) {
				tq := newQP(t, nil)
				w, mr := tq.window(c.typ), tq.bindable(64)
				b := &bindWR(1, w, mr, 0, 64, 3).Local.Bind
				b.Access = c.acc
				by := tq.QP
				if c.foreign {
					by = New(tq.cfg)
				}
				if err := tq.keys.Bind(b, &tq.pd, by); err != nil {
					t.Fatal(err)
				}
				n := 8
				if x.op == wire.RCReadRequest || x.op == wire.RCFetchAdd {
					n = 0
				}
				v := tq.gets(to(x.op, 0, w.Key(), 8, 8), seq(n))
				if c.ok {
					tq.wantVerdict(wire.Accepted, v)
					return
				}
				tq.wantVerdict(wire.DropRejected, v)
				tq.wantPacket(nakP(0, wire.NakRemoteAccess, 0), nil)
			})
		}
	}
}

// A bind is done when its turn comes, and completes in its turn: also when
// what is before it must be sent again.
func TestLocalOperationsKeepTheOrder(t *testing.T) {
	tq := newQP(t, nil)
	w, v, mr := tq.window(mem.MWType2), tq.window(mem.MWType1), tq.bindable(100)
	tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 300)})
	tq.send(bindWR(2, w, mr, 0, 10, 5))
	tq.send(bindWR(3, v, mr, 0, 10, 5))
	tq.send(SendWQE{ID: 4, Opcode: WRSend, Flags: Signaled, SGEs: tq.local(0, 1)})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, tq.mem[:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(2), AckReq: true}, tq.mem[:1])
	tq.wantQuiet()
	tq.wantWC()
	key := w.Key()
	if tq.keys.FindRemote(key, &tq.pd, tq.QP, 0, 10, mem.RemoteRead) == nil {
		t.Fatal("not bound yet, though what comes after it has been sent")
	}
	tq.sleep(time.Second)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0), AckReq: true}, tq.mem[:256])
	tq.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, tq.mem[256:300])
	tq.accepts(ack(1, 1), nil)
	tq.wantWC(Completion{ID: 1}, Completion{ID: 2, Opcode: WCBindMW}, Completion{ID: 3, Opcode: WCBindMW})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(2), AckReq: true}, tq.mem[:1])
	tq.accepts(ack(2, 2), nil)
	tq.wantWC(Completion{ID: 4})
	if w.Key() != key {
		t.Error("the retry bound it again")
	}
}

// The ring of requests wraps around operations without packets.
func TestManyLocalOperations(t *testing.T) {
	tq := newQP(t, nil)
	w, mr := tq.window(mem.MWType1), tq.bindable(100)
	for i := range 300 {
		wr := bindWR(uint64(i), w, mr, 0, 10, uint8(i))
		wr.Local.Bind.RKey = w.Key()
		tq.send(wr)
		if i%7 == 6 {
			tq.send(SendWQE{ID: 1000, Opcode: WRSend, SGEs: tq.local(0, 1)})
		}
		if i%7 == 6 {
			tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(i / 7), AckReq: true}, tq.mem[:1])
			tq.accepts(ack(i/7, 1), nil)
		} else {
			tq.wantQuiet()
		}
		tq.wantWC(Completion{ID: uint64(i), Opcode: WCBindMW})
	}
	if tq.Deadline() != clock.Never {
		t.Error("a timer runs, and nothing is outstanding")
	}
}

func TestLocalInvalidateWaits(t *testing.T) {
	conform.Row(t, "bug/26")
	tq := newQP(t, nil)
	w, mr := tq.window(mem.MWType2), tq.bindable(100)
	tq.send(bindWR(1, w, mr, 0, 10, 5))
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCBindMW})
	key := w.Key()
	open := func() bool { return tq.keys.FindRemote(key, &tq.pd, tq.QP, 0, 10, mem.RemoteRead) != nil }
	tq.send(SendWQE{ID: 2, Opcode: WRWrite, SGEs: tq.local(0, 4), Flags: Signaled})
	tq.send(SendWQE{ID: 3, Opcode: WRLocalInv, InvKey: key, Flags: Signaled})
	tq.send(SendWQE{ID: 4, Opcode: WRSend, Flags: Signaled})
	tq.wantPacket(wire.Header{Opcode: wire.RCWriteOnly, PSN: psnL(0), AckReq: true, Length: 4}, tq.mem[:4])
	tq.wantQuiet()
	if !open() {
		t.Fatal("invalidated before what precedes it was acknowledged")
	}
	tq.accepts(ack(0, 1), nil)
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(1), AckReq: true}, nil)
	tq.wantWC(Completion{ID: 2, Opcode: WCWrite}, Completion{ID: 3, Opcode: WCLocalInv})
	if open() {
		t.Fatal("still open")
	}
	tq.wantVerdict(wire.DropRejected, tq.gets(to(wire.RCWriteOnly, 0, key, 0, 4), seq(4)))
	tq.wantPacket(nakP(0, wire.NakRemoteAccess, 0), nil)
}

// A fenced bind waits for the READ before it and for nothing else.
func TestFencedBind(t *testing.T) {
	tq := newQP(t, nil)
	w, mr := tq.window(mem.MWType2), tq.bindable(100)
	fenced := bindWR(2, w, mr, 0, 10, 5)
	fenced.Flags |= Fence
	tq.send(SendWQE{ID: 1, Opcode: WRRead, SGEs: tq.local(0, 4), RKey: 9})
	tq.send(fenced)
	tq.wantPacket(wire.Header{Opcode: wire.RCReadRequest, PSN: psnL(0), AckReq: true, RKey: 9, Length: 4}, nil)
	tq.wantQuiet()
	if uint8(w.Key()) == 5 && tq.keys.FindRemote(w.Key(), &tq.pd, tq.QP, 0, 1, mem.RemoteRead) != nil {
		t.Fatal("bound before the READ ended")
	}
	tq.accepts(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnL(0), Syndrome: wire.SyndromeAck, MSN: 1}, seq(4))
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 2, Opcode: WCBindMW})
}

func TestLocalOperationFails(t *testing.T) {
	conform.Row(t, "5.8/req-bind")
	for name, wr := range map[string]SendWQE{
		"bind to a region that doesn't allow it": {Opcode: WRBindMW},
		"bind of no window":                      {Opcode: WRBindMW, Local: &Local{Bind: mem.Bind{Length: 1}}},
		"bind of nothing":                        {Opcode: WRBindMW},
		"registration of nothing":                {Opcode: WRRegMR},
		"registration without MR":                {Opcode: WRRegMR, Local: new(Local)},
		"invalidate of an MR":                    {Opcode: WRLocalInv},
		"invalidate of a bad key":                {Opcode: WRLocalInv, InvKey: 0xdead00},
		"… unsignalled and inline":               {Opcode: WRLocalInv, InvKey: 0xdead00, Flags: Inline, Inline: []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			tq := newQP(t, nil)
			switch name {
			case "invalidate of an MR":
				wr.InvKey = tq.mr.Key
			case "bind to a region that doesn't allow it":
				wr.Local = bindWR(0, tq.window(mem.MWType2), tq.mr, memBase, 1, 1).Local
			}
			tq.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled})
			wr.ID = 2
			tq.send(wr)
			tq.send(SendWQE{ID: 3, Opcode: WRSend})
			tq.recv(4, 0, 10)
			tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, nil)
			tq.wantQuiet()
			tq.wantState(RTS)
			tq.accepts(ack(0, 1), nil)
			tq.wantQuiet()
			tq.wantWC(Completion{ID: 1}, Completion{ID: 2, Status: MWBindErr, Opcode: wr.Opcode.operation().completion},
				Completion{ID: 3, Status: WRFlushErr}, Completion{ID: 4, Status: WRFlushErr, Opcode: WCRecv})
			tq.wantState(Err)
		})
	}
}

// Nothing that this side does alone needs the next hop, and SQD begins nothing.
func TestLocalOperationsInSQD(t *testing.T) {
	tq := newQP(t, nil)
	tq.SetPath(nil)
	w, mr := tq.window(mem.MWType1), tq.bindable(100)
	tq.send(bindWR(1, w, mr, 0, 10, 5))
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCBindMW})
	if tq.Deadline() != clock.Never {
		t.Error("a timer runs, and nothing is outstanding")
	}
	if err := tq.Modify(&Attr{State: SQD, SQDAsyncNotify: true}, AttrState|AttrSQDAsyncNotify, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantEvents(EventSQDrained)
	tq.send(bindWR(2, w, mr, 20, 10, 6))
	tq.wantQuiet()
	tq.wantWC()
	if err := tq.Modify(&Attr{State: RTS}, AttrState, tq.now); err != nil {
		t.Fatal(err)
	}
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 2, Opcode: WCBindMW})
}

// Memory that a work request registers is sent from, and given up, by others.
func TestFastRegistration(t *testing.T) {
	conform.Row(t, "bug/36")
	tq := newQP(t, nil)
	f, err := tq.keys.AllocMR(&tq.pd, 2)
	if err != nil {
		t.Fatal(err)
	}
	pages := [][]byte{seq(4096)[:100:100], make([]byte, 4096)}
	tq.send(SendWQE{ID: 1, Opcode: WRRegMR, Flags: Signaled, Local: &Local{Reg: mem.Registration{
		MR: f, Key: 9, IOVA: 0x5000, PageList: mem.PageList{Size: 4096, Pages: pages},
	}}})
	key := f.Key()&^0xff | 9
	tq.send(SendWQE{ID: 2, Opcode: WRSend, SGEs: []SGE{{Addr: 0x5000 + 90, Length: 20, LKey: key}}})
	tq.send(SendWQE{ID: 3, Opcode: WRLocalInv, InvKey: key, Flags: Signaled}) // by lkey: peers have no right to it
	tq.send(SendWQE{ID: 4, Opcode: WRSend, SGEs: []SGE{{Addr: 0x5000, Length: 20, LKey: key}}})
	tq.wantPacket(wire.Header{Opcode: wire.RCSendOnly, PSN: psnL(0), AckReq: true}, append(seq(100)[90:], make([]byte, 10)...))
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 1, Opcode: WCRegMR})
	tq.accepts(ack(0, 1), nil)
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 3, Opcode: WCLocalInv}, Completion{ID: 4, Status: LocProtErr})
}
