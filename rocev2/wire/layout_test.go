package wire

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urxe/urxe/tests/conform"
)

// Every field of every header, at its place: the bytes from the BTH to the ICRC.
func TestHeaderLayouts(t *testing.T) {
	const va, rkey, length = 0x0102030405060708, 0x090a0b0c, 0x0d0e0f10
	for _, c := range []struct {
		row    string
		header Header
		want   string
	}{
		{"5.1/bth", Header{Opcode: RCSendOnly, SE: true, MigReq: true, PKey: 0xabcd, FECN: true, BECN: true, DestQP: 0x123456,
			AckReq: true, PSN: 0x789abc}, "04c0abcdc0123456" + "80789abc"},
		{"5.1/bth", Header{Opcode: RCSendOnly}, "0400000000000000" + "00000000"},
		{"5.1/reth", Header{Opcode: RCReadRequest, VA: va, RKey: rkey, Length: length},
			"0c00000000000000" + "00000000" + "0102030405060708" + "090a0b0c" + "0d0e0f10"},
		{"5.1/aeth", Header{Opcode: RCAck, Syndrome: 0x2c, MSN: 0xfedcba}, "1100000000000000" + "00000000" + "2cfedcba"},
		{"5.1/atomiceth", Header{Opcode: RCCompareSwap, VA: va, RKey: rkey, Swap: 0x1112131415161718, Compare: 0x191a1b1c1d1e1f20},
			"1300000000000000" + "00000000" + "0102030405060708" + "090a0b0c" + "1112131415161718" + "191a1b1c1d1e1f20"},
		{"5.1/atomicacketh", Header{Opcode: RCAtomicAck, Syndrome: 0x1f, MSN: 1, Orig: va},
			"1200000000000000" + "00000000" + "1f000001" + "0102030405060708"},
		{"5.1/deth", Header{Opcode: UDSendOnly, QKey: 0x80010000, SrcQP: 0xabcdef}, "6400000000000000" + "00000000" + "80010000" + "00abcdef"},
		{"5.1/immdt", Header{Opcode: RCSendOnlyImm, Imm: 0xfeedbeef}, "0500000000000000" + "00000000" + "feedbeef"},
		{"5.1/ieth", Header{Opcode: RCSendOnlyInv, InvKey: rkey}, "1700000000000000" + "00000000" + "090a0b0c"},
		// global visibility and persistence, of a whole region
		{"5.1/feth", Header{Opcode: RCFlush, Flush: 3 | 1<<4, VA: va, RKey: rkey, Length: length},
			"1c00000000000000" + "00000000" + "00000013" + "0102030405060708" + "090a0b0c" + "0d0e0f10"},
		{"5.9/cnp-form", Header{Opcode: CongestionNotify, PKey: 0xffff, BECN: true, DestQP: 0x123456},
			"8100ffff40123456" + "00000000" + "0000000000000000" + "0000000000000000"},
	} {
		t.Run(c.row, func(t *testing.T) {
			conform.Row(t, c.row)
			flow := vectorFlow()
			frame := build(&flow, &c.header, nil, filled(0xa5, 200, 0))
			var p Packet
			if v := Parse(&p, whole(frame)); v != Accepted {
				t.Fatal(v)
			}
			if got := hex.EncodeToString(frame[p.bth : len(frame)-ICRCLen]); got != c.want {
				t.Errorf("made %s, want %s", got, c.want)
			}
			if d := cmp.Diff(c.header, p.Header); d != "" {
				t.Errorf("read, want - got +:\n%s", d)
			}
		})
	}
}
