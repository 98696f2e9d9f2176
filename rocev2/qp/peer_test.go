package qp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// testQP is a QP whose peer is the test: it writes the peer's packets and says
// which packets, completions and events it wants in return.
type testQP struct {
	*QP
	t        *testing.T
	now      clock.Time
	batch    *mem.Batch
	pd       mem.PD
	keys     mem.Table
	sq, rq   fakeQueue
	wcs      []Completion
	events   []Event
	mem      []byte  // local memory, of which each QP end has one region
	mr       *mem.MR // all of mem, every right
	recvMR   *mem.MR // … for receives of a shared queue
	wantPKey ib.PKey // that packets must carry
	burst    bool    // packets are handled in bursts, as with another process's memory
}

const (
	testQPN  = 0x11
	peerQPN  = 0x22
	localPSN = 0xfffffe // wraps in nearly every test
	peerPSN  = 0xfffffd
	memBase  = 0x100000
	memSize  = 1 << 16
)

type fakeQueue struct {
	sends   []*SendWQE
	recvs   []*RecvWQE
	next    int
	retired int
}

func (f *fakeQueue) retire() {
	f.retired++
	if f.retired > f.next {
		panic("retired more than was taken")
	}
}

func (f fakeSQ) Retire() { f.retire() }

func (f fakeRQ) Retire(w *RecvWQE) {
	if w != f.recvs[f.retired] {
		panic("retired another receive than the oldest")
	}
	f.retire()
}

type fakeSQ struct{ *fakeQueue }

func (f fakeSQ) Next() *SendWQE {
	if f.next == len(f.sends) {
		return nil
	}
	f.next++
	return f.sends[f.next-1]
}

type fakeRQ struct{ *fakeQueue }

func (f fakeRQ) Next() *RecvWQE {
	if f.next == len(f.recvs) {
		return nil
	}
	f.next++
	return f.recvs[f.next-1]
}

func (tq *testQP) Complete(CompletionQueue) *Completion {
	tq.wcs = append(tq.wcs, Completion{})
	return &tq.wcs[len(tq.wcs)-1]
}
func (tq *testQP) Notify(_ *QP, e Event) { tq.events = append(tq.events, e) }

var testPath = func() *wire.Template {
	var t wire.Template
	t.Set(&wire.Flow{
		Src: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Dst: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SrcPort: 0xc123,
	})
	return &t
}()

var pattern = func() []byte {
	b := make([]byte, memSize)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}()

// newReset returns an RC QP in RESET.
func newReset(t *testing.T) *testQP { return newTyped(t, RC) }

// newTyped returns a QP of a type, in RESET.
func newTyped(t *testing.T, typ Type) *testQP {
	tq := &testQP{t: t, now: 1e9, wantPKey: ib.PKeyDefault, batch: mem.NewBatch(256), mem: make([]byte, memSize)}
	copy(tq.mem, pattern)
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(tq.mem, memBase), memBase, memBase, memSize,
		mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead|mem.RemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	tq.mr = mr
	tq.QP = New(Config{
		Type: typ, QPN: testQPN, PD: &tq.pd, Keys: &tq.keys, SQ: fakeSQ{&tq.sq}, RQ: fakeRQ{&tq.rq}, Host: tq,
		Caps: Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: MaxSGE, MaxRecvSGE: MaxSGE, MaxInline: 512},
	})
	if testing.Verbose() {
		tq.cfg.Trace = func(_ *QP, what string, psn ib.PSN) { t.Logf("%8v %s %v", time.Duration(tq.now-1e9), what, psn) }
	}
	return tq
}

var (
	initAttr = Attr{State: Init, Port: 1, Access: mem.RemoteWrite | mem.RemoteRead | mem.RemoteAtomic}
	rtrAttr  = Attr{State: RTR, PathMTU: ib.MTU256, DestQPN: peerQPN, RQPSN: peerPSN, MaxDestRdAtomic: 4, MinRNRTimer: 12}
	rtsAttr  = Attr{State: RTS, SQPSN: localPSN, Timeout: 14, RetryCnt: 3, RNRRetry: 2, MaxRdAtomic: 4}
)

func modifyMask(to State) AttrMask { return rcService.required(to) }

// required returns the attributes of the transition to a state of RESET to RTS.
func (s *service) required(to State) AttrMask {
	from := map[State]State{Init: Reset, RTR: Init, RTS: RTR}[to]
	return s.legal[[2]State{from, to}].required | AttrState
}

// newQP returns a QP in RTS with path MTU 256, after tune has had its way with the attributes.
func newQP(t *testing.T, tune func(*Attr)) *testQP { return newReset(t).connect(tune) }

// connect takes a QP from RESET to RTS.
func (tq *testQP) connect(tune func(*Attr)) *testQP {
	tq.t.Helper()
	for _, a := range []Attr{initAttr, rtrAttr, rtsAttr} {
		if tune != nil {
			tune(&a)
		}
		if err := tq.Modify(&a, tq.svc.required(a.State), tq.now); err != nil {
			tq.t.Fatal(err)
		}
	}
	tq.SetPath(testPath)
	return tq
}

// send posts a send work request.
func (tq *testQP) send(w SendWQE) {
	tq.sq.sends = append(tq.sq.sends, &w)
}

// local returns a list that names n bytes of memory at off.
func (tq *testQP) local(off, n int) []SGE {
	return []SGE{{Addr: memBase + uint64(off), Length: uint32(n), LKey: tq.mr.Key}}
}

// recv posts a receive of n bytes at off.
func (tq *testQP) recv(id uint64, off, n int) {
	tq.rq.recvs = append(tq.rq.recvs, &RecvWQE{ID: id, SGEs: tq.local(off, n)})
}

// pkt is a packet as tests write it.
type pkt struct {
	wire.Header
	data []byte
}

func (p pkt) String() string {
	return fmt.Sprintf("%v psn %v ackreq %v syn %#x msn %d va %#x rkey %#x len %d imm %#x, %d bytes",
		p.Opcode, p.PSN, p.AckReq, uint8(p.Syndrome), p.MSN, p.VA, p.RKey, p.Length, p.Imm, len(p.data))
}

// gets hands the QP a packet of its peer, and returns the verdict.
func (tq *testQP) gets(h wire.Header, data []byte) wire.Verdict {
	tq.t.Helper()
	p := wire.Packet{Header: h, Payload: [2][]byte{bytes.Clone(data)}, Len: len(data)}
	v := tq.Handle(&p, tq.now, tq.batch)
	if !tq.burst {
		tq.batch.Run()
	}
	return v
}

func (tq *testQP) wantVerdict(want, got wire.Verdict) {
	tq.t.Helper()
	if want != got {
		tq.t.Fatalf("verdict %v, want %v", got, want)
	}
}

// accepts hands the QP a packet that it must accept.
func (tq *testQP) accepts(h wire.Header, data []byte) {
	tq.t.Helper()
	tq.wantVerdict(wire.Accepted, tq.gets(h, data))
}

// plan returns the next packet that the QP sends, if there is one.
func (tq *testQP) plan() (pkt, bool) {
	tq.t.Helper()
	buf := bytes.Repeat([]byte{0xa5}, wire.MaxPacketLen)
	p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{buf}}}
	for tq.Plan(tq.now, &p, tq.batch) {
		tq.batch.Run()
		if p.Void {
			p.Frame = &wire.Frame{Frag: [2][]byte{buf}}
			continue
		}
		p.Path.Seal(p.Frame)
		var parsed wire.Packet
		if v := wire.Parse(&parsed, p.Frame); v != wire.Accepted {
			tq.t.Fatalf("the QP made a packet that is %v", v)
		}
		if !parsed.MigReq || parsed.PKey != tq.wantPKey || parsed.DestQP != peerQPN {
			tq.t.Fatalf("BTH of %+v", parsed.Header)
		}
		parsed.MigReq, parsed.PKey, parsed.DestQP = false, 0, 0
		return pkt{parsed.Header, parsed.Payload[0]}, true
	}
	tq.batch.Run()
	return pkt{}, false
}

// wantPacket says which packet the QP must send next.
func (tq *testQP) wantPacket(h wire.Header, data []byte) {
	tq.t.Helper()
	got, ok := tq.plan()
	if !ok {
		tq.t.Fatalf("nothing sent, want %v", pkt{h, data})
	}
	if d := cmp.Diff(h, got.Header); d != "" {
		tq.t.Fatalf("sent %v; header (-want +got):\n%s", got, d)
	}
	if !bytes.Equal(data, got.data) {
		tq.t.Fatalf("sent %v, payload % x…, want % x…", got, head(got.data), head(data))
	}
}

func head(b []byte) []byte { return b[:min(len(b), 16)] }

// wantQuiet says that the QP must send nothing now.
func (tq *testQP) wantQuiet() {
	tq.t.Helper()
	if p, ok := tq.plan(); ok {
		tq.t.Fatalf("sent %v, want nothing", p)
	}
}

// wantWC says which completions there must be since the last time.
func (tq *testQP) wantWC(want ...Completion) {
	tq.t.Helper()
	for i := range want {
		want[i].QPN = testQPN
		want[i].Solicited = want[i].Solicited || want[i].Status != Success
	}
	if d := cmp.Diff(want, tq.wcs); d != "" {
		tq.t.Fatalf("completions (-want +got):\n%s", d)
	}
	tq.wcs = nil
}

func (tq *testQP) wantEvents(want ...Event) {
	tq.t.Helper()
	if d := cmp.Diff(want, tq.events); d != "" {
		tq.t.Fatalf("events (-want +got):\n%s", d)
	}
	tq.events = nil
}

func (tq *testQP) wantState(want State) {
	tq.t.Helper()
	if got := tq.State(); got != want {
		tq.t.Fatalf("state %v, want %v", got, want)
	}
}

// sleep moves the time on, and lets timers run out.
func (tq *testQP) sleep(d time.Duration) {
	tq.now = tq.now.Add(d)
	tq.Expire(tq.now)
}

// timeout lets the local ACK timer run out, which must take so many local ACK timeouts
// and be quiet.
func (tq *testQP) timeout(times time.Duration) {
	tq.t.Helper()
	d := tq.req.ackDeadline.Sub(tq.now)
	if want := times * ackTimeout(tq.attr.Timeout); d != want {
		tq.t.Fatalf("the timer takes %v, want %v", d, want)
	}
	tq.sleep(d - 1)
	tq.wantQuiet()
	tq.sleep(1)
}

func (tq *testQP) wantMem(off int, want []byte) {
	tq.t.Helper()
	if got := tq.mem[off : off+len(want)]; !bytes.Equal(got, want) {
		tq.t.Fatalf("memory at %#x: % x…, want % x…", off, head(got), head(want))
	}
}

// Short forms of packets. n counts from the first PSN of its side.
func psnL(n int) ib.PSN { return ib.PSN(localPSN).Add(n) }
func psnP(n int) ib.PSN { return ib.PSN(peerPSN).Add(n) }

func ack(n int, msn ib.MSN) wire.Header {
	return wire.Header{Opcode: wire.RCAck, PSN: psnL(n), Syndrome: wire.SyndromeAck, MSN: msn}
}

func nak(n int, s wire.Syndrome, msn ib.MSN) wire.Header {
	return wire.Header{Opcode: wire.RCAck, PSN: psnL(n), Syndrome: s, MSN: msn}
}

// The answers of the QP to its peer.
func ackP(n int, msn ib.MSN) wire.Header { return nakP(n, wire.SyndromeAck, msn) }

func nakP(n int, s wire.Syndrome, msn ib.MSN) wire.Header {
	return wire.Header{Opcode: wire.RCAck, PSN: psnP(n), Syndrome: s, MSN: msn}
}

func seq(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}
