package verbs

import (
	"context"
	"io"
	"slices"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/netif"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/wire"
)

// PortAttr are the attributes of the port of a device, as ibv_port_attr has them.
type PortAttr struct {
	State       ib.PortState
	MaxMTU      ib.MTU // of any device of this kind
	ActiveMTU   ib.MTU // the greatest path MTU that the interface's MTU has room for; 0: not even 256
	GIDTableLen int    // indices from 0 on; one without a GID may get one
	PKeyTable   ib.PKeyTable
	MaxMsgSize  uint64 // bytes of a message
	BadPKeys    uint64 // packets that came with a P_Key of another partition than their QP's
	QKeyViols   uint64 // datagrams that came with another Q_Key than their QP's
	LinkLayer   string
}

// QueryPort returns the attributes of the port.
func (d *Device) QueryPort() PortAttr {
	a := portAttr(d.engine.State(), d.engine.ActiveMTU())
	a.PKeyTable = slices.Clone(d.engine.PKeys())
	drops := d.engine.Drops()
	a.BadPKeys, a.QKeyViols = drops[wire.DropPKey], drops[wire.DropQKey]
	return a
}

// portAttr are the attributes of a port with the default options.
func portAttr(s ib.PortState, active ib.MTU) PortAttr {
	return PortAttr{
		State: s, MaxMTU: ib.MTU4096, ActiveMTU: active, GIDTableLen: netif.MaxGIDs,
		PKeyTable: ib.PKeyTable{ib.PKeyDefault}, MaxMsgSize: maxMessage, LinkLayer: "Ethernet",
	}
}

// QueryPKey returns the P_Key at an index of the table. The error wraps ErrInvalid: the table has no such index.
func (d *Device) QueryPKey(index int) (ib.PKey, error) {
	t := d.engine.PKeys()
	if index < 0 || index >= len(t) {
		return 0, d.errorf("%w: no P_Key at index %d (allowed: 0 to %d)", ErrInvalid, index, len(t)-1)
	}
	return t[index], nil
}

// GIDs returns the GID table up to the last index that was used. An index always means the same address; an address that was
// removed leaves a zero GID.
func (d *Device) GIDs() []ib.GID { return slices.Clone(d.engine.GIDs()) }

// QueryGID returns the GID at an index of the table. The error wraps ErrInvalid: there is none.
func (d *Device) QueryGID(index int) (ib.GID, error) {
	gids := d.engine.GIDs()
	if index < 0 || index >= len(gids) || gids[index].IsZero() {
		return ib.GID{}, d.errorf("%w: no GID at index %d (the table: %v)", ErrInvalid, index, ib.GIDTable(gids))
	}
	return gids[index], nil
}

// SourceGID returns the index of the GID that packets to a peer come from, unless one is chosen: the first of the peer's
// version of IP that is link-local as the peer is, or as it isn't; else the first of that version. The error wraps ErrInvalid.
func (d *Device) SourceGID(peer ib.GID) (index int, err error) {
	gids := d.engine.GIDs()
	if index = sourceGID(gids, peer, func(int) bool { return true }); index < 0 {
		return 0, d.errorf("%w: no address of the IP version of %v (its GIDs: %v)", ErrInvalid, peer, ib.GIDTable(gids))
	}
	return index, nil
}

// sourceGID is SourceGID among the GIDs of a table whose indices will do; -1 if there is none.
func sourceGID(gids []ib.GID, peer ib.GID, ok func(index int) bool) int {
	found := -1
	for i, g := range gids {
		switch {
		case g.IsZero() || g.Is4() != peer.Is4() || !ok(i):
		case g.Addr().IsLinkLocalUnicast() == peer.Addr().IsLinkLocalUnicast():
			return i
		case found < 0:
			found = i
		}
	}
	return found
}

// QueryVLAN returns the id of the 802.1Q VLAN that the GID at an index is of, as those of the VLAN netdevs above the
// interface are; 0: its packets are untagged. The error is that of QueryGID.
func (d *Device) QueryVLAN(index int) (uint16, error) {
	if _, err := d.QueryGID(index); err != nil {
		return 0, err
	}
	return d.engine.VLANOf(index), nil
}

// Stats is what a device counts, and what it is.
type Stats = rocev2.Stats

// Stats returns what the device counts: what it sent, received and met, under the names of rxe's counters where it has
// them, and how many packets it dropped for what reason.
func (d *Device) Stats() Stats { return d.engine.Stats() }

// Capture writes a capture of all packets that the device sends and receives to w, as pcapng with the verdict on each as a
// comment, until ctx ends or w fails. AF_XDP packets are seen by no capture on the interface itself. Packets that w is
// too slow for are missing, and counted in the capture. It returns nil when ctx has ended, or why w failed.
func (d *Device) Capture(ctx context.Context, w io.Writer) error {
	return d.engine.Record(w, ctx.Done())
}

// portState is what port events are made from.
type portState struct {
	state ib.PortState
	downs uint64 // how often the link went down
	gids  []ib.GID
	dead  bool
}

func (d *Device) portState() portState {
	return portState{d.engine.State(), d.engine.LinkDowned(), slices.Clone(d.engine.GIDs()), d.engine.Err() != nil}
}

// watchPort raises port events from now on.
func (d *Device) watchPort() {
	was := d.portState()
	d.engine.OnChange(func() {
		now := d.portState()
		if now.dead && !was.dead {
			d.events.push(Event{Type: EventDeviceFatal})
		}
		for _, s := range statesBetween(&was, &now) {
			d.events.push(Event{Type: stateEvent(s), Port: 1})
		}
		if !slices.Equal(now.gids, was.gids) {
			d.events.push(Event{Type: EventGIDChange, Port: 1})
		}
		was = now
	})
}

// statesBetween lists the states that a port went through, the last of each. A link that
// went down was up before, and may be so again.
func statesBetween(was, now *portState) (list []ib.PortState) {
	if now.downs != was.downs {
		if was.state != ib.PortActive && now.state != ib.PortActive {
			list = append(list, ib.PortActive)
		}
		list = append(list, ib.PortDown)
	} else if now.state == was.state {
		return nil
	}
	if now.state == ib.PortActive || len(list) == 0 {
		list = append(list, now.state)
	}
	return list
}

func stateEvent(s ib.PortState) EventType {
	if s == ib.PortActive {
		return EventPortActive
	}
	return EventPortErr
}
