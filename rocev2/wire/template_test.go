package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/tests/conform"
)

// only returns h without the fields of extended headers that its opcode lacks.
func only(h Header) Header {
	e := h.Opcode.Info().Ext
	clear := func(x Ext, fields ...any) {
		if e.Has(x) {
			return
		}
		for _, f := range fields {
			switch f := f.(type) {
			case *uint32:
				*f = 0
			case *uint64:
				*f = 0
			case *ib.QPN:
				*f = 0
			case *ib.QKey:
				*f = 0
			case *ib.MSN:
				*f = 0
			case *Syndrome:
				*f = 0
			}
		}
	}
	clear(ExtDETH, &h.SrcQP, &h.QKey)
	clear(ExtFETH, &h.Flush)
	clear(ExtAtomicETH, &h.Swap, &h.Compare)
	if !e.Has(ExtRETH) {
		clear(ExtAtomicETH, &h.VA, &h.RKey)
	}
	clear(ExtRETH, &h.Length)
	clear(ExtAETH, &h.Syndrome, &h.MSN)
	clear(ExtAtomicAckETH, &h.Orig)
	clear(ExtImmDt, &h.Imm)
	clear(ExtIETH, &h.InvKey)
	return h
}

func genHeader(t *rapid.T) Header {
	u24 := rapid.Uint32Range(0, 0xffffff)
	u32, u64, yes := rapid.Uint32(), rapid.Uint64(), rapid.Bool()
	opcodes := make([]Opcode, 0, 64)
	for o := range 256 {
		if Opcode(o).Valid() {
			opcodes = append(opcodes, Opcode(o))
		}
	}
	return only(Header{
		Opcode: rapid.SampledFrom(opcodes).Draw(t, "opcode"), SE: yes.Draw(t, "SE"), MigReq: yes.Draw(t, "M"),
		FECN: yes.Draw(t, "FECN"), BECN: yes.Draw(t, "BECN"), AckReq: yes.Draw(t, "A"), PKey: ib.PKey(rapid.Uint16().Draw(t, "P_Key")),
		DestQP: ib.QPN(u24.Draw(t, "QP")), PSN: ib.PSN(u24.Draw(t, "PSN")), Syndrome: Syndrome(rapid.Byte().Draw(t, "syndrome")),
		MSN: ib.MSN(u24.Draw(t, "MSN")), SrcQP: ib.QPN(u24.Draw(t, "source QP")), QKey: ib.QKey(u32.Draw(t, "Q_Key")),
		Imm: u32.Draw(t, "imm"), InvKey: u32.Draw(t, "inv"), Flush: u32.Draw(t, "flush"), RKey: u32.Draw(t, "R_Key"),
		VA: u64.Draw(t, "VA"), Length: u32.Draw(t, "length"), Swap: u64.Draw(t, "swap"), Compare: u64.Draw(t, "compare"),
		Orig: u64.Draw(t, "orig"),
	})
}

func genFlow(t *rapid.T) Flow {
	f := Flow{
		VLAN: rapid.Uint16().Draw(t, "VLAN"), TClass: rapid.Byte().Draw(t, "class"),
		HopLimit: rapid.ByteMin(1).Draw(t, "hop limit"), SrcPort: rapid.Uint16().Draw(t, "port"),
	}
	fill := func(b []byte) { copy(b, rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, "address")) }
	fill(f.SrcMAC[:])
	fill(f.DstMAC[:])
	if rapid.Bool().Draw(t, "IPv4") {
		f.Src, f.Dst = gid("0.0.0.0"), gid("0.0.0.0")
		fill(f.Src[12:])
		fill(f.Dst[12:])
		f.IPID = rapid.Uint16().Draw(t, "id")
		return f
	}
	fill(f.Src[:])
	fill(f.Dst[:])
	f.Src[0], f.Dst[0] = f.Src[0]|1, f.Dst[0]|1 // not a mapped IPv4 address
	f.FlowLabel = rapid.Uint32Range(0, 0xfffff).Draw(t, "label")
	return f
}

// genPayload draws a payload that the opcode may have.
func genPayload(t *rapid.T, o Opcode) []byte {
	i := o.Info()
	if !i.Payload {
		return nil
	}
	b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
	if !i.Place.Ends() {
		b = b[:len(b)&^3]
	}
	return b
}

// TestRoundTrip: what is emitted parses to the same values, its ICRC is the
// specification's, and it does not matter what was in the buffer or where it is cut.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flow, h := genFlow(t), genHeader(t)
		payload := genPayload(t, h.Opcode)
		b := build(&flow, &h, payload, filled(0xa5, MaxPacketLen, 0))
		if again := build(&flow, &h, payload, filled(0x5a, MaxPacketLen, 0)); !bytes.Equal(b, again) {
			t.Fatalf("depends on what was in the buffer:\n%x\n%x", b, again)
		}
		var p Packet
		if v := Parse(&p, whole(b)); v != Accepted {
			t.Fatal(v)
		}
		if d := cmp.Diff(h, p.Header); d != "" {
			t.Errorf("header, emitted - parsed +:\n%s", d)
		}
		if d := cmp.Diff(flow, FlowOf(&p)); d != "" {
			t.Errorf("flow, emitted - parsed +:\n%s", d)
		}
		if joined(p.Payload) != string(payload) {
			t.Errorf("payload %x, want %x", p.Payload, payload)
		}
		if got, _ := ICRC(&p); got != slowICRC(b, p.ip) {
			t.Errorf("ICRC %08x, want %08x", got, slowICRC(b, p.ip))
		}
		cut := rapid.IntRange(p.HeaderLen(), len(b)).Draw(t, "cut")
		if two := build(&flow, &h, payload, filled(0xa5, cut, MaxPacketLen)); !bytes.Equal(b, two) {
			t.Fatalf("cut at %d:\n%x\n%x", cut, two, b)
		}
		if h := b[p.ip:]; !p.IPv6 && !ipv4SumHolds(h) {
			t.Errorf("checksum of %x", h[:IPv4Len])
		}
	})
}

// ipv4SumHolds reports whether the words of an IPv4 header add up to all ones.
func ipv4SumHolds(h []byte) bool {
	var sum uint32
	for i := 0; i < IPv4Len; i += 2 {
		sum += uint32(be.Uint16(h[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return sum == 0xffff
}

// TestEveryOpcodeRoundTrips makes sure of each, which random tests need not hit.
func TestEveryOpcodeRoundTrips(t *testing.T) {
	full := Header{
		SE: true, MigReq: true, FECN: true, BECN: true, AckReq: true, PKey: 0x8001, DestQP: 0xfedcba, PSN: 0xabcdef,
		Syndrome: 0x61, MSN: 0x123456, SrcQP: 0x654321, QKey: 0x80010000, Imm: 0xdeadbeef, InvKey: 0xcafe, Flush: 0x12,
		RKey: 0x01020304, VA: 0x1122334455667788, Length: 1 << 31, Swap: 1 << 63, Compare: 3, Orig: 0x99,
	}
	for name, flow := range flows() {
		var tmpl Template
		tmpl.Set(&flow)
		for o := range extLength {
			h := full
			h.Opcode = o
			h = only(h)
			for n := range 9 {
				if i := o.Info(); !i.Payload && n > 0 || !i.Place.Ends() && n%4 != 0 {
					continue
				}
				payload := []byte("12345678")[:n]
				f := filled(0xa5, 200, 0)
				emit(&tmpl, &h, payload, f)
				if got := tmpl.FrameLen(o, n); got != f.Len() || tmpl.HeaderLen(o) > MaxHeaderLen {
					t.Errorf("%s %v: FrameLen %d, is %d; HeaderLen %d", name, o, got, f.Len(), tmpl.HeaderLen(o))
				}
				var p Packet
				if v := Parse(&p, f); v != Accepted || p.Header != h || joined(p.Payload) != string(payload) {
					t.Errorf("%s %v with %d bytes: %v, payload %q\n%s", name, o, n, v, joined(p.Payload), cmp.Diff(h, p.Header))
				}
			}
		}
	}
}

// TestEveryCut cuts small packets everywhere: parsed and emitted in two
// pieces, they are the same as in one.
func TestEveryCut(t *testing.T) {
	for name, flow := range flows() {
		for o := range extLength {
			payload := []byte("1234567890ab")
			switch i := o.Info(); {
			case !i.Payload:
				payload = nil
			case i.Place.Ends():
				payload = payload[:9] // three bytes of pad
			}
			h := only(Header{Opcode: o, PSN: 7, VA: 1, MSN: 2, QKey: 3, Imm: 4})
			b := build(&flow, &h, payload, filled(0xa5, 200, 0))
			var joinedUp, p Packet
			Parse(&joinedUp, whole(b))
			for cut := range len(b) + 1 {
				got := Parse(&p, halves(b, cut))
				if cut < joinedUp.HeaderLen() {
					if got != DropTruncated && got != DropNotRoCE {
						t.Errorf("%s %v cut at %d, inside the headers: %v", name, o, cut, got)
					}
					continue
				}
				if d := diff(&joinedUp, &p); got != Accepted || d != "" {
					t.Errorf("%s %v cut at %d: %v %s", name, o, cut, got, d)
				}
				if two := build(&flow, &h, payload, filled(0xa5, cut, 100)); !bytes.Equal(two, b) {
					t.Errorf("%s %v emitted with a cut at %d:\n%x\n%x", name, o, cut, two, b)
				}
			}
		}
	}
}

// TestCutOfAFXDP has frames around the 3840 bytes that an AF_XDP buffer of a
// page holds: payload, pad or ICRC lie across the cut.
func TestCutOfAFXDP(t *testing.T) {
	const room = 3840
	for name, flow := range flows() {
		var tmpl Template
		tmpl.Set(&flow)
		h := Header{Opcode: RCWriteOnly, Length: 4096}
		sizes := map[int]bool{}
		for n := room - 120; n < room+20; n++ {
			payload := make([]byte, n)
			for i := range payload {
				payload[i] = byte(i*i + n)
			}
			one := build(&flow, &h, payload, filled(0xa5, MaxPacketLen, 0))
			f := filled(0xa5, room, room)
			emit(&tmpl, &h, payload, f)
			if !bytes.Equal([]byte(joined(f.Frag)), one) {
				t.Fatalf("%s, %d bytes of payload: emitted in two pieces, they differ", name, n)
			}
			var p Packet
			if v := Parse(&p, f); v != Accepted || joined(p.Payload) != string(payload) {
				t.Fatalf("%s, %d bytes of payload: %v", name, n, v)
			}
			if got, _ := ICRC(&p); got != slowICRC(one, p.ip) {
				t.Fatalf("%s, %d bytes of payload: ICRC %08x", name, n, got)
			}
			sizes[f.Len()] = true
			if f.Len() <= room != (len(f.Frag[1]) == 0) {
				t.Fatalf("%s: a frame of %d bytes in pieces of %d and %d", name, f.Len(), len(f.Frag[0]), len(f.Frag[1]))
			}
		}
		for _, n := range []int{room, room + 1, room + 2, room + 3, room + 4} {
			// Lengths of RoCEv2 frames differ by four: a tag moves none of them.
			if want := n%4 == tmpl.FrameLen(RCWriteOnly, 0)%4; sizes[n] != want {
				t.Errorf("%s: frame of %d bytes tested: %v, want %v", name, n, sizes[n], want)
			}
		}
	}
}

// TestEveryLength seals packets of all lengths up to the largest path MTU, and
// past it to the largest IP packet.
func TestEveryLength(t *testing.T) {
	conform.Row(t, "5.1/pad", "bug/1")
	for name, flow := range flows() {
		var tmpl Template
		tmpl.Set(&flow)
		f := filled(0xa5, 1<<16, 0)
		for n := 0; n < 65400; n++ {
			tmpl.Emit(f, &Header{Opcode: RCSendOnly}, n)
			tmpl.Seal(f)
			var p Packet
			if v := Parse(&p, f); v != Accepted || p.Len != n {
				t.Fatalf("%s, %d bytes of payload: %v", name, n, v)
			}
			if n >= 4096 {
				n += 1000
			}
		}
	}
}

// TestStraddle has an ICRC across the cut with one, two and three of its bytes on either side.
func TestStraddle(t *testing.T) {
	flow := flows()["v4"]
	h := Header{Opcode: RCSendOnly}
	payload := bytes.Repeat([]byte("p"), 3000)
	one := build(&flow, &h, payload, filled(0xa5, 4000, 0))
	for back := 1; back < ICRCLen; back++ {
		cut := len(one) - back
		if two := build(&flow, &h, payload, filled(0xa5, cut, 100)); !bytes.Equal(one, two) {
			t.Errorf("%d bytes behind the cut: %x, want %x", back, two[cut-4:], one[cut-4:])
		}
		var p Packet
		f := halves(one, cut)
		if v := Parse(&p, f); v != Accepted || p.Payload[1] != nil || p.Len != len(payload) {
			t.Errorf("%d bytes behind the cut: %v", back, v)
		}
		f.Frag[1][back-1] ^= 0x80
		if v := Parse(&p, f); v != DropICRC {
			t.Errorf("%d bytes behind the cut, the last one wrong: %v", back, v)
		}
	}
}

// TestEmitAgain: a frame that was cut to a short packet takes a long one later.
func TestEmitAgain(t *testing.T) {
	flow := flows()["v6"]
	var tmpl Template
	tmpl.Set(&flow)
	f := filled(0xa5, 150, 150)
	for _, n := range []int{100, 0, 120, 1} {
		payload := bytes.Repeat([]byte{byte(n)}, n)
		emit(&tmpl, &Header{Opcode: RCSendOnly}, payload, f)
		var p Packet
		if v := Parse(&p, f); v != Accepted || joined(p.Payload) != string(payload) {
			t.Errorf("%d bytes: %v", n, v)
		}
	}
}

func TestDefaults(t *testing.T) {
	conform.Row(t, "5.6/df", "5.6/hops")
	for name, flow := range flows() {
		flow.HopLimit, flow.IPID = 0, 0
		var p Packet
		b := build(&flow, &Header{Opcode: RCSendOnly}, nil, filled(0xa5, 100, 0))
		if v := Parse(&p, whole(b)); v != Accepted || p.HopLimit() != 64 || p.MigReq {
			t.Errorf("%s: %v, hop limit %d, %+v", name, v, p.HopLimit(), p.Header)
		}
		if !p.IPv6 && be.Uint16(b[p.ip+6:]) != 0x4000 {
			t.Errorf("%s: fragment field %x, want just DF", name, b[p.ip+6:p.ip+8])
		}
		if be.Uint16(b[p.bth-2:]) != 0 {
			t.Errorf("%s: UDP checksum %x", name, b[p.bth-2:p.bth])
		}
	}
}

// TestIPv4Checksum goes over all identifications, and so over all carries.
func TestIPv4Checksum(t *testing.T) {
	flow := flows()["v4"]
	flow.TClass, flow.HopLimit, flow.Src, flow.Dst = 0xff, 0xff, gid("255.255.255.255"), gid("255.254.255.255")
	var tmpl Template
	f := filled(0, 100, 0)
	for id := range 1 << 16 {
		flow.IPID = uint16(id)
		tmpl.Set(&flow)
		tmpl.Emit(f, &Header{Opcode: RCSendOnly}, 0)
		if !ipv4SumHolds(f.Frag[0][tmpl.ip:]) {
			t.Fatalf("header %x", f.Frag[0][tmpl.ip:tmpl.ip+IPv4Len])
		}
	}
}

func TestMatches(t *testing.T) {
	all := flows()
	for name, flow := range all {
		back := flow
		back.Src, back.Dst = flow.Dst, flow.Src
		var p Packet
		Parse(&p, whole(build(&back, &Header{Opcode: RCAck}, nil, filled(0, 100, 0))))
		for other, f := range all {
			var tmpl Template
			tmpl.Set(&f)
			if got, want := tmpl.Matches(&p), f.Src == flow.Src; got != want {
				t.Errorf("answer to %s matches %s: %v", name, other, got)
			}
		}
		another := gid("10.0.0.99")
		if p.IPv6 {
			another = gid("fd00::99")
		}
		for what, f := range map[string]Flow{
			"its own direction": back, "another peer's": {Src: flow.Src, Dst: another}, "another of us": {Src: another, Dst: flow.Dst},
		} {
			var tmpl Template
			tmpl.Set(&f)
			if tmpl.Matches(&p) {
				t.Errorf("%s: a packet matches %s", name, what)
			}
		}
	}
}

func TestEmitAllocatesNothing(t *testing.T) {
	for name, flow := range flows() {
		var tmpl Template
		tmpl.Set(&flow)
		f := filled(0, 3840, 1000)
		h := Header{Opcode: RCWriteOnlyImm}
		if n := testing.AllocsPerRun(100, func() {
			tmpl.Set(&flow)
			tmpl.Emit(f, &h, 3999)
			tmpl.Seal(f)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Example shows a packet's way from values to bytes and back.
func Example() {
	var t Template
	t.Set(&Flow{Src: gid("10.0.0.1"), Dst: gid("10.0.0.2"), SrcPort: SourcePort(0, 0x11, 0x12)})
	f := Frame{Frag: [2][]byte{make([]byte, 256)}}
	payload := t.Emit(&f, &Header{Opcode: RCSendOnly, MigReq: true, PKey: ib.PKeyDefault, DestQP: 0x12, PSN: 1}, 5)
	copy(payload[0], "hello")
	t.Seal(&f)

	var p Packet
	fmt.Println(Parse(&p, &f), p.Opcode, p.DestQP, p.PSN, string(p.Payload[0]))
	// Output: accepted RC SEND Only 0x000012 0x000001 hello
}
