package afpacket

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is unsafe here is the view of the head of a ring's slot, which the kernel
// writes, as its struct tpacket2_hdr. It lives until teardown unmaps the ring.

const (
	ethernetLen, vlanLen = 14, 4
	// slotSize has room for the longest frame behind the kernel's header, which takes
	// 66 bytes, and for a VLAN tag before it. It is a multiple of TPACKET_ALIGNMENT.
	slotSize = 4352
	// Slots don't cross blocks, which are whole pages.
	blockSize     = 1 << 16
	slotsPerBlock = blockSize / slotSize
	// headLen is what lies before a frame: the header and a struct sockaddr_ll.
	headLen = unix.SizeofTpacket2Hdr + unix.SizeofSockaddrLinklayer
)

// mapRing makes a ring of at least n slots.
func (s *Socket) mapRing(n int) error {
	blocks := (n + slotsPerBlock - 1) / slotsPerBlock
	slots := blocks * slotsPerBlock
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return fmt.Errorf("TPACKET_V2: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_RESERVE, vlanLen); err != nil {
		return fmt.Errorf("room for a VLAN tag: %w", err)
	}
	req := unix.TpacketReq{Block_size: blockSize, Block_nr: uint32(blocks), Frame_size: slotSize, Frame_nr: uint32(slots)}
	if err := unix.SetsockoptTpacketReq(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("%d KiB: %w", blocks*blockSize>>10, err)
	}
	s.held = make([]bool, slots)
	ring, err := unix.Mmap(s.fd, 0, blocks*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map it: %w", err)
	}
	s.ring = ring
	return nil
}

// slot returns the bytes of a slot, which begin with its header.
func (s *Socket) slot(i uint32) ([]byte, *unix.Tpacket2Hdr) {
	at := i/slotsPerBlock*blockSize + i%slotsPerBlock*slotSize
	b := s.ring[at : at+slotSize : at+slotSize]
	return b, (*unix.Tpacket2Hdr)(unsafe.Pointer(&b[0]))
}

// Recv returns the next received frame, if there is one; it never blocks and makes no
// system call. The frame, from the Ethernet header on and with its VLAN tag, is the
// caller's until Release of its slot. One longer than MaxFrame is cut off.
func (s *Socket) Recv() (frame []byte, slot uint32, ok bool) {
	for {
		i := s.next
		b, h := s.slot(i)
		// The kernel stops, too, at a slot that wasn't released.
		if s.held[i] || atomic.LoadUint32(&h.Status)&unix.TP_STATUS_USER == 0 {
			return nil, 0, false
		}
		s.held[i] = true
		if s.next++; s.next == uint32(len(s.held)) {
			s.next = 0
		}
		if frame, ok = frameIn(b, h); ok {
			s.stats.rxPackets.Add(1)
			s.stats.rxBytes.Add(uint64(len(frame)))
			return frame, i, true
		}
		s.stats.rxBad.Add(1)
		s.Release(i)
	}
}

// frameIn is the frame of a slot, with the VLAN tag that the kernel took off it. It
// reports false if the header can't be right.
func frameIn(b []byte, h *unix.Tpacket2Hdr) (frame []byte, ok bool) {
	start, end := int(h.Mac), int(h.Mac)+int(h.Snaplen)
	if start < headLen+vlanLen || end > len(b) || end-start < ethernetLen {
		return nil, false
	}
	if h.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return b[start:end:end], true
	}
	const macs = 12 // the tag follows the two addresses
	start -= vlanLen
	copy(b[start:], b[start+vlanLen:start+vlanLen+macs])
	be.PutUint16(b[start+macs:], h.Vlan_tpid)
	be.PutUint16(b[start+macs+2:], h.Vlan_tci)
	return b[start:end:end], true
}

// Release gives the slot of a received frame back to the kernel, once for each Recv, in
// any order; but while one is kept, none beyond it comes once the ring has gone around.
func (s *Socket) Release(slot uint32) {
	_, h := s.slot(slot)
	s.held[slot] = false
	atomic.StoreUint32(&h.Status, unix.TP_STATUS_KERNEL)
}
