package rdmacm

import (
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// A datagram whose next hop isn't known waits here, and not in QP1: work requests complete in order, so that it would hold
// the slots of all behind it. Whoever sends from a forged address has answers wait that can never go; so places for
// answers are few, and who has been in one for a turn gives way.
const (
	maxStrangers  = 64                     // destinations that answers wait for
	maxAnswers    = 16                     // that wait for one of them
	turn          = 250 * time.Millisecond // that each of them has
	parkPatience  = time.Second            // how long a destination is waited for
	parkLookAgain = 2 * time.Millisecond   // how often its next hop is asked for
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
	stranger  bool // only answers wait: nobody here has asked for it
	datagrams []cm.Datagram
}

// lot is all places.
type lot struct {
	of        map[destination]*place
	order     []*place // oldest first
	strangers int
	look      clock.Time // when next hops are to be asked for again
}

// park has a datagram wait, and says whether there was room for it. A request of this side always has some: the program
// that asks is what bounds those.
func (l *lot) park(to destination, d *cm.Datagram, now clock.Time) bool {
	a := mad.MAD(d.MAD[:]).Attribute()
	request := a == mad.AttrREQ || a == mad.AttrSIDRREQ
	p := l.of[to]
	if p == nil {
		if !request && !l.makeRoom(now) {
			return false
		}
		p = l.add(to, now)
	}
	switch {
	case request && p.stranger:
		p.stranger = false
		l.strangers--
	case p.stranger && len(p.datagrams) == maxAnswers:
		return false
	}
	p.datagrams = append(p.datagrams, *d)
	return true
}

func (l *lot) add(to destination, now clock.Time) *place {
	p := &place{to: to, since: now, stranger: true}
	if l.of == nil {
		l.of = map[destination]*place{}
	}
	l.of[to] = p
	l.order = append(l.order, p)
	l.strangers++
	return p
}

// makeRoom has room for one stranger more, and says whether there is: the oldest gives way when its turn is over.
func (l *lot) makeRoom(now clock.Time) bool {
	if l.strangers < maxStrangers {
		return true
	}
	i := slices.IndexFunc(l.order, func(p *place) bool { return p.stranger })
	if now.Sub(l.order[i].since) < turn {
		return false
	}
	l.forget(l.order[i])
	l.order = slices.Delete(l.order, i, i+1)
	return true
}

// leave takes out the places that done says are done with.
func (l *lot) leave(done func(*place) bool) {
	l.order = slices.DeleteFunc(l.order, func(p *place) bool {
		if !done(p) {
			return false
		}
		l.forget(p)
		return true
	})
}

func (l *lot) forget(p *place) {
	delete(l.of, p.to)
	if p.stranger {
		l.strangers--
	}
}
