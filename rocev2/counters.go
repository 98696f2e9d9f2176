package rocev2

import (
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// Counters of a Port.
type Counters struct {
	SentPkts, RcvdPkts, SentBytes, RcvdBytes uint64
	TooLong                                  uint64 // packets that weren't sent as the interface's MTU had become less than they need
	qp.Counters
	congestionCounters
	multicastCounters
}

// congestionCounters count under the names of mlx5.
type congestionCounters struct {
	MarkedPkts uint64 // np_ecn_marked_roce_packets: packets received with CE
	CNPSent    uint64 // np_cnp_sent
	CNPHandled uint64 // rp_cnp_handled
}

// add adds o to c.
func (c *congestionCounters) add(o *congestionCounters) {
	c.MarkedPkts += o.MarkedPkts
	c.CNPSent += o.CNPSent
	c.CNPHandled += o.CNPHandled
}

// multicastCounters count under names like those of IBA 16.1.4.
type multicastCounters struct {
	MulticastSent   uint64 // packets to a group
	MulticastRcvd   uint64 // packets for QP 0xffffff
	MulticastCopies uint64 // verdicts of those: one for each member of the group, or one if it has none
}

// add adds o to c.
func (c *multicastCounters) add(o *multicastCounters) {
	c.MulticastSent += o.MulticastSent
	c.MulticastRcvd += o.MulticastRcvd
	c.MulticastCopies += o.MulticastCopies
}

// Counters returns the counters of all workers together.
func (p *Port) Counters() (c Counters) {
	for _, w := range p.workers {
		w.token.Lock()
		c.SentPkts += w.traffic.sentPkts
		c.RcvdPkts += w.traffic.rcvdPkts
		c.SentBytes += w.traffic.sentBytes
		c.RcvdBytes += w.traffic.rcvdBytes
		c.TooLong += w.traffic.tooLong
		c.Counters.Add(&w.counters)
		c.congestionCounters.add(&w.traffic.congestionCounters)
		c.multicastCounters.add(&w.traffic.multicastCounters)
		w.token.Unlock()
	}
	return c
}

// Drops returns how many received packets met each verdict; those at
// wire.Accepted were not dropped. A packet to a multicast group has a verdict for
// each of its copies.
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
