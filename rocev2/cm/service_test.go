package cm

import (
	"net/netip"
	"testing"

	"github.com/urxe/urxe/tests/conform"
)

func TestIPService(t *testing.T) {
	conform.Row(t, "5.10/ip-service")
	s := IPService(TCP, 18515)
	if s != 0x0000000001064853 || s.String() != "0x0000000001064853" {
		t.Errorf("TCP port 18515 is %v", s)
	}
	if space, port, ok := s.IP(); space != TCP || port != 18515 || !ok {
		t.Errorf("back: %v, %d, %v", space, port, ok)
	}
	if s := IPService(UDP, 1); s != 0x0000000001110001 {
		t.Errorf("UDP port 1 is %v", s)
	}
	if _, _, ok := ServiceID(0x1000000001064853).IP(); ok {
		t.Error("a service of someone else is one of IP")
	}
}

func TestIPHeader(t *testing.T) {
	conform.Row(t, "5.10/ip-private")
	for _, c := range []struct {
		h    IPHeader
		want []byte
	}{
		{IPHeader{0x1234, netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")},
			[]byte{0x00, 0x40, 0x12, 0x34, 16: 10, 17: 77, 19: 1, 32: 10, 33: 77, 35: 2}},
		{IPHeader{0x1234, netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::2")},
			[]byte{0x00, 0x60, 0x12, 0x34, 4: 0xfd, 5: 0x77, 19: 1, 20: 0xfd, 21: 0x77, 35: 2}},
	} {
		b := make([]byte, MaxREQPrivate)
		for i := range b {
			b[i] = 0xa5
		}
		c.h.Put(b)
		if string(b[:IPHeaderLen]) != string(c.want) || b[IPHeaderLen] != 0xa5 {
			t.Errorf("%v is % x, want % x", c.h, b[:IPHeaderLen+1], c.want)
		}
		if h, err := ParseIPHeader(b); err != nil || h != c.h {
			t.Errorf("back: %v, %v", h, err)
		}
		for i, bad := range []byte{0x10, 0x50} { // major version, IP version
			was := b[i]
			b[i] = bad
			if h, err := ParseIPHeader(b); err == nil {
				t.Errorf("% x is %v", b[:4], h)
			}
			b[i] = was
		}
	}
	if _, err := ParseIPHeader(make([]byte, 35)); err == nil {
		t.Error("35 bytes are a header")
	}
}
