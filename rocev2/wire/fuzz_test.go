package wire

import (
	"bytes"
	"testing"
)

// FuzzParse feeds frames, cut at cut. Nothing may panic or change the frame, a
// second piece may change nothing but what lies too far back, and what is
// accepted comes out the same after it was emitted again.
func FuzzParse(f *testing.F) {
	for _, v := range vectors {
		frame, _, _ := v.get()
		f.Add(frame, uint16(len(frame)-2))
	}
	for _, flow := range flows() {
		f.Add(build(&flow, &Header{Opcode: UDSendOnlyImm}, []byte("12345"), filled(0, 200, 0)), uint16(80))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		if len(b) > MaxPacketLen {
			return
		}
		fixICRC(b)
		before := bytes.Clone(b)
		var p, q Packet
		v := Parse(&p, whole(b))
		if !bytes.Equal(b, before) {
			t.Fatalf("Parse left\n%x of\n%x", b, before)
		}
		n := min(int(cut), len(b))
		w := Parse(&q, halves(b, n))
		if w != v && w != DropNotRoCE && w != DropTruncated {
			t.Fatalf("%v in one piece, %v cut at %d", v, w, n)
		}
		if v != Accepted && v != DropICRC {
			return
		}
		if n >= p.HeaderLen() && (w != v || diff(&p, &q) != "") {
			t.Fatalf("%v in one piece, %v cut at %d: %s", v, w, n, diff(&p, &q))
		}
		again(t, &p)
	})
}

// fixICRC gives b the right ICRC where it is one away from being a packet, so
// that the fuzzer need not find a CRC.
func fixICRC(b []byte) {
	var p Packet
	if Parse(&p, whole(b)) == DropICRC && b[p.end]&1 == 0 {
		_, want := ICRC(&p)
		p.Frame.putICRC(p.end, want)
	}
}

// again emits p once more and parses that.
func again(t *testing.T, p *Packet) {
	flow := FlowOf(p)
	b := build(&flow, &p.Header, []byte(joined(p.Payload)), filled(0xa5, MaxPacketLen+64, 0))
	var q Packet
	if v := Parse(&q, whole(b)); v != Accepted {
		t.Fatalf("emitted again: %v", v)
	}
	if q.Header != p.Header || joined(q.Payload) != joined(p.Payload) {
		t.Fatalf("emitted again: %+v, was %+v", q.Header, p.Header)
	}
}
