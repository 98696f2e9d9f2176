package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/tests/conform"
)

// flows are the ways in which packets may be wrapped.
func flows() map[string]Flow {
	v4 := vectorFlow()
	v6 := v4
	v6.Src, v6.Dst, v6.FlowLabel, v6.IPID, v6.TClass = gid("fd00::1"), gid("fd00::2"), 0xabcde, 0, 0x6a
	tagged4, tagged6 := v4, v6
	tagged4.VLAN, tagged6.VLAN = 0x2005, 5
	return map[string]Flow{"v4": v4, "v6": v6, "v4 tagged": tagged4, "v6 tagged": tagged6}
}

// slowICRC is the ICRC as the specification tells it, over a copy.
func slowICRC(frame []byte, ip int) uint32 {
	b := append(bytes.Repeat([]byte{0xff}, 8), frame[ip:len(frame)-ICRCLen]...)
	h, udp := b[8:], 20
	ones := []int{1, 8, 10, 11}
	if h[0]>>4 == 6 {
		h[0] |= 0x0f
		ones, udp = []int{1, 2, 3, 7}, 40
	}
	for _, i := range append(ones, udp+6, udp+7, udp+12) {
		if i < len(h) {
			h[i] = 0xff
		}
	}
	return crc32.ChecksumIEEE(b)
}

// raw makes a frame whose UDP payload is the given bytes and an ICRC that holds.
func raw(f *Flow, udp []byte) []byte {
	var t Template
	t.Set(f)
	frame := append(bytes.Clone(t.hdr[:t.bth]), udp...)
	t.putLengths(frame, len(frame))
	if len(udp) >= ICRCLen {
		seal(frame, int(t.ip))
	}
	return frame
}

func seal(frame []byte, ip int) {
	binary.LittleEndian.PutUint32(frame[len(frame)-ICRCLen:], slowICRC(frame, ip))
}

// TestEveryOpcodeAndLength parses all opcodes with all lengths and pad counts,
// and compares with the rules of facts 5.1, told once more.
func TestEveryOpcodeAndLength(t *testing.T) {
	conform.Row(t, "5.1/op-81")
	for name, flow := range flows() {
		t.Run(name, func(t *testing.T) {
			for o := range 256 {
				for n := range 100 {
					for pad := range 4 {
						udp := bytes.Repeat([]byte{0x77}, n)
						if n > 0 {
							udp[0] = byte(o)
						}
						if n > 1 {
							udp[1] = byte(0x40 | pad<<4)
						}
						var p Packet
						got := Parse(&p, whole(raw(&flow, udp)))
						want, size := expected(Opcode(o), n, pad)
						if got != want || got == Accepted && (p.Len != size || len(p.Payload[0]) != size) {
							t.Fatalf("opcode %02x, %d bytes of UDP, pad %d: %v with %d bytes of payload, want %v with %d",
								o, n, pad, got, p.Len, want, size)
						}
					}
				}
			}
		})
	}
}

// extLength is facts 5.1 by opcode.
var extLength = map[Opcode]int{
	0x00: 0, 0x01: 0, 0x02: 0, 0x03: 4, 0x04: 0, 0x05: 4, 0x06: 16, 0x07: 0, 0x08: 0, 0x09: 4, 0x0a: 16, 0x0b: 20, 0x0c: 16,
	0x0d: 4, 0x0e: 0, 0x0f: 4, 0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4, 0x1c: 20, 0x1d: 16,
	0x20: 0, 0x21: 0, 0x22: 0, 0x23: 4, 0x24: 0, 0x25: 4, 0x26: 16, 0x27: 0, 0x28: 0, 0x29: 4, 0x2a: 16, 0x2b: 20,
	0x64: 8, 0x65: 12, 0x81: 16,
}

func expected(o Opcode, n, pad int) (v Verdict, payload int) {
	ext, known := extLength[o]
	payload = n - 12 - ext - 4
	switch {
	case n < 12:
		return DropTruncated, 0
	case !known && o >= 0x20:
		return DropOpcode, 0
	case payload < 0:
		return DropTruncated, 0
	case payload%4 != 0 || pad > payload:
		return DropLength, 0
	case !known: // reserved, of RC
		return Accepted, payload - pad
	}
	switch o {
	case 0x0c, 0x11, 0x12, 0x13, 0x14, 0x1c, 0x81: // have no payload
		if payload != 0 {
			return DropLength, 0
		}
	case 0x00, 0x01, 0x06, 0x07, 0x0d, 0x0e, 0x20, 0x21, 0x26, 0x27: // are full
		if pad != 0 {
			return DropLength, 0
		}
	}
	return Accepted, payload - pad
}

// TestTruncated cuts frames at every byte, below what their headers say.
func TestTruncated(t *testing.T) {
	for name, flow := range flows() {
		for o := range extLength {
			payload := []byte("12345678")
			if !o.Info().Payload {
				payload = nil
			}
			frame := build(&flow, &Header{Opcode: o}, payload, filled(0xa5, 200, 0))
			var tmpl Template
			tmpl.Set(&flow)
			for n := range frame {
				want := DropTruncated
				if n < int(tmpl.bth) {
					want = DropNotRoCE // its port isn't there
				}
				var p Packet
				if got := Parse(&p, whole(frame[:n:n])); got != want {
					t.Errorf("%s %v cut at %d of %d: %v, want %v", name, o, n, len(frame), got, want)
				}
			}
		}
	}
}

// TestLengthsDisagree sets the IP and UDP lengths to all values around the right one.
func TestLengthsDisagree(t *testing.T) {
	conform.Row(t, "5.6/length")
	for name, flow := range flows() {
		var tmpl Template
		tmpl.Set(&flow)
		frame := build(&flow, &Header{Opcode: RCSendOnly}, []byte("12345678"), filled(0xa5, 200, 0))
		right := len(frame) - int(tmpl.bth) + UDPLen
		for udp := range 100 {
			for ip := range 100 {
				b := bytes.Clone(frame)
				be.PutUint16(b[tmpl.bth-4:], uint16(udp))
				if tmpl.v6 {
					be.PutUint16(b[tmpl.ip+4:], uint16(ip))
				} else {
					be.PutUint16(b[tmpl.ip+2:], uint16(ip+IPv4Len))
				}
				want := DropTruncated
				switch {
				case ip < UDPLen:
					want = DropNotRoCE
				case ip > right || udp > ip || udp < UDPLen:
				case udp < ip:
					want = DropLength
				case ip == right:
					want = Accepted
				case ip%4 != 0 && ip >= UDPLen+BTHLen+ICRCLen:
					want = DropLength
				case ip >= UDPLen+BTHLen+ICRCLen:
					want = DropICRC
				}
				var p Packet
				if got := Parse(&p, whole(b)); got != want {
					t.Fatalf("%s: IP says %d, UDP %d, right is %d: %v, want %v", name, ip, udp, right, got, want)
				}
			}
		}
	}
}

func TestNotRoCE(t *testing.T) {
	conform.Row(t, "5.6/port")
	v4, v6 := flows()["v4"], flows()["v6"]
	ok4 := build(&v4, &Header{Opcode: RCSendOnly}, nil, filled(0, 200, 0))
	ok6 := build(&v6, &Header{Opcode: RCSendOnly}, nil, filled(0, 200, 0))
	for _, c := range []struct {
		name  string
		frame []byte
		at    int
		to    byte
		want  Verdict
	}{
		{"ARP", ok4, 13, 0x06, DropNotRoCE},
		{"802.1ad", ok4, 12, 0x88, DropNotRoCE},
		{"TCP", ok4, 14 + 9, 6, DropNotRoCE},
		{"IPv4 with another version", ok4, 14, 0x65, DropNotRoCE},
		{"IPv4 options", ok4, 14, 0x46, DropFragment},
		{"IPv4 header too short", ok4, 14, 0x44, DropFragment},
		{"more fragments", ok4, 14 + 6, 0x20, DropFragment},
		{"a later fragment", ok4, 14 + 7, 1, DropFragment},
		{"another port", ok4, 14 + 20 + 3, 0xb6, DropNotRoCE},
		{"IPv6 with another version", ok6, 14, 0x40, DropNotRoCE},
		{"IPv6 fragment", ok6, 14 + 6, 44, DropFragment},
		{"IPv6 hop-by-hop options", ok6, 14 + 6, 0, DropNotRoCE},
		{"another port over IPv6", ok6, 14 + 40 + 2, 0x11, DropNotRoCE},
		{"TVer", ok4, 14 + 28 + 1, 0x01, DropVersion},
		{"TVer over IPv6", ok6, 14 + 48 + 1, 0x0f, DropVersion},
	} {
		b := bytes.Clone(c.frame)
		b[c.at] = c.to
		var p Packet
		if got := Parse(&p, whole(b)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestDoubleTag: of two 802.1Q tags, the inner is not looked for.
func TestDoubleTag(t *testing.T) {
	flow := flows()["v4 tagged"]
	b := build(&flow, &Header{Opcode: RCSendOnly}, nil, filled(0, 200, 0))
	b = bytes.Join([][]byte{b[:12], {0x81, 0x00, 0, 7}, b[12:]}, nil)
	var p Packet
	if got := Parse(&p, whole(b)); got != DropNotRoCE {
		t.Error(got)
	}
}

// TestPriorityTag: a tag of 0 counts as none.
func TestPriorityTag(t *testing.T) {
	flow := flows()["v4"]
	b := build(&flow, &Header{Opcode: RCSendOnly}, []byte("x"), filled(0, 200, 0))
	b = bytes.Join([][]byte{b[:12], {0x81, 0x00, 0, 0}, b[12:]}, nil)
	var p Packet
	if got := Parse(&p, whole(b)); got != Accepted || p.VLAN != 0 || joined(p.Payload) != "x" {
		t.Errorf("%v, VLAN %d, payload %q", got, p.VLAN, joined(p.Payload))
	}
}

// TestEthernetPadding: what Ethernet adds to short frames is not the packet's.
func TestEthernetPadding(t *testing.T) {
	for name, flow := range flows() {
		b := build(&flow, &Header{Opcode: RCSendOnly}, []byte("xyz"), filled(0, 200, 0))
		for n := range 20 {
			padded := append(bytes.Clone(b), bytes.Repeat([]byte{0xee}, n)...)
			for cut := len(b) - 8; cut <= len(padded); cut++ {
				var p Packet
				if got := Parse(&p, halves(padded, cut)); got != Accepted || joined(p.Payload) != "xyz" {
					t.Fatalf("%s, %d bytes of padding, cut at %d: %v, payload %q", name, n, cut, got, joined(p.Payload))
				}
			}
		}
	}
}

// covered reports whether the ICRC covers a bit of a frame, and whether the
// field may change on the way.
func maskedBits(frame []byte, ip int) (mask []byte) {
	mask = make([]byte, len(frame))
	set := func(at int, v byte) { mask[at] = v }
	udp := ip + IPv4Len
	if frame[ip]>>4 == 6 {
		udp = ip + IPv6Len
		set(ip, 0x0f)
		set(ip+1, 0xff)
		set(ip+2, 0xff)
		set(ip+3, 0xff)
		set(ip+7, 0xff)
	} else {
		set(ip+1, 0xff)
		set(ip+8, 0xff)
		set(ip+10, 0xff)
		set(ip+11, 0xff)
	}
	set(udp+6, 0xff)
	set(udp+7, 0xff)
	set(udp+8+4, 0xff)
	return mask
}

// TestBitFlips flips every bit of packets, one at a time: a field that may
// change on the way does not matter, the Ethernet addresses do not, and
// anything else is a drop.
func TestBitFlips(t *testing.T) {
	conform.Row(t, "5.5/v4-*", "5.5/v6-*", "5.5/udp-checksum", "5.5/bth-byte4", "5.5/rest", "bug/2")
	for name, flow := range flows() {
		frame := build(&flow, &Header{Opcode: RCWriteOnlyImm, AckReq: true, MigReq: true}, []byte("12345"), filled(0, 200, 0))
		var tmpl Template
		tmpl.Set(&flow)
		mask := maskedBits(frame, int(tmpl.ip))
		for i := range frame {
			for bit := byte(1); bit != 0; bit <<= 1 {
				b := bytes.Clone(frame)
				b[i] ^= bit
				var p Packet
				got := Parse(&p, whole(b))
				inTag := flow.VLAN != 0 && (i == 14 || i == 15)
				if free := i < 12 || inTag || mask[i]&bit != 0; free != (got == Accepted) {
					t.Errorf("%s: bit %02x of byte %d: %v", name, bit, i, got)
				}
				if i >= int(tmpl.bth)+BTHLen && got != DropICRC {
					t.Errorf("%s: bit %02x of byte %d, behind the BTH: %v", name, bit, i, got)
				}
			}
		}
	}
}

// TestBadICRCIsComplete: with nothing but the ICRC wrong, the packet is filled in as if it held.
func TestBadICRCIsComplete(t *testing.T) {
	for _, v := range vectors {
		frame, _, _ := v.get()
		var good, bad Packet
		Parse(&good, whole(frame))
		wrong := bytes.Clone(frame)
		wrong[len(wrong)-1] ^= 1
		if got := Parse(&bad, whole(wrong)); got != DropICRC {
			t.Errorf("%s: %v", v.name, got)
		}
		if d := diff(&good, &bad); d != "" {
			t.Errorf("%s: %s", v.name, d)
		}
		if got, want := ICRC(&bad); got != want^1<<24 {
			t.Errorf("%s: ICRC %08x, want %08x", v.name, got, want)
		}
	}
}

// diff compares all of two packets but where their bytes are, and in how many pieces.
func diff(a, b *Packet) string {
	x, y := *a, *b
	if joined(x.Payload) != joined(y.Payload) {
		return fmt.Sprintf("payload %q and %q", joined(x.Payload), joined(y.Payload))
	}
	ignore := cmpopts.IgnoreFields(Packet{}, "Frame", "Payload")
	return cmp.Diff(x, y, cmp.AllowUnexported(Packet{}), ignore)
}

// TestParseForgets: nothing of a packet is left in the next.
func TestParseForgets(t *testing.T) {
	for _, before := range vectors {
		for _, v := range vectors {
			var used, fresh Packet
			first, _, _ := before.get()
			frame, _, _ := v.get()
			Parse(&used, whole(first))
			Parse(&used, whole(frame))
			Parse(&fresh, whole(frame))
			if d := diff(&fresh, &used); d != "" {
				t.Errorf("%s after %s: %s", v.name, before.name, d)
			}
		}
	}
}

func TestParseRestoresFrame(t *testing.T) {
	for _, v := range vectors {
		frame, _, _ := v.get()
		before := bytes.Clone(frame)
		var p Packet
		Parse(&p, whole(frame))
		ICRC(&p)
		if !bytes.Equal(before, frame) {
			t.Errorf("%s: frame is now\n%x, was\n%x", v.name, frame, before)
		}
	}
}

func TestPacketViews(t *testing.T) {
	for name, flow := range flows() {
		var p Packet
		frame := build(&flow, &Header{Opcode: UDSendOnly}, []byte("hello"), filled(0, 200, 0))
		if v := Parse(&p, whole(frame)); v != Accepted {
			t.Fatal(v)
		}
		if p.SrcGID() != flow.Src || p.DstGID() != flow.Dst || p.HopLimit() != 64 || p.SrcMAC() != flow.SrcMAC {
			t.Errorf("%s: from %v (%x) to %v, hop limit %d", name, p.SrcGID(), p.SrcMAC(), p.DstGID(), p.HopLimit())
		}
		h, size := p.IPHeader(), IPv4Len
		if p.IPv6 {
			size = IPv6Len
		}
		if len(h) != size || !bytes.Contains(h, p.Src) || &h[0] != &frame[p.ip] {
			t.Errorf("%s: IP header %x", name, h)
		}
		if n := p.HeaderLen(); string(frame[n:n+5]) != "hello" {
			t.Errorf("%s: %d bytes of header", name, n)
		}
	}
}

func TestReservedRCOpcode(t *testing.T) {
	flow := flows()["v4"]
	for _, o := range []Opcode{0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f} {
		b := build(&flow, &Header{Opcode: o, PSN: 5, AckReq: true}, []byte("whatever"), filled(0, 200, 0))
		var p Packet
		if v := Parse(&p, whole(b)); v != Accepted || p.Opcode.Valid() || p.PSN != 5 || joined(p.Payload) != "whatever" {
			t.Errorf("%v: %v, %+v", o, v, p.Header)
		}
		b[len(b)-1] ^= 1
		if v := Parse(&p, whole(b)); v != DropICRC {
			t.Errorf("%v with a wrong ICRC: %v", o, v)
		}
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	for name, flow := range flows() {
		b := build(&flow, &Header{Opcode: RCWriteOnlyImm}, make([]byte, 4000), filled(0, 5000, 0))
		var p Packet
		for _, f := range []*Frame{whole(b), halves(b, 3840)} {
			if n := testing.AllocsPerRun(100, func() {
				if Parse(&p, f) != Accepted {
					t.Error("not accepted")
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

func TestSourcePort(t *testing.T) {
	conform.Row(t, "5.6/sport-*")
	for _, c := range []struct {
		label         uint32
		local, remote ib.QPN
		want          uint16
	}{
		{0, 0x11, 0x12, 0xc132}, {0, 0x1234, 0xabcdef, 0xe1fb}, {0, 1, 1, 0xc001}, {0, 0xfedcba, 0x987654, 0xe429},
		{0x12345, 0x11, 0x12, 0xe341}, {0xfffff, 1, 2, 0xffc0},
	} {
		if got := SourcePort(c.label, c.local, c.remote); got != c.want {
			t.Errorf("label %x, QPNs %v %v: port %04x, want %04x", c.label, c.local, c.remote, got, c.want)
		}
		if got := SourcePort(c.label, c.remote, c.local); got != c.want {
			t.Errorf("label %x, QPNs %v %v: port %04x, want %04x", c.label, c.remote, c.local, got, c.want)
		}
	}
}

// Admits is asked about packets whose IP and UDP headers are right, before anything
// behind them is looked at, and its verdict is final.
func TestParserAdmits(t *testing.T) {
	for name, f := range flows() {
		bad := raw(&f, make([]byte, 40)) // an opcode of RC with a wrong length
		short := raw(&f, make([]byte, 3))
		bad[len(bad)-1] ^= 1
		verdict, asked := DropNotPeer, 0
		c := Parser{Admits: func(p *Packet) Verdict {
			asked++
			if p.SrcGID() != f.Src || p.DstGID() != f.Dst || p.SrcPort != f.SrcPort || p.TClass != f.TClass || p.VLAN != f.VLAN {
				t.Errorf("%s: asked about %+v", name, p)
			}
			return verdict
		}}
		var p Packet
		for _, b := range [][]byte{bad, short} {
			if v := c.Parse(&p, &Frame{Frag: [2][]byte{b}}); v != DropNotPeer {
				t.Errorf("%s: %v", name, v)
			}
		}
		verdict = Accepted
		if v, want := c.Parse(&p, &Frame{Frag: [2][]byte{bad}}), Parse(&p, &Frame{Frag: [2][]byte{bad}}); v != want {
			t.Errorf("%s: %v, want %v", name, v, want)
		}
		other := bytes.Clone(bad)
		binary.BigEndian.PutUint16(other[len(other)-40-UDPLen+2:], 4790)
		if v := c.Parse(&p, &Frame{Frag: [2][]byte{other}}); v != DropNotRoCE || asked != 3 {
			t.Errorf("%s: %v, asked %d times", name, v, asked)
		}
	}
}
