package rdmacm

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/rocev2/cm"
)

// Answers have so many places, and wait for so many destinations; requests always have a place.
func TestParkingBounds(t *testing.T) {
	var l lot
	park := func(i int, a mad.AttributeID) bool {
		var d cm.Datagram
		mad.MAD(d.MAD[:]).Init(mad.ClassCM, mad.MethodSend, a, 0)
		to := destination{remote: ib.GID{14: byte(i >> 8), 15: byte(i)}}
		may := l.mayPark(to, &d)
		if may {
			l.park(to, &d, 1)
		}
		return may
	}
	for i := range maxAnswers + 1 {
		if park(0, mad.AttrREJ) != (i < maxAnswers) {
			t.Errorf("answer %d to one destination", i)
		}
	}
	if !park(0, mad.AttrREQ) || !park(0, mad.AttrREJ) || l.strangers != 0 { // whom this side asks is no stranger
		t.Errorf("no room beside a request; %d strangers", l.strangers)
	}
	for i := range maxStrangers + 1 {
		if park(1+i, mad.AttrREP) != (i < maxStrangers) {
			t.Errorf("stranger %d", i)
		}
	}
	if !park(1000, mad.AttrSIDRREQ) || len(l.of) != 2+maxStrangers || l.strangers != maxStrangers {
		t.Errorf("%d places, %d strangers", len(l.of), l.strangers)
	}
	l.sweep(func(p *place) bool { return p.stranger })
	if len(l.of) != 2 || l.strangers != 0 || !park(1, mad.AttrREP) {
		t.Errorf("left: %d places, %d strangers", len(l.of), l.strangers)
	}
}
