package rocev2

import (
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/wire"
)

// find returns the QP with number n, on whichever worker it lives, or nil.
// Packets come in runs, so it asks the one before first.
func (w *Worker) find(n ib.QPN) *QP {
	if q := w.recent; q != nil && q.number == n && !q.dead.Load() {
		return q
	}
	return w.port.qps.Get(uint32(n))
}

// admits checks what concerns the port: whether p may be for q at all. In
// these cases nothing is answered (IBA 9.6.1: a packet that fails header
// validation is silently dropped).
func (q *QP) admits(p *wire.Packet) wire.Verdict {
	switch {
	case !q.core.State().Receives():
		return wire.DropQPState
	case p.Opcode == wire.CongestionNotify && !q.controlsRate():
		return wire.DropCNP
	case p.Opcode.Transport() != q.transport && p.Opcode != wire.CongestionNotify:
		return wire.DropTransport
	case !q.inPartition(p.PKey) && !q.echoes(p): // C9-41
		return wire.DropPKey
	}
	return q.expects(p)
}

// inPartition reports whether packets with key k may come to q: a QP is in one
// partition of the port, QP1 in all of them (IBA 10.9.3).
func (q *QP) inPartition(k ib.PKey) bool {
	if q.number == ib.QPNGeneralServices {
		_, ok := q.worker.port.cfg.PKeys.Find(k)
		return ok
	}
	return k.Matches(q.pkey)
}

// echoes reports whether p is a CNP with the P_Key of q's own packets: who follows
// Annex A17.9.3 to the letter gives back that of the packet with the mark, and so to a
// limited member the key of one.
func (q *QP) echoes(p *wire.Packet) bool {
	return p.Opcode == wire.CongestionNotify && p.PKey == q.pkey
}

// expects checks the addresses of p: a connection has two (IBA 9.6.1.2.3, Annex
// A17.4.4.2); a datagram is to an address of the port, or for QP 0xffffff, and
// then to a group that q is attached to. An address is of one VLAN, or of untagged
// frames.
func (q *QP) expects(p *wire.Packet) wire.Verdict {
	if q.datagram {
		if p.DestQP == ib.QPNMulticast {
			return wire.Accepted
		}
		return q.worker.port.expects(p.DstGID(), p.VLANID())
	}
	switch {
	case !q.template.Matches(p):
		return wire.DropAddress
	case !q.template.InVLAN(p):
		return wire.DropVLAN
	}
	return wire.Accepted
}

// expects checks the address that a datagram came to.
func (p *Port) expects(g ib.GID, vlan uint16) wire.Verdict {
	switch owned, there := p.owns(g, vlan); {
	case !owned:
		return wire.DropAddress
	case !there:
		return wire.DropVLAN
	}
	return wire.Accepted
}
