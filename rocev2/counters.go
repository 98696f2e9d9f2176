package rocev2

import (
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// Counters of a Port.
type Counters struct {
	SentPkts, RcvdPkts, SentBytes, RcvdBytes uint64
	qp.Counters
	congestionCounters
}

// Counters returns the counters of all workers together.
func (p *Port) Counters() (c Counters) {
	for _, w := range p.workers {
		w.token.Lock()
		c.SentPkts += w.traffic.sentPkts
		c.RcvdPkts += w.traffic.rcvdPkts
		c.SentBytes += w.traffic.sentBytes
		c.RcvdBytes += w.traffic.rcvdBytes
		c.Counters.Add(&w.counters)
		c.congestionCounters.add(&w.traffic.congestionCounters)
		w.token.Unlock()
	}
	return c
}

// Drops returns how many received packets met each verdict; those at
// wire.Accepted were not dropped.
func (p *Port) Drops() (d [wire.NumVerdicts]uint64) {
	for _, w := range p.workers {
		w.token.Lock()
		for i, n := range w.drops {
			d[i] += n
		}
		w.token.Unlock()
	}
	return d
}
