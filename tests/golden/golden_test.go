// Package golden holds packets that real peers sent (INDEX.txt says which), and
// checks that wire reads and writes every one of them byte for byte, and that
// QPs of ours answer and ask what those of the captures did: what differs is in
// a table, with the reason.
package golden

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/urxe/urxe/internal/capture"
	"github.com/urxe/urxe/rocev2/wire"
)

// files returns the captures.
func files(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("*.pcap")
	if err != nil || len(names) < 100 {
		t.Fatalf("%d captures: %v", len(names), err)
	}
	return names
}

// read returns the packets of a capture.
func read(t *testing.T, name string) (packets [][]byte) {
	t.Helper()
	r, err := capture.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if err == io.EOF {
			return packets
		}
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, bytes.Clone(p.Data))
	}
}

func TestGolden(t *testing.T) {
	total, flushes := 0, 0
	opcodes := map[wire.Opcode]int{}
	for _, name := range files(t) {
		for i, raw := range read(t, name) {
			total++
			o, rxe := reemit(t, name, i+1, raw)
			opcodes[o]++
			if rxe {
				flushes++
			}
		}
	}
	t.Logf("%d packets, %d opcodes, %d FLUSHes with rxe's ICRC", total, len(opcodes), flushes)
	// All of RC, UC and UD but the CNP of vectors.pcap come from rxe.
	if total < 4800 || len(opcodes) != 40 || flushes != 10 {
		t.Errorf("%d packets, %d opcodes, %d FLUSHes: captures are missing", total, len(opcodes), flushes)
	}
}

// reemit parses raw to values and emits these into a buffer full of 0xA5, in
// one piece and in two: the same bytes must come out. It says which opcode it
// has, and whether it is a FLUSH with rxe's ICRC.
func reemit(t *testing.T, name string, n int, raw []byte) (o wire.Opcode, rxe bool) {
	t.Helper()
	var p wire.Packet
	f := wire.Frame{Frag: [2][]byte{bytes.Clone(raw)}}
	v := wire.Parse(&p, &f)
	if v == wire.DropICRC && wire.RxeFlushHolds(&p) {
		v, rxe = wire.Accepted, true
	}
	if v != wire.Accepted {
		t.Errorf("%s packet %d: %v", name, n, v)
		return p.Opcode, rxe
	}
	flow := wire.FlowOf(&p)
	flow.RxeFlush = rxe
	for _, cut := range []int{len(raw) + 8, 3840, (p.HeaderLen() + len(raw)) / 2, p.HeaderLen()} {
		if out := emit(&flow, &p, cut); !bytes.Equal(out, raw) {
			t.Errorf("%s packet %d: %v, cut at %d, emitted as\n%x, was\n%x", name, n, p.Opcode, cut, out, raw)
		}
	}
	return p.Opcode, rxe
}

// emit writes p's values into a buffer whose first piece has cut bytes.
func emit(flow *wire.Flow, p *wire.Packet, cut int) []byte {
	dirty := bytes.Repeat([]byte{0xa5}, cut+wire.MaxPacketLen)
	out := wire.Frame{Frag: [2][]byte{dirty[:cut:cut], dirty[cut:]}}
	var t wire.Template
	t.Set(flow)
	h := p.Header
	payload := t.Emit(&out, &h, p.Len)
	n := copy(payload[0], p.Payload[0])
	copy(payload[1], p.Payload[0][n:])
	t.Seal(&out)
	return bytes.Join(out.Frag[:], nil)
}

// TestParseInTwoPieces cuts golden packets where AF_XDP does, and in the middle.
func TestParseInTwoPieces(t *testing.T) {
	for _, name := range files(t) {
		for i, raw := range read(t, name) {
			var one, two wire.Packet
			f := wire.Frame{Frag: [2][]byte{raw}}
			want := wire.Parse(&one, &f)
			cut := 3840
			if len(raw) <= cut {
				cut = (one.HeaderLen() + len(raw)) / 2
			}
			g := wire.Frame{Frag: [2][]byte{bytes.Clone(raw[:cut]), bytes.Clone(raw[cut:])}}
			got := wire.Parse(&two, &g)
			same := two.Header == one.Header && bytes.Equal(bytes.Join(two.Payload[:], nil), one.Payload[0])
			if got != want || !same {
				t.Errorf("%s packet %d, cut at %d: %v, in one piece %v", name, i+1, cut, got, want)
			}
		}
	}
}

// TestSmall keeps the repository from growing by large captures.
func TestSmall(t *testing.T) {
	for _, name := range files(t) {
		if info, err := os.Stat(name); err != nil || info.Size() > 1<<20 {
			t.Errorf("%s: %v, more than 1 MiB: %v", name, err, info)
		}
	}
}
