package xdp

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/seeded"
)

// pattern is n bytes that depend on a serial number.
func pattern(serial uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(serial*31)
	}
	if n >= 4 {
		binary.BigEndian.PutUint32(b, serial)
	}
	return b
}

func join(p *Packet) []byte { return append(bytes.Clone(p.Frag[0]), p.Frag[1]...) }

// write cuts p to b and fills it.
func write(p *Packet, b []byte) {
	n := copy(p.Frag[0], b)
	p.Frag[0] = p.Frag[0][:n]
	p.Frag[1] = p.Frag[1][:copy(p.Frag[1], b[n:])]
}

var sizes = []int{1, 14, 60, 1500, 3839, 3840, 3841, 3843, 4095, 4096, 4097, 4198, 7680}

// Random interleavings of everything that the owner and the kernel do: packets
// come out whole, in order and unchanged, and no frame is ever in two places.
func TestRandomInterleavings(t *testing.T) {
	rng := seeded.Rand(t)
	for round := range 27 {
		s, k := newFake(64<<(round%3), 64<<(round/3%3), -uint32(rng.IntN(200)))
		var sent, delivered, received, transmitted uint32
		var held []Packet
		for range 2000 {
			switch rng.IntN(7) {
			case 0, 1: // a packet arrives
				if k.deliver(pattern(delivered, sizes[rng.IntN(len(sizes))])) {
					delivered++
				}
			case 2: // receive some
				batch := make([]Packet, rng.IntN(20))
				for i := range s.Recv(batch) {
					b := join(&batch[i])
					if !bytes.Equal(b, pattern(received, len(b))) {
						t.Fatalf("packet %d of %d bytes came damaged or out of order", received, len(b))
					}
					received++
					held = append(held, batch[i])
				}
			case 3: // release some, in any order
				rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				n := rng.IntN(len(held) + 1)
				s.Release(held[:n])
				held = held[n:]
			case 4: // send, or change one's mind
				n := sizes[rng.IntN(len(sizes))]
				var p Packet
				if !s.Reserve(&p, n) {
					break
				}
				if rng.IntN(4) == 0 {
					s.Unreserve(&p)
					break
				}
				write(&p, pattern(sent, n))
				if !s.Send(&p) {
					t.Fatal("Send refused a reserved packet")
				}
				sent++
			case 5:
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			case 6: // the kernel sends, and completes in any order
				for range rng.IntN(20) {
					b := k.transmit()
					if b == nil {
						break
					}
					if !bytes.Equal(b, pattern(transmitted, len(b))) {
						t.Fatalf("packet %d of %d bytes went out damaged or out of order", transmitted, len(b))
					}
					transmitted++
				}
				for range rng.IntN(len(k.inTX) + 1) {
					k.complete(rng.IntN(len(k.inTX)))
				}
			}
			checkFrames(t, s, k, held)
		}
		if received < 100 || transmitted < 100 {
			t.Fatalf("only %d received and %d sent: the test is too weak", received, transmitted)
		}
		if st := s.Stats(); st.Misuse+st.RxBadDesc+st.TxBadComp+st.RxTooLong != 0 || st.RxPackets != uint64(received) {
			t.Fatalf("counters: %+v", st)
		}
	}
}

// checkFrames accounts for every frame: each is in exactly one place.
func checkFrames(t *testing.T, s *Socket, k *fakeKernel, held []Packet) {
	t.Helper()
	where := make([]int, len(s.frames.owner))
	add := func(addr uint64) { where[addr>>frameShift]++ }
	for i := k.fill.cons; i != s.fill.next; i++ {
		add(k.fill.ring[i%uint32(len(k.fill.ring))])
	}
	for i := s.rx.next; i != k.rx.prod; i++ {
		add(k.rx.ring[i%uint32(len(k.rx.ring))].Addr)
	}
	for i := range held {
		for _, f := range held[i].frame[:held[i].n] {
			where[f]++
		}
	}
	for _, f := range s.partial.frame[:s.partial.n] {
		where[f]++
	}
	for _, f := range slices.Concat(s.frames.free, s.frames.spare) {
		where[f]++
	}
	if n := s.fill.next - k.fill.cons + k.rx.prod - s.rx.next; s.posted != n {
		t.Fatalf("the kernel has %d RX frames, the socket thinks %d", n, s.posted)
	}
	for i := k.tx.cons; i != s.tx.next; i++ {
		add(k.tx.ring[i%uint32(len(k.tx.ring))].Addr)
	}
	for _, d := range k.inTX {
		add(d.Addr)
	}
	for i := s.comp.next; i != k.comp.prod; i++ {
		add(k.comp.ring[i%uint32(len(k.comp.ring))])
	}
	for f, n := range where {
		if n != 1 {
			t.Fatalf("frame %d is in %d places", f, n)
		}
	}
}

// The kernel has few RX frames, which stay in the cache, until a backlog shows
// that it needs more; the last of them is reached, and none gets lost.
func TestFillDeepens(t *testing.T) {
	s, k := newFake(4096, 64, 1<<32-77)
	batch := make([]Packet, 64)
	var serial, want uint32
	for _, depth := range []int{1024, 2048, 4096, 4096} {
		for range 5000 { // in step: no backlog
			k.deliver(pattern(serial, 60))
			serial++
			if n := s.Recv(batch); n != 1 || !bytes.Equal(batch[0].Frag[0], pattern(want, 60)) {
				t.Fatalf("%d packets", n)
			}
			want++
			s.Release(batch[:1])
		}
		if n := k.fill.len(); n != depth {
			t.Fatalf("%d frames on the FILL ring, want %d", n, depth)
		}
		for range depth/2 + 1 {
			if !k.deliver(pattern(serial, 60)) {
				t.Fatal("no frames")
			}
			serial++
		}
		for {
			n := s.Recv(batch)
			if n == 0 {
				break
			}
			want += uint32(n)
			s.Release(batch[:n])
		}
		checkFrames(t, s, k, nil)
	}
}

// A batch may end between a packet's two frames.
func TestBatchEndsWithinPacket(t *testing.T) {
	s, k := newFake(64, 64, 0)
	b := pattern(9, 4198)
	addr, _ := k.fill.consume()
	copy(k.mem[addr+rxHeadroom:], b[:rxFrameRoom])
	k.rx.produce(unix.XDPDesc{Addr: addr + rxHeadroom, Len: rxFrameRoom, Options: unix.XDP_PKT_CONTD})
	var batch [4]Packet
	if n := s.Recv(batch[:]); n != 0 {
		t.Fatalf("%d packets of half a packet", n)
	}
	addr, _ = k.fill.consume()
	copy(k.mem[addr+rxHeadroom:], b[rxFrameRoom:])
	k.rx.produce(unix.XDPDesc{Addr: addr + rxHeadroom, Len: 4198 - rxFrameRoom})
	if n := s.Recv(batch[:]); n != 1 || !bytes.Equal(join(&batch[0]), b) {
		t.Fatalf("%d packets, %d bytes", n, batch[0].Len())
	}
}

// Packets of more than two frames are dropped whole and counted once, also when
// a batch ends within them, and what follows is delivered.
func TestTooManyFrames(t *testing.T) {
	s, k := newFake(64, 64, 1<<32-5)
	var batch [1]Packet
	for round := range 200 {
		n := []int{rxFrameRoom*2 + 1, rxFrameRoom * 3, rxFrameRoom*5 + 7}[round%3]
		if !k.deliver(make([]byte, n)) || !k.deliver(pattern(uint32(round), 100)) {
			t.Fatal("frames are missing")
		}
		got := s.Recv(batch[:])
		if got != 1 || !bytes.Equal(join(&batch[0]), pattern(uint32(round), 100)) {
			t.Fatalf("round %d: %d packets", round, got)
		}
		s.Release(batch[:])
		checkFrames(t, s, k, nil)
	}
	if st := s.Stats(); st.RxTooLong != 200 || st.RxPackets != 200 {
		t.Errorf("counters: %+v", st)
	}
}

// Descriptors that the kernel should never give are dropped and counted.
func TestBadDescriptors(t *testing.T) {
	if debug {
		t.Skip("the debug build panics instead")
	}
	s, k := newFake(64, 64, 0)
	first, _ := k.fill.consume()
	bad := []unix.XDPDesc{
		{Addr: uint64(len(k.mem)) + 256, Len: 64},                             // beyond the UMEM
		{Addr: 1<<63 + 256, Len: 64},                                          // far beyond
		{Addr: first + 4000, Len: 200},                                        // crosses into the next frame
		{Addr: first + 256, Len: 1 << 31},                                     // longer than everything
		{Addr: 64<<frameShift + 256, Len: 64},                                 // a TX frame
		{Addr: 64<<frameShift + 256, Len: 64, Options: unix.XDP_PKT_CONTD},    // and the start of a packet,
		{Addr: first + frameSize + 256, Len: 64, Options: unix.XDP_PKT_CONTD}, // whose rest is
		{Addr: first + 2*frameSize + 256, Len: 64, Options: 0},                // skipped
		{Addr: first + 256, Len: 64, Options: unix.XDP_PKT_CONTD},             // a good start
		{Addr: first + 256, Len: 64},                                          // the same frame twice
	}
	for _, d := range bad {
		k.rx.produce(d)
	}
	k.fill.consume()
	k.fill.consume()
	k.deliver(pattern(1, 4198))
	batch := make([]Packet, 8)
	if n := s.Recv(batch); n != 1 || !bytes.Equal(join(&batch[0]), pattern(1, 4198)) {
		t.Fatalf("%d packets delivered, want the one good packet", n)
	}
	if st := s.Stats(); st.RxBadDesc != 7 {
		t.Errorf("%d bad descriptors counted, want 7", st.RxBadDesc)
	}
	s.Release(batch[:1])
	checkFrames(t, s, k, nil)
	k.comp.produce(64 << frameShift) // completion of a frame never sent
	k.comp.produce(0)                // of an RX frame
	if s.Reap(); s.Stats().TxBadComp != 2 {
		t.Errorf("%d bad completions counted, want 2", s.Stats().TxBadComp)
	}
	checkFree(t, s, 64)
}

func checkFree(t *testing.T, s *Socket, want int) {
	t.Helper()
	if n := s.TXSpace(); n != want {
		t.Errorf("%d frames are free, want %d", n, want)
	}
}

// A caller's mistakes with tokens are refused and counted, and put no frame in
// two places.
func TestMisuse(t *testing.T) {
	if debug {
		t.Skip("the debug build panics instead")
	}
	s, k := newFake(64, 64, 0)
	var batch [2]Packet
	k.deliver(pattern(0, 100))
	k.deliver(pattern(1, 4198))
	s.Recv(batch[:])
	twice, again := batch, batch[0]
	s.Release(batch[:])
	s.Release(twice[:]) // 3 frames
	if s.Send(&again) { // received, never reserved
		t.Error("a received packet was sent")
	}
	var p Packet
	s.Reserve(&p, 5000)
	q := p
	write(&p, pattern(0, 5000))
	s.Send(&p)
	if s.Send(&q) {
		t.Error("a packet was sent twice")
	}
	s.Reserve(&p, 100)
	p.Frag[0] = p.Frag[0][:0]
	if s.Send(&p) {
		t.Error("an empty packet was sent")
	}
	s.Unreserve(&p) // Send took it: nothing happens
	s.Flush()
	for k.transmit() != nil {
	}
	for len(k.inTX) > 0 {
		k.complete(0)
	}
	s.Reap()
	checkFrames(t, s, k, nil)
	checkFree(t, s, 64)
	if st := s.Stats(); st.Misuse != 3+2+3+1 {
		t.Errorf("%d mistakes counted, want 9: %+v", st.Misuse, st)
	}
}

// What was reserved can be sent from a later byte of its frames, and a second
// piece that is not needed goes back.
func TestSendCuts(t *testing.T) {
	s, k := newFake(64, 64, 0)
	var p Packet
	s.Reserve(&p, 4198)
	copy(p.Frag[0][100:], pattern(5, 300))
	p.Frag[0], p.Frag[1] = p.Frag[0][100:400], p.Frag[1][:0]
	if !s.Send(&p) || s.Flush() != nil {
		t.Fatal("refused")
	}
	if b := k.transmit(); !bytes.Equal(b, pattern(5, 300)) {
		t.Errorf("%d bytes went out", len(b))
	}
	checkFree(t, s, 63)
}

// The end of TX frames is "no space", the frames come back by completions, and
// Reserve refuses what no packet can be.
func TestReserveLimits(t *testing.T) {
	s, k := newFake(64, 64, 0)
	var p Packet
	if s.Reserve(&p, 2*frameSize+1) {
		t.Error("room for more than two frames")
	}
	for range 32 {
		if !s.Reserve(&p, 4097) {
			t.Fatal("no room")
		}
		write(&p, pattern(0, 4097))
		s.Send(&p)
	}
	if s.Reserve(&p, 1) || s.TXSpace() != 0 {
		t.Error("room beyond the last frame")
	}
	s.Flush()
	if s.Reserve(&p, 1) {
		t.Error("room before a completion")
	}
	k.transmit()
	k.complete(0)
	if !s.Reserve(&p, 1) || s.Reserve(new(Packet), 1) {
		t.Error("one completion is room for one packet")
	}
	s.cfg.sg = false
	if s.Reserve(&p, 4097) {
		t.Error("a packet of two frames without multi-buffer")
	}
}

// The kernel at work in another goroutine, for the race detector.
func TestSocketConcurrently(t *testing.T) {
	const total = 10000
	s, k := newFake(128, 64, 1<<32-100)
	go func() { // an echo
		for n := 0; n < total; {
			if b := k.transmit(); b != nil {
				for !k.deliver(b) {
					runtime.Gosched()
				}
				n++
			} else {
				runtime.Gosched()
			}
			for len(k.inTX) > 0 {
				k.complete(0)
			}
		}
	}()
	var batch [16]Packet
	var sent, got uint32
	for got < total {
		var p Packet
		for sent < total && s.Reserve(&p, 4198) {
			write(&p, pattern(sent, 4198))
			s.Send(&p)
			sent++
		}
		s.Flush()
		n := s.Recv(batch[:])
		for i := range n {
			if !bytes.Equal(join(&batch[i]), pattern(got, 4198)) {
				t.Fatalf("packet %d differs", got)
			}
			got++
		}
		s.Release(batch[:n])
		runtime.Gosched()
	}
}

func TestNoAllocations(t *testing.T) {
	s, k := newFake(64, 64, 0)
	b := pattern(0, 4198)
	var batch [4]Packet
	var p Packet
	k.inTX = make([]unix.XDPDesc, 0, 8)
	if n := testing.AllocsPerRun(1000, func() {
		k.deliver(b)
		s.Release(batch[:s.Recv(batch[:])])
		s.Reserve(&p, 4198)
		s.Send(&p)
		s.Flush()
		for range 2 {
			d, _ := k.tx.consume()
			k.comp.produce(d.Addr)
		}
		s.TXSpace()
		s.Reap()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
