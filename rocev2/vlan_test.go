package rocev2

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// newVLANPeer makes a Port with an address outside of all VLANs, the same one in
// VLAN 5, and one in VLAN 6.
func newVLANPeer(t *testing.T) *peer {
	t.Helper()
	x, y, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, link: x, flow: wire.Flow{Src: gid("10.0.0.1"), Dst: gid("10.0.0.2"), SrcPort: 0xc000}}
	net := &FixedNet{Addresses: []ib.GID{gid("10.0.0.2"), gid("10.0.0.2"), gid("10.0.0.3")}, Tags: []uint16{0, 5, 6}}
	if p.port, err = NewPort(Config{Name: "b", Links: []Link{y}, Net: net, Manual: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.port.Close() })
	return p
}

// sent returns the tags of the packets that the Port has sent.
func (p *peer) sent() (tags []uint16) {
	p.t.Helper()
	var f [16]RxFrame
	for n := p.link.Recv(f[:]); n > 0; n = p.link.Recv(f[:]) {
		for i := range f[:n] {
			var pkt wire.Packet
			if v := wire.Parse(&pkt, &f[i].Frame); v != wire.Accepted {
				p.t.Fatal(v)
			}
			tags = append(tags, pkt.VLAN)
		}
		p.link.Release(f[:n])
	}
	return tags
}

// tags are what frames may come with, and the VLAN that each means: a tag of id 0
// has a priority only.
var tags = map[uint16]uint16{0: 0, 0xe000: 0, 5: 5, 0x3005: 5, 6: 6, 0xfff: 0xfff}

// A connection is of the VLAN of its GID: it sends with its tag, its service level
// as the priority, and takes only what comes with it.
func TestConnectionsInVLANs(t *testing.T) {
	conform.Row(t, "bug/45")
	p := newVLANPeer(t)
	for index, vlan := range []uint16{0, 5} {
		e := newEndpoint(t, p.port, 1000, 32)
		if err := e.connectFrom(uint8(index), 9, gid("10.0.0.1"), ib.MTU1024); err != nil {
			t.Fatal(err)
		}
		e.setSL(t, uint8(index), 11)
		psn := ib.PSN(100)
		for tag, id := range tags {
			want := wire.DropVLAN
			if id == vlan {
				want = wire.Accepted
				e.recv(1, 0, 100)
			}
			p.flow.VLAN = tag
			h := wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: psn, AckReq: true}
			got := p.judgedTagged(h, tag)
			if got != want {
				t.Errorf("a frame with tag %#x to a connection in VLAN %d: %v, want %v", tag, vlan, got, want)
			}
			wantTag := vlan
			if vlan != 0 {
				wantTag |= 3 << 13 // the service level's low three bits
			}
			sent := p.sent()
			if want == wire.Accepted {
				psn = psn.Next()
				if len(sent) != 1 || sent[0] != wantTag {
					t.Errorf("answers with tags %#x, want one with %#x", sent, wantTag)
				}
			} else if len(sent) != 0 {
				t.Errorf("%d answers to a frame of another VLAN", len(sent))
			}
		}
	}
}

// setSL gives a connected endpoint another service level.
func (e *endpoint) setSL(t *testing.T, sgid, sl uint8) {
	t.Helper()
	for _, s := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.SQD}, qp.AttrState},
		{qp.Attr{AV: qp.AV{DGID: gid("10.0.0.1"), SGIDIndex: sgid, SL: sl}}, qp.AttrAV},
		{qp.Attr{State: qp.RTS}, qp.AttrState},
	} {
		if err := e.Modify(&s.a, s.mask); err != nil {
			t.Fatal(err)
		}
	}
}

// judgedTagged sends a packet with a tag, that of id 0 and priority 7 included,
// and returns its verdict.
func (p *peer) judgedTagged(h wire.Header, tag uint16) wire.Verdict {
	p.t.Helper()
	p.flow.VLAN = tag
	return p.judged(h, 8, nil)
}

// Datagrams come to the GID of their VLAN, and say which one that is; they leave
// with the tag of their source GID.
func TestDatagramsInVLANs(t *testing.T) {
	conform.Row(t, "bug/45")
	p := newVLANPeer(t)
	e := newDatagrams(t, p.port, 0)
	for _, c := range []struct {
		dst   string
		ids   []uint16
		other wire.Verdict
	}{{"10.0.0.2", []uint16{0, 5}, wire.DropVLAN}, {"10.0.0.3", []uint16{6}, wire.DropVLAN}, {"10.0.0.4", nil, wire.DropAddress}} {
		p.flow.Dst = gid(c.dst)
		for tag, id := range tags {
			want := c.other
			for _, own := range c.ids {
				if own == id {
					want = wire.Accepted
					e.recv(1, 0, 100)
				}
			}
			h := wire.Header{Opcode: wire.UDSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), QKey: dgramKey, SrcQP: 9}
			if got := p.judgedTagged(h, tag); got != want {
				t.Errorf("to %s with tag %#x: %v, want %v", c.dst, tag, got, want)
			}
			cs := e.cq.take()
			if want == wire.Accepted && (len(cs) != 1 || cs[0].VLAN != id) {
				t.Errorf("to %s with tag %#x: completions %+v", c.dst, tag, cs)
			}
		}
	}
	for index, want := range []uint16{0, 5 | 2<<13, 6 | 2<<13} {
		a, err := p.port.CreateAH(qp.AV{DGID: gid("10.0.0.1"), SGIDIndex: uint8(index), SL: 2})
		if err != nil {
			t.Fatal(err)
		}
		e.sendTo(1, a, 9, 8)
		settle(t, 1, nil, p.port)
		if sent := p.sent(); len(sent) != 1 || sent[0] != want {
			t.Errorf("from GID %d: tags %#x, want %#x", index, sent, want)
		}
	}
}

// Two GIDs of a port reach each other within the host only if they are of one VLAN.
func TestLoopWithinAVLAN(t *testing.T) {
	p := newVLANPeer(t)
	e := newDatagrams(t, p.port, 0)
	for index, dst := range []string{"10.0.0.2", "10.0.0.2", "10.0.0.3"} {
		a, err := p.port.CreateAH(qp.AV{DGID: gid(dst), SGIDIndex: uint8(index)})
		if err != nil {
			t.Fatal(err)
		}
		e.recv(1, 0, 100)
		e.sendTo(2, a, e.Number(), 8)
		settle(t, 1, nil, p.port)
		if cs := e.cq.take(); len(cs) != 2 || len(p.sent()) != 0 {
			t.Errorf("GID %d to itself: %+v", index, cs)
		}
	}
	other, err := p.port.CreateAH(qp.AV{DGID: gid("10.0.0.3"), SGIDIndex: 0})
	if err != nil {
		t.Fatal(err)
	}
	e.sendTo(2, other, e.Number(), 8)
	settle(t, 1, nil, p.port)
	if sent := p.sent(); len(sent) != 1 || sent[0] != 0 {
		t.Errorf("to a GID of another VLAN: frames with tags %#x, want an untagged one on the wire", sent)
	}
}
