package netns

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/verbs"
)

// seed is that of what the tests make by chance.
func seed() uint64 { return cmp.Or(seeded.Given(), 1) }

// TestMain runs this binary as the child of the tests that end one, too.
func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		child(job)
		return
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what should be quick.
const patience = 20 * time.Second

// need skips the test unless the programs are there.
func need(t testing.TB, programs ...string) {
	t.Helper()
	nettest.Require(t)
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			nettest.SkipOrFail(t, fmt.Sprintf("the program %s (scripts/setup.sh test installs it)", p))
		}
	}
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", patience, what)
		}
	}
}

// open opens the interface of an end as a device, until the test's end.
func open(t testing.TB, e *nettest.End) *verbs.Device {
	t.Helper()
	return openName(t, e.NS, e.Name)
}

func openName(t testing.TB, ns *nettest.NS, name string) *verbs.Device {
	t.Helper()
	return openWith(t, ns, name, verbs.Options{})
}

func openWith(t testing.TB, ns *nettest.NS, name string, o verbs.Options) (d *verbs.Device) {
	t.Helper()
	if err := ns.Do(func() (err error) { d, err = verbs.Open(name, o); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return d
}

// openPair opens both ends of a new pair.
func openPair(t testing.TB, c nettest.Config) (p *nettest.Pair, devs [2]*verbs.Device) {
	t.Helper()
	p = nettest.New(t, c)
	for i, e := range p.Ends {
		devs[i] = open(t, e)
	}
	return p, devs
}

// side is a QP with a buffer that its peer may use.
type side struct {
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
	chn  *verbs.CompChannel
	qp   *verbs.QP
	buf  []byte
	mr   *verbs.MR
	addr netip.Addr // by which the peer reaches it
}

const allRights = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// newSide makes a QP with size bytes of memory, to be reached at addr.
func newSide(d *verbs.Device, size int, addr netip.Addr) *side {
	s := &side{dev: d, pd: must(d.AllocPD()), buf: make([]byte, size), addr: addr}
	s.chn = must(d.CreateCompChannel())
	s.cq = must(d.CreateCQ(1024, s.chn))
	s.mr = must(s.pd.RegMR(s.buf, allRights))
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq}))
	return s
}

// destroy ends all of it.
func (s *side) destroy(t testing.TB) {
	t.Helper()
	if err := errors.Join(s.qp.Destroy(), s.mr.Dereg(), s.cq.Destroy(), s.chn.Destroy(), s.pd.Dealloc()); err != nil {
		t.Error(err)
	}
}

// gidIndex returns the index of an address in a device's GID table; -1 if it isn't there.
func gidIndex(d *verbs.Device, a netip.Addr) int {
	for i, g := range d.GIDs() {
		if g == ib.GIDFromAddr(a) {
			return i
		}
	}
	return -1
}

// connect joins two sides by their addresses.
func connect(t testing.TB, a, b *side, o verbs.ConnectOptions) {
	t.Helper()
	for _, s := range []*side{a, b} {
		if s.qp.InitAttr().SendCQ == nil || gidIndex(s.dev, s.addr) < 0 {
			t.Fatalf("%v is not among the GIDs of %s: %v", s.addr, s.dev.Name(), s.dev.GIDs())
		}
	}
	join(t, a, b, o)
	join(t, b, a, o)
}

// join connects one side with the other.
func join(t testing.TB, s, to *side, o verbs.ConnectOptions) {
	t.Helper()
	if o.Access == 0 {
		o.Access = allRights &^ verbs.LocalWrite
	}
	o.GIDIndex = gidIndex(s.dev, s.addr)
	peer := must(to.qp.Endpoint(max(gidIndex(to.dev, to.addr), 0)))
	peer.GID = ib.GIDFromAddr(to.addr)
	if err := s.qp.Connect(peer, o); err != nil {
		t.Fatal(err)
	}
}

// newSides makes connected sides on two devices, at the IPv4 addresses of the pair.
func newSides(t testing.TB, p *nettest.Pair, devs [2]*verbs.Device, size int, o verbs.ConnectOptions) (a, b *side) {
	t.Helper()
	a, b = newSide(devs[0], size, p.Ends[0].V4), newSide(devs[1], size, p.Ends[1].V4)
	connect(t, a, b, o)
	return a, b
}

// wait sleeps until n completions came, and returns them.
func (s *side) wait(t testing.TB, n int) []verbs.WC {
	t.Helper()
	wcs, err := s.collect(n, patience)
	if err != nil {
		t.Fatal(err)
	}
	return wcs
}

func (s *side) collect(n int, limit time.Duration) ([]verbs.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	wcs := make([]verbs.WC, n)
	for got := 0; ; {
		if got += s.cq.Poll(wcs[got:]); got == n {
			return wcs, nil
		}
		if err := s.cq.ReqNotify(false); err != nil {
			return nil, err
		}
		if got += s.cq.Poll(wcs[got:]); got == n {
			return wcs, nil
		}
		if _, err := s.chn.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%v: %d of %d completions in %v: %w", s.qp, got, n, limit, err)
		}
	}
}

// done waits for n completions, all of them successes.
func (s *side) done(t testing.TB, n int) []verbs.WC {
	t.Helper()
	wcs := s.wait(t, n)
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			t.Fatal(err)
		}
	}
	return wcs
}

// post posts a send work request, signalled.
func (s *side) post(t testing.TB, wr verbs.SendWR) {
	t.Helper()
	wr.Flags |= verbs.Signaled
	if _, err := s.qp.PostSend(wr); err != nil {
		t.Fatal(err)
	}
}

// write posts a WRITE of n bytes to the same place at the other side.
func (s *side) write(t testing.TB, to *side, id uint64, at, n int) {
	t.Helper()
	s.post(t, verbs.SendWR{ID: id, Opcode: verbs.OpWrite, SGEs: []verbs.SGE{s.mr.SGE(at, n)},
		RemoteAddr: to.mr.IOVA() + uint64(at), RKey: to.mr.RKey()})
}

// fill makes bytes of a seed.
func fill(b []byte, n uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed()), byte(seed() >> 8), byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = r.Read(b)
}

// same compares two pieces of memory.
func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d of %d is 0x%02x, want 0x%02x", what, i, len(got), got[i], want[i])
		}
	}
}

// everyOperation runs the seven operations of a reliable connection from a to b
// with n bytes, and checks what arrived and that nothing beside it changed. It
// calls after, unless that is nil, after each.
func everyOperation(t testing.TB, a, b *side, n int, tag uint64, after func()) {
	t.Helper()
	const at = 24 // at the other side
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead} {
		fill(a.buf, tag*16+uint64(op))
		fill(b.buf, tag*16+uint64(op)+8)
		wantA, wantB := bytes.Clone(a.buf), bytes.Clone(b.buf)
		if op == verbs.OpRead {
			copy(wantA[:n], b.buf[at:])
		} else {
			copy(wantB[at:], a.buf[:n])
		}
		recv := op != verbs.OpWrite && op != verbs.OpRead
		if recv {
			must(b.qp.PostRecv(verbs.RecvWR{ID: tag, SGEs: []verbs.SGE{b.mr.SGE(at, n)}}))
		}
		a.post(t, verbs.SendWR{Opcode: op, SGEs: []verbs.SGE{a.mr.SGE(0, n/3), a.mr.SGE(n/3, n-n/3)}, Imm: uint32(tag),
			RemoteAddr: b.mr.IOVA() + at, RKey: b.mr.RKey()})
		a.done(t, 1)
		if recv {
			wc := b.done(t, 1)[0]
			if op != verbs.OpSend && (wc.Imm != uint32(tag) || wc.Flags != verbs.WCWithImm) || wc.ID != tag || int(wc.ByteLen) != n {
				t.Fatalf("%v of %d bytes: received %+v", op, n, wc)
			}
		}
		settle(b)
		same(t, fmt.Sprintf("%v of %d bytes, here", op, n), a.buf, wantA)
		same(t, fmt.Sprintf("%v of %d bytes, there", op, n), b.buf, wantB)
		if after != nil {
			after()
		}
	}
	atomics(t, a, b)
}

// settle is needed before a test reads what a peer wrote without a completion.
func settle(s *side) { s.dev.Stats() }

func atomics(t testing.TB, a, b *side) {
	t.Helper()
	b.mr.Store64(64, 40)
	for _, c := range []struct {
		wr       verbs.SendWR
		old, now uint64
	}{
		{verbs.SendWR{Opcode: verbs.OpFetchAdd, CompareAdd: 2}, 40, 42},
		{verbs.SendWR{Opcode: verbs.OpCompareSwap, CompareAdd: 41, Swap: 7}, 42, 42},
		{verbs.SendWR{Opcode: verbs.OpCompareSwap, CompareAdd: 42, Swap: 7}, 42, 7},
	} {
		c.wr.SGEs, c.wr.RemoteAddr, c.wr.RKey = []verbs.SGE{a.mr.SGE(0, 8)}, b.mr.IOVA()+64, b.mr.RKey()
		a.post(t, c.wr)
		a.done(t, 1)
		if old, now := a.mr.Load64(0), b.mr.Load64(64); old != c.old || now != c.now {
			t.Fatalf("%v: found %d, left %d; want %d, %d", c.wr.Opcode, old, now, c.old, c.now)
		}
	}
}
