package ct

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/verbs"
)

// The tests of what opens memory for a while, and of what Annex A19 adds.

const (
	bindable  = verbs.LocalWrite | remote | verbs.MWBind
	flushable = remote | verbs.FlushGlobal
)

func init() {
	maps.Copy(programs, map[string]program{
		"mw1":      {server: mwServer(verbs.MWType1, remote), client: mwClient, mr: bindable},
		"mw2":      {server: mwServer(verbs.MWType2, remote), client: mwClient, mr: bindable},
		"mw_ro":    {server: mwServer(verbs.MWType2, rr), client: mwReadOnlyClient, mr: bindable},
		"send_inv": {server: sendInvServer, client: sendInvClient, mr: bindable},
	})
}

// placed are the tests of ATOMIC WRITE and FLUSH, which rxe has from Linux 6.2 on.
var placed = map[string]program{
	"atomic_write":       {server: passive, client: atomicWriteClient},
	"atomic_write_align": {server: passive, client: steps(unalignedAtomicWrite)},
	"atomic_write_rkey":  {server: passive, client: steps(atomicWrite(64, 1, 0x5a))},
	"flush":              flushTest(steps(write(3000), flush(0, 3000, 0, 0), flush(0, 0, 0, verbs.FlushRegion), flush(4096, 4096, 0, 0))),
	"flush_rkey":         flushTest(steps(flush(0, 64, 0x5a, 0))),
	"flush_bounds":       flushTest(steps(flush(0, bufSize+1, 0, 0))),
	"flush_perm":         {server: passive, client: steps(flush(0, 64, 0, 0)), mr: lw | remote, qp: flushable, peerIsRxe: true},
	"flush_qp":           {server: passive, client: steps(flush(0, 64, 0, 0)), mr: lw | flushable, qp: remote, peerIsRxe: true},
	"flush_persist": {server: passive, client: steps(flush(0, 64, 0, qp.FlushPersistent)),
		mr: lw | flushable, qp: flushable | mem.FlushPersistent, peerIsRxe: true},
}

// Since62 lists the names of the tests of what rxe has from Linux 6.2 on.
func Since62() []string { return slices.Sorted(maps.Keys(placed)) }

func flushTest(client func(*end)) program {
	return program{server: passive, client: client, mr: lw | flushable, qp: flushable, peerIsRxe: true}
}

// steps is a client that does one thing after the other.
func steps(do ...func(*end)) func(*end) {
	return func(e *end) {
		e.barrier()
		for _, step := range do {
			step(e)
		}
		e.barrier()
	}
}

func write(n int) func(*end) {
	return func(e *end) { e.tx(request{op: verbs.OpWrite, len: n}) }
}

func atomicWrite(off, v uint64, keyXor uint32) func(*end) {
	return func(e *end) {
		if e.err != nil {
			return
		}
		w := e.wr(request{op: verbs.OpAtomicWrite, off: off, keyXor: keyXor})
		w.InlineData = binary.NativeEndian.AppendUint64(nil, v)
		e.post(w)
		e.wait("atomic_write")
	}
}

// unalignedAtomicWrite sees what becomes of an ATOMIC WRITE that is not to a
// multiple of 8: rxe sends it, verbs doesn't take it.
func unalignedAtomicWrite(e *end) {
	if e.err != nil {
		return
	}
	w := e.wr(request{op: verbs.OpAtomicWrite, off: 68})
	w.InlineData = make([]byte, 8)
	if _, err := e.qp.PostSend(w); errors.Is(err, verbs.ErrInvalid) {
		e.printf("atomic_write: refused\n")
		return
	}
	e.wait("atomic_write")
}

func atomicWriteClient(e *end) {
	steps(atomicWrite(64, 0x1122334455667788, 0), atomicWrite(72, 0x99aabbccddeeff00, 0),
		func(e *end) { e.tx(request{op: verbs.OpRead, len: 16, off: 64}) })(e)
}

func flush(off uint64, n, keyXor uint32, f verbs.FlushFlags) func(*end) {
	return func(e *end) {
		if e.err != nil {
			return
		}
		w := e.wr(request{op: verbs.OpFlush, off: off, keyXor: keyXor})
		w.Length, w.Flush = n, f
		e.post(w)
		e.wait("flush")
	}
}

// bind binds a window to n bytes at off and tells the client its key.
func (e *end) bind(t verbs.MWType, off, n int, acc verbs.Access) {
	var w *verbs.MW
	e.make(func() (_ func() error, err error) { w, err = e.pd.AllocMW(t); return w.Dealloc, err })
	a := verbs.BindAttr{MW: w, MR: e.mr, Offset: off, Length: n, Access: acc}
	e.try(func() (err error) {
		if t == verbs.MWType1 {
			_, err = e.qp.BindMW(0, verbs.Signaled, a)
			return err
		}
		a.Key = uint8(w.RKey()) + 1
		_, err = e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpBindMW, Flags: verbs.Signaled, Bind: &a})
		return err
	})
	e.wait("bind")
	if e.err == nil {
		e.tell(w.RKey())
	}
}

// tell exchanges a key with the other end.
func (e *end) tell(key uint32) (theirs uint32) {
	e.try(func() error {
		e.conn.SetDeadline(time.Now().Add(patience))
		if err := binary.Write(e.conn, binary.LittleEndian, key); err != nil {
			return err
		}
		return binary.Read(e.conn, binary.LittleEndian, &theirs)
	})
	return theirs
}

func mwServer(t verbs.MWType, acc verbs.Access) func(*end) {
	return func(e *end) {
		e.bind(t, 4096, 4096, acc)
		passive(e)
	}
}

// mwClient writes, reads and swaps by the window, and then leaves its bounds.
func mwClient(e *end) {
	x := e.tell(0) ^ e.peer.RKey
	requests(
		request{op: verbs.OpWrite, len: 3000, off: 4096, keyXor: x},
		request{op: verbs.OpRead, len: 3000, off: 4096, keyXor: x},
		request{op: verbs.OpCompareSwap, len: 8, off: 4096, keyXor: x, compareAdd: 1, swap: 2},
		request{op: verbs.OpWrite, len: 64, off: 8192, keyXor: x},
	)(e)
}

func mwReadOnlyClient(e *end) {
	x := e.tell(0) ^ e.peer.RKey
	requests(
		request{op: verbs.OpRead, len: 64, off: 4096, keyXor: x},
		request{op: verbs.OpWrite, len: 64, off: 4096, keyXor: x},
	)(e)
}

// Two windows that the client's SENDs invalidate; then one is used again.
func sendInvServer(e *end) {
	e.rx(0, 8192)
	e.rx(8192, 8192)
	e.bind(verbs.MWType2, 16384, 4096, remote)
	e.bind(verbs.MWType2, 32768, 4096, rw)
	e.barrier()
	e.waitEach(2, "recv")
	e.barrier()
}

func sendInvClient(e *end) {
	a, b := e.tell(0), e.tell(0)
	x := a ^ e.peer.RKey
	e.barrier()
	e.tx(
		request{op: verbs.OpWrite, len: 256, off: 16384, keyXor: x},
		request{op: verbs.OpRead, len: 256, off: 16384, keyXor: x},
		add(16384, 1, x),
	)
	e.sendInv(32, a)
	e.sendInv(3000, b)
	e.tx(request{op: verbs.OpWrite, len: 16, off: 16384, keyXor: x})
	e.barrier()
}

func (e *end) sendInv(n int, key uint32) {
	if e.err != nil {
		return
	}
	w := e.wr(request{op: verbs.OpSendInv, len: n})
	w.InvKey = key
	e.post(w)
	e.wait("send_inv")
}
