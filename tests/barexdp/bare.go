// Package barexdp measures what AF_XDP itself does with frames of a size over a
// veth pair, with no protocol above it: the yardstick for the transport's
// figures, to be taken in the same run as those.
//
// Its frames are valid RoCEv2 as far as the XDP program looks, and nobody writes
// or reads their payload: a protocol that copies and checks it cannot be faster.
package barexdp

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/xdp"
)

// burst is how many frames are sent by one Flush, and received by one Recv.
const burst = 32

// Wire is two AF_XDP sockets at the ends of a veth pair, each in a namespace of
// its own.
type Wire struct {
	pair  *nettest.Pair
	ports [2]*xdp.Port
	ends  [2]*end
}

type end struct {
	s    *xdp.Socket
	from *nettest.End
	to   *nettest.End
	tx   [burst]xdp.Packet
	rx   [burst]xdp.Packet
}

// New makes a wire for frames of up to mtu bytes of IP. Close it.
func New(mtu int, o xdp.Options) (w *Wire, err error) {
	w = &Wire{}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.pair, err = veth.NewPair(nettest.Config{MTU: mtu}); err != nil {
		return nil, err
	}
	return w, w.open(o)
}

// Over makes a wire of an existing pair whose interfaces nothing else has open.
// Closing it leaves the pair.
func Over(pair *nettest.Pair, o xdp.Options) (*Wire, error) {
	w := &Wire{pair: pair}
	err := w.open(o)
	w.pair = nil
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Wire) open(o xdp.Options) error {
	for i, e := range w.pair.Ends {
		err := e.NS.Do(func() (err error) { w.ports[i], err = xdp.Open(e.Name, o); return err })
		if err != nil {
			return err
		}
		if err := w.ports[i].AddAddr(e.V4.As16()); err != nil {
			return err
		}
		w.ends[i] = &end{s: w.ports[i].Sockets()[0], from: e, to: w.pair.Ends[1-i]}
	}
	return nil
}

// Info says how the wire's ports were opened.
func (w *Wire) Info() xdp.Info { return w.ports[0].Info() }

// Close removes the wire.
func (w *Wire) Close() error {
	var errs []error
	for _, p := range w.ports {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if w.pair != nil {
		errs = append(errs, w.pair.Close())
	}
	return errors.Join(errs...)
}

// Frame returns an Ethernet frame of n bytes from one end of a pair to the
// other, with IPv4 and UDP to port 4791.
func Frame(src, dst *nettest.End, n int) []byte {
	f := make([]byte, n)
	copy(f, dst.MAC)
	copy(f[6:], src.MAC)
	be := binary.BigEndian
	be.PutUint16(f[12:], 0x0800)
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	be.PutUint16(ip[2:], uint16(n-14))
	copy(ip[12:], src.V4.AsSlice())
	copy(ip[16:], dst.V4.AsSlice())
	be.PutUint16(ip[10:], ipv4Sum(ip[:20]))
	udp := ip[20:]
	be.PutUint16(udp, 0xc000)
	be.PutUint16(udp[2:], 4791)
	be.PutUint16(udp[4:], uint16(n-34))
	return f
}

func ipv4Sum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// prepare writes the frame's headers into all free TX frames, so that sending is
// only cutting them to length. A packet of two frames may get any two of them in
// any order, so each of them starts with the headers.
func (e *end) prepare(size int) {
	f := Frame(e.from, e.to, size)
	var all []xdp.Packet
	for {
		var p xdp.Packet
		if !e.s.Reserve(&p, size) {
			break
		}
		copy(p.Frag[0], f)
		copy(p.Frag[1], f)
		all = append(all, p)
	}
	for i := range all {
		e.s.Unreserve(&all[i])
	}
}

// send puts up to n frames of size on the wire and returns how many.
func (e *end) send(size, n int) (sent int, err error) {
	for ; sent < min(n, burst); sent++ {
		p := &e.tx[sent]
		if !e.s.Reserve(p, size) {
			break
		}
		cut := min(size, len(p.Frag[0]))
		p.Frag[0] = p.Frag[0][:cut]
		if size > cut {
			p.Frag[1] = p.Frag[1][:size-cut]
		}
		e.s.Send(p)
	}
	return sent, e.s.Flush()
}

// receive takes what has come, at most a burst, and gives the frames back.
func (e *end) receive() int {
	n := e.s.Recv(e.rx[:])
	if n > 0 {
		e.s.Release(e.rx[:n])
	}
	return n
}

// Rate is how fast frames went.
type Rate struct {
	Packets int // received
	Lost    int
	Elapsed time.Duration
}

// PPS is packets per second.
func (r Rate) PPS() float64 { return float64(r.Packets) / r.Elapsed.Seconds() }
