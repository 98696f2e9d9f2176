package rdmacm

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
)

// parker parks datagrams of one kind for numbered destinations.
func parker(l *lot, a mad.AttributeID) func(to int, now clock.Time) bool {
	var d cm.Datagram
	mad.MAD(d.MAD[:]).Init(mad.ClassCM, mad.MethodSend, a, 0)
	return func(to int, now clock.Time) bool {
		return l.park(destination{remote: ib.GID{14: byte(to >> 8), 15: byte(to)}}, &d, now)
	}
}

// Answers have so many places, and each is kept for its turn; requests always have one, and keep it.
func TestParkingBounds(t *testing.T) {
	var l lot
	answer, request := parker(&l, mad.AttrREJ), parker(&l, mad.AttrREQ)
	for i := range maxAnswers {
		if !answer(0, 1) {
			t.Fatalf("no room for answer %d to one destination", i)
		}
	}
	if answer(0, 1) {
		t.Error("room for one answer too many")
	}
	if !request(0, 1) || !answer(0, 1) || l.strangers != 0 { // whom this side asks is no stranger
		t.Errorf("no room for a request; %d strangers", l.strangers)
	}
	for i := range maxStrangers {
		if !answer(1+i, clock.Time(1+i)) {
			t.Fatalf("no room for destination %d", i)
		}
	}
	const next = 1 + maxStrangers
	if answer(next, 1+clock.Time(turn)-1) {
		t.Error("one gave way before its turn was over")
	}
	if !request(next, 2) || !request(next+1, 2) {
		t.Error("no room for a request")
	}
	if !answer(next+2, 1+clock.Time(turn)) || l.of[destination{remote: ib.GID{15: 1}}] != nil || l.strangers != maxStrangers {
		t.Errorf("the oldest doesn't give way; %d strangers", l.strangers)
	}
	if len(l.order) != 3+maxStrangers || len(l.of) != len(l.order) {
		t.Errorf("%d places, %d by destination", len(l.order), len(l.of))
	}
	l.leave(func(p *place) bool { return p.stranger })
	if len(l.order) != 3 || len(l.of) != 3 || l.strangers != 0 {
		t.Errorf("left: %d places, %d by destination, %d strangers", len(l.order), len(l.of), l.strangers)
	}
}
