package pingpong

import (
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// What a peer sends is taken only if it says the same when it is written again.
func FuzzMessage(f *testing.F) {
	f.Add(encode(verbs.Endpoint{QPN: 0x11, PSN: 0xf6f2a1, GID: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}}))
	f.Add([]byte("0000:000011:f6f2a1:00000000000000000000ffff0a000002"))
	f.Add([]byte("0x01:+0011: f6f2a1:00000000000000000000ffff0a000002\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(b)
		if err != nil {
			return
		}
		if again, err := decode(encode(e)); err != nil || again != e || len(encode(e)) != messageLen {
			t.Errorf("%q: %+v, then %+v, %v", b, e, again, err)
		}
	})
}
