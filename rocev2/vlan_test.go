package rocev2

import (
	"fmt"
	"slices"
	"strings"
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

// The GIDs of a port reach each other within the host, whatever VLANs they are of, as a
// host's addresses do: datagrams come in the VLAN of the GID that they are to.
func TestLoopOfVLANs(t *testing.T) {
	p := newVLANPeer(t)
	e := newDatagrams(t, p.port, 0)
	for _, c := range []struct {
		index uint8
		dst   string
		vlan  uint16
	}{{0, "10.0.0.2", 0}, {1, "10.0.0.2", 5}, {2, "10.0.0.3", 6}, {0, "10.0.0.3", 6}, {1, "10.0.0.3", 6}, {2, "10.0.0.2", 0}} {
		a, err := p.port.CreateAH(qp.AV{DGID: gid(c.dst), SGIDIndex: c.index})
		if err != nil {
			t.Fatal(err)
		}
		e.recv(1, 0, 100)
		e.sendTo(2, a, e.Number(), 8)
		settle(t, 1, nil, p.port)
		cs := e.cq.take()
		i := slices.IndexFunc(cs, func(c qp.Completion) bool { return c.ID == 1 })
		if len(cs) != 2 || len(p.sent()) != 0 || i < 0 || cs[i].VLAN != c.vlan {
			t.Errorf("GID %d to %s: %+v, want one in VLAN %d", c.index, c.dst, cs, c.vlan)
		}
	}
}

// A connection between GIDs of two VLANs of a port goes by the loop, and takes from the
// wire only what comes in its own VLAN.
func TestConnectionBetweenVLANs(t *testing.T) {
	p := newVLANPeer(t)
	a, b := newEndpoint(t, p.port, 1000, 32), newEndpoint(t, p.port, 1000, 32)
	for _, c := range []struct {
		e, peer *endpoint
		index   uint8
		dst     string
	}{{a, b, 1, "10.0.0.3"}, {b, a, 2, "10.0.0.2"}} {
		if err := c.e.connectFrom(c.index, c.peer.Number(), gid(c.dst), ib.MTU1024); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []*endpoint{a, b} {
		e.recv(1, 0, 100)
	}
	a.send(2, 200, 100)
	b.send(2, 200, 100)
	settle(t, 1, nil, p.port)
	for _, e := range []*endpoint{a, b} {
		cs := e.cq.take()
		if len(cs) != 2 || slices.ContainsFunc(cs, func(c qp.Completion) bool { return c.Status != qp.Success }) {
			t.Errorf("completions %+v", cs)
		}
	}
	if n := len(p.sent()); n != 0 {
		t.Errorf("%d frames on the wire", n)
	}
}

// A group is of a VLAN: its members get what has the tag, from the wire and from this
// port, and a port isn't in groups of VLANs that it has no GID of.
func TestMulticastInVLANs(t *testing.T) {
	conform.Row(t, "bug/45", "bug/57")
	p := newVLANPeer(t)
	members := map[uint16]*endpoint{}
	for _, vlan := range []uint16{0, 5} {
		members[vlan] = newDatagrams(t, p.port, 0)
		if err := members[vlan].AttachMcast(theGroup, vlan); err != nil {
			t.Fatal(err)
		}
	}
	if err := members[5].AttachMcast(theGroup, 7); err == nil || !strings.Contains(err.Error(), "in VLAN 7: no GID of the port is in VLAN 7") {
		t.Errorf("a group of VLAN 7: %v", err)
	}
	expect := func(what string, vlan uint16, send func()) {
		t.Helper()
		for _, e := range members {
			e.recv(1, 0, 100)
		}
		send()
		settle(t, 1, nil, p.port)
		for id, e := range members {
			cs := e.cq.take()
			got := slices.ContainsFunc(cs, func(c qp.Completion) bool { return c.ID == 1 && c.VLAN == id })
			if want := id == vlan; got != want {
				t.Errorf("%s: the member in VLAN %d has it: %v (%+v)", what, id, got, cs)
			}
		}
	}
	p.flow.Dst = theGroup
	for tag, id := range tags {
		expect(fmt.Sprintf("tag %#x", tag), id, func() {
			h := wire.Header{Opcode: wire.UDSendOnly, PKey: ib.PKeyDefault, DestQP: ib.QPNMulticast, QKey: dgramKey, SrcQP: 9}
			want := wire.Accepted
			if members[id] == nil {
				want = wire.DropNoMember
			}
			if got := p.judgedTagged(h, tag); got != want {
				t.Errorf("with tag %#x: %v, want %v", tag, got, want)
			}
		})
	}
	sender := newDatagrams(t, p.port, 0)
	for index, vlan := range []uint16{0, 5, 6} {
		a, err := p.port.CreateAH(qp.AV{DGID: theGroup, SGIDIndex: uint8(index)})
		if err != nil {
			t.Fatal(err)
		}
		expect(fmt.Sprintf("from GID %d", index), vlan, func() { sender.sendTo(2, a, ib.QPNMulticast, 8) })
		if sent := p.sent(); len(sent) != 1 || sent[0] != vlan {
			t.Errorf("from GID %d: tags %#x on the wire, want %d", index, sent, vlan)
		}
	}
	if got := p.port.Stats().Groups; len(got) != 2 || got["239.1.2.3 in VLAN 5"] != 1 {
		t.Errorf("groups %v", got)
	}
}
