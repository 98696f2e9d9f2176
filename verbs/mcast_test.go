package verbs

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/tests/conform"
)

func group(t *testing.T, s string) ib.GID {
	t.Helper()
	g, err := ib.ParseGID(s)
	wantNone(t, err)
	return g
}

// join attaches a QP to a group.
func (g *dgram) join(mgid ib.GID) {
	g.t.Helper()
	wantNone(g.t, g.qp.AttachMcast(mgid, 0xc000))
}

// toGroup makes a datagram to a group by the source GID at an index.
func (g *dgram) toGroup(mgid ib.GID, gid, n int) SendWR {
	a := must(g.pd.CreateAH(AV{DGID: mgid, SGIDIndex: uint8(gid)}))
	return SendWR{ID: 7, Opcode: OpSend, Flags: Signaled, SGEs: []SGE{g.mr.SGE(0, n)}, AH: a, RemoteQPN: ib.QPNMulticast, RemoteQKey: dgramQKey}
}

// Every member gets one copy, here and there, with the group in its header, and
// can answer; who has left gets none.
func TestMcast(t *testing.T) {
	conform.Row(t, "bug/57")
	a, b := openPair(t)
	for gid, name := range []string{"ff0e::4242", "239.1.2.3"} {
		t.Run(name, func(t *testing.T) {
			mgid := group(t, name)
			x := newDgram(t, a, UD)
			members := []*dgram{newDgram(t, a, UD), newDgram(t, b, UD), newDgram(t, b, UD)}
			copy(x.buf, pattern(3000, 1))
			for _, m := range members {
				m.join(mgid)
				m.join(mgid) // changes nothing
				m.recv(100, GRHLen+3000)
			}
			if n := b.Stats().Groups[name]; n != 2 {
				t.Errorf("%d members in the group, want 2", n)
			}
			w := x.toGroup(mgid, gid, 3000)
			w.Opcode, w.Imm = OpSendImm, 0xcafe
			must(x.qp.PostSend(w))
			x.wait()
			for _, m := range members {
				wc := m.wait()
				if wc.Status != Success || wc.ByteLen != GRHLen+3000 || wc.SrcQP != x.qp.Number() || wc.Flags != WCGRH|WCWithImm || wc.Imm != 0xcafe {
					t.Fatalf("received: %+v", wc)
				}
				if !bytes.Equal(m.buf[100+GRHLen:][:3000], x.buf[:3000]) {
					t.Error("other bytes came")
				}
				av, err := m.dev.AVFromWC(&wc, m.buf[100:][:GRHLen])
				if err != nil || av.DGID != a.GIDs()[gid] || av.SGIDIndex != uint8(gid) {
					t.Fatalf("address of the sender: %+v, %v", av, err)
				}
			}
			wantNone(t, members[1].qp.DetachMcast(mgid, 0))
			for _, m := range members {
				m.recv(100, GRHLen+3000)
			}
			must(x.qp.PostSend(w))
			members[0].wait()
			members[2].wait()
			var wc [1]WC
			if n := members[1].cq.Poll(wc[:]); n != 0 {
				t.Errorf("who was detached got %+v", wc)
			}
			for _, m := range members { // with the group, or without
				wantNone(t, m.qp.Destroy())
			}
			if s := b.Stats().Groups; len(s) != 0 {
				t.Errorf("groups are left: %v", s)
			}
		})
	}
}

// Who sends to a group that it is in gets its own copy, unless it said otherwise.
func TestMcastSelf(t *testing.T) {
	a, _ := openPair(t)
	mgid := group(t, "239.1.2.3")
	for _, block := range []bool{false, true} {
		x := newDgram(t, a, UD)
		x.qp = must(x.pd.CreateQP(QPInitAttr{Type: UD, SendCQ: x.cq, RecvCQ: x.cq, BlockSelfMcastLB: block}))
		wantNone(t, x.qp.Start(ConnectOptions{QKey: dgramQKey}))
		y := newDgram(t, a, UD)
		for _, m := range []*dgram{x, y} {
			m.join(mgid)
			m.recv(100, 200)
		}
		must(x.qp.PostSend(x.toGroup(mgid, 1, 8)))
		y.wait()
		ops := []WCOpcode{x.wait().Opcode}
		if !block {
			ops = append(ops, x.wait().Opcode)
		}
		if !slices.Contains(ops, WCSend) || slices.Contains(ops, WCRecv) == block || x.cq.Poll(make([]WC, 1)) != 0 {
			t.Errorf("blocking %v: completions %v", block, ops)
		}
		wantNone(t, x.qp.Destroy(), y.qp.Destroy())
	}
}

func TestMcastErrors(t *testing.T) {
	a, b := openPair(t)
	x, uc, gsi := newDgram(t, a, UD), newUCEnd(t, a), newDgram(t, a, GSI)
	rc := must(x.pd.CreateQP(QPInitAttr{SendCQ: x.cq, RecvCQ: x.cq}))
	gone := newDgram(t, a, UD)
	wantNone(t, gone.qp.Destroy())
	mgid := group(t, "ff0e::1")
	for _, c := range []struct {
		what string
		q    *QP
		g    ib.GID
		is   error
		says string
	}{
		{"RC", rc, mgid, ErrInvalid, "type RC (allowed: UD)"}, {"UC", uc.qp, mgid, ErrInvalid, "type UC"},
		{"QP1", gsi.qp, mgid, ErrInvalid, "type GSI"}, {"unicast", x.qp, b.GIDs()[0], ErrInvalid, "no multicast GID"},
		{"nothing", x.qp, ib.GID{}, ErrInvalid, "no multicast GID"}, {"destroyed", gone.qp, mgid, ErrClosed, "closed"},
	} {
		for _, f := range []func(ib.GID, ib.LID) error{c.q.AttachMcast, c.q.DetachMcast} {
			if err := f(c.g, 0); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
	if err := x.qp.DetachMcast(mgid, 0); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "isn't attached") {
		t.Errorf("not attached: %v", err)
	}
	toGroup, toOne := x.toGroup(mgid, 0, 8), x.to(newDgram(t, b, UD), 0, 8)
	toGroup.RemoteQPN, toOne.RemoteQPN = 5, ib.QPNMulticast
	for _, w := range []SendWR{toGroup, toOne} {
		if _, err := x.qp.PostSend(w); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "0xffffff") {
			t.Errorf("QPN %v: %v", w.RemoteQPN, err)
		}
	}
	if err := rc.Connect(Endpoint{QPN: 5, GID: mgid}, ConnectOptions{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "multicast") {
		t.Errorf("a connection with a group: %v", err)
	}
	x.join(mgid) // the device's Close leaves it
}

// The limits are those of DeviceAttr, and an error of the network comes through.
func TestMcastLimits(t *testing.T) {
	a, _ := openPair(t)
	attr := a.Query()
	if attr.MaxMcastGrp < 1 || attr.MaxMcastQPAttach < 1 || attr.MaxTotalMcastQPAttach < attr.MaxMcastGrp {
		t.Fatalf("%+v", attr)
	}
	x := newDgram(t, a, UD)
	for i := range attr.MaxMcastGrp {
		x.join(ib.GID{0: 0xff, 1: 0x0e, 14: byte(i >> 8), 15: byte(i)})
	}
	if err := x.qp.AttachMcast(group(t, "239.1.1.1"), 0); !errors.Is(err, ErrLimit) {
		t.Errorf("one group more: %v", err)
	}
	f := newBench(t)
	q := must(f.pd.CreateQP(QPInitAttr{Type: UD, SendCQ: f.cq, RecvCQ: f.cq}))
	f.engine.fail = rocev2.ErrMcastLimit
	if err := q.AttachMcast(group(t, "239.1.1.1"), 0); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
	f.engine.fail = errors.New("the kernel says no")
	if err := q.AttachMcast(group(t, "239.1.1.1"), 0); !errors.Is(err, f.engine.fail) || errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
