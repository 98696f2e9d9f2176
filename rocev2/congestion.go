package rocev2

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/cc"
	"github.com/urxe/urxe/rocev2/qp"
)

// The ECN bits of a traffic class (RFC 3168).
const (
	ecnMask uint8 = 3
	ecnECT0 uint8 = 2 // capable: a switch may mark it
	ecnCE   uint8 = 3 // a switch did
)

// ethernetOverhead is what Ethernet adds to a frame on the wire: preamble,
// check sequence and gap.
const ethernetOverhead = 24

// congestion is the part of a connected QP in congestion control (Annex A17.9).
// A datagram QP has none: its packets go many ways.
type congestion struct {
	notifier cc.Notifier
	limiter  cc.Limiter
}

// ecn returns a traffic class with the ECN bits of a connection's packets: they
// are capable of ECN while their rate is controlled, and only then (CA17-5).
func (p *Port) ecn(tclass uint8) uint8 {
	if p.congestion == nil {
		return tclass &^ ecnMask
	}
	return tclass&^ecnMask | ecnECT0
}

// controlsRate reports whether q takes part in congestion control.
func (q *QP) controlsRate() bool { return q.worker.port.congestion != nil && !q.datagram }

// marked takes a packet of q's peer that came with CE.
func (w *Worker) marked(q *QP, now clock.Time) {
	w.traffic.MarkedPkts++
	if q.controlsRate() && q.congestion.notifier.Marked(now, w.port.congestion) {
		q.core.Congested()
		w.traffic.CNPSent++
	}
}

// notified takes a congestion notification for q.
func (w *Worker) notified(q *QP, now clock.Time) {
	w.traffic.CNPHandled++
	q.congestion.limiter.CNP(now, w.port.congestion)
	w.pace(q, now)
}

// spend takes a packet that q has made out of its rate.
func (w *Worker) spend(q *QP, pkt *qp.TxPacket, now clock.Time) {
	if !q.limited {
		return
	}
	q.congestion.limiter.Sent(pkt.Frame.Len()+ethernetOverhead, now, w.port.congestion)
	w.pace(q, now)
}

// pace tells the core when the rate allows q's next packet.
func (w *Worker) pace(q *QP, now clock.Time) {
	l := &q.congestion.limiter
	q.core.Pace(l.Ready(now, w.port.congestion))
	q.limited = l.Limited()
}
