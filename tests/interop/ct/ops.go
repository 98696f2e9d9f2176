package ct

import (
	"fmt"

	"github.com/urxe/urxe/verbs"
)

// request is one request to the peer's memory, from the start of this end's.
type request struct {
	op     verbs.Opcode
	len    int
	off    uint64 // from the start of the peer's region
	keyXor uint32 // makes the peer's key wrong
	imm    uint32
	flags  verbs.SendFlags

	compareAdd, swap uint64 // of an atomic
}

func (e *end) wr(r request) verbs.SendWR {
	w := verbs.SendWR{
		Opcode: r.op, Flags: r.flags | verbs.Signaled, Imm: r.imm,
		RemoteAddr: e.peer.Addr + r.off, RKey: e.peer.RKey ^ r.keyXor,
		CompareAdd: r.compareAdd, Swap: r.swap,
	}
	if r.len > 0 {
		w.SGEs = []verbs.SGE{e.mr.SGE(0, r.len)}
	}
	return w
}

func (e *end) post(wrs ...verbs.SendWR) {
	e.try(func() error { _, err := e.qp.PostSend(wrs...); return err })
}

// tx posts requests, each after the completion of the one before.
func (e *end) tx(requests ...request) {
	for _, r := range requests {
		if e.err != nil {
			return
		}
		e.post(e.wr(r))
		if r.op == verbs.OpCompareSwap || r.op == verbs.OpFetchAdd {
			e.wait("atomic")
			e.printf("before: 0x%x\n", e.mr.Load64(0))
			continue
		}
		e.wait(fmt.Sprintf("op %d len %d", r.op, r.len))
	}
}

// rx posts a receive for len bytes at off.
func (e *end) rx(off, len int) {
	e.try(func() error {
		var w verbs.RecvWR
		if len > 0 {
			w.SGEs = []verbs.SGE{e.mr.SGE(off, len)}
		}
		_, err := e.qp.PostRecv(w)
		return err
	})
}

func (e *end) waitEach(n int, what string) {
	for range n {
		e.wait(what)
	}
}
