package ct

import (
	"slices"
	"time"

	"maps"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// program is a test: what either end does, and what is set up for it.
type program struct {
	server, client func(e *end)

	typ             verbs.QPType // 0: RC
	mr, qp          verbs.Access // 0: all
	firstPSN        ib.PSN       // of both ends; 0: their own
	waitsForReceive bool         // RNR NAKs are answered by patience
	peerIsRxe       bool         // its FLUSHes have rxe's ICRC
}

func (p program) mrAccess() verbs.Access {
	if p.mr == 0 {
		return verbs.LocalWrite | remote
	}
	return p.mr
}

func (p program) qpAccess() verbs.Access {
	if p.qp == 0 {
		return remote
	}
	return p.qp
}

// Tests lists the names of the tests.
func Tests() []string { return slices.Sorted(maps.Keys(programs)) }

// names as ibverbs has them, for the table
const (
	lw = verbs.LocalWrite
	rw = verbs.RemoteWrite
	rr = verbs.RemoteRead
)

var programs = map[string]program{
	"send_imm":   {server: sendImmServer, client: sendImmClient},
	"sizes":      {server: sizesServer, client: sizesClient},
	"sizes_wrap": {server: sizesServer, client: sizesClient, firstPSN: 0xfffff0},
	"big":        {server: bigServer, client: bigClient},
	"big_wrap":   {server: bigServer, client: bigClient, firstPSN: 0xfffffa},
	"reads":      {server: passive, client: readsClient},
	"fence":      {server: passive, client: requests(request{op: verbs.OpRead, len: 64}, request{op: verbs.OpWrite, len: 64, flags: verbs.Fence})},
	"atomics":    {server: passive, client: atomicsClient},

	"rnr":      {server: lateReceive(8192), client: requests(request{op: verbs.OpSend, len: 3000}), waitsForReceive: true},
	"rnr_imm":  {server: lateReceive(0), client: requests(request{op: verbs.OpWriteImm, len: 3000, imm: 0x77}), waitsForReceive: true},
	"rnr_fail": {server: passive, client: requests(request{op: verbs.OpSend, len: 64})},

	"nak_write_rkey":         {server: passive, client: requests(request{op: verbs.OpWrite, len: 64, keyXor: 0x5a})},
	"nak_write_index":        {server: passive, client: requests(request{op: verbs.OpWrite, len: 64, keyXor: 0x70000000})},
	"nak_write_multi":        {server: passive, client: requests(request{op: verbs.OpWrite, len: 5000, keyXor: 0x5a})},
	"nak_write_bounds":       {server: passive, client: requests(request{op: verbs.OpWrite, len: 64, off: bufSize - 32})},
	"nak_write_bounds_multi": {server: passive, client: requests(request{op: verbs.OpWrite, len: 5000, off: bufSize - 4096})},
	"nak_read_rkey":          {server: passive, client: requests(request{op: verbs.OpRead, len: 64, keyXor: 0x5a})},
	"nak_read_bounds":        {server: passive, client: requests(request{op: verbs.OpRead, len: 5000, off: bufSize - 4096})},
	"nak_atomic_rkey":        {server: passive, client: requests(add(0, 1, 0x5a))},
	"nak_flood":              {server: passive, client: floodClient},
	"nak_write_perm":         {server: passive, client: requests(request{op: verbs.OpWrite, len: 64}), mr: lw | rr},
	"nak_read_perm":          {server: passive, client: requests(request{op: verbs.OpRead, len: 64}), mr: lw | rw},
	"nak_atomic_perm":        {server: passive, client: requests(swap(0, 1, 2)), mr: lw | rw | rr},
	"nak_write_qp":           {server: passive, client: requests(request{op: verbs.OpWrite, len: 64}), qp: rr},
	"nak_read_qp":            {server: passive, client: requests(request{op: verbs.OpRead, len: 64}), qp: rw},
	"nak_atomic_qp":          {server: passive, client: requests(swap(0, 1, 2)), qp: rw | rr},
	"nak_send_long":          {server: oneReceive(0, 32), client: requests(request{op: verbs.OpSend, len: 64})},
	"nak_send_long_multi":    {server: oneReceive(0, 1500), client: requests(request{op: verbs.OpSend, len: 3000})},
	// an SGE names its region by the region, so it cannot have a wrong key; it can leave the region
	"nak_op": {server: oneReceive(bufSize-32, 64), client: requests(request{op: verbs.OpSend, len: 64})},

	"uc":      {server: ucServer, client: ucClient, typ: verbs.UC, qp: rw},
	"uc_wrap": {server: ucServer, client: ucClient, typ: verbs.UC, qp: rw, firstPSN: 0xfffff8},
	"uc_lost": {server: ucLostServer, client: ucLostClient, typ: verbs.UC, qp: rw},
	"ud":      {server: udServer, client: udClient, typ: verbs.UD},
	"ud_lost": {server: udLostServer, client: udLostClient, typ: verbs.UD},
	"mcast":   {server: mcastServer, client: mcastClient, typ: verbs.UD},
}

// requests is a client that makes some requests.
func requests(r ...request) func(e *end) {
	return func(e *end) {
		e.barrier()
		e.tx(r...)
		e.barrier()
	}
}

// passive is a server that does nothing while the client works.
func passive(e *end) {
	e.barrier()
	e.barrier()
}

// oneReceive is a server with one receive.
func oneReceive(off, len int) func(e *end) {
	return func(e *end) {
		e.rx(off, len)
		e.barrier()
		e.wait("recv")
		e.barrier()
	}
}

// lateReceive is a server whose receive is not there when the client sends.
func lateReceive(len int) func(e *end) {
	return func(e *end) {
		e.barrier()
		time.Sleep(100 * time.Millisecond)
		e.rx(0, len)
		e.wait("recv")
		e.barrier()
	}
}

func sendImmServer(e *end) {
	for i := range 5 {
		e.rx(8192*i, 8192)
	}
	e.barrier()
	e.waitEach(5, "recv")
}

func sendImmClient(e *end) {
	e.barrier()
	e.tx(
		request{op: verbs.OpSend, len: 64},
		request{op: verbs.OpSendImm, len: 64, imm: 0x12345678},
		request{op: verbs.OpSendImm, len: 5001, imm: 0xcafebabe},
		request{op: verbs.OpSendImm, len: 0, imm: 0xabcd},
		request{op: verbs.OpSendImm, len: 33, imm: 0x51, flags: verbs.Solicited},
	)
}

// sizes are those around the path MTU.
func sizes(mtu int) []int {
	return []int{0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 2*mtu + 3, 3*mtu - 2}
}

func sizesServer(e *end) {
	n := 3 * len(sizes(e.PathMTU))
	for range n {
		e.rx(16384, 16384)
	}
	e.barrier()
	e.waitEach(n, "recv")
	e.barrier()
}

// sizesClient tries every operation at every size, to unaligned addresses.
func sizesClient(e *end) {
	e.barrier()
	for i, n := range sizes(e.PathMTU) {
		e.tx(
			request{op: verbs.OpSend, len: n},
			request{op: verbs.OpSendImm, len: n, imm: uint32(i)},
			request{op: verbs.OpWriteImm, len: n, off: 7, imm: uint32(i)},
			request{op: verbs.OpWrite, len: n, off: 1},
			request{op: verbs.OpRead, len: n, off: 3},
		)
	}
	e.barrier()
}

func bigServer(e *end) {
	e.rx(0, bufSize)
	e.rx(0, bufSize)
	e.barrier()
	e.waitEach(2, "recv")
	e.barrier()
}

func bigClient(e *end) {
	e.barrier()
	e.tx(
		request{op: verbs.OpSend, len: 40000},
		request{op: verbs.OpWrite, len: 40001, off: 11},
		request{op: verbs.OpWriteImm, len: 40002, off: 9000, imm: 0x99},
		request{op: verbs.OpRead, len: 40003, off: 3},
	)
	e.barrier()
}

// readsClient has more READs and atomics at once than may be outstanding. None
// reads what an atomic changes: without a fence their order is not defined (IBA
// 10.8.3.3).
func readsClient(e *end) {
	const reads = 40
	e.barrier()
	if e.err != nil {
		return
	}
	var wrs []verbs.SendWR
	for i := range reads {
		r := request{op: verbs.OpRead, len: 1500, off: uint64(1500 * i)}
		if i%5 == 4 {
			r = add(60000, 1, 0)
		}
		w := e.wr(r)
		w.SGEs[0].Offset = 1500 * i
		wrs = append(wrs, w)
	}
	e.post(wrs...)
	e.waitEach(reads, "wr")
	e.barrier()
}

func add(off, delta uint64, keyXor uint32) request {
	return request{op: verbs.OpFetchAdd, len: 8, off: off, keyXor: keyXor, compareAdd: delta}
}

func swap(off, old, new uint64) request {
	return request{op: verbs.OpCompareSwap, len: 8, off: off, compareAdd: old, swap: new}
}

// atomicsClient: an add, a swap that compares equal, one that does not, an add
// of -1.
func atomicsClient(e *end) {
	const was, delta = 0x5555555555555555, 0x0102030405060708
	requests(
		add(64, delta, 0),
		swap(64, was+delta, 0x1112131415161718),
		swap(64, was+delta, 0),
		add(64, 1<<64-1, 0),
	)(e)
}

// floodClient posts a bad request among good ones: the rest is flushed.
func floodClient(e *end) {
	e.barrier()
	if e.err != nil {
		return
	}
	var wrs []verbs.SendWR
	for i := range 5 {
		r := request{op: verbs.OpWrite, len: 64}
		if i == 2 {
			r.keyXor = 0x5a
		}
		wrs = append(wrs, e.wr(r))
	}
	e.post(wrs...)
	e.waitEach(5, "wr")
	e.barrier()
}
