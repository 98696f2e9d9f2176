package rocev2

import (
	"errors"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// newPartitioned makes two joined Ports with P_Key tables.
func newPartitioned(t *testing.T, ta, tb ib.PKeyTable) (a, b *Port) {
	t.Helper()
	la, lb, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := func(addr string, l Link, pkeys ib.PKeyTable) *Port {
		p, err := NewPort(Config{Name: addr, Links: []Link{l}, Manual: true, Net: &FixedNet{Addresses: []ib.GID{gid(addr)}}, PKeys: pkeys})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	return port("10.0.0.1", la, ta), port("10.0.0.2", lb, tb)
}

// connectIn connects an RC endpoint, and gives it the P_Key of an index.
func (e *endpoint) connectIn(t *testing.T, pkeyIndex uint16, n ib.QPN, dgid ib.GID) {
	t.Helper()
	if err := e.connect(n, dgid, ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	e.modifyInSQD(t, qp.Attr{PKeyIndex: pkeyIndex}, qp.AttrPKeyIndex)
	if got := e.Query().PKeyIndex; got != pkeyIndex {
		t.Errorf("P_Key index %d, want %d", got, pkeyIndex)
	}
}

// Connections work within a partition of which one end at least is a full
// member, and nowhere else.
func TestConnectionsWithinPartitions(t *testing.T) {
	table := ib.PKeyTable{0xffff, 0x7fff, 0x8001, 0x0001}
	for i, ki := range table {
		for k, kk := range table {
			a, b := newPartitioned(t, table, table)
			x, y := newEndpoint(t, a, 4096, 4), newEndpoint(t, b, 4096, 4)
			x.connectIn(t, uint16(i), y.Number(), gid("10.0.0.2"))
			y.connectIn(t, uint16(k), x.Number(), gid("10.0.0.1"))
			x.write(1, y, 0, 4000)
			settle(t, 1, func() bool { return x.cq.len() > 0 }, a, b)
			want, dropped := qp.RetryExcErr, b.Drops()[wire.DropPKey]
			if ki.Matches(kk) {
				want = qp.Success
			}
			if c := x.cq.take(); c[0].Status != want || (dropped > 0) != (want != qp.Success) {
				t.Errorf("%v to %v: %v, want %v; %d packets were dropped for their P_Key", ki, kk, c[0].Status, want, dropped)
			}
		}
	}
}

// Datagrams come to the QPs of their partition; QP1 is in all that the port has.
func TestDatagramsWithinPartitions(t *testing.T) {
	p := newPeer(t)
	p.port.cfg.PKeys = ib.PKeyTable{0xffff, 0x8001, 0x0002}
	ud := newTyped(t, p.port, qp.UD)
	gsi := newTyped(t, p.port, qp.GSI)
	for _, c := range []struct {
		to    *endpoint
		index uint16
		taken []ib.PKey
	}{
		{ud, 0, []ib.PKey{0xffff, 0x7fff}}, {ud, 1, []ib.PKey{0x8001, 0x0001}}, {ud, 2, []ib.PKey{0x8002}},
		{gsi, 0, []ib.PKey{0xffff, 0x7fff, 0x8001, 0x0001, 0x8002}},
		{gsi, 2, []ib.PKey{0xffff, 0x7fff, 0x8001, 0x0001, 0x8002}},
	} {
		if err := errors.Join(c.to.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState),
			c.to.Modify(&qp.Attr{PKeyIndex: c.index}, qp.AttrPKeyIndex)); err != nil {
			t.Fatal(err)
		}
		for _, k := range []ib.PKey{0xffff, 0x7fff, 0x8001, 0x0001, 0x8002, 0x0002, 0x8003, 0x8000, 0} {
			want := wire.DropPKey
			for _, own := range c.taken {
				if k == own {
					want = wire.Accepted
				}
			}
			c.to.recv(1, 0, 100)
			h := wire.Header{Opcode: wire.UDSendOnly, PKey: k, DestQP: c.to.Number(), QKey: typedQKey, SrcQP: 9}
			if c.to == gsi {
				h.QKey = ib.QKeyGSI
			}
			if got := p.judged(h, 8, nil); got != want {
				t.Errorf("P_Key %v to QP %v with index %d: %v, want %v", k, c.to.Number(), c.index, got, want)
			}
		}
		if err := c.to.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPKeyTablesThatCannotBe(t *testing.T) {
	l, _, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		table ib.PKeyTable
		says  string
	}{
		{ib.PKeyTable{}, "without an entry"}, {ib.PKeyTable{0xffff, 0x8000}, "0x8000 at index 1 names no partition"},
		{ib.PKeyTable{1, 2, 1}, "twice, at indices 0 and 2"}, {make(ib.PKeyTable, MaxPKeys+1), "129 entries: the most is 128"},
	} {
		_, err := NewPort(Config{Name: "a", Links: []Link{l}, Net: &FixedNet{}, PKeys: c.table})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want an error that says %q", c.table, err, c.says)
		}
	}
}
