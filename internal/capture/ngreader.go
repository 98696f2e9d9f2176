package capture

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// iface is an interface of a pcapng section.
type iface struct {
	name     string
	linkType uint32
	snapLen  uint32
	unit     uint64 // of its time stamps: so many are a second
	offset   int64  // seconds to add to them
}

// readSection reads the section header that a pcapng begins with.
func (r *Reader) readSection() error {
	_, _, err := r.block()
	return r.inside(err)
}

// nextBlockPacket reads blocks up to one that holds a packet.
func (r *Reader) nextBlockPacket() (*Packet, error) {
	for {
		kind, body, err := r.block()
		if err != nil {
			return nil, err
		}
		switch kind {
		case blockInterface:
			err = r.addInterface(body)
		case blockEnhanced, blockPacket:
			return r.enhanced(kind, body)
		case blockSimple:
			return r.simple(body)
		}
		if err != nil {
			return nil, err
		}
	}
}

// block reads a block. A section header sets the byte order, and forgets the
// interfaces of the section before.
func (r *Reader) block() (kind uint32, body []byte, err error) {
	r.start = r.off
	h, err := r.read(8)
	if err != nil {
		return 0, nil, err
	}
	if be.Uint32(h) == blockSection {
		return r.section([4]byte(h[4:]))
	}
	kind = r.order.Uint32(h)
	body, err = r.body(r.order.Uint32(h[4:]), 8, 0)
	return kind, body, err
}

// section reads a section header from its byte-order magic on.
func (r *Reader) section(length [4]byte) (kind uint32, body []byte, err error) {
	m, err := r.read(4)
	if err != nil {
		return 0, nil, r.inside(err)
	}
	switch {
	case be.Uint32(m) == byteOrderMagic:
		r.order = binary.BigEndian
	case le.Uint32(m) == byteOrderMagic:
		r.order = binary.LittleEndian
	default:
		return 0, nil, r.damage("a section header with byte-order magic %x", m)
	}
	body, err = r.body(r.order.Uint32(length[:]), 12, 12)
	if err != nil {
		return 0, nil, err
	}
	if major := r.order.Uint16(body); major != 1 {
		return 0, nil, r.damage("a section of pcapng version %d.%d: only 1 can be read", major, r.order.Uint16(body[2:]))
	}
	r.interfaces = r.interfaces[:0]
	return blockSection, body, nil
}

// body reads the rest of a block of length bytes in all, of which done are
// read, and which must have at least least more before its second length.
func (r *Reader) body(length uint32, done, least int) ([]byte, error) {
	if length%4 != 0 || length < uint32(done+least+4) || length > maxBlock {
		return nil, r.damage("a block of %d bytes: want a multiple of 4, from %d to %d", length, done+least+4, maxBlock)
	}
	b, err := r.read(int(length) - done)
	if err != nil {
		return nil, r.inside(err)
	}
	n := len(b) - 4
	if again := r.order.Uint32(b[n:]); again != length {
		return nil, r.damage("a block that is %d bytes long at its beginning and %d at its end", length, again)
	}
	return b[:n], nil
}

func (r *Reader) addInterface(b []byte) error {
	if len(b) < 8 {
		return r.damage("an interface block of %d bytes: want 8 at least", len(b))
	}
	i := iface{linkType: uint32(r.order.Uint16(b)), snapLen: r.order.Uint32(b[4:]), unit: 1e6}
	err := r.options(b[8:], func(code uint16, v []byte) error {
		switch {
		case code == optIfName:
			i.name = string(v)
		case code == optTsOffset && len(v) == 8:
			i.offset = int64(r.order.Uint64(v))
		case code == optTsResol && len(v) == 1:
			i.unit = resolution(v[0])
			if i.unit == 0 {
				return r.damage("a time resolution of 0x%02x", v[0])
			}
		}
		return nil
	})
	r.interfaces = append(r.interfaces, i)
	return err
}

// resolution returns how many units of an if_tsresol are a second, or 0 when it is none of use.
func resolution(v byte) uint64 {
	if v&0x80 != 0 {
		if v &= 0x7f; v > 62 {
			return 0
		}
		return 1 << v
	}
	if v > 18 {
		return 0
	}
	unit := uint64(1)
	for range v {
		unit *= 10
	}
	return unit
}

// time turns a time stamp of the interface into the time.
func (i *iface) time(ts uint64) time.Time {
	hi, lo := bits.Mul64(ts%i.unit, uint64(time.Second))
	ns, _ := bits.Div64(hi, lo, i.unit)
	return time.Unix(int64(ts/i.unit)+i.offset, int64(ns))
}

// enhanced reads a packet block of the new kind or of the obsolete one, which
// has an interface of 16 bits and a drop count in place of one of 32.
func (r *Reader) enhanced(kind uint32, b []byte) (*Packet, error) {
	if len(b) < 20 {
		return nil, r.damage("a packet block of %d bytes: want 20 at least", len(b))
	}
	id := r.order.Uint32(b)
	if kind == blockPacket {
		id = uint32(r.order.Uint16(b))
	}
	ts := uint64(r.order.Uint32(b[4:]))<<32 | uint64(r.order.Uint32(b[8:]))
	captured, length := r.order.Uint32(b[12:]), r.order.Uint32(b[16:])
	i, err := r.packet(id, b[20:], captured, length)
	if err != nil {
		return nil, err
	}
	r.pkt.Time = i.time(ts)
	rest := b[20+int(captured):]
	return &r.pkt, r.options(rest[pad4(int(captured)):], r.packetOption)
}

func (r *Reader) packetOption(code uint16, v []byte) error {
	switch {
	case code == optComment && r.pkt.Comment == "":
		r.pkt.Comment = string(v)
	case code == optComment:
		r.pkt.Comment += "; " + string(v)
	case code == optFlags && len(v) == 4:
		r.pkt.Direction = Direction(r.order.Uint32(v) & 3)
	}
	return nil
}

// simple reads a simple packet block, which has no time.
func (r *Reader) simple(b []byte) (*Packet, error) {
	if len(b) < 4 {
		return nil, r.damage("a simple packet block of %d bytes: want 4 at least", len(b))
	}
	length := r.order.Uint32(b)
	captured := length
	if len(r.interfaces) > 0 && r.interfaces[0].snapLen != 0 {
		captured = min(captured, r.interfaces[0].snapLen)
	}
	if _, err := r.packet(0, b[4:], captured, length); err != nil {
		return nil, err
	}
	return &r.pkt, nil
}

// packet begins r.pkt with the first captured bytes of b, from interface id.
func (r *Reader) packet(id uint32, b []byte, captured, length uint32) (*iface, error) {
	if uint64(id) >= uint64(len(r.interfaces)) {
		return nil, r.damage("a packet of interface %d, of which there are %d", id, len(r.interfaces))
	}
	if captured > maxFrame || int(captured)+pad4(int(captured)) > len(b) {
		return nil, r.damage("a packet of %d bytes in a block that has room for %d", captured, len(b))
	}
	i := &r.interfaces[id]
	if i.linkType != linkTypeEthernet {
		return nil, &LinkTypeError{LinkType: i.linkType, Interface: i.name}
	}
	r.pkt = Packet{Interface: i.name, Data: b[:captured:captured], Length: max(int(length), int(captured))}
	return i, nil
}

// options calls f for each option in b.
func (r *Reader) options(b []byte, f func(code uint16, v []byte) error) error {
	for len(b) >= 4 {
		code, n := r.order.Uint16(b), int(r.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		b = b[4:]
		if n+pad4(n) > len(b) {
			return r.damage("an option of %d bytes where %d are left", n, len(b))
		}
		if err := f(code, b[:n]); err != nil {
			return err
		}
		b = b[n+pad4(n):]
	}
	return nil
}
