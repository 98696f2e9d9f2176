package verbs

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
)

// side is one of two connected QPs with a buffer that the other may use.
type side struct {
	dev *Device
	pd  *PD
	cq  *CQ
	qp  *QP
	buf []byte
	mr  *MR
}

const allRights = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic

// newSide makes a QP on a device.
func newSide(d *Device, size int, c Caps) *side {
	s := &side{dev: d, pd: must(d.AllocPD()), cq: must(d.CreateCQ(1024, nil)), buf: make([]byte, size)}
	s.mr = must(s.pd.RegMR(s.buf, allRights))
	s.qp = must(s.pd.CreateQP(QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Caps: c}))
	return s
}

// newPair makes two connected QPs on paired devices.
func newPair(t testing.TB, size int, c Caps, o ConnectOptions) (a, b *side) {
	da, db, err := OpenPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := da.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	a, b = newSide(da, size, c), newSide(db, size, c)
	connect(t, a, b, o)
	return a, b
}

func connect(t testing.TB, a, b *side, o ConnectOptions) {
	t.Helper()
	if o.Access == 0 {
		o.Access = RemoteWrite | RemoteRead | RemoteAtomic
	}
	if err := a.qp.Connect(must(b.qp.Endpoint(o.GIDIndex)), o); err != nil {
		t.Fatal(err)
	}
	if err := b.qp.Connect(must(a.qp.Endpoint(o.GIDIndex)), o); err != nil {
		t.Fatal(err)
	}
}

// wait polls for n completions.
func (s *side) wait(t testing.TB, n int) []WC {
	t.Helper()
	wcs := make([]WC, n)
	got := 0
	for end := time.Now().Add(10 * time.Second); got < n; {
		got += s.cq.Poll(wcs[got:])
		if time.Now().After(end) {
			t.Fatalf("%v: %d of %d completions after 10 s", s.qp, got, n)
		}
	}
	return wcs
}

// done waits for one successful completion.
func (s *side) done(t testing.TB) WC {
	t.Helper()
	wc := s.wait(t, 1)[0]
	if err := wc.Err(); err != nil {
		t.Fatal(err)
	}
	return wc
}

func fill(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
}

// Every operation, at sizes around the edges of packets, and both kinds of addresses.
func TestEveryOperation(t *testing.T) {
	for gid, mtu := range []ib.MTU{ib.MTU256, ib.MTU4096} {
		a, b := newPair(t, 1<<17, Caps{}, ConnectOptions{GIDIndex: gid, PathMTU: mtu})
		for i, n := range []int{0, 1, 2, 3, 8, 255, 256, 257, 4095, 4096, 4097, 65536, 65537} {
			everyOperation(t, a, b, n, uint64(i))
			everyOperation(t, b, a, n, uint64(i)+100)
		}
	}
}

func everyOperation(t *testing.T, a, b *side, n int, seed uint64) {
	t.Helper()
	at := 1 << 16
	sge := []SGE{a.mr.SGE(0, n/3), a.mr.SGE(n/3, n-n/3)}
	check := func(what string) {
		t.Helper()
		b.mr.Load8(0) // a WRITE or a READ has no completion there; this orders it before what follows
		if !bytes.Equal(a.buf[:n], b.buf[at:at+n]) {
			t.Errorf("%s of %d bytes arrived changed", what, n)
		}
	}
	at = (1 << 17) - n
	for _, op := range []Opcode{OpSend, OpSendImm, OpWrite, OpWriteImm, OpRead} {
		fill(a.buf[:n], seed+uint64(op)*1000)
		if op == OpRead {
			fill(b.buf[at:at+n], seed)
		}
		b.mr.Load8(0)
		recv := op != OpWrite && op != OpRead
		if recv {
			must(b.qp.PostRecv(RecvWR{ID: seed, SGEs: []SGE{b.mr.SGE(at, n)}}))
		}
		must(a.qp.PostSend(SendWR{ID: 5, Opcode: op, Flags: Signaled, SGEs: sge, Imm: 0xfeed0000 + uint32(n),
			RemoteAddr: b.mr.IOVA() + uint64(at), RKey: b.mr.RKey()}))
		if wc := a.done(t); wc.ID != 5 || wc.QPN != a.qp.Number() || wc.Opcode != sent(op) {
			t.Errorf("%v: %+v", op, wc)
		}
		if recv {
			checkRecv(t, b.done(t), b, op, n, seed)
		}
		check(op.String())
	}
}

// sent is what a completion calls an operation.
func sent(op Opcode) WCOpcode {
	return map[Opcode]WCOpcode{OpSend: WCSend, OpSendImm: WCSend, OpWrite: WCWrite, OpWriteImm: WCWrite, OpRead: WCRead,
		OpCompareSwap: WCCompareSwap, OpFetchAdd: WCFetchAdd}[op]
}

func checkRecv(t *testing.T, wc WC, s *side, op Opcode, n int, id uint64) {
	t.Helper()
	want := WC{ID: id, ByteLen: uint32(n), QPN: s.qp.Number(), SrcQP: wc.SrcQP, Opcode: WCRecv}
	if op != OpSend {
		want.Imm, want.Flags = 0xfeed0000+uint32(n), WCWithImm
	}
	if op == OpWriteImm {
		want.Opcode = WCRecvWriteImm
	}
	if wc != want {
		t.Errorf("%v of %d bytes: received %+v, want %+v", op, n, wc, want)
	}
}

func TestAtomics(t *testing.T) {
	a, b := newPair(t, 4096, Caps{}, ConnectOptions{})
	put := func(v uint64) { b.mr.Store64(64, v) }
	atomic := func(wr SendWR) (old, now uint64) {
		t.Helper()
		wr.Flags, wr.SGEs, wr.RemoteAddr, wr.RKey = Signaled, []SGE{a.mr.SGE(0, 8)}, b.mr.IOVA()+64, b.mr.RKey()
		must(a.qp.PostSend(wr))
		if wc := a.done(t); wc.Opcode != sent(wr.Opcode) || wc.ByteLen != 8 {
			t.Errorf("%+v", wc)
		}
		return binary.NativeEndian.Uint64(a.buf), b.mr.Load64(64)
	}
	put(40)
	if old, now := atomic(SendWR{Opcode: OpFetchAdd, CompareAdd: 2}); old != 40 || now != 42 {
		t.Errorf("FETCH_ADD: %d, then %d", old, now)
	}
	if old, now := atomic(SendWR{Opcode: OpCompareSwap, CompareAdd: 41, Swap: 7}); old != 42 || now != 42 {
		t.Errorf("CMP_SWAP that fails: %d, then %d", old, now)
	}
	if old, now := atomic(SendWR{Opcode: OpCompareSwap, CompareAdd: 42, Swap: 7}); old != 42 || now != 7 {
		t.Errorf("CMP_SWAP: %d, then %d", old, now)
	}
}
