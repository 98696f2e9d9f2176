package rocev2

import (
	"fmt"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

func TestOperations(t *testing.T) {
	for _, o := range []PairOptions{{}, {Frames: 8}, {Frag: 128}, {Frames: 16, Frag: 1000}} {
		for mtu := ib.MTU256; mtu <= ib.MTU4096; mtu++ {
			t.Run(fmt.Sprintf("frames=%d/frag=%d/mtu=%v", o.Frames, o.Frag, mtu), func(t *testing.T) {
				a, b := newPorts(t, true, 1, o)
				const size = 100_000
				x, y := newEndpoint(t, a, size, 16), newEndpoint(t, b, size, 16)
				join(t, x, y, mtu)
				fill(x.buf, 1)
				fill(y.buf, 2)
				now := settle(t, 1, nil, a, b)

				x.write(1, y, 0, 40_001)
				y.recv(2, 40_001, 20_000)
				x.send(3, 40_001, 17_777)
				now = settle(t, now, nil, a, b)
				wantCompletions(t, &x.cq, 1, 3)
				wantCompletions(t, &y.cq, 2)
				wantSame(t, "WRITE and SEND", x.buf[:57_778], y.buf[:57_778])

				x.read(4, y, 60_000, 33_333)
				settle(t, now, nil, a, b)
				wantCompletions(t, &x.cq, 4)
				wantSame(t, "READ", y.buf[60_000:93_333], x.buf[60_000:93_333])
				for v, n := range b.Drops() {
					if v != int(wire.Accepted) && n != 0 {
						t.Errorf("%d packets dropped: %v", n, wire.Verdict(v))
					}
				}
			})
		}
	}
}

// A QP connected to itself, and two QPs of one Port.
func TestSameHost(t *testing.T) {
	conform.Row(t, "bug/46")
	a, _ := newPorts(t, true, 2, PairOptions{})
	x, y, z := newEndpoint(t, a, 70_000, 16), newEndpoint(t, a, 70_000, 16), newEndpoint(t, a, 70_000, 16)
	if x.Worker() == y.Worker() {
		t.Fatal("want QPs on different workers")
	}
	join(t, x, y, ib.MTU1024)
	if err := z.connect(z.Number(), a.GIDs()[0], ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	fill(x.buf, 1)
	fill(z.buf[:30_000], 2)
	x.write(1, y, 0, 65_537)
	z.sq.Post(&qp.SendWQE{ID: 2, Opcode: qp.WRWrite, SGEs: z.sge(0, 30_000), RemoteAddr: 30_000, RKey: z.mr.Key})
	z.Doorbell()
	settle(t, 1, nil, a)
	wantCompletions(t, &x.cq, 1)
	wantCompletions(t, &z.cq, 2)
	wantSame(t, "to a neighbour", x.buf[:65_537], y.buf[:65_537])
	wantSame(t, "to itself", z.buf[:30_000], z.buf[30_000:60_000])
}

// Same-host traffic through a loop that holds 4 frames makes progress.
func TestFullLoop(t *testing.T) {
	l, _, err := NewPair(PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPort(Config{Name: "a", Links: []Link{l}, Manual: true, LoopFrames: 4,
		Net: &FixedNet{Addresses: []ib.GID{gid("fe80::1")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x, y := newEndpoint(t, p, 1<<20, 16), newEndpoint(t, p, 1<<20, 16)
	join(t, x, y, ib.MTU4096)
	fill(x.buf, 3)
	x.write(1, y, 0, 1<<19)
	y.write(2, x, 1<<19, 1<<19)
	settle(t, 1, nil, p)
	wantCompletions(t, &x.cq, 1)
	wantCompletions(t, &y.cq, 2)
	wantSame(t, "loop", x.buf, y.buf)
}
