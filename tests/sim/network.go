package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/wire"
)

// faults are probabilities per packet, and delays.
type faults struct {
	lose, duplicate, corrupt, reorder, forge float64
	noRoom                                   float64 // per frame reserved
	mark                                     float64 // by a switch, of packets that are capable of ECN
	latency, jitter                          time.Duration
	flaps                                    []flap
}

// flap is a time in which the link is down, from the beginning of the run on:
// nothing gets through. It is shorter than any ACK timeout, so that a request
// or its response is lost in it twice at most (by a NAK between).
type flap struct{ from, length time.Duration }

// lossless reports whether all that is sent arrives, sooner or later.
func (f *faults) lossless() bool { return f.lose == 0 && f.corrupt == 0 && len(f.flaps) == 0 }

// down reports whether the link is down.
func (n *network) down() bool {
	at := n.now.Sub(n.began)
	return !n.quiet && slices.ContainsFunc(n.f.flaps, func(f flap) bool { return at >= f.from && at < f.from+f.length })
}

// maxFaults is how often a packet may meet a fault, however often it is sent.
// So a request and its response fail four times at most, and a RETRY_EXC_ERR of
// a QP with seven retries is a bug.
const maxFaults = 2

// identity is what two transmissions of a packet have in common.
type identity struct {
	to  int // host
	qpn ib.QPN
	psn ib.PSN
	op  wire.Opcode
}

// network carries frames between the links of all hosts.
type network struct {
	r       *rand.Rand
	now     clock.Time
	began   clock.Time
	trace   *Coverage
	f       faults
	quiet   bool // no more faults
	queue   deliveries
	serial  uint64
	met     map[identity]int   // faults
	garble  map[ib.QPN]bool    // QPs whose peer answers with the wrong opcodes
	hosts   [][]*link          // links of each
	links   map[string][]*link // by address
	errs    []string
	sent    int
	pool    [][]byte
	scratch []byte // the frame being sent
	verbose bool
	onWire  func(p *wire.Packet, host int) // told of each copy that a host may get
}

// delivery is a frame on its way.
type delivery struct {
	at     clock.Time
	serial uint64 // of two at one time, the first sent is the first there
	to     *link
	data   []byte
}

type deliveries []delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].serial < d[j].serial
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(delivery)) }
func (d *deliveries) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}

func (n *network) violation(format string, args ...any) {
	n.errs = append(n.errs, fmt.Sprintf(format, args...))
}

func (n *network) chance(p float64) bool { return !n.quiet && n.r.Float64() < p }

func (n *network) buffer(size int) []byte {
	if last := len(n.pool) - 1; last >= 0 {
		b := n.pool[last]
		n.pool = n.pool[:last]
		return b[:size]
	}
	return make([]byte, size, wire.MaxPacketLen+64)
}

// carry decides what becomes of a frame.
func (n *network) carry(data []byte) {
	n.sent++
	f := wire.Frame{Frag: [2][]byte{data}}
	var p wire.Packet
	if v := wire.Parse(&p, &f); v != wire.Accepted {
		n.violation("a port sent a packet that is %v", v)
		return
	}
	if n.verbose {
		fmt.Printf("%12d %v>%v qp %v %v psn %v a=%v syn %v len %d/%d\n", n.now, p.SrcGID().Addr(), p.DstGID().Addr(), p.DestQP, p.Opcode, p.PSN, p.AckReq, p.Syndrome, p.Len, p.Length)
	}
	switch to := n.links[string(p.Dst)]; {
	case to != nil:
		n.forward(&p, to, data)
	case p.DestQP == ib.QPNMulticast && p.DstGID().IsMulticast():
		n.flood(&p, data)
	default:
		n.violation("a port sent to QP %v at %v, which doesn't exist", p.DestQP, p.DstGID().Addr())
	}
}

// flood sends a packet to a group to all hosts but its sender, as a switch does
// that knows of no members.
func (n *network) flood(p *wire.Packet, data []byte) {
	from := n.links[string(p.Src)][0].host
	for host, to := range n.hosts {
		if host != from {
			n.forward(p, to, slices.Clone(data))
		}
	}
}

// forward decides what becomes of a frame to one host.
func (n *network) forward(p *wire.Packet, to []*link, data []byte) {
	dst := to[n.r.IntN(len(to))] // the peer's NIC spreads as it likes
	qpn := p.DestQP
	if n.down() {
		n.trace.met["lost as the link was down"]++
		return
	}
	if n.garble[qpn] {
		garble(data, p.Opcode)
	}
	if p.TClass&3 == 2 && n.chance(n.f.mark) {
		mark(data)
	}
	if n.chance(n.f.forge) {
		n.forge(dst, data)
	}
	if id := (identity{dst.host, qpn, p.PSN, p.Opcode}); n.met[id] < maxFaults {
		switch {
		case n.chance(n.f.lose):
			n.met[id]++
			return
		case n.chance(n.f.corrupt):
			n.met[id]++
			n.damage(data)
		}
	}
	if n.chance(n.f.duplicate) {
		n.deliver(dst, data, n.delay()+time.Duration(n.r.Int64N(int64(20*n.f.latency))))
	}
	d := n.delay()
	if n.chance(n.f.reorder) {
		d += time.Duration(n.r.Int64N(int64(10 * n.f.latency)))
	}
	n.deliver(dst, data, d)
}

func (n *network) delay() time.Duration {
	if n.quiet || n.f.jitter == 0 {
		return n.f.latency
	}
	return n.f.latency + time.Duration(n.r.Int64N(int64(n.f.jitter)))
}

// deliver has a copy of the frame arrive after d.
func (n *network) deliver(to *link, data []byte, d time.Duration) {
	b := n.buffer(len(data))
	copy(b, data)
	n.count(b, to.host)
	n.serial++
	heap.Push(&n.queue, delivery{n.now.Add(d), n.serial, to, b})
}

// count tells of a copy of a datagram to a host.
func (n *network) count(b []byte, host int) {
	bth := bthAt
	if len(b) > ipAt && b[ipAt]>>4 == 6 {
		bth += wire.IPv6Len - wire.IPv4Len
	}
	if len(b) <= bth || wire.Opcode(b[bth]).Transport() != wire.UD {
		return
	}
	var p wire.Packet
	if wire.Parse(&p, &wire.Frame{Frag: [2][]byte{b}}) == wire.Accepted {
		n.onWire(&p, host)
	}
}

// damage flips up to three bits.
func (n *network) damage(data []byte) {
	for range 1 + n.r.IntN(3) {
		data[n.r.IntN(len(data))] ^= 1 << n.r.IntN(8)
	}
}

// next returns when the next frame arrives.
func (n *network) next() clock.Time {
	if len(n.queue) == 0 {
		return clock.Never
	}
	return n.queue[0].at
}

// advance moves the time on and lets arrive what is due.
func (n *network) advance(now clock.Time) {
	n.now = now
	for len(n.queue) > 0 && n.queue[0].at <= now {
		d := heap.Pop(&n.queue).(delivery)
		d.to.arrived = append(d.to.arrived, d.data)
	}
}

// link is one queue of a host's interface; it is a rocev2.Link.
type link struct {
	n       *network
	host    int
	arrived [][]byte
	lent    map[uint64][]byte // received frames that the worker holds
	tokens  uint64
	frames  [][2][]byte // to be sent, by token
	free    []int       // of frames
	held    int         // reserved frames that the worker holds
	stalled bool        // a Reserve was refused
	busy    bool        // the last Step did something: there may be more, on the loop
	cut     int         // bytes of the first piece of a received frame
}

func (l *link) Recv(batch []rocev2.RxFrame) int {
	n := min(len(batch), len(l.arrived))
	for i, b := range l.arrived[:n] {
		l.tokens++
		l.lent[l.tokens] = b
		batch[i] = rocev2.RxFrame{Token: l.tokens}
		batch[i].Frag = pieces(b, l.cut)
	}
	l.arrived = l.arrived[:copy(l.arrived, l.arrived[n:])]
	return n
}

// pieces cuts a frame, with room behind each piece as a receiver has it.
func pieces(b []byte, cut int) [2][]byte {
	if len(b) <= cut {
		return [2][]byte{b}
	}
	return [2][]byte{b[:cut:cut], b[cut:]}
}

func (l *link) Release(batch []rocev2.RxFrame) {
	for i := range batch {
		b, ok := l.lent[batch[i].Token]
		if !ok {
			l.n.violation("a received frame was released twice")
			continue
		}
		delete(l.lent, batch[i].Token)
		l.n.pool = append(l.n.pool, b)
	}
}

func (l *link) Reserve(f *rocev2.TxFrame, size int) bool {
	if l.n.chance(l.n.f.noRoom) {
		l.stalled = true
		return false
	}
	l.held++
	if len(l.free) == 0 {
		b := make([]byte, 2*wire.MaxPacketLen)
		l.free = append(l.free, len(l.frames))
		l.frames = append(l.frames, [2][]byte{b[:wire.MaxPacketLen:wire.MaxPacketLen], b[wire.MaxPacketLen:]})
	}
	last := len(l.free) - 1
	i, first := l.free[last], min(size, l.cut)
	l.free = l.free[:last]
	f.Token = uint64(i)
	f.Frag[0], f.Frag[1] = l.frames[i][0][:first:first], l.frames[i][1][:size-first]
	return true
}

func (l *link) Cancel(f *rocev2.TxFrame) {
	l.held--
	l.free = append(l.free, int(f.Token))
}

func (l *link) Send(f *rocev2.TxFrame) {
	l.n.scratch = append(append(l.n.scratch[:0], f.Frag[0]...), f.Frag[1]...)
	l.Cancel(f)
	l.n.carry(l.n.scratch)
}

func (l *link) Flush() error { return nil }

func (l *link) Wait(clock.Time, bool) {}
func (l *link) Wake()                 {}
func (l *link) Close() error          { return nil }

// check reports frames that were lost track of.
func (l *link) check() {
	if len(l.lent) > 0 || l.held > 0 {
		l.n.violation("%d received and %d reserved frames were never given back", len(l.lent), l.held)
	}
}
