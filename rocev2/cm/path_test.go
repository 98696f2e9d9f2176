package cm

import (
	"errors"
	"slices"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/tests/conform"
)

// The partition of a connection is the one that its REQ names: each end has it by its own P_Key, and sends its messages by that.
func TestPartitions(t *testing.T) {
	table := ib.PKeyTable{0xffff, 0x8001, 0x7ff2, 0x0003, 0x8003}
	for _, c := range []struct {
		name     string
		pkey     ib.PKey // of the active side
		listen   ib.PKey
		index    uint16 // at the passive side
		want     Reason
		wantSIDR SIDRStatus
	}{
		{"the first of the table, as none was chosen", 0, 0, 0, 0, SIDRValid},
		{"another", 0x8001, 0, 1, 0, SIDRValid},
		{"a limited member at the other end", 0xfff2, 0, 2, 0, SIDRValid},
		{"a limited member at this end", 0x0001, 0, 1, 0, SIDRValid},
		{"both memberships at the other end", 0x8003, 0, 4, 0, SIDRValid},
		{"the one listened in", 0x8001, 0x8001, 1, 0, SIDRValid},
		{"the one listened in, as a limited member", 0x8003, 0x0003, 3, 0, SIDRValid},
		{"not the one listened in", 0x8001, 0xffff, 0, RejInvalidServiceID, SIDRUnsupportedService},
		{"not in the table", 0x8005, 0, 0, RejInvalidGID, SIDRRejected},
		{"limited members on both sides", 0x7ff2, 0, 0, RejInvalidGID, SIDRRejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := ib.PKeyTable{0xffff, 0x8111}
			at := uint16(0)
			if c.pkey != 0 {
				own[1], at = c.pkey, 1
			}
			p := newPairOf(t, Config{PKeys: own}, Config{PKeys: table}, ListenOptions{PKey: c.listen})
			var sent []uint16 // P_Key indices, of a's messages and of b's
			p.see = func(_ *end, d *Datagram) { sent = append(sent, d.PKeyIndex) }
			r := request()
			r.PKey = c.pkey
			p.sidrOf(r, c.wantSIDR)
			if c.want != 0 {
				p.rejected(r, c.want)
				return
			}
			must(p.a.Connect(r, p.now))
			e := p.event(p.b, EventRequest)
			if e.Request.PKey != own[at] || e.Conn.Path().PKeyIndex != c.index {
				t.Errorf("asked for P_Key %v, taken by index %d, want %v and %d", e.Request.PKey, e.Conn.Path().PKeyIndex, own[at], c.index)
			}
			p.ok(e.Conn.Accept(reply(), p.now))
			a := p.event(p.a, EventReply).Conn
			p.ok(a.Ready(nil, p.now))
			p.event(p.b, EventEstablished)
			if want := []uint16{at, c.index, at, c.index, at}; !slices.Equal(sent, want) || a.Path().PKeyIndex != at {
				t.Errorf("messages by the indices %d, want %d", sent, want)
			}
		})
	}
	conform.Row(t, "5.10/rej-8", "5.10/rej-12")
}

// A P_Key of a partition that the port isn't in can be neither asked with nor listened in.
func TestForeignPartition(t *testing.T) {
	p := newPair(t)
	r := request()
	r.PKey = 0x8001
	if _, err := p.a.Connect(r, p.now); !errors.Is(err, ErrInvalid) {
		t.Errorf("connect: %v", err)
	}
	if _, err := p.a.Resolve(r, p.now); !errors.Is(err, ErrInvalid) {
		t.Errorf("resolve: %v", err)
	}
	if _, err := p.a.Listen(service, ListenOptions{PKey: 0x7fff}); !errors.Is(err, ErrInvalid) {
		t.Errorf("listen: %v", err)
	}
	if p.a.Conns() != 0 || len(p.a.listeners) != 0 {
		t.Errorf("%d connections, %d listeners", p.a.Conns(), len(p.a.listeners))
	}
}

// sidrOf asks b by SIDR, and wants that answer.
func (p *pair) sidrOf(r Request, want SIDRStatus) {
	p.t.Helper()
	must(p.a.Resolve(r, p.now))
	p.deliver()
	if want == SIDRValid {
		p.ok(p.event(p.b, EventSIDRRequest).Conn.ReplySIDR(SIDRValid, 1, 2, nil, p.now))
	}
	if e := p.event(p.a, EventSIDRReply); e.Status != want {
		p.t.Errorf("SIDR: %v, want %v", e.Status, want)
	}
}

// The messages of both ends have the flow label and the traffic class that the REQ names; what answers a message about no
// connection has those of that message.
func TestFlowLabel(t *testing.T) {
	conform.Row(t, "5.10/req")
	p := newPair(t)
	p.see = func(_ *end, d *Datagram) {
		if d.FlowLabel != 0x12345 || d.TrafficClass != 0x68 {
			t.Errorf("message 0x%x has flow label 0x%x and traffic class 0x%x", mad.MAD(d.MAD[:]).Attribute(), d.FlowLabel, d.TrafficClass)
		}
	}
	r := request()
	r.FlowLabel, r.TrafficClass = 0x12345, 0x68
	must(p.a.Connect(r, p.now))
	e := p.event(p.b, EventRequest)
	if e.Request.FlowLabel != 0x12345 || e.Request.TrafficClass != 0x68 {
		t.Errorf("asked for %+v", e.Request)
	}
	p.ok(e.Conn.Accept(reply(), p.now))
	a := p.event(p.a, EventReply).Conn
	p.ok(a.Ready(nil, p.now))
	p.event(p.b, EventEstablished)
	p.ok(e.Conn.Disconnect(nil, p.now))
	p.event(p.a, EventEstablished)
	p.event(p.a, EventDisconnected)
	r.Service++
	r.QPN++
	p.rejected(r, RejInvalidServiceID)
	p.event(p.b, EventDisconnected)
	must(p.a.Resolve(r, p.now))
	if e := p.event(p.a, EventSIDRReply); e.Status != SIDRUnsupportedService {
		t.Error(e.Status)
	}
}
