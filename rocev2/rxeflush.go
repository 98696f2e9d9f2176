package rocev2

import "github.com/urxe/urxe/rocev2/wire"

// rxeFlush judges a packet whose ICRC doesn't hold: that of a FLUSH may be the
// one of Linux rxe (wire.RxeFlushICRC), and is taken where the QP says that its
// peer is one (qp.AV.RxeFlush).
func (w *Worker) rxeFlush() wire.Verdict {
	q := w.find(w.pkt.DestQP)
	if q == nil || !q.rxePeer.Load() || !wire.RxeFlushHolds(&w.pkt) {
		return wire.DropICRC
	}
	return wire.Accepted
}
