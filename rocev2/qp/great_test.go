package qp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// kept is how much of a great region is real memory: the rest of the source is
// never written, and the rest of the destination given back while it fills.
const kept = 2 << 20

// registerGreat registers the longest message's worth of memory.
func (tq *testQP) registerGreat() (*mem.MR, []byte) {
	b, err := unix.Mmap(-1, 0, MaxMessage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		tq.t.Fatal(err)
	}
	tq.t.Cleanup(func() { _ = unix.Munmap(b) })
	mr, err := tq.keys.Register(&tq.pd, mem.NewBytes(b, 1<<40), 1<<40, 1<<40, MaxMessage, mem.LocalWrite|mem.RemoteWrite|mem.RemoteRead)
	if err != nil {
		tq.t.Fatal(err)
	}
	return mr, b
}

// A READ of 2 GiB at path MTU 256 takes half of the PSN space. It flies alone,
// between a requester and a responder whose queues stall and lose packets.
func TestGreatReadFliesAlone(t *testing.T) {
	if raceEnabled {
		t.Skip("8 million packets take minutes under the race detector; it runs without")
	}
	conform.Row(t, "5.3/outstanding", "bug/21", "bug/38")
	x := newQP(t, nil)
	y := newQP(t, func(a *Attr) {
		a.DestQPN, a.RQPSN, a.SQPSN = testQPN, localPSN, peerPSN
	})
	dst, to := x.registerGreat()
	src, from := y.registerGreat()
	copy(from, seq(kept))
	x.send(SendWQE{ID: 1, Opcode: WRSend, Flags: Signaled, SGEs: x.local(0, 4)})
	x.send(SendWQE{ID: 2, Opcode: WRRead, Flags: Signaled, RemoteAddr: src.IOVA, RKey: src.Key,
		SGEs: []SGE{{Addr: dst.IOVA, Length: MaxMessage, LKey: dst.Key}}})
	x.send(SendWQE{ID: 3, Opcode: WRSend, Flags: Signaled, SGEs: x.local(0, 4)})
	y.recv(1, 0, 4)
	y.recv(2, 0, 4)

	w := greatWire{r: rand.New(rand.NewPCG(1, 2))}
	alone := false
	for i := range 1 << 30 {
		if i%(1<<17) == 0 {
			_ = unix.Madvise(to[kept:], unix.MADV_DONTNEED)
		}
		n := w.pass(x, y, 4)
		outstanding := x.req.high - x.req.una
		if outstanding > ib.PSNWindow {
			t.Fatalf("%d PSNs are unacknowledged, at most %d may be", outstanding, ib.PSNWindow)
		}
		alone = alone || outstanding == ib.PSNWindow
		n += w.pass(y, x, w.r.IntN(64)) // at times none: the queue is full
		if n == 0 && len(x.wcs) == 3 {
			break
		}
		x.sleep(1000)
	}
	x.wantWC(Completion{ID: 1}, Completion{ID: 2, Opcode: WCRead, ByteLen: MaxMessage}, Completion{ID: 3})
	if !alone || w.lost == 0 {
		t.Errorf("the READ was alone in flight: %v; %d packets were lost", alone, w.lost)
	}
	if !bytes.Equal(to[:kept], from[:kept]) {
		t.Error("other bytes than were there")
	}
	if x.cfg.Counters.ImpliedNAK == 0 {
		t.Error("no READ was resumed")
	}
}

// greatWire passes packets, and loses one of 100,000.
type greatWire struct {
	r      *rand.Rand
	buf    [512]byte
	packet wire.Packet
	lost   int
}

// pass carries up to n packets from one QP to the other.
func (w *greatWire) pass(from, to *testQP, n int) (passed int) {
	p := TxPacket{Frame: new(wire.Frame)}
	for ; passed < n; passed++ {
		p.Frame.Frag[0] = w.buf[:]
		if !from.Plan(from.now, &p, from.batch) {
			break
		}
		from.batch.Run()
		from.Path().Seal(p.Frame)
		if w.r.IntN(100_000) == 0 {
			w.lost++
			continue
		}
		if v := wire.Parse(&w.packet, p.Frame); v != wire.Accepted {
			from.t.Fatalf("made a packet that is %v", v)
		}
		to.Handle(&w.packet, to.now, to.batch)
		to.batch.Run()
	}
	return passed
}
