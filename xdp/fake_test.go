package xdp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fakeRing is the memory of a ring, and the kernel's end of it.
type fakeRing[T any] struct {
	prod, cons, flags uint32
	ring              []T
}

func newFakeRing[T any](size int, index uint32) *fakeRing[T] {
	return &fakeRing[T]{prod: index, cons: index, ring: make([]T, size)}
}

// produce is the kernel as producer (RX, completion); false if the ring is full.
func (k *fakeRing[T]) produce(v T) bool {
	if k.prod-atomic.LoadUint32(&k.cons) == uint32(len(k.ring)) {
		return false
	}
	k.ring[k.prod%uint32(len(k.ring))] = v
	atomic.StoreUint32(&k.prod, k.prod+1)
	return true
}

// consume is the kernel as consumer (FILL, TX).
func (k *fakeRing[T]) consume() (v T, ok bool) {
	if atomic.LoadUint32(&k.prod) == k.cons {
		return v, false
	}
	v = k.ring[k.cons%uint32(len(k.ring))]
	atomic.StoreUint32(&k.cons, k.cons+1)
	return v, true
}

func (k *fakeRing[T]) len() int { return int(atomic.LoadUint32(&k.prod) - atomic.LoadUint32(&k.cons)) }

// producer returns our end of the ring.
func (k *fakeRing[T]) producer() (r producer[T]) {
	r.shared.prod, r.shared.cons, r.shared.flags = &k.prod, &k.cons, &k.flags
	r.ring, r.mask = k.ring, uint32(len(k.ring)-1)
	r.start(k.prod)
	return r
}

// consumer returns our end of the ring.
func (k *fakeRing[T]) consumer() (r consumer[T]) {
	r.shared.prod, r.shared.cons = &k.prod, &k.cons
	r.ring, r.mask = k.ring, uint32(len(k.ring)-1)
	r.start(k.cons)
	return r
}

// fakeKernel is the other side of a Socket whose rings are plain memory.
type fakeKernel struct {
	fill, comp *fakeRing[uint64]
	rx, tx     *fakeRing[unix.XDPDesc]
	mem        []byte
	inTX       []unix.XDPDesc // taken from the TX ring, not completed
}

// newFake makes a socket over a fake kernel; its ring indices start at index.
func newFake(rx, tx int, index uint32) (*Socket, *fakeKernel) {
	k := &fakeKernel{
		fill: newFakeRing[uint64](rx, index), comp: newFakeRing[uint64](tx, index),
		rx: newFakeRing[unix.XDPDesc](rx, index), tx: newFakeRing[unix.XDPDesc](tx, index),
	}
	s := &Socket{ifname: "fake", fd: -1, wakeFD: -1, stopFD: -1,
		cfg: socketConfig{sg: true, tx: true, rxFrames: uint32(rx), txFrames: uint32(tx)}}
	s.frames = newFrames(uint32(rx), uint32(tx))
	s.frames.mem = make([]byte, (rx+tx)*frameSize)
	k.mem = s.frames.mem
	s.fill, s.comp, s.rx, s.tx = k.fill.producer(), k.comp.consumer(), k.rx.consumer(), k.tx.producer()
	s.fillFirst()
	return s, k
}

// deliver puts a packet on the RX ring in frames of at most 3840 bytes, whole or
// not at all, as the kernel does.
func (k *fakeKernel) deliver(b []byte) bool {
	frames := (len(b) + rxFrameRoom - 1) / rxFrameRoom
	if k.fill.len() < frames || len(k.rx.ring)-k.rx.len() < frames {
		return false
	}
	for len(b) > 0 {
		addr, _ := k.fill.consume()
		d := unix.XDPDesc{Addr: addr + rxHeadroom}
		d.Len = uint32(copy(k.mem[d.Addr:d.Addr+rxFrameRoom], b))
		b = b[d.Len:]
		if len(b) > 0 {
			d.Options = unix.XDP_PKT_CONTD
		}
		k.rx.produce(d)
	}
	return true
}

// transmit takes a packet from the TX ring; nil if there is none.
func (k *fakeKernel) transmit() (b []byte) {
	for {
		d, ok := k.tx.consume()
		if !ok {
			return b
		}
		b = append(b, k.mem[d.Addr:d.Addr+uint64(d.Len)]...)
		k.inTX = append(k.inTX, d)
		if d.Options&unix.XDP_PKT_CONTD == 0 {
			return b
		}
	}
}

// complete gives back frame i of those transmitted.
func (k *fakeKernel) complete(i int) {
	d := k.inTX[i]
	k.inTX = append(k.inTX[:i], k.inTX[i+1:]...)
	k.comp.produce(d.Addr)
}
