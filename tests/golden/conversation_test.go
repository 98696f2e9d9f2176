package golden

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// packet is one of a capture.
type packet struct {
	wire.Header
	n       int // its number in the capture, from 1
	payload []byte
	flow    wire.Flow
}

// request reports whether a requester sent it.
func (p *packet) request() bool { return p.Opcode.Info().Request }

func (p *packet) String() string {
	s := fmt.Sprintf("%v %v", p.Opcode, p.PSN)
	if p.AckReq {
		s += " AckReq"
	}
	if p.SE {
		s += " SE"
	}
	ext := p.Opcode.Info().Ext
	if ext.Has(wire.ExtRETH) {
		s += fmt.Sprintf(" of %d", p.Length)
	}
	if ext.Has(wire.ExtAETH) {
		s += fmt.Sprintf(" syndrome %#02x MSN %v", uint8(p.Syndrome), p.MSN)
	}
	return s + fmt.Sprintf(", %d bytes", len(p.payload))
}

// load returns the packets of a capture, taken apart.
func load(t *testing.T, name string) (packets []*packet) {
	t.Helper()
	for i, raw := range read(t, name) {
		p, err := takeApart(raw)
		if err != nil {
			t.Fatalf("%s packet %d: %v", name, i+1, err)
		}
		p.n = i + 1
		packets = append(packets, p)
	}
	return packets
}

func takeApart(raw []byte) (*packet, error) {
	var p wire.Packet
	v := wire.Parse(&p, &wire.Frame{Frag: [2][]byte{raw}})
	flow := wire.FlowOf(&p)
	if v == wire.DropICRC && wire.RxeFlushHolds(&p) {
		v, flow.RxeFlush = wire.Accepted, true
	}
	if v != wire.Accepted {
		return nil, fmt.Errorf("%v", v)
	}
	return &packet{Header: p.Header, payload: bytes.Clone(p.Payload[0]), flow: flow}, nil
}

// frame puts a packet together.
func (p *packet) frame() []byte {
	var t wire.Template
	t.Set(&p.flow)
	b := make([]byte, t.FrameLen(p.Opcode, len(p.payload)))
	f := wire.Frame{Frag: [2][]byte{b}}
	copy(t.Emit(&f, &p.Header, len(p.payload))[0], p.payload)
	t.Seal(&f)
	return f.Frag[0]
}

// talk is what one QP is asked and what it answers, in the order of the capture.
type talk struct {
	host, peer ib.GID
	qpn        ib.QPN
	peerQPN    ib.QPN // 0: no packet tells
	transport  wire.Transport
	packets    []*packet
	byCM       bool // the capture has the messages that made the connection
}

func (k *talk) String() string { return fmt.Sprintf("%v to QP %v", k.transport, k.qpn) }

// group reports whether the talk is with the members of a multicast group.
func (k *talk) group() bool { return k.qpn == ib.QPNMulticast }

// requests are the packets that the QP receives.
func (k *talk) requests() []*packet { return k.pick(true) }

// responses are those that it sends.
func (k *talk) responses() []*packet { return k.pick(false) }

func (k *talk) pick(request bool) (list []*packet) {
	for _, p := range k.packets {
		if p.request() == request {
			list = append(list, p)
		}
	}
	return list
}

// connection is what both directions of one have in common. The UDP source port
// is one of both, as rxe makes it of the two QPNs.
type connection struct {
	low, high ib.GID
	port      uint16
	transport wire.Transport
}

func connectionOf(p *packet) connection {
	low, high := p.flow.Src, p.flow.Dst
	if slices.Compare(low[:], high[:]) > 0 {
		low, high = high, low
	}
	return connection{low, high, p.flow.SrcPort, p.Opcode.Transport()}
}

// talks divides a capture: each packet is in one talk, that of the QP which it
// asks something of or which answers by it.
func talks(t *testing.T, name string, packets []*packet) (all []*talk) {
	t.Helper()
	qpns := map[connection]map[ib.GID]ib.QPN{} // by the host
	for _, p := range packets {
		c := connectionOf(p)
		if qpns[c] == nil {
			qpns[c] = map[ib.GID]ib.QPN{}
		}
		if was, ok := qpns[c][p.flow.Dst]; ok && was != p.DestQP && c.transport != wire.UD {
			t.Fatalf("%s packet %d: %v and %v in one connection", name, p.n, was, p.DestQP)
		}
		qpns[c][p.flow.Dst] = p.DestQP
	}
	index := map[string]*talk{}
	for _, p := range packets {
		c := connectionOf(p)
		k := &talk{host: p.flow.Dst, peer: p.flow.Src, qpn: p.DestQP, peerQPN: qpns[c][p.flow.Src], transport: c.transport}
		if !p.request() {
			k.host, k.peer, k.qpn, k.peerQPN = k.peer, k.host, k.peerQPN, k.qpn
		}
		id := fmt.Sprint(k.host, k.qpn, c)
		if c.transport == wire.UD {
			k.peerQPN, id = 0, fmt.Sprint(k.host, k.qpn)
		}
		if index[id] == nil {
			index[id] = k
			all = append(all, k)
		}
		index[id].packets = append(index[id].packets, p)
	}
	byCM := slices.ContainsFunc(all, func(k *talk) bool { return k.transport == wire.UD && k.qpn == 1 })
	for _, k := range all {
		k.byCM = byCM
	}
	return all
}

// mtu is the path MTU: what the first packet of a long message carries. Where
// there is none, the least from 1024 on that has room.
func (k *talk) mtu() ib.MTU {
	longest := 0
	for _, p := range k.packets {
		if !p.Opcode.Info().Place.Ends() {
			m, _ := ib.MTUFromBytes(len(p.payload))
			return m
		}
		longest = max(longest, len(p.payload))
	}
	for m := ib.MTU1024; ; m++ {
		if longest <= m.Bytes() {
			return m
		}
	}
}

// rnr says which requests are refused as no receive waits, and with which code.
func (k *talk) rnr() (refused map[*packet]bool, timer uint8) {
	refused = map[*packet]bool{}
	for i, p := range k.packets {
		if p.request() || !p.Syndrome.IsRNR() {
			continue
		}
		timer = uint8(p.Syndrome) & 0x1f
		for j := i - 1; j >= 0; j-- {
			if q := k.packets[j]; q.request() && q.PSN == p.PSN && !refused[q] {
				refused[q] = true
				break
			}
		}
	}
	return refused, timer
}

// psns returns how many PSNs a request takes.
func psns(p *packet, mtu ib.MTU) int {
	if p.Opcode != wire.RCReadRequest {
		return 1
	}
	return max(1, (int(p.Length)+mtu.Bytes()-1)/mtu.Bytes())
}

// vector is the address vector that makes the headers of a flow.
func (k *talk) vector(f wire.Flow, s scene) qp.AV {
	av := qp.AV{DGID: f.Dst, TClass: f.TClass, HopLimit: f.HopLimit, FlowLabel: s.flowLabel}
	av.RxeFlush = slices.ContainsFunc(k.packets, func(p *packet) bool { return p.flow.RxeFlush })
	if k.byCM && f.Src.Is4() { // its flow label shows in the UDP source port alone (Annex A17.5.8)
		av.FlowLabel = uint32(f.SrcPort) & 0x3fff
	}
	return av
}
