package xdp

import "golang.org/x/sys/unix"

// Recv fills batch with received packets and returns how many; it never blocks
// and, in copy mode, makes no system call. The packets are the caller's until
// Release.
func (s *Socket) Recv(batch []Packet) int {
	if !s.enter() {
		return 0
	}
	defer s.leave()
	s.deepen(s.rx.avail(uint32(len(s.rx.ring))))
	n, bytes := 0, 0
	for n < len(batch) && s.rx.avail(1) > 0 {
		if s.collect(s.rx.take()) {
			batch[n] = s.partial
			bytes += s.partial.Len()
			s.partial = Packet{}
			n++
		}
	}
	s.rx.release()
	s.fillUp() // with frames of dropped packets
	if n > 0 {
		s.stats.rxPackets.Add(uint64(n))
		s.stats.rxBytes.Add(uint64(bytes))
	} else if s.fill.needWakeup() {
		// A zero-copy driver that ran out of FILL entries sleeps until told.
		kickRX(s.fd)
	}
	return n
}

// collect adds a frame to the packet under way and reports whether that is
// complete. A batch may end within a packet; the rest comes with the next Recv.
func (s *Socket) collect(d unix.XDPDesc) (whole bool) {
	last := d.Options&unix.XDP_PKT_CONTD == 0
	i := uint32(d.Addr >> frameShift)
	if !s.frames.holds(d.Addr, d.Len) || !s.frames.isRX(i) || !s.frames.move(i, ownKernel, ownReceived) {
		s.stats.rxBadDesc.Add(1)
		s.drop()
		s.skip = !last
		return false
	}
	s.posted--
	s.frames.rxHeld++
	p := &s.partial
	if s.skip || p.n == maxFrags {
		s.tooLong(i, last)
		return false
	}
	p.Frag[p.n] = s.frames.bytes(d.Addr, d.Len)
	p.frame[p.n] = i
	p.n++
	return last
}

// tooLong drops frame i and what came before it of its packet, which has more
// frames than a Packet holds.
func (s *Socket) tooLong(i uint32, last bool) {
	if !s.skip {
		s.stats.rxTooLong.Add(1)
		s.drop()
	}
	s.refill(i)
	s.skip = !last
}

// drop gives the frames of the packet under way back to the kernel.
func (s *Socket) drop() {
	for _, i := range s.partial.frame[:s.partial.n] {
		s.refill(i)
	}
	s.partial = Packet{}
}

// refill makes an RX frame ready for fillUp.
func (s *Socket) refill(i uint32) {
	if !s.frames.isRX(i) || !s.frames.move(i, ownReceived, ownFree) {
		s.stats.misuse.Add(1)
		return
	}
	s.frames.rxHeld--
	s.frames.poison(i)
	s.frames.spare = append(s.frames.spare, i)
}

// fillUp puts spare frames on the FILL ring, which has room for all of them, up
// to the depth that the kernel is to have.
func (s *Socket) fillUp() {
	f := &s.frames
	n := min(s.depth-min(s.posted, s.depth), uint32(len(f.spare)))
	s.fill.room(n)
	for range n {
		i := f.spare[len(f.spare)-1]
		f.spare = f.spare[:len(f.spare)-1]
		f.owner[i] = ownKernel
		s.fill.put(uint64(i) << frameShift)
	}
	s.posted += n
	s.fill.publish()
}

// firstDepth is how many RX frames the kernel has at first: 4 MiB, which a
// second-level cache may hold.
const firstDepth = 1024

// deepen doubles the depth when half of the frames that the kernel has wait in
// the RX ring: the next burst could find none.
func (s *Socket) deepen(waiting uint32) {
	if waiting > s.depth/2 && s.depth < s.frames.rx {
		s.depth = min(2*s.depth, s.frames.rx)
		s.fillUp()
	}
}

// Release gives received packets back, so that their frames receive again. It
// is safe after Close, when it frees the memory with the last of them.
func (s *Socket) Release(packets []Packet) {
	if !s.enter() {
		s.releaseLate(packets)
		return
	}
	defer s.leave()
	for k := range packets {
		p := &packets[k]
		for _, i := range p.frame[:p.n] {
			s.refill(i)
		}
		*p = Packet{}
	}
	s.fillUp()
}
