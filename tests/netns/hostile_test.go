package netns

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/verbs"
)

// blaster sends frames of its own making to an end, from the bridge.
type blaster struct {
	fd   int
	r    *rand.Rand
	to   *nettest.End
	from [2]*wire.Template // the peer, and a stranger
	qpns []ib.QPN
}

func newBlaster(t *testing.T, p *nettest.Pair, i int) *blaster {
	t.Helper()
	b := &blaster{r: rand.New(rand.NewPCG(seed(), 4791)), to: p.Ends[i]}
	err := p.Bridge.Do(func() (err error) {
		if b.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		index, err := indexOf(p.Ports[i])
		if err != nil {
			return err
		}
		return unix.Bind(b.fd, &unix.SockaddrLinklayer{Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(b.fd) })
	peer := p.Ends[1-i]
	for k, src := range []netip.Addr{peer.V4, netip.MustParseAddr("10.77.0.177")} {
		b.from[k] = new(wire.Template)
		b.from[k].Set(&wire.Flow{SrcMAC: [6]byte(peer.MAC), DstMAC: [6]byte(b.to.MAC),
			Src: ib.GIDFromAddr(src), Dst: ib.GIDFromAddr(b.to.V4), HopLimit: 64, SrcPort: 0xc123})
	}
	return b
}

// frame makes a frame with any opcode, PSN, fields and payload, for a QP.
func (b *blaster) frame(from *wire.Template, to ib.QPN) []byte {
	op := wire.Opcode(b.r.IntN(256))
	n := []int{0, 0, b.r.IntN(9), 1024, b.r.IntN(1500 - 100)}[b.r.IntN(5)]
	h := wire.Header{Opcode: op, PKey: ib.PKeyDefault, DestQP: to, PSN: ib.PSN(b.r.Uint32() & 0xffffff), MigReq: true,
		AckReq: b.r.IntN(2) == 0, RKey: b.r.Uint32(), Length: b.r.Uint32(), VA: b.r.Uint64(), QKey: flockQKey, Syndrome: wire.Syndrome(b.r.Uint32())}
	room := make([]byte, from.FrameLen(op, n))
	f := wire.Frame{Frag: [2][]byte{room}}
	for _, piece := range from.Emit(&f, &h, n) {
		for i := range piece {
			piece[i] = byte(b.r.Uint32())
		}
	}
	from.Seal(&f)
	return f.Frag[0]
}

// mutate changes a few bytes behind the Ethernet header, or cuts the frame, and makes its ICRC right if it still is one.
func (b *blaster) mutate(m []byte) []byte {
	switch b.r.IntN(3) {
	case 0:
		return m[:14+b.r.IntN(len(m)-13)]
	case 1:
		return m
	}
	for range 1 + b.r.IntN(3) {
		m[14+b.r.IntN(len(m)-14)] = byte(b.r.Uint32())
	}
	var p wire.Packet
	if wire.Parse(&p, &wire.Frame{Frag: [2][]byte{m}}) == wire.DropICRC {
		_, want := wire.ICRC(&p)
		binary.LittleEndian.PutUint32(m[len(m)-4:], want)
	}
	return m
}

// next makes a frame that must not harm the QP safe: damaged, or a stranger's; or anything at all, for another one.
func (b *blaster) next(safe ib.QPN) []byte {
	switch b.r.IntN(4) {
	case 0:
		m := b.frame(b.from[0], safe)
		m[len(m)-1-b.r.IntN(4)] ^= 1 << b.r.IntN(8)
		return m
	case 1:
		return b.frame(b.from[1], safe)
	case 2:
		return b.frame(b.from[0], ib.QPN(b.r.Uint32()&0xffffff|1<<23)) // most likely no one's
	}
	m := b.mutate(b.frame(b.from[0], b.qpns[b.r.IntN(len(b.qpns))]))
	if wire.PeekDestQP(&wire.Frame{Frag: [2][]byte{m}}) == safe {
		return nil
	}
	return m
}

func (b *blaster) blast(t *testing.T, safe ib.QPN, n int) {
	t.Helper()
	for range n {
		if m := b.next(safe); m != nil {
			if _, err := unix.Write(b.fd, m); err != nil && !errors.Is(err, unix.ENOBUFS) {
				t.Fatalf("% x: %v", m, err)
			}
		}
	}
}

// A port under load gets frames of every opcode, length and kind of damage from someone on its network. The connection
// that they are not for goes on and its data stays right; what they may do to others, those complete; and each drop is
// counted by its reason.
func TestHostileFramesUnderLoad(t *testing.T) {
	p, devs := openPair(t, nettest.Config{Bridge: true})
	a, safe := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, safe, verbs.ConnectOptions{})
	blaster := newBlaster(t, p, 1)
	var victims []*side
	for _, typ := range types {
		_, v := pairOf(t, p, devs, typ)
		for range 50 {
			must(v.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{v.mr.SGE(0, 1100)}}))
		}
		victims, blaster.qpns = append(victims, v), append(blaster.qpns, v.qp.Number())
	}
	drops := func() map[string]uint64 { return devs[1].Stats().Drops }
	for end := time.Now().Add(patience); ; {
		blaster.blast(t, safe.qp.Number(), 2000)
		l.progresses(t, 5)
		var missing []wire.Verdict
		for _, v := range []wire.Verdict{wire.DropTruncated, wire.DropOpcode, wire.DropLength, wire.DropVersion, wire.DropICRC, wire.DropNoQP,
			wire.DropTransport, wire.DropPKey, wire.DropAddress, wire.DropIncomplete} {
			if drops()[v.String()] == 0 {
				missing = append(missing, v)
			}
		}
		if missing == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no drop was counted as %v: %v", missing, drops())
		}
	}
	l.progresses(t, 20)
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	t.Logf("drops: %v", drops())
	for _, v := range victims {
		if err := v.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState); err != nil {
			t.Error(err)
		}
		v.wait(t, 50) // each receive completes, with data or without
		v.destroy(t)
	}
	x, y := newSides(t, p, devs, 1<<16, verbs.ConnectOptions{})
	everyOperation(t, x, y, 5001, 1, nil)
}

// What a peer is using is taken away in a flood of its WRITEs and SENDs: it gets the right error, and nothing else does.
func TestDestroyedInAFlood(t *testing.T) {
	p, devs := openPair(t, nettest.Config{Queues: 2})
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, verbs.ConnectOptions{})
	for _, c := range []struct {
		name   string
		take   func(t *testing.T, x, y *side, w *verbs.MW) error
		window bool
		status verbs.WCStatus
	}{
		{"MR", func(_ *testing.T, _, y *side, _ *verbs.MW) error { return y.mr.Dereg() }, false, verbs.RemAccessErr},
		{"MW", func(_ *testing.T, _, _ *side, w *verbs.MW) error { return w.Dealloc() }, true, verbs.RemAccessErr},
		{"QP", func(_ *testing.T, _, y *side, _ *verbs.MW) error { return y.qp.Destroy() }, false, verbs.RetryExcErr},
		{"QP to ERR", func(_ *testing.T, _, y *side, _ *verbs.MW) error {
			return y.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		}, false, verbs.RetryExcErr},
		{"in use", func(t *testing.T, x, y *side, w *verbs.MW) error {
			for what, err := range map[string]error{"CQ": y.cq.Destroy(), "PD": y.pd.Dealloc(), "its channel": y.chn.Destroy(), "MR under a window": y.mr.Dereg()} {
				if !errors.Is(err, verbs.ErrBusy) {
					t.Errorf("%s: %v", what, err)
				}
			}
			return x.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		}, true, verbs.WRFlushErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := newSide(devs[0], 1<<16, p.Ends[0].V4), newSide(devs[1], 1<<16, p.Ends[1].V4)
			y.mr = must(y.pd.RegMR(y.buf, allRights|verbs.MWBind))
			connect(t, x, y, quick)
			rkey := y.mr.RKey()
			var w *verbs.MW
			if c.window {
				w = must(y.pd.AllocMW(verbs.MWType1))
				rkey = must(y.qp.BindMW(1, verbs.Signaled, verbs.BindAttr{MW: w, MR: y.mr, Length: len(y.buf), Access: verbs.RemoteWrite}))
				y.done(t, 1)
			}
			wr := verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{x.mr.SGE(0, 9000)}, RemoteAddr: y.mr.IOVA(), RKey: rkey}
			status := make(chan verbs.WCStatus, 1)
			go func() { status <- floodUntilItFails(x, wr) }()
			before := devs[1].Stats().Counters["rcvd_pkts"]
			eventually(t, "the flood", func() bool { return devs[1].Stats().Counters["rcvd_pkts"] > before+500 })
			if err := c.take(t, x, y, w); err != nil {
				t.Error(err)
			}
			select {
			case s := <-status:
				if s != c.status {
					t.Errorf("status %v, want %v", s, c.status)
				}
			case <-time.After(2 * patience):
				t.Fatal("the flood neither ends nor fails")
			}
			l.progresses(t, 5)
		})
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// floodUntilItFails keeps s's send queue full and returns the first status that isn't success.
func floodUntilItFails(s *side, wr verbs.SendWR) verbs.WCStatus {
	wcs := make([]verbs.WC, 64)
	for {
		for {
			if _, err := s.qp.PostSend(wr); err != nil {
				break // the queue is full
			}
		}
		for _, wc := range wcs[:s.cq.Poll(wcs)] {
			if wc.Status != verbs.Success {
				return wc.Status
			}
		}
	}
}

// Address handles are made and destroyed in a flood of datagrams that name them: what was posted before goes out, what
// names one that is gone is refused.
func TestAHDestroyedInAFlood(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	a, b := pairOf(t, p, devs, verbs.UD)
	av := verbs.AV{DGID: ib.GIDFromAddr(b.addr), SGIDIndex: uint8(gidIndex(a.dev, a.addr))}
	const n = 2000
	for i := range n {
		ah := must(a.pd.CreateAH(av))
		wr := verbs.SendWR{ID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{a.mr.SGE(0, 100)}, AH: ah,
			RemoteQPN: b.qp.Number(), RemoteQKey: flockQKey}
		must(b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 200)}}))
		must(a.qp.PostSend(wr, wr))
		if err := ah.Destroy(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.qp.PostSend(wr); !errors.Is(err, verbs.ErrClosed) {
			t.Fatalf("posted with an AH that is gone: %v", err)
		}
		a.done(t, 2)
		b.done(t, 1)
	}
}

func indexOf(ifname string) (int, error) {
	i, err := net.InterfaceByName(ifname)
	if err != nil {
		return 0, err
	}
	return i.Index, nil
}
