package wire

import (
	"hash/crc32"
	"testing"

	"github.com/urxe/urxe/ib"
)

// benchFlow is the usual case: IPv4, untagged.
func benchFlow() *Flow {
	src, _ := ib.ParseGID("10.0.0.1")
	dst, _ := ib.ParseGID("10.0.0.2")
	return &Flow{SrcMAC: [6]byte{2, 1}, DstMAC: [6]byte{2, 2}, Src: src, Dst: dst, SrcPort: 0xc123}
}

func benchFrame(size int) (*Template, *Frame, *Header) {
	t, f := new(Template), &Frame{Frag: [2][]byte{make([]byte, 4400)}}
	t.Set(benchFlow())
	h := &Header{Opcode: RCWriteMiddle, MigReq: true, PKey: ib.PKeyDefault, DestQP: 0x12, PSN: 7}
	t.Emit(f, h, size)
	t.Seal(f)
	return t, f, h
}

func BenchmarkCRC1K(b *testing.B) {
	buf := make([]byte, 1024)
	b.SetBytes(1024)
	for b.Loop() {
		crc32.Update(1, crc32.IEEETable, buf)
	}
}

// benchFrames are several frames, as a burst has them: work on the same one
// again and again would wait for its own stores.
func benchFrames(size int) (t *Template, f []*Frame, h *Header) {
	f = make([]*Frame, 4) // a power of two
	for i := range f {
		t, f[i], h = benchFrame(size)
	}
	return t, f, h
}

func benchParse(b *testing.B, size int) {
	_, f, _ := benchFrames(size)
	var c Parser
	var p Packet
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		if v := c.Parse(&p, f[i&3]); v != Accepted {
			b.Fatal(v)
		}
	}
}

func benchEmitSeal(b *testing.B, size int) {
	t, f, h := benchFrames(size)
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		t.Emit(f[i&3], h, size)
		t.Seal(f[i&3])
	}
}

// BenchmarkParseCut and BenchmarkEmitSealCut have frames of two pieces, as AF_XDP cuts path MTU 4096.
func BenchmarkParseCut(b *testing.B) {
	_, f, _ := benchFrame(4096)
	cut := halves(f.Frag[0], 3840)
	var c Parser
	var p Packet
	b.SetBytes(4096)
	for b.Loop() {
		if v := c.Parse(&p, cut); v != Accepted {
			b.Fatal(v)
		}
	}
}

func BenchmarkEmitSealCut(b *testing.B) {
	t, _, h := benchFrame(0)
	f := filled(0, 3840, 3840)
	b.SetBytes(4096)
	for b.Loop() {
		t.Emit(f, h, 4096)
		t.Seal(f)
	}
}

func BenchmarkParse(b *testing.B)      { benchParse(b, 1024) }
func BenchmarkEmitSeal(b *testing.B)   { benchEmitSeal(b, 1024) }
func BenchmarkParse0(b *testing.B)     { benchParse(b, 0) }
func BenchmarkEmitSeal0(b *testing.B)  { benchEmitSeal(b, 0) }
func BenchmarkParse4K(b *testing.B)    { benchParse(b, 4096) }
func BenchmarkEmitSeal4K(b *testing.B) { benchEmitSeal(b, 4096) }
