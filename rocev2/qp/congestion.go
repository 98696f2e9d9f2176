package qp

import (
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/rocev2/wire"
)

// Pace has the QP send nothing before t but acknowledgements: its rate is
// controlled. With 0, or a time that is past, it sends.
func (q *QP) Pace(t clock.Time) { q.pace = t }

// paced reports whether data must wait for their time. What is owed for a
// connection that has ended is no load.
func (q *QP) paced(now clock.Time) bool { return q.pace > now && q.state != Err }

// Congested says that a packet of the peer of a connection came with a mark of
// congestion, and that the peer must be told.
func (q *QP) Congested() { q.cnpOwed = true }

// planCNP makes a congestion notification: BECN set, no PSN, 16 bytes of zeros
// (Annex A17.9.3). It has the P_Key that all packets of the QP have: that of the
// packet with the mark, if it was of a limited member, its own port would refuse.
func (q *QP) planCNP(p *TxPacket) {
	q.cnpOwed = false
	h := wire.Header{Opcode: wire.CongestionNotify, PKey: q.pkey(), BECN: true, DestQP: q.attr.DestQPN}
	q.emit(p, &h, 0, q.path)
}
