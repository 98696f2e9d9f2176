package wire

import (
	"net/netip"
	"testing"

	"github.com/urxe/urxe/ib"
)

func TestPeekDestQP(t *testing.T) {
	for _, addr := range []string{"10.0.0.1", "fe80::1"} {
		var tmpl Template
		a := netip.MustParseAddr(addr)
		tmpl.Set(&Flow{Src: ib.GID(a.As16()), Dst: ib.GID(a.As16())})
		f := Frame{Frag: [2][]byte{make([]byte, 4096)}}
		tmpl.Emit(&f, &Header{Opcode: RCAck, DestQP: 0xabcdef}, 0)
		tmpl.Seal(&f)
		if got := PeekDestQP(&f); got != 0xabcdef {
			t.Errorf("%s: %v", addr, got)
		}
		for n := range f.Frag[0] { // what is too short to hold it is 0, or what stands there
			PeekDestQP(&Frame{Frag: [2][]byte{f.Frag[0][:n:n]}})
		}
	}
	if got := PeekDestQP(new(Frame)); got != 0 {
		t.Errorf("of no frame: %v", got)
	}
}
