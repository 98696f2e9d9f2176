package rocev2

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
	"github.com/urxe/urxe/tests/conform"
)

// However many packets wait, one Step takes a burst of them.
func TestStepIsBounded(t *testing.T) {
	conform.Row(t, "bug/19")
	p := newPeer(t)
	e := newEndpoint(t, p.port, 1000, 4)
	if err := e.connect(9, gid("10.0.0.1"), ib.MTU1024); err != nil {
		t.Fatal(err)
	}
	settle(t, 1, nil, p.port)
	const sent = 200
	for range sent {
		p.send(wire.Header{Opcode: wire.RCSendOnly, PKey: ib.PKeyDefault, DestQP: e.Number(), PSN: 105}, 8, nil) // a gap
	}
	for step := 1; p.port.Counters().RcvdPkts < sent; step++ {
		p.port.Workers()[0].Step(2)
		if got := p.port.Counters().RcvdPkts; got > uint64(step*burst) || got == 0 {
			t.Fatalf("%d packets taken in %d Steps, want at most %d each", got, step, burst)
		}
	}
}
