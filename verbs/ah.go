package verbs

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/wire"
)

// GRHLen is how many bytes come before the payload in the receive of a datagram: an IPv6 header, or 20 bytes that mean
// nothing and an IPv4 header (IBA 11.4.1.2, Annex A17.4.5.2).
const GRHLen = qp.GRHLen

// AH is an address handle: where datagrams go. Send work requests of QPs of its PD name it.
type AH struct {
	dev    *Device
	pd     *PD
	engine engineAH
	gone   atomic.Bool
}

// engineAH is an address handle of an engine.
type engineAH interface {
	Handle() *qp.AH
	AV() AV
	Destroy()
}

// CreateAH makes an address handle, to a port or to a multicast group, whose QPN is 0xffffff. The source GID index must name
// an address, and both GIDs be of one kind. A next hop whose MAC address isn't known yet is asked for; datagrams wait for it
// up to a second and are lost then, while those to others go out. Its errors wrap ErrInvalid, ErrLimit or ErrClosed.
func (p *PD) CreateAH(av AV) (*AH, error) {
	d := p.dev
	e, err := d.engine.createAH(av)
	if err != nil {
		return nil, d.errorf("%w: %w", ErrInvalid, err)
	}
	a := &AH{dev: d, pd: p, engine: e}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.pds, p, "create AH: PD"); err != nil {
		e.Destroy()
		return nil, err
	}
	if err := add(d, d.ahs, a, limits.MaxAH, "AH"); err != nil {
		e.Destroy()
		return nil, err
	}
	p.ahs++
	return a, nil
}

// NextHopKnown reports whether datagrams to an address vector go out at once, as the MAC address of the next hop is known. If
// it isn't, and ask is set, it is asked for, as by CreateAH. The error wraps ErrInvalid when no AH can be made of that address
// vector; without ask, it isn't found out that there is no route.
func (d *Device) NextHopKnown(av AV, ask bool) (bool, error) {
	known, err := d.engine.NextHopKnown(av, ask)
	if err != nil {
		err = d.errorf("%w: %w", ErrInvalid, err)
	}
	return known, err
}

// AV returns the address vector, with its defaults filled in.
func (a *AH) AV() AV { return a.engine.AV() }

// Destroy frees the address handle. Datagrams that were posted with it are still sent.
func (a *AH) Destroy() error {
	d := a.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.ahs, a, "destroy AH"); err != nil {
		return err
	}
	delete(d.ahs, a)
	a.gone.Store(true)
	a.pd.ahs--
	a.engine.Destroy()
	return nil
}

// AVFromWC returns the address vector of whoever sent a datagram, as ibv_init_ah_from_wc does: from the completion of its
// receive and the first GRHLen bytes there. A datagram to a multicast group is answered from the first address of the
// sender's kind. It wraps ErrInvalid when there is no header in them, or one to an address that the device doesn't have.
func (d *Device) AVFromWC(wc *WC, grh []byte) (AV, error) {
	if wc.Flags&WCGRH == 0 || len(grh) < GRHLen {
		return AV{}, d.errorf("address vector of a datagram: %w: completion flags 0x%x with %d bytes of GRH (want WCGRH and %d bytes)",
			ErrInvalid, uint8(wc.Flags), len(grh), GRHLen)
	}
	av, dst, ok := parseGRH(grh)
	i := d.answerIndex(dst, av.DGID, wc.VLAN)
	if !ok || i < 0 || i > 255 {
		return AV{}, d.errorf("address vector of a datagram: %w: no header to an address of the device in % x (its GIDs: %v)",
			ErrInvalid, grh[:GRHLen], ib.GIDTable(d.GIDs()))
	}
	av.SGIDIndex, av.Port = uint8(i), 1
	return av, nil
}

// answerIndex returns the index of the GID that a datagram to dst, which came in a VLAN or with 0 in none, is answered from;
// -1 if there is none.
func (d *Device) answerIndex(dst, sender ib.GID, vlan uint16) int {
	gids := d.engine.GIDs()
	if dst.IsMulticast() {
		return sourceGID(gids, sender, func(i int) bool { return d.engine.VLANOf(i) == vlan })
	}
	for i, g := range gids {
		if g == dst && d.engine.VLANOf(i) == vlan {
			return i
		}
	}
	return -1
}

// parseGRH reads the 40 bytes before a datagram's payload. An IPv4 header is known by its checksum.
func parseGRH(b []byte) (av AV, dst ib.GID, ok bool) {
	if h := b[GRHLen-wire.IPv4Len : GRHLen]; h[0] == 0x45 && wire.IPv4Checksum(h) == binary.BigEndian.Uint16(h[10:]) {
		gid := func(a []byte) ib.GID { return ib.GIDFromAddr(netip.AddrFrom4([4]byte(a))) }
		return AV{DGID: gid(h[12:16]), TClass: h[1]}, gid(h[16:20]), true
	}
	if b[0]>>4 != 6 {
		return av, dst, false
	}
	first := binary.BigEndian.Uint32(b)
	return AV{DGID: ib.GID(b[8:24]), TClass: uint8(first >> 20), FlowLabel: first & 0xfffff}, ib.GID(b[24:40]), true
}
