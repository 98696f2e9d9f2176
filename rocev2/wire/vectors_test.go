package wire

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/tests/conform"
)

// A vector is a packet whose bytes, ICRC included, were made or checked by
// others: by scapy, but for the CNP, which a ConnectX-4 Lx sent.
type vector struct {
	name    string
	hex     string // from the IP header on
	flow    func(f *Flow)
	header  Header
	payload string
}

// vectorFlow is what most vectors have in common.
func vectorFlow() Flow {
	return Flow{
		SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, Src: gid("10.0.0.1"), Dst: gid("10.0.0.2"),
		TClass: 2, HopLimit: 64, SrcPort: 0xc123, IPID: 1,
	}
}

func gid(s string) ib.GID {
	g, err := ib.ParseGID(s)
	if err != nil {
		panic(err)
	}
	return g
}

const (
	vectorVA   = 0x7f0011223344
	vectorRKey = 0xabcd01
)

var vectors = []vector{{
	name:    "SEND only, pad 1",
	hex:     "4502003000014000401126b80a0000010a000002c12312b7001c00000450ffff0000001280ffffff616263007a0f51b6",
	header:  Header{Opcode: RCSendOnly, MigReq: true, AckReq: true, PSN: 0xffffff},
	payload: "abc",
}, {
	name:   "READ request",
	hex:    "4502003c00014000401126ac0a0000010a000002c12312b7002800000c40ffff000000128000000200007f001122334400abcd0100001388c4f8d779",
	header: Header{Opcode: RCReadRequest, MigReq: true, AckReq: true, PSN: 2, VA: vectorVA, RKey: vectorRKey, Length: 5000},
}, {
	name:   "ACK without credits",
	hex:    "4502003000014000401126b80a0000010a000002c12312b7001c00001140ffff00000012000000021f0000057d872905",
	header: Header{Opcode: RCAck, MigReq: true, PSN: 2, Syndrome: SyndromeAck, MSN: 5},
}, {
	name:   "RNR NAK",
	hex:    "4502003000014000401126b80a0000010a000002c12312b7001c00001140ffff00000012000000022c00000532d0b7e7",
	header: Header{Opcode: RCAck, MigReq: true, PSN: 2, Syndrome: SyndromeRNR | 12, MSN: 5},
}, {
	name:   "NAK sequence",
	hex:    "4502003000014000401126b80a0000010a000002c12312b7001c00001140ffff000000120000000260000005b7377536",
	header: Header{Opcode: RCAck, MigReq: true, PSN: 2, Syndrome: NakSequence, MSN: 5},
}, {
	name:   "CNP",
	hex:    "4502003c00014000401126ac0a0000010a000002c12312b7002800008100ffff400000120000000000000000000000000000000000000000f3feb016",
	header: Header{Opcode: CongestionNotify, BECN: true},
}, {
	name:   "FLUSH",
	hex:    "4502004000014000401126a80a0000010a000002c12312b7002c00001c40ffff00000012000000090000001100007f001122334400abcd01000013889b8cf548",
	header: Header{Opcode: RCFlush, MigReq: true, PSN: 9, Flush: 0x11, VA: vectorVA, RKey: vectorRKey, Length: 5000},
}, {
	name:    "ATOMIC WRITE",
	hex:     "4502004400014000401126a40a0000010a000002c12312b7003000001d40ffff000000120000000a00007f001122334400abcd01000013883132333435363738a207d599",
	header:  Header{Opcode: RCAtomicWrite, MigReq: true, PSN: 10, VA: vectorVA, RKey: vectorRKey, Length: 5000},
	payload: "12345678",
}, {
	name:    "SEND only with invalidate",
	hex:     "4502003400014000401126b40a0000010a000002c12312b7002000001750ffff000000120000000b00001234696e7600d883fab9",
	header:  Header{Opcode: RCSendOnlyInv, MigReq: true, PSN: 11, InvKey: 0x1234},
	payload: "inv",
}, {
	name:   "compare and swap",
	hex:    "4502004800014000401126a00a0000010a000002c12312b7003400001340ffff000000120000000c00000000000010000000000700000000000000010000000000000002f12d6c99",
	header: Header{Opcode: RCCompareSwap, MigReq: true, PSN: 12, VA: 0x1000, RKey: 7, Swap: 1, Compare: 2},
}, {
	name:   "ATOMIC ACK",
	hex:    "4502003800014000401126b00a0000010a000002c12312b7002400001240ffff000000120000000c1f000006000000000000000356da0174",
	header: Header{Opcode: RCAtomicAck, MigReq: true, PSN: 12, Syndrome: SyndromeAck, MSN: 6, Orig: 3},
}, {
	name: "IPv6",
	hex:  "60200000001c1140fe800000000000000000000000000001fe800000000000000000000000000002c12312b7001c00000460ffff000000128000000576360000c036dc45",
	flow: func(f *Flow) {
		f.Src, f.Dst, f.IPID = gid("fe80::1"), gid("fe80::2"), 0
	},
	header:  Header{Opcode: RCSendOnly, MigReq: true, AckReq: true, PSN: 5},
	payload: "v6",
}, {
	name: "CNP of a ConnectX-4 Lx",
	hex:  "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a",
	flow: func(f *Flow) {
		f.Src, f.Dst, f.TClass, f.SrcPort, f.IPID = gid("10.0.17.1"), gid("10.0.18.1"), 0xc2, 0, 0x718c
	},
	header: Header{Opcode: CongestionNotify, BECN: true, DestQP: 0x118},
}, {
	name: "UC SEND only of scapy's documentation",
	hex:  "45010040047840004011b4d5c0a80007c0a80007c00012b7002c00002460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
	flow: func(f *Flow) {
		f.Src, f.Dst, f.TClass, f.SrcPort, f.IPID = gid("192.168.0.7"), gid("192.168.0.7"), 1, 0xc000, 1144
	},
	header:  Header{Opcode: UCSendOnly, MigReq: true, DestQP: 211, PSN: 0xcf1710},
	payload: "F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P",
}}

// get returns the vector's frame, flow and header.
func (v *vector) get() (frame []byte, f Flow, h Header) {
	ip, err := hex.DecodeString(v.hex)
	if err != nil {
		panic(v.name)
	}
	f, h = vectorFlow(), v.header
	if v.flow != nil {
		v.flow(&f)
	}
	h.PKey = ib.PKeyDefault
	if h.DestQP == 0 {
		h.DestQP = 0x12
	}
	etherType := []byte{0x08, 0x00}
	if ip[0]>>4 == 6 {
		etherType = []byte{0x86, 0xdd}
	}
	return bytes.Join([][]byte{f.DstMAC[:], f.SrcMAC[:], etherType, ip}, nil), f, h
}

func TestDeconstruct(t *testing.T) {
	conform.Row(t, "5.5/vector-1", "5.5/vector-3", "5.5/vector-4", "5.5/vector-5", "5.5/vector-6", "5.5/vector-8",
		"5.5/vector-9", "5.5/vector-10", "5.5/vector-11", "5.5/vector-12", "5.5/vector-13", "5.5/vector-15",
		"5.5/vector-cx4", "5.5/vector-uc", "5.6/checksum", "5.1/icrc")
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			frame, flow, header := v.get()
			var p Packet
			if got := Parse(&p, whole(frame)); got != Accepted {
				t.Fatal(got)
			}
			if d := cmp.Diff(header, p.Header); d != "" {
				t.Errorf("header, want - got +:\n%s", d)
			}
			if d := cmp.Diff(flow, FlowOf(&p)); d != "" {
				t.Errorf("flow, want - got +:\n%s", d)
			}
			if got := joined(p.Payload); got != v.payload || p.Len != len(v.payload) {
				t.Errorf("payload %q of %d bytes, want %q", got, p.Len, v.payload)
			}
			if got, want := ICRC(&p); got != want {
				t.Errorf("ICRC %08x, want %08x", got, want)
			}
		})
	}
}

func TestConstruct(t *testing.T) {
	conform.Row(t, "5.5/vector-1", "5.5/vector-3", "5.5/vector-4", "5.5/vector-5", "5.5/vector-6", "5.5/vector-8",
		"5.5/vector-9", "5.5/vector-10", "5.5/vector-11", "5.5/vector-12", "5.5/vector-13", "5.5/vector-15",
		"5.5/vector-cx4", "5.5/vector-uc", "5.5/polynomial", "5.5/order", "5.5/lrh", "5.1/pad", "5.9/cnp-form", "bug/2")
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			frame, flow, header := v.get()
			got := build(&flow, &header, []byte(v.payload), filled(0xa5, len(frame), 0))
			if !bytes.Equal(got, frame) {
				t.Errorf("got\n%x, want\n%x", got, frame)
			}
		})
	}
}

// whole makes a frame of one piece.
func whole(b []byte) *Frame { return &Frame{Frag: [2][]byte{b}} }

// halves makes a frame of two pieces, with the cut at n, whose memories are apart.
func halves(b []byte, n int) *Frame {
	return &Frame{Frag: [2][]byte{bytes.Clone(b[:n:n]), bytes.Clone(b[n:])}}
}

// filled makes a frame to emit into, with room for first and second bytes of v.
func filled(v byte, first, second int) *Frame {
	b := bytes.Repeat([]byte{v}, first+second)
	return &Frame{Frag: [2][]byte{b[:first:first], b[first:]}}
}

func joined(b [2][]byte) string { return string(b[0]) + string(b[1]) }

// build emits and seals a packet in f, and returns its bytes.
func build(flow *Flow, h *Header, payload []byte, f *Frame) []byte {
	var t Template
	t.Set(flow)
	emit(&t, h, payload, f)
	return []byte(joined(f.Frag))
}

func emit(t *Template, h *Header, payload []byte, f *Frame) {
	to := t.Emit(f, h, len(payload))
	n := copy(to[0], payload)
	copy(to[1], payload[n:])
	t.Seal(f)
}

// TestRxeFlush has the ICRC that Linux rxe 6.12 gave a FLUSH.
func TestRxeFlush(t *testing.T) {
	var flush vector
	for _, v := range vectors {
		if v.header.Opcode == RCFlush {
			flush = v
		}
	}
	standard, flow, header := flush.get()
	flow.RxeFlush = true
	frame := build(&flow, &header, nil, filled(0xa5, 200, 0))
	if n := len(standard) - ICRCLen; !bytes.Equal(frame[:n], standard[:n]) || bytes.Equal(frame, standard) {
		t.Fatalf("only the ICRC may differ:\n%x\n%x", frame, standard)
	}
	var p Packet
	if v := Parse(&p, whole(frame)); v != DropICRC || !RxeFlushHolds(&p) {
		t.Errorf("rxe's: %v, holds %v", v, RxeFlushHolds(&p))
	}
	if got, _ := ICRC(&p); got != RxeFlushICRC(&p) {
		t.Errorf("ICRC %08x, want %08x", got, RxeFlushICRC(&p))
	}
	if v := Parse(&p, whole(standard)); v != Accepted || RxeFlushHolds(&p) {
		t.Errorf("standard: %v, holds %v", v, RxeFlushHolds(&p))
	}
	header.Opcode = RCReadRequest // of another opcode, it is nothing special
	ordinary := build(&flow, &header, nil, filled(0xa5, 200, 0))
	if v := Parse(&p, whole(ordinary)); v != Accepted || RxeFlushHolds(&p) {
		t.Errorf("READ request: %v, holds %v", v, RxeFlushHolds(&p))
	}
}
