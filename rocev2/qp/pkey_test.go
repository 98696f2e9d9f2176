package qp

import (
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

var testPKeys = ib.PKeyTable{ib.PKeyDefault, 0x0022, 0x8022}

// Whatever a QP sends, it has the P_Key of the QP's index.
func TestPacketsCarryTheQPsPKey(t *testing.T) {
	for i, k := range testPKeys {
		inPartition := func(tq *testQP) *testQP {
			tq.cfg.PKeys, tq.wantPKey = testPKeys, k
			return tq.connect(func(a *Attr) { a.PKeyIndex, a.QKey = uint16(i), testQKey })
		}
		rc := inPartition(newReset(t))
		rc.send(SendWQE{ID: 1, Opcode: WRSend, SGEs: rc.local(0, 300)})
		rc.wantPacket(wire.Header{Opcode: wire.RCSendFirst, PSN: psnL(0)}, pattern[:256])
		rc.wantPacket(wire.Header{Opcode: wire.RCSendLast, PSN: psnL(1), AckReq: true}, pattern[256:300])
		rc.accepts(wire.Header{Opcode: wire.RCReadRequest, PSN: psnP(0), VA: memBase, RKey: rc.mr.Key, Length: 8}, nil)
		rc.wantPacket(wire.Header{Opcode: wire.RCReadRespOnly, PSN: psnP(0), Syndrome: wire.SyndromeAck, MSN: 1}, pattern[:8])
		rc.wantVerdict(wire.DropRNR, rc.gets(wire.Header{Opcode: wire.RCSendOnly, PSN: psnP(1), AckReq: true}, nil))
		rc.wantPacket(nakP(1, wire.SyndromeRNR|12, 1), nil)
		rc.Congested()
		rc.wantCNP()

		uc := inPartition(newTyped(t, UC))
		uc.send(SendWQE{ID: 1, Opcode: WRWrite, SGEs: uc.local(0, 8)})
		uc.wantPacket(wire.Header{Opcode: wire.UCWriteOnly, PSN: psnL(0), Length: 8}, pattern[:8])

		ud := inPartition(newTyped(t, UD))
		ud.send(ud.datagram(1, newAH(), 8))
		ud.wantPacket(udL(0), pattern[:8])
	}
}

// QP1 sends each datagram with the P_Key that its work request names, and says
// with what it came.
func TestPKeysOfGSI(t *testing.T) {
	tq := newTyped(t, GSI)
	tq.cfg.PKeys = testPKeys
	tq.connect(func(a *Attr) { a.QKey = ib.QKeyGSI })
	for i, k := range testPKeys {
		w := tq.datagram(uint64(i), newAH(), 8)
		w.PKeyIndex = uint16(i)
		tq.send(w)
		tq.wantPKey = k
		tq.wantPacket(udL(i), pattern[:8])
		tq.wantWC(Completion{ID: uint64(i), Opcode: WCSend})
	}
	for _, c := range []struct {
		key   ib.PKey
		index uint16
	}{{0xffff, 0}, {0x7fff, 0}, {0x8022, 2}, {0x0022, 2}} {
		tq.recv(9, 0, 100)
		h := udP(wire.UDSendOnly)
		h.PKey, h.QKey = c.key, ib.QKeyGSI
		v, _ := tq.arrives(flow4, h, seq(8))
		tq.wantVerdict(wire.Accepted, v)
		tq.wantWC(Completion{ID: 9, Opcode: WCRecv, ByteLen: GRHLen + 8, SrcQP: 0xabcdef, PKeyIndex: c.index, Flags: WCGRH})
	}
	w := tq.datagram(10, newAH(), 8)
	w.PKeyIndex = 3
	tq.send(w)
	tq.wantQuiet()
	tq.wantWC(Completion{ID: 10, Opcode: WCSend, Status: LocQPOpErr})
}

func TestPKeyIndexOutOfRange(t *testing.T) {
	tq := newReset(t)
	tq.cfg.PKeys = testPKeys
	for _, i := range []uint16{3, 0xffff} {
		err := tq.Modify(&Attr{State: Init, Port: 1, PKeyIndex: i, Access: mem.RemoteRead}, rcService.required(Init), tq.now)
		if err == nil || !strings.Contains(err.Error(), "PKEY_INDEX out of range, want 0 to 2") {
			t.Errorf("index %d: %v", i, err)
		}
	}
	tq.wantState(Reset)
}
