package qp

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// FuzzUnreliable drives a UC or UD QP by a script of posts, packets, plans,
// timers, changes of state, paths and memory. Whatever comes: nothing is
// answered, what is sent is well-formed, each work request completes once, in
// order, and with ERR all do, but for receives that wait in a shared queue.
func FuzzUnreliable(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		f.Add(randomScript(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= 4096 {
			newLossy(t, b).play()
		}
	})
}

// TestRandomUnreliable plays scripts of FuzzUnreliable, of which any bytes are one.
func TestRandomUnreliable(t *testing.T) {
	r := seeded.Rand(t)
	for range rounds(3000) {
		newLossy(t, randomScript(r)).play()
	}
}

func randomScript(r *rand.Rand) []byte {
	b := make([]byte, 50+r.IntN(1000))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// lossy is the QP under test, and what must be true of it.
type lossy struct {
	*testQP
	s      script
	typ    Type
	ahs    []*AH
	other  *mem.MR // memory that comes and goes; nil: gone
	posted [2][]uint64
	quiet  map[uint64]bool // sends that aren't signalled

	serial uint64
}

func newLossy(t *testing.T, b []byte) *lossy {
	z := &lossy{s: b, quiet: map[uint64]bool{}}
	z.typ = pick(&z.s, UC, UD)
	z.testQP = newTyped(t, z.typ)
	z.cfg.Trace = nil
	z.cfg.SharedRQ = pick(&z.s, false, true)
	z.ahs = []*AH{newAH(), new(AH)}
	z.connectAgain()
	return z
}

func (z *lossy) connectAgain() {
	z.batch.Run()
	z.digest()
	if err := z.Modify(&Attr{State: Reset}, AttrState, z.now); err != nil {
		z.t.Fatal(err)
	}
	z.posted = [2][]uint64{z.waiting()}
	z.connect(func(a *Attr) { a.QKey = testQKey })
}

// waiting returns the receives that the QP hasn't taken.
func (z *lossy) waiting() (ids []uint64) {
	for _, w := range z.rq.recvs[z.rq.next:] {
		ids = append(ids, w.ID)
	}
	return ids
}

func (z *lossy) play() {
	steps := []func(){
		z.postSend, z.postSend, z.postRecv, z.postRecv, z.packet, z.packet, z.packet, z.packet, z.plan1, z.plan1, z.plan1,
		z.changePath, z.changeMemory, z.changeState, z.batch.Run, func() { z.burst = !z.burst }, func() { z.sleep(pathTimeout / 3) },
	}
	for len(z.s) > 0 {
		steps[int(z.s.next())%len(steps)]()
		if !z.burst {
			z.batch.Run()
			z.checkHeld()
		}
		z.digest()
	}
	z.end()
}

// checkHeld checks that of a shared queue the QP has the receive of the message in
// progress and no other.
func (z *lossy) checkHeld() {
	held, want := int(z.resp.tail-z.resp.head), 0
	if z.resp.msg.wqe != nil {
		want = 1
	}
	if z.cfg.SharedRQ && held != want {
		z.t.Fatalf("the QP holds %d receives, want %d", held, want)
	}
}

// list is one to three elements, seldom of no good memory.
func (z *lossy) list() (list []SGE) {
	for range 1 + z.s.next()%3 {
		s := z.local(int(z.s.next())*64, int(z.s.next())*2)[0]
		switch k := z.s.next(); {
		case k == 0:
			s.LKey ^= 1
		case k < 8 && z.other != nil:
			s = SGE{Length: uint32(k), LKey: z.other.Key}
		}
		list = append(list, s)
	}
	return list
}

func (z *lossy) postSend() {
	if len(z.sq.sends)-z.sq.retired >= 60 {
		return
	}
	z.serial++
	w := SendWQE{ID: z.serial, Opcode: pick(&z.s, WRSend, WRSendImm, WRWrite, WRWriteImm, WRSend, WRSendImm), SGEs: z.list(), RemoteQKey: 5}
	if z.s.next() == 0 {
		w.Opcode = WROpcode(z.s.next())
	}
	w.Flags = SendFlags(z.s.next()) & (Signaled | Solicited | Fence)
	w.AH, w.RemoteQPN = pick(&z.s, z.ahs...), peerQPN
	z.quiet[w.ID] = w.Flags&Signaled == 0
	z.posted[1] = append(z.posted[1], w.ID)
	z.send(w)
}

func (z *lossy) postRecv() {
	if len(z.rq.recvs)-z.rq.retired >= 60 {
		return
	}
	z.serial++
	z.posted[0] = append(z.posted[0], z.serial)
	z.rq.recvs = append(z.rq.recvs, &RecvWQE{ID: z.serial, SGEs: z.list()})
}

// packet is one of the peer: near the expected PSN, mostly of this transport.
func (z *lossy) packet() {
	op := wire.Opcode(z.s.next()) % 12
	if z.typ == UD {
		op = 4 + op%2
	}
	h := wire.Header{Opcode: op | wire.Opcode(z.svc.transport), PSN: z.resp.epsn, VA: memBase + 0x8000, RKey: z.mr.Key,
		QKey: testQKey, SrcQP: 9, PKey: ib.PKeyDefault, DestQP: testQPN, AckReq: z.s.next()&1 != 0, SE: z.s.next()&1 != 0}
	n := pick(&z.s, 0, 1, 8, 255, 256, 256, 256)
	h.Length = uint32(pick(&z.s, n, n, 256+n, 512+n))
	switch z.s.next() % 16 {
	case 0:
		h.PSN = h.PSN.Add(int(int8(z.s.next())))
	case 1:
		h.QKey++
	case 2:
		h.RKey ^= 1
	case 3:
		if z.other != nil {
			h.VA, h.RKey = 0, z.other.Key
		}
	}
	if !h.Opcode.Info().Place.Ends() {
		n = 256
	}
	state := z.state
	v := z.Handle(packetOf(z.t, pick(&z.s, flow4, flow6), h, seq(n)), z.now, z.batch)
	if v == wire.Accepted && !state.Receives() {
		z.t.Fatalf("accepted in %v", state)
	}
}

func (z *lossy) plan1() {
	buf := make([]byte, wire.MaxPacketLen)
	p := TxPacket{Frame: &wire.Frame{Frag: [2][]byte{buf}}, Loop: z.s.next() == 0}
	if !z.Plan(z.now, &p, z.batch) {
		return
	}
	if z.batch.Run(); p.Void {
		return
	}
	p.Path.Seal(p.Frame)
	var got wire.Packet
	if v := wire.Parse(&got, p.Frame); v != wire.Accepted {
		z.t.Fatalf("sent a packet that is %v", v)
	}
	if got.Opcode.Transport() != z.svc.transport || got.AckReq || got.Len > z.mtu || got.DestQP != peerQPN {
		z.t.Fatalf("sent %+v", got.Header)
	}
}

func (z *lossy) changePath() {
	if z.typ == UC {
		z.SetPath(pick(&z.s, testPath, nil))
		return
	}
	z.ahs[1].SetPath(pick(&z.s, &Path{Template: *testPath}, &Path{Template: *testPath, Loop: true}, nil))
	z.PathsChanged()
}

func (z *lossy) changeMemory() {
	if z.other != nil {
		z.keys.Deregister(z.other)
		z.other = nil
		return
	}
	mr, err := z.keys.Register(&z.pd, mem.NewBytes(make([]byte, 256), 0), 0, 0, 256, mem.LocalWrite|mem.RemoteWrite)
	if err != nil {
		z.t.Fatal(err)
	}
	z.other = mr
}

func (z *lossy) changeState() {
	z.batch.Run()
	switch to := pick(&z.s, RTS, RTS, RTS, SQD, Err, Reset); {
	case to == Reset || z.state == Err:
		z.connectAgain()
	default:
		_ = z.Modify(&Attr{State: to}, AttrState, z.now) // not legal from everywhere
	}
}

// digest takes in the completions: each once, and in order.
func (z *lossy) digest() {
	for _, c := range z.wcs {
		queue := 1
		if c.Opcode >= WCRecv {
			queue = 0
		}
		for {
			if len(z.posted[queue]) == 0 {
				z.t.Fatalf("completion %+v of nothing posted", c)
			}
			id := z.posted[queue][0]
			z.posted[queue] = z.posted[queue][1:]
			if id == c.ID {
				break
			}
			if queue == 0 || !z.quiet[id] {
				z.t.Fatalf("completion %+v before that of %d", c, id)
			}
		}
	}
	z.wcs = z.wcs[:0]
}

// end brings the QP to ERR: all that was posted must be complete then.
func (z *lossy) end() {
	z.batch.Run()
	if err := z.Modify(&Attr{State: Err}, AttrState, z.now); err != nil {
		z.t.Fatal(err)
	}
	z.sleep(time.Second)
	z.plan1()
	z.digest()
	for _, id := range z.posted[1] {
		if !z.quiet[id] {
			z.t.Fatalf("send %d has not completed", id)
		}
	}
	if !slices.Equal(z.posted[0], z.waiting()) || z.sq.retired != len(z.sq.sends) || z.rq.retired != z.rq.next ||
		!z.cfg.SharedRQ && z.rq.next != len(z.rq.recvs) {
		z.t.Fatalf("receives %v not complete; %d of %d sends, %d of %d receives given back, of %d", z.posted[0],
			z.sq.retired, len(z.sq.sends), z.rq.retired, z.rq.next, len(z.rq.recvs))
	}
}
