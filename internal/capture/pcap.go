package capture

import (
	"fmt"
	"time"
)

// readFileHeader reads the file header of a pcap, whose first four bytes are m in network order.
func (r *Reader) readFileHeader(m uint32) error {
	switch m {
	case 0xa1b2c3d4:
		r.order, r.unit = be, time.Microsecond
	case 0xa1b23c4d:
		r.order, r.unit = be, time.Nanosecond
	case 0xd4c3b2a1:
		r.order, r.unit = le, time.Microsecond
	case 0x4d3cb2a1:
		r.order, r.unit = le, time.Nanosecond
	default:
		return fmt.Errorf("not a capture: it begins with %08x, which is neither pcap nor pcapng", m)
	}
	h, err := r.read(24)
	if err != nil {
		return r.inside(err)
	}
	if major := r.order.Uint16(h[4:]); major != 2 {
		return fmt.Errorf("pcap version %d.%d: only 2 can be read", major, r.order.Uint16(h[6:]))
	}
	// The upper bits say how long a frame check sequence is, which nothing here looks at.
	if lt := r.order.Uint32(h[20:]) & 0xffff; lt != linkTypeEthernet {
		return &LinkTypeError{LinkType: lt}
	}
	return nil
}

// nextRecord reads a packet of a pcap.
func (r *Reader) nextRecord() (*Packet, error) {
	r.start = r.off
	h, err := r.read(16)
	if err != nil {
		return nil, err
	}
	sec, frac := r.order.Uint32(h), r.order.Uint32(h[4:])
	captured, length := r.order.Uint32(h[8:]), r.order.Uint32(h[12:])
	if captured > maxFrame {
		return nil, r.damage("a packet of %d bytes: more than %d", captured, maxFrame)
	}
	if time.Duration(frac)*r.unit >= time.Second {
		return nil, r.damage("its time has a fraction of a second that is more than one: %d", frac)
	}
	data, err := r.read(int(captured))
	if err != nil {
		return nil, r.inside(err)
	}
	r.pkt = Packet{
		Time: time.Unix(int64(sec), int64(time.Duration(frac)*r.unit)),
		Data: data, Length: max(int(length), int(captured)),
	}
	return &r.pkt, nil
}
