package ct

import (
	"bytes"
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

var ucSizes = []int{0, 1, 1023, 1024, 1025, 5001}

func ucServer(e *end) {
	n := 3 * len(ucSizes)
	for range n {
		e.rx(16384, 16384)
	}
	e.barrier()
	e.waitEach(n, "recv")
}

// ucClient ends each size with a SEND, so that all has landed when it has come.
func ucClient(e *end) {
	e.barrier()
	for i, n := range ucSizes {
		e.tx(
			request{op: verbs.OpWrite, len: n, off: 1},
			request{op: verbs.OpWriteImm, len: n, off: 7, imm: uint32(i)},
			request{op: verbs.OpSendImm, len: n, imm: uint32(i)},
			request{op: verbs.OpSend, len: n},
		)
	}
}

func ucLostServer(e *end) {
	e.rx(0, 1500)
	e.barrier()
	e.wait("recv")
}

// ucLostClient sends what may not be, which is lost, and no one is told: a bad
// key, a message longer than its receive. The receive takes the next one.
func ucLostClient(e *end) {
	e.barrier()
	e.tx(
		request{op: verbs.OpWrite, len: 64, keyXor: 0x5a},
		request{op: verbs.OpWrite, len: 3000, off: bufSize - 1500},
		request{op: verbs.OpSend, len: 3000},
		request{op: verbs.OpSend, len: 1400},
	)
}

// txUD sends a datagram to the peer.
func (e *end) txUD(op verbs.Opcode, n int, key ib.QKey, imm uint32) {
	e.txUDTo(e.ah, ib.QPN(e.peer.QPN), op, n, key, imm)
}

// txUDTo sends a datagram to a QP.
func (e *end) txUDTo(ah *verbs.AH, qpn ib.QPN, op verbs.Opcode, n int, key ib.QKey, imm uint32) {
	if e.err != nil {
		return
	}
	w := verbs.SendWR{Opcode: op, Flags: verbs.Signaled, Imm: imm, AH: ah, RemoteQPN: qpn, RemoteQKey: key}
	if n > 0 {
		w.SGEs = []verbs.SGE{e.mr.SGE(0, n)}
	}
	e.post(w)
	e.wait(fmt.Sprintf("op %d len %d", op, n))
}

// rxUD receives a datagram to this end.
func (e *end) rxUD(off int) { e.rxUDTo(e.gid, off) }

// rxUDTo receives a datagram to an address at off, and looks at the 40 bytes
// before its payload: they end with the peer's address and that one. They are
// wiped, as the rest of them differs from run to run.
func (e *end) rxUDTo(to ib.GID, off int) {
	e.wait("recv")
	if e.err != nil {
		return
	}
	h := e.mr.Bytes()[off : off+verbs.GRHLen]
	ok := h[0]>>4 == 6 && bytes.Equal(h[8:], append(e.peer.GID[:], to[:]...))
	if e.gid.Is4() {
		ok = h[20] == 0x45 && bytes.Equal(h[32:], append(e.peer.GID[12:16:16], to[12:]...))
	}
	e.printf("grh %s\n", map[bool]string{true: "ok", false: "BAD"}[ok])
	clear(h)
}

var udSizes = []int{0, 1, 3, 500, 1024}

const udRoom = 4200

func udServer(e *end) {
	for i := range 2 * len(udSizes) {
		e.rx(udRoom*i, udRoom)
	}
	e.barrier()
	for i := range 2 * len(udSizes) {
		e.rxUD(udRoom * i)
	}
}

func udClient(e *end) {
	e.barrier()
	for i, n := range udSizes {
		e.txUD(verbs.OpSend, n, qkey, 0)
		e.txUD(verbs.OpSendImm, n, qkey, 0x100+uint32(i))
	}
}

func udLostServer(e *end) {
	e.rx(0, verbs.GRHLen+64)
	e.barrier()
	e.rxUD(0)
}

// udLostClient sends a datagram with a wrong Q_Key and one longer than its
// receive, which are dropped, and then one that fits.
func udLostClient(e *end) {
	e.barrier()
	e.txUD(verbs.OpSend, 64, qkey+1, 0)
	e.txUD(verbs.OpSend, 65, qkey, 0)
	e.txUD(verbs.OpSend, 60, qkey, 0)
}

// group is the multicast group of the version of IP that the test uses.
func (e *end) group() ib.GID {
	if e.gid.Is4() {
		return ib.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
	}
	return ib.GID{0: 0xff, 1: 0x0e, 14: 0x42, 15: 0x42}
}

func mcastServer(e *end) {
	g := e.group()
	var vlan uint16
	e.try(func() (err error) { vlan, err = e.dev.QueryVLAN(e.GIDIndex); return err })
	e.try(func() error { return e.qp.AttachMcastVLAN(g, vlan) })
	e.try(func() error { return e.qp.AttachMcastVLAN(g, vlan) }) // changes nothing
	for i := range 2*len(udSizes) + 1 {
		e.rx(udRoom*i, udRoom)
	}
	e.barrier()
	for i := range 2 * len(udSizes) {
		e.rxUDTo(g, udRoom*i)
	}
	e.try(func() error { return e.qp.DetachMcastVLAN(g, vlan) })
	e.barrier()
	e.rxUD(udRoom * 2 * len(udSizes))
}

// mcastClient at last sends a datagram to a group that no one is in any more, and
// one to the peer.
func mcastClient(e *end) {
	var h *verbs.AH
	e.make(func() (_ func() error, err error) {
		h, err = e.pd.CreateAH(verbs.AV{DGID: e.group(), SGIDIndex: uint8(e.GIDIndex), HopLimit: 64, Port: 1})
		return h.Destroy, err
	})
	e.barrier()
	for i, n := range udSizes {
		e.txUDTo(h, ib.QPNMulticast, verbs.OpSend, n, qkey, 0)
		e.txUDTo(h, ib.QPNMulticast, verbs.OpSendImm, n, qkey, 0x100+uint32(i))
	}
	e.barrier()
	e.txUDTo(h, ib.QPNMulticast, verbs.OpSend, 64, qkey, 0)
	e.txUD(verbs.OpSend, 60, qkey, 0)
}
