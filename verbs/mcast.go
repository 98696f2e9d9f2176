package verbs

import (
	"errors"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
)

// AttachMcast attaches the QP, which must be of type UD, to a multicast group, as ibv_attach_mcast does: from then on it
// gets a copy of each datagram to the group with its Q_Key and P_Key, also from other QPs of the device and itself
// (QPInitAttr.BlockSelfMcastLB). gid is an IPv6 group, ff00::/8, or an IPv4 one mapped, ::ffff:224.0.0.0/100. RoCE has no
// multicast LIDs: lid may be anything.
//
// There is no subnet administrator to ask: with the first QP in a group, the device itself joins the group on its
// interface, by IGMP or MLD, and with the last one it leaves. To attach a QP again changes nothing. A QP that is destroyed
// is detached.
//
// The group is that of untagged frames: those of a VLAN are for AttachMcastVLAN.
//
// Its errors wrap ErrInvalid (another type of QP, no multicast GID), ErrLimit or ErrClosed, or are the kernel's about the
// join.
func (q *QP) AttachMcast(gid ib.GID, lid ib.LID) error { return q.AttachMcastVLAN(gid, 0) }

// DetachMcast detaches the QP from a multicast group: no datagram to the group completes a receive of the QP afterwards,
// but completions may still wait in the CQ. Its errors wrap ErrInvalid (the QP isn't attached) or ErrClosed.
func (q *QP) DetachMcast(gid ib.GID, lid ib.LID) error { return q.DetachMcastVLAN(gid, 0) }

// AttachMcastVLAN is AttachMcast for a group within a VLAN above the device's interface, by its id as QueryVLAN tells it; 0
// is for untagged frames. The VLAN's netdev joins the group, and the QP gets what has the tag. Datagrams are sent within the
// VLAN of the GID that their address handle names. Its errors are those of AttachMcast, or say that no GID of
// the device is in the VLAN.
func (q *QP) AttachMcastVLAN(gid ib.GID, vlan uint16) error {
	return q.mcast("attach", gid, func() error { return q.engine.AttachMcast(gid, vlan) })
}

// DetachMcastVLAN ends what AttachMcastVLAN began, as DetachMcast does, with the same errors.
func (q *QP) DetachMcastVLAN(gid ib.GID, vlan uint16) error {
	return q.mcast("detach", gid, func() error { return q.engine.DetachMcast(gid, vlan) })
}

// mcast does what f does with the engine's QP, while it is not destroyed.
func (q *QP) mcast(what string, gid ib.GID, f func() error) error {
	q.modMu.Lock()
	defer q.modMu.Unlock()
	switch {
	case q.gone.Load():
		return q.errorf("%s: %w", what, ErrClosed)
	case q.init.Type != UD:
		return q.errorf("%s: %w: type %v (allowed: UD)", what, ErrInvalid, q.init.Type)
	case !gid.IsMulticast():
		return q.errorf("%s: %w: %v is no multicast GID (allowed: ff00::/8, ::ffff:224.0.0.0/100)", what, ErrInvalid, gid)
	}
	switch err := f(); {
	case err == nil:
		return nil
	case errors.Is(err, rocev2.ErrMcastLimit):
		return q.errorf("%s: %w: %w", what, ErrLimit, err)
	case errors.Is(err, rocev2.ErrNotAttached):
		return q.errorf("%s: %w: %w", what, ErrInvalid, err)
	default:
		return q.errorf("%s: %w", what, err)
	}
}
