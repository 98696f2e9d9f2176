package xdp

const (
	frameSize   = 4096 // the kernel's upper limit: one page
	frameShift  = 12
	rxHeadroom  = 256                    // XDP_PACKET_HEADROOM: the kernel's, before received bytes
	rxFrameRoom = frameSize - rxHeadroom // bytes of a packet in one RX frame
	maxFrags    = 2                      // frames of a packet: 4198 bytes are the longest of RoCEv2
)

// Packet is a packet in one or two UMEM frames. A received one holds its bytes.
// One from Reserve holds room, which the caller cuts to length from the end
// (p.Frag[i] = p.Frag[i][:n]) before Send; the second piece may be cut to nothing.
//
// A Packet is a token: it goes to Release, or to Send or Unreserve, exactly
// once, and its bytes are not touched after that.
type Packet struct {
	Frag  [maxFrags][]byte
	frame [maxFrags]uint32
	n     uint8
}

// Len returns the bytes of all pieces.
func (p *Packet) Len() int { return len(p.Frag[0]) + len(p.Frag[1]) }

// owner says who holds a frame. Every hand-over checks and changes it, so a
// packet released or sent twice is refused and counted instead of being in two
// rings at once, which corrupts data silently.
type owner uint8

const (
	ownFree     owner = iota // TX: in the free list; RX: spare
	ownKernel                // RX: in FILL or RX ring; TX: in TX or completion ring
	ownReceived              // RX: with the caller, between Recv and Release
	ownReserved              // TX: with the caller, between Reserve and Send or Unreserve
)

// frames is the UMEM's memory and the ledger of its frames: RX frames first,
// then TX frames.
type frames struct {
	mem    []byte
	owner  []owner
	rx     uint32   // RX frames are [0, rx)
	spare  []uint32 // RX frames that the kernel needs not have now
	free   []uint32 // TX frames to be had, last in first out: the one in the cache first
	rxHeld int      // RX frames with the caller
	txHeld int      // TX frames with the caller
}

func newFrames(rx, tx uint32) frames {
	f := frames{owner: make([]owner, rx+tx), rx: rx, spare: make([]uint32, 0, rx), free: make([]uint32, 0, tx)}
	for i := rx; i > 0; i-- {
		f.spare = append(f.spare, i-1)
	}
	for i := rx + tx; i > rx; i-- {
		f.free = append(f.free, i-1)
	}
	return f
}

// move passes frame i from one owner to another; false if from doesn't own it.
func (f *frames) move(i uint32, from, to owner) bool {
	if i >= uint32(len(f.owner)) || f.owner[i] != from {
		assertOwner(false, i, from)
		return false
	}
	f.owner[i] = to
	return true
}

// isRX reports whether i is one of the RX frames.
func (f *frames) isRX(i uint32) bool { return i < f.rx }

// bytes returns n bytes at UMEM address addr, with no capacity beyond the frame.
// The caller has checked that they lie within one frame.
func (f *frames) bytes(addr uint64, n uint32) []byte {
	end := (addr &^ (frameSize - 1)) + frameSize
	return f.mem[addr : addr+uint64(n) : end]
}

// holds reports whether n bytes at addr lie within one frame of the UMEM.
func (f *frames) holds(addr uint64, n uint32) bool {
	return addr < uint64(len(f.mem)) && addr&(frameSize-1)+uint64(n) <= frameSize
}

// poison overwrites a frame that leaves the caller, in debug builds, so that a
// slice kept too long shows.
func (f *frames) poison(i uint32) {
	if debug {
		frame := f.bytes(uint64(i)<<frameShift, frameSize)
		for k := range frame {
			frame[k] = 0xdb
		}
	}
}
