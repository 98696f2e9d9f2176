package rdmacm

import (
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// A datagram whose next hop isn't known waits here, and not in QP1: work requests complete in order, so that it would hold
// the slots of all behind it. Whoever sends from forged addresses has answers wait that can never go. So the strangers, whom
// nobody here wants a connection with, are few, and no others are asked for: each takes a place in the kernel's table of
// neighbours, too, of which it has some hundreds. Whose next hop is known is answered at once.
const (
	maxStrangers  = 64                   // destinations
	maxAnswers    = 16                   // that wait for one of them
	parkPatience  = time.Second          // how long a destination is waited for
	parkLookAgain = 2 * time.Millisecond // how often its next hop is asked for
)

// destination is where an address handle leads to.
type destination struct {
	remote    ib.GID
	sgidIndex uint8
	tclass    uint8
	flowLabel uint32
}

func destinationOf(p *cm.Path) destination {
	return destination{p.Remote, p.SGIDIndex, p.TrafficClass &^ 3, p.FlowLabel} // what isn't controlled isn't capable of ECN
}

func (t destination) av() verbs.AV {
	return verbs.AV{DGID: t.remote, SGIDIndex: t.sgidIndex, Port: 1, TClass: t.tclass, FlowLabel: t.flowLabel}
}

// place is where the datagrams to one destination wait.
type place struct {
	to        destination
	since     clock.Time
	stranger  bool // nothing waits that the program wants
	datagrams []cm.Datagram
}

// lot is all places.
type lot struct {
	of        map[destination]*place
	strangers int
	look      clock.Time // when next hops are to be asked for again
}

// wanted reports whether a datagram is of what the program here asks for or has accepted, and not refused: as many of
// those wait as it does of that.
func wanted(d *cm.Datagram) bool {
	m := mad.MAD(d.MAD[:])
	switch m.Attribute() {
	case mad.AttrREQ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrSIDRREQ:
		return true
	case mad.AttrSIDRREP:
		return cm.SIDRStatus(mad.SIDRREP(m.Data()).Status()) == cm.SIDRValid
	}
	return false
}

// mayPark reports whether there is room for a datagram.
func (l *lot) mayPark(to destination, d *cm.Datagram) bool {
	p := l.of[to]
	switch {
	case wanted(d), p != nil && !p.stranger:
		return true
	case p == nil:
		return l.strangers < maxStrangers
	}
	return len(p.datagrams) < maxAnswers
}

// park has a datagram wait.
func (l *lot) park(to destination, d *cm.Datagram, now clock.Time) {
	p := l.of[to]
	if p == nil {
		p = l.add(to, now)
	}
	if wanted(d) && p.stranger {
		p.stranger = false
		l.strangers--
	}
	p.datagrams = append(p.datagrams, *d)
}

func (l *lot) add(to destination, now clock.Time) *place {
	p := &place{to: to, since: now, stranger: true}
	if l.of == nil {
		l.of = map[destination]*place{}
	}
	l.of[to] = p
	l.strangers++
	return p
}

// sweep takes out the places that done says are done with.
func (l *lot) sweep(done func(*place) bool) {
	for to, p := range l.of {
		if !done(p) {
			continue
		}
		delete(l.of, to)
		if p.stranger {
			l.strangers--
		}
	}
}
