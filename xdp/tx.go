package xdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reserve gives p room for a packet of n bytes, in one frame or two of 4096
// bytes each; the room given is whole frames. It reports false when there are
// no free frames now (see TXSpace), when n is beyond MaxSend, and after Close.
// Every Reserve is followed by Send or Unreserve, and the last by Flush.
func (s *Socket) Reserve(p *Packet, n int) bool {
	need := (max(n, 1) + frameSize - 1) / frameSize
	if !s.cfg.tx || n > s.MaxSend() || !s.enterSending() {
		return false
	}
	if len(s.frames.free) < need && s.reap() < need {
		s.restIfIdle()
		return false
	}
	*p = Packet{n: uint8(need)}
	for k := range need {
		i := s.frames.pop()
		p.frame[k] = i
		p.Frag[k] = s.frames.bytes(uint64(i)<<frameShift, frameSize)
	}
	return true
}

// Unreserve gives back what Reserve gave, unsent.
func (s *Socket) Unreserve(p *Packet) {
	for _, i := range p.frame[:p.n] {
		s.giveBack(i)
	}
	*p = Packet{}
	s.restIfIdle()
}

// Send puts p, cut to length, on the TX ring; Flush sends it. It reports false,
// with nothing sent and the frames free again, if p was not reserved or has no
// bytes in its first piece.
func (s *Socket) Send(p *Packet) bool {
	ok := s.stage(p)
	if !ok {
		s.stats.misuse.Add(1)
		s.Unreserve(p)
	}
	*p = Packet{}
	return ok
}

// stage checks p and puts its descriptors. The TX ring has room for all frames.
func (s *Socket) stage(p *Packet) bool {
	if !s.sending || p.n == 0 || len(p.Frag[0]) == 0 || !s.reserved(p) {
		return false
	}
	frags := p.n
	if frags == 2 && len(p.Frag[1]) == 0 {
		frags = 1
		s.giveBack(p.frame[1])
	}
	for k := range frags {
		d := unix.XDPDesc{Addr: address(p.frame[k], p.Frag[k]), Len: uint32(len(p.Frag[k]))}
		if k+1 < frags {
			d.Options = unix.XDP_PKT_CONTD
		}
		s.frames.move(p.frame[k], ownReserved, ownKernel)
		s.tx.put(d)
	}
	s.frames.txHeld -= int(frags)
	s.stats.txStaged++
	s.stats.txStagedBytes += uint64(p.Len())
	return true
}

// address is the UMEM address of b, which ends its capacity with its frame.
func address(frame uint32, b []byte) uint64 {
	return uint64(frame)<<frameShift + uint64(frameSize-cap(b))
}

// reserved reports whether all frames of p are the caller's to send.
func (s *Socket) reserved(p *Packet) bool {
	for k, i := range p.frame[:p.n] {
		if s.frames.isRX(i) || s.frames.owner[i] != ownReserved || cap(p.Frag[k]) > frameSize {
			assertOwner(false, i, ownReserved)
			return false
		}
	}
	return true
}

// giveBack frees a reserved frame.
func (s *Socket) giveBack(i uint32) {
	if s.frames.isRX(i) || !s.frames.move(i, ownReserved, ownFree) {
		s.stats.misuse.Add(1)
		return
	}
	s.frames.txHeld--
	s.frames.free = append(s.frames.free, i)
}

// pop takes a frame from the free list, which has one.
func (f *frames) pop() uint32 {
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.owner[i] = ownReserved
	f.txHeld++
	return i
}

// TXSpace returns how many frames Reserve can give now: a packet over 4096
// bytes takes two.
func (s *Socket) TXSpace() int {
	if !s.cfg.tx || !s.enter() {
		return 0
	}
	defer s.leave()
	if len(s.frames.free) < cap(s.frames.free)/2 {
		s.reap()
	}
	return len(s.frames.free)
}

// Reap takes back the frames of packets that were sent and returns how many
// frames are free. Reserve and Flush do it as needed.
func (s *Socket) Reap() int {
	if !s.cfg.tx || !s.enter() {
		return 0
	}
	defer s.leave()
	return s.reap()
}

func (s *Socket) reap() int {
	for range s.comp.avail(uint32(len(s.comp.ring))) {
		i := uint32(s.comp.take() >> frameShift)
		if s.frames.isRX(i) || !s.frames.move(i, ownKernel, ownFree) {
			s.stats.txBadComp.Add(1)
			continue
		}
		s.frames.poison(i)
		s.frames.free = append(s.frames.free, i)
	}
	s.comp.release()
	return len(s.frames.free)
}

// Flush shows the kernel what was sent since the last Flush and makes it look.
// What the device doesn't take now stays in the TX ring for the next Flush or
// Wait, without an error. ErrLinkDown is a passing condition; other errors are
// the end of the socket.
func (s *Socket) Flush() error {
	if !s.sending && !s.stuck.Load() {
		if s.gate.closed() {
			return ErrClosed
		}
		return nil
	}
	if !s.sending && !s.gate.enter() {
		return ErrClosed
	}
	err := s.flush()
	s.reap()
	s.sending = false
	s.gate.leave()
	return err
}

func (s *Socket) flush() error {
	if s.tx.publish() {
		s.stats.txPackets.Add(s.stats.txStaged)
		s.stats.txBytes.Add(s.stats.txStagedBytes)
		s.stats.txStaged, s.stats.txStagedBytes = 0, 0
	} else if !s.stuck.Load() {
		return nil
	}
	if !s.tx.needWakeup() {
		return nil
	}
	return s.kick()
}

// kick calls the kernel until the TX ring is empty or it takes nothing more. In
// copy mode a call sends at most 32 descriptors, 16 on older kernels, and says
// EAGAIN; but it says so, too, when the device is full.
func (s *Socket) kick() error {
	left := s.tx.pending()
	for calls := left/leastBudget + 1; ; calls-- {
		e := kickTX(s.fd)
		s.stats.kicks.Add(1)
		now := s.tx.pending()
		what := classify(e)
		if what == kickSoft && now > 0 && s.goesOn(calls, now < left) {
			left = now
			continue
		}
		s.note(now > 0 && !s.zc, what == kickDown)
		if what <= kickSoft {
			return nil
		}
		return s.kickError(what, e)
	}
}

// leastBudget is how many descriptors any kernel sends in a call.
const leastBudget = 16

// goesOn reports whether another call may send more. Kernels before 6.17 do not
// move the consumer index before the ring is empty, so that only the number of
// calls says how much they may have sent.
func (s *Socket) goesOn(calls uint32, progress bool) bool {
	if s.showsProgress {
		return progress
	}
	return calls > 1
}

// note tells Wait how the last kick ended, with a store only if that is news.
func (s *Socket) note(stuck, down bool) {
	if stuck != s.stuck.Load() {
		s.stuck.Store(stuck)
	}
	if down != s.down.Load() {
		s.down.Store(down)
	}
}

func (s *Socket) kickError(what kickResult, e unix.Errno) error {
	switch what {
	case kickDown:
		s.stats.linkDown.Add(1)
		return ErrLinkDown
	case kickGone:
		s.gone.Store(true)
		return ErrGone
	}
	return &Error{Op: "send", Interface: s.ifname, Queue: s.queue, Err: fmt.Errorf("kick of the TX ring: %w", e),
		Hint: "the driver may be unable to send by AF_XDP: try copy or generic mode"}
}

// enter guards a call of the owner; within Reserve to Flush it is in already.
func (s *Socket) enter() bool { return s.sending || s.gate.enter() }

func (s *Socket) leave() {
	if !s.sending {
		s.gate.leave()
	}
}

// restIfIdle leaves the gate when nothing is reserved and nothing waits for Flush.
func (s *Socket) restIfIdle() {
	if s.sending && s.frames.txHeld == 0 && s.tx.next == s.tx.pub {
		s.sending = false
		s.gate.leave()
	}
}

func (s *Socket) enterSending() bool {
	if !s.sending {
		s.sending = s.gate.enter()
	}
	return s.sending
}
