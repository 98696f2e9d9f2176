package rdmacm

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/rocev2/cm"
)

// Strangers are so many, with so many answers each; what the program wants always has a place.
func TestParkingBounds(t *testing.T) {
	var l lot
	park := func(i int, a mad.AttributeID) bool {
		var d cm.Datagram
		m := mad.MAD(d.MAD[:])
		m.Init(mad.ClassCM, mad.MethodSend, a, 0)
		if a == mad.AttrSIDRREP {
			mad.SIDRREP(m.Data()).SetStatus(uint8(cm.SIDRRejected))
		}
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
		if park(1+i, []mad.AttributeID{mad.AttrREJ, mad.AttrMRA, mad.AttrDREP, mad.AttrSIDRREP}[i%4]) != (i < maxStrangers) {
			t.Errorf("stranger %d", i)
		}
	}
	for i, a := range []mad.AttributeID{mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrSIDRREQ} {
		if !park(1000+i, a) {
			t.Errorf("no room for attribute 0x%x", uint16(a))
		}
	}
	if len(l.of) != 5+maxStrangers || l.strangers != maxStrangers {
		t.Errorf("%d places, %d strangers", len(l.of), l.strangers)
	}
	l.sweep(func(p *place) bool { return p.stranger })
	if len(l.of) != 5 || l.strangers != 0 || !park(1, mad.AttrREJ) {
		t.Errorf("left: %d places, %d strangers", len(l.of), l.strangers)
	}
}
