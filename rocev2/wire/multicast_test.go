package wire

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/tests/conform"
)

func TestMulticastMAC(t *testing.T) {
	conform.Row(t, "5.6/multicast-v4", "5.6/multicast-v6")
	for group, want := range map[string][6]byte{
		"239.1.1.1":        {0x01, 0x00, 0x5e, 1, 1, 1},
		"224.128.0.5":      {0x01, 0x00, 0x5e, 0, 0, 5}, // only 23 bits
		"239.255.255.255":  {0x01, 0x00, 0x5e, 0x7f, 255, 255},
		"::ffff:239.1.2.3": {0x01, 0x00, 0x5e, 1, 2, 3},
		"ff0e::4242":       {0x33, 0x33, 0, 0, 0x42, 0x42}, // as rxe 6.12 sends it
		"ff02::1:ff12:345": {0x33, 0x33, 0xff, 0x12, 3, 0x45},
	} {
		g, err := ib.ParseGID(group)
		if err != nil {
			t.Fatal(err)
		}
		if got := MulticastMAC(g); got != want {
			t.Errorf("%s: %x, want %x", group, got, want)
		}
	}
}

// Copies of frames cut in every way have the same bytes.
func TestFrameCopy(t *testing.T) {
	bytes := make([]byte, 100)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	for n := range 100 {
		for cut := 0; cut <= n; cut += 7 {
			for room := 1; room <= 100; room += 9 {
				g := Frame{[2][]byte{bytes[:cut:cut], bytes[cut:n]}}
				b := make([]byte, 100)
				f := Frame{[2][]byte{b[:0:room], b[room:room]}}
				f.Copy(&g)
				if string(f.Frag[0])+string(f.Frag[1]) != string(bytes[:n]) {
					t.Fatalf("%d bytes cut at %d into %d and more: %v", n, cut, room, f.Frag)
				}
			}
		}
	}
}
