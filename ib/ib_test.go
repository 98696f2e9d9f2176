package ib

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/urxe/urxe/tests/conform"
)

func TestGUIDFromMAC(t *testing.T) {
	for _, c := range []struct {
		mac  string
		want GUID
	}{
		{"00:02:c9:03:00:12", 0x0202c9fffe030012}, {"02:77:ca:97:81:12", 0x0077cafffe978112}, {"ff:ff:ff:ff:ff:ff", 0xfdfffffffeffffff},
	} {
		hw, err := net.ParseMAC(c.mac)
		if err != nil {
			t.Fatal(err)
		}
		if got := GUIDFromMAC(hw); got != c.want {
			t.Errorf("%s: %v, want %v", c.mac, got, c.want)
		}
	}
	for _, hw := range []net.HardwareAddr{nil, {1, 2, 3, 4, 5}, make([]byte, 8), make([]byte, 20)} {
		if got := GUIDFromMAC(hw); got != 0 {
			t.Errorf("%v: %v", hw, got)
		}
	}
}

func TestGUIDText(t *testing.T) {
	const want GUID = 0x0002c90300001234
	if want.String() != "0002:c903:0000:1234" {
		t.Error(want)
	}
	for _, s := range []string{"0002:c903:0000:1234", "0x0002c90300001234", "0X2c90300001234", "0002C90300001234", "2c90300001234"} {
		if got, err := ParseGUID(s); got != want || err != nil {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0x", ":", "0x0x12", "0x0X12", "-1", "+1", "12g4", "0002:c903:0000:1234:5", "00002c90300001234", "1_000", " 1"} {
		if got, err := ParseGUID(s); err == nil || !strings.Contains(err.Error(), "want up to 16 hexadecimal digits") {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		g := GUID(rapid.Uint64().Draw(t, "GUID"))
		if got, err := ParseGUID(g.String()); got != g || err != nil {
			t.Errorf("%v reads as %v, %v", g, got, err)
		}
	})
}

func TestGIDText(t *testing.T) {
	for _, c := range []struct{ in, short, full, wire string }{
		{"10.77.0.1", "::ffff:10.77.0.1", "0000:0000:0000:0000:0000:ffff:0a4d:0001", "00000000000000000000ffff0a4d0001"},
		{"::ffff:10.77.0.1", "::ffff:10.77.0.1", "0000:0000:0000:0000:0000:ffff:0a4d:0001", "00000000000000000000ffff0a4d0001"},
		{"0000:0000:0000:0000:0000:ffff:0a4d:0001", "::ffff:10.77.0.1", "0000:0000:0000:0000:0000:ffff:0a4d:0001", "00000000000000000000ffff0a4d0001"},
		{"fe80::77:caff:fe97:8112", "fe80::77:caff:fe97:8112", "fe80:0000:0000:0000:0077:caff:fe97:8112", "fe800000000000000077cafffe978112"},
		{"FD77::0:2", "fd77::2", "fd77:0000:0000:0000:0000:0000:0000:0002", "fd770000000000000000000000000002"},
		{"1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7", "0001:0000:0002:0003:0004:0005:0006:0007", "00010000000200030004000500060007"},
		{"::", "::", "0000:0000:0000:0000:0000:0000:0000:0000", "00000000000000000000000000000000"},
	} {
		g, err := ParseGID(c.in)
		if err != nil || g.String() != c.short || g.Full() != c.full || g.Wire() != c.wire {
			t.Errorf("%q: %q, %q, %q, %v", c.in, g.String(), g.Full(), g.Wire(), err)
		}
		for _, s := range []string{g.String(), g.Full()} {
			if again, err := ParseGID(s); again != g || err != nil {
				t.Errorf("%q reads as %v, %v", s, again, err)
			}
		}
		if again, err := GIDFromWire(g.Wire()); again != g || err != nil {
			t.Errorf("%q from the wire is %v, %v", g.Wire(), again, err)
		}
	}
	for _, s := range []string{"", "eth0", "10.77.0", "10.77.0.256", "fe80::1%eth0", "fe80::1::2", "1:2:3:4:5:6:7", "::ffff:10.0.0.1/24"} {
		if g, err := ParseGID(s); err == nil {
			t.Errorf("%q reads as %v", s, g)
		}
	}
	const good = "00000000000000000000ffff0a4d0001"
	for _, s := range []string{"", good[1:], good + "0", good + "00", good[:31] + "g", "::ffff:10.77.0.1"} {
		if g, err := GIDFromWire(s); err == nil || g != (GID{}) {
			t.Errorf("%q from the wire is %v", s, g)
		}
	}
}

func TestGIDKinds(t *testing.T) {
	conform.Row(t, "5.6/gid")
	for _, c := range []struct {
		gid                             string
		is4, zero, multicast, linkLocal bool
	}{
		{"10.0.0.1", true, false, false, false}, {"::", false, true, false, false}, {"::1", false, false, false, false},
		{"0.0.0.0", true, false, false, false}, {"239.1.1.1", true, false, true, false}, {"ff0e::4242", false, false, true, false},
		{"fe80::1", false, false, false, true}, {"febf::1", false, false, false, true}, {"fec0::1", false, false, false, false},
		{"fd77::1", false, false, false, false}, {"169.254.1.1", true, false, false, false}, {"::10.0.0.1", false, false, false, false},
	} {
		g, err := ParseGID(c.gid)
		if err != nil || g.Is4() != c.is4 || g.IsZero() != c.zero || g.IsMulticast() != c.multicast || g.IsLinkLocal() != c.linkLocal {
			t.Errorf("%s: IPv4 %v, zero %v, multicast %v, link-local %v", c.gid, g.Is4(), g.IsZero(), g.IsMulticast(), g.IsLinkLocal())
		}
	}
	if got, want := GIDFromAddr(netip.MustParseAddr("10.1.2.3")), (GID{10: 0xff, 11: 0xff, 12: 10, 13: 1, 14: 2, 15: 3}); got != want {
		t.Errorf("10.1.2.3 is %x, want %x", got, want)
	}
	for _, s := range []string{"10.1.2.3", "fd77::1"} {
		a := netip.MustParseAddr(s)
		if got := GIDFromAddr(a).Addr(); got != a {
			t.Errorf("%v comes back as %v", a, got)
		}
	}
}

// TestPKeyMatches is the table of IBA 10.9.3, both ways.
func TestPKeyMatches(t *testing.T) {
	for _, c := range []struct {
		a, b PKey
		want bool
	}{
		{0xffff, 0xffff, true}, {0xffff, 0x7fff, true}, {0xffff, 0x8001, false}, {0x7fff, 0x7fff, false}, {0x7fff, 0x8001, false},
		{0x0000, 0xffff, false}, {0x0000, 0x0000, false}, {0x8000, 0x8000, false}, {0x8000, 0x0000, false}, {0x8001, 0x0001, true},
		{0x0001, 0x0001, false}, {0x8001, 0x8001, true}, {0xfffe, 0xffff, false},
	} {
		if c.a.Matches(c.b) != c.want || c.b.Matches(c.a) != c.want {
			t.Errorf("%v and %v: %v and %v, want %v", c.a, c.b, c.a.Matches(c.b), c.b.Matches(c.a), c.want)
		}
	}
	if !PKeyDefault.Full() || PKey(0x7fff).Full() {
		t.Error("full membership is bit 15")
	}
}

func TestIDs(t *testing.T) {
	for _, c := range []struct {
		l                  LID
		unicast, multicast bool
	}{
		{0, false, false}, {1, true, false}, {0xbfff, true, false}, {0xc000, false, true}, {0xfffe, false, true}, {LIDPermissive, false, false},
	} {
		if c.l.Unicast() != c.unicast || c.l.Multicast() != c.multicast {
			t.Errorf("LID 0x%x: unicast %v, multicast %v", uint16(c.l), c.l.Unicast(), c.l.Multicast())
		}
	}
	if !QPNMulticast.Valid() || QPN(1<<24).Valid() {
		t.Error("a QPN has 24 bits")
	}
	if !QKeyGSI.Controlled() || QKey(0x11111111).Controlled() {
		t.Error("a controlled Q_Key has its top bit set")
	}
	for _, c := range []struct{ got, want string }{
		{QPN(0x12).String(), "0x000012"}, {PKeyDefault.String(), "0xffff"}, {PKey(1).String(), "0x0001"}, {QKeyGSI.String(), "0x80010000"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestMTU(t *testing.T) {
	sizes := map[MTU]int{MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096}
	for i := range 256 {
		m := MTU(i)
		n, valid := sizes[m]
		if m.Bytes() != n || m.Valid() != valid {
			t.Errorf("MTU %d: %d bytes, valid %v", i, m.Bytes(), m.Valid())
		}
		if got, err := MTUFromBytes(n); valid && (got != m || err != nil) {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
	for _, n := range []int{-1, 0, 128, 255, 257, 1500, 8192} {
		if m, err := MTUFromBytes(n); err == nil || m != 0 {
			t.Errorf("%d bytes: %v", n, m)
		}
	}
	if MTU1024.String() != "1024" || MTU(0).String() != "invalid MTU (0)" || MTU(6).String() != "invalid MTU (6)" {
		t.Errorf("%v, %v, %v", MTU1024, MTU(0), MTU(6))
	}
}

func TestMTUForLink(t *testing.T) {
	for n, want := range map[int]MTU{
		0: 0, -1: 0, 339: 0, 340: MTU256, 595: MTU256, 596: MTU512, 1107: MTU512, 1108: MTU1024, 1500: MTU1024,
		2131: MTU1024, 2132: MTU2048, 4179: MTU2048, 4180: MTU4096, 4200: MTU4096, 9000: MTU4096, 65536: MTU4096,
	} {
		if got := MTUForLink(n); got != want {
			t.Errorf("link MTU %d: %v, want %v", n, got, want)
		}
	}
}

func TestPortState(t *testing.T) {
	for s, want := range map[PortState]string{
		PortNop: "NOP", PortDown: "DOWN", PortInit: "INIT", PortArmed: "ARMED", PortActive: "ACTIVE", PortActiveDefer: "ACTIVE_DEFER",
		6: "invalid state (6)", 255: "invalid state (255)",
	} {
		if s.String() != want {
			t.Errorf("%q, want %q", s.String(), want)
		}
	}
	if PortActive != 4 {
		t.Errorf("ACTIVE is %d in ibv_port_state, not %d", 4, PortActive)
	}
}

func TestRate(t *testing.T) {
	for r, want := range map[Rate]string{
		RateMax: "max", Rate2_5Gbps: "2.5 Gbps", Rate10Gbps: "10 Gbps", Rate14Gbps: "14.062 Gbps", Rate100Gbps: "103.125 Gbps",
		Rate1200Gbps: "1275 Gbps", 1: "invalid rate (1)", 25: "invalid rate (25)", 255: "invalid rate (255)",
	} {
		if r.String() != want {
			t.Errorf("%q, want %q", r.String(), want)
		}
	}
	for i := range 256 {
		if r := Rate(i); r.Valid() != (i == 0 || i >= 2 && i <= 24) || r.Valid() && i != 0 && r.Mbps() == 0 {
			t.Errorf("rate %d: valid %v, %d Mb/s", i, r.Valid(), r.Mbps())
		}
	}
}

func TestPKeyTable(t *testing.T) {
	table := PKeyTable{0x7fff, 0xffff, 0x0002, 0x8003}
	if err := table.Check(); err != nil {
		t.Error(err)
	}
	for k, want := range map[PKey]int{0xffff: 1, 0x7fff: 1, 0x8002: 2, 0x8003: 3, 0x0003: 3, 0x0002: -1, 0: -1, 0x8000: -1, 0x8004: -1} {
		got, ok := table.Find(k)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%v: index %d, %v; want %d", k, got, ok, want)
		}
	}
	if s := table.String(); s != "0x7fff,0xffff,0x0002,0x8003" {
		t.Error(s)
	}
	for _, bad := range []PKeyTable{nil, {0}, {0xffff, 0x8000}, {5, 5}} {
		if bad.Check() == nil {
			t.Errorf("%v is a table", bad)
		}
	}
}

// What has no MAC address gets a GUID all the same: its own, and always the same.
func TestGUIDFromName(t *testing.T) {
	a := GUIDFromName("host", "tun0")
	if a != GUIDFromName("host", "tun0") || a == GUIDFromName("host", "tun1") || a == GUIDFromName("other", "tun0") || a>>56&3 != 0 || a == 0 {
		t.Errorf("GUID %v", a)
	}
}
