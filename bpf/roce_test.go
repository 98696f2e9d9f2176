package bpf

import (
	"fmt"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/urxe/urxe/internal/nettest"
)

const xdpPass = 2

var (
	ours4, foreign4 = net.IP{10, 0, 0, 1}, net.IP{10, 0, 0, 2}
	group4          = net.IP{239, 1, 2, 3}
	ours6, foreign6 = net.ParseIP("fd00::1"), net.ParseIP("fd00::2")
)

// none is a packet that the program has no interest in.
const none = NumCounts

type packet struct {
	name string
	want Count
	b    []byte
}

func build(l ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, append(l, gopacket.Payload(make([]byte, 40)))...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func ether(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: t}
}

func tag(t layers.EthernetType) *layers.Dot1Q { return &layers.Dot1Q{VLANIdentifier: 5, Type: t} }

func ip4(dst net.IP, f func(*layers.IPv4)) *layers.IPv4 {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 0, 9}, DstIP: dst}
	if f != nil {
		f(ip)
	}
	return ip
}

func ip6(dst net.IP, next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: ours6, DstIP: dst}
}

func udp(port uint16) *layers.UDP { return &layers.UDP{SrcPort: 50000, DstPort: layers.UDPPort(port)} }

// patched is a packet with one byte changed.
func patched(b []byte, at int, v byte) []byte {
	b[at] = v
	return b
}

func packets() []packet {
	const v4, v6, q, ad = layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ
	const isUDP = layers.IPProtocolUDP
	opts := func(ip *layers.IPv4) { ip.Options = []layers.IPv4Option{{OptionType: 1}} }
	mf := func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments }
	later := func(ip *layers.IPv4) { ip.FragOffset = 185 }
	df := func(ip *layers.IPv4) { ip.Flags, ip.TOS, ip.TTL = layers.IPv4DontFragment, 0xff, 1 }
	tcp := func(ip *layers.IPv4) { ip.Protocol = layers.IPProtocolTCP }
	return []packet{
		{"IPv4", CountNoSocket, build(ether(v4), ip4(ours4, nil), udp(4791))},
		{"IPv4, tagged", CountNoSocket, build(ether(q), tag(v4), ip4(ours4, nil), udp(4791))},
		{"IPv4, DF, any TOS and TTL", CountNoSocket, build(ether(v4), ip4(ours4, df), udp(4791))},
		{"IPv4 group", CountNoSocket, build(ether(v4), ip4(group4, nil), udp(4791))},
		{"IPv4, foreign", CountForeign, build(ether(v4), ip4(foreign4, nil), udp(4791))},
		{"IPv4, port 4790", none, build(ether(v4), ip4(ours4, nil), udp(4790))},
		{"IPv4, port 4792", none, build(ether(v4), ip4(ours4, nil), udp(4792))},
		{"IPv4, from port 4791", none, build(ether(v4), ip4(ours4, nil), &layers.UDP{SrcPort: 4791, DstPort: 53})},
		{"IPv4, TCP port 4791", none, build(ether(v4), ip4(ours4, tcp), &layers.TCP{DstPort: 4791, SrcPort: 4791})},
		{"IPv4, options", CountOptions, build(ether(v4), ip4(ours4, opts), udp(4791))},
		{"IPv4, options, foreign", none, build(ether(v4), ip4(foreign4, opts), udp(4791))},
		{"IPv4, first fragment", CountOptions, build(ether(v4), ip4(ours4, mf), udp(4791))},
		{"IPv4, last fragment", CountOptions, build(ether(v4), ip4(ours4, later), udp(4791))},
		{"IPv4, fragment, foreign", none, build(ether(v4), ip4(foreign4, later), udp(4791))},
		{"IPv4, version 5", none, patched(build(ether(v4), ip4(ours4, nil), udp(4791)), 14, 0x55)},
		{"IPv4, header length 4", CountOptions, patched(build(ether(v4), ip4(ours4, nil), udp(4791)), 14, 0x44)},
		{"IPv4, two tags", none, build(ether(q), tag(q), tag(v4), ip4(ours4, nil), udp(4791))},
		{"IPv4, 802.1ad tag", none, build(ether(ad), tag(v4), ip4(ours4, nil), udp(4791))},
		{"IPv4 as IPv6", none, build(ether(v6), ip4(ours4, nil), udp(4791))},
		{"IPv6", CountNoSocket, build(ether(v6), ip6(ours6, isUDP), udp(4791))},
		{"IPv6, tagged", CountNoSocket, build(ether(q), tag(v6), ip6(ours6, isUDP), udp(4791))},
		{"IPv6, foreign", CountForeign, build(ether(v6), ip6(foreign6, isUDP), udp(4791))},
		{"IPv6, mapped IPv4", none, build(ether(v6), ip6(ours4.To16(), isUDP), udp(4791))},
		{"IPv6, port 4790", none, build(ether(v6), ip6(ours6, isUDP), udp(4790))},
		{"IPv6, fragment header", none, build(ether(v6), ip6(ours6, layers.IPProtocolIPv6Fragment), gopacket.Payload{17, 0, 0, 0, 0, 0, 0, 1}, udp(4791))},
		{"IPv6, hop-by-hop options", none, build(ether(v6), ip6(ours6, layers.IPProtocolIPv6HopByHop), gopacket.Payload{17, 0, 1, 4, 0, 0, 0, 0}, udp(4791))},
		{"ARP", none, build(ether(layers.EthernetTypeARP))},
		{"LLC", none, build(ether(64))},
	}
}

// load gives the program with addresses of ours, and its maps.
func load(t *testing.T, name string) (*ebpf.Program, *RoceMaps) {
	t.Helper()
	nettest.Require(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var o RoceObjects
	if err := LoadRoceObjects(&o, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	for _, ip := range []net.IP{ours4, group4, ours6} {
		if err := o.Addrs.Put([16]byte(ip.To16()), uint8(1)); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]*ebpf.Program{"frags": o.UrxeRoceFrags, "plain": o.UrxeRoce}[name], &o.RoceMaps
}

func counts(t *testing.T, m *RoceMaps) (n [NumCounts]uint64) {
	t.Helper()
	for i := range n {
		var cpus []uint64
		if err := m.Counts.Lookup(uint32(i), &cpus); err != nil {
			t.Fatal(err)
		}
		for _, c := range cpus {
			n[i] += c
		}
	}
	return n
}

// The kernel runs the program on packets of every kind: with no socket on the
// queue it passes all of them, and counts those that it would have taken.
func TestVerdicts(t *testing.T) {
	for _, which := range []string{"frags", "plain"} {
		prog, maps := load(t, which)
		for _, p := range packets() {
			t.Run(fmt.Sprintf("%s/%s", which, p.name), func(t *testing.T) {
				before := counts(t, maps)
				verdict, _, err := prog.Test(p.b)
				if err != nil {
					t.Fatal(err)
				}
				want := before
				if p.want != none {
					want[p.want]++
				}
				if got := counts(t, maps); got != want || verdict != xdpPass {
					t.Errorf("verdict %d, counts %v, want %d and %v", verdict, got, xdpPass, want)
				}
			})
		}
	}
}

// A packet cut short anywhere is passed, and taken only with its whole UDP header.
func TestTruncated(t *testing.T) {
	prog, maps := load(t, "frags")
	for _, p := range packets() {
		if p.want != CountNoSocket {
			continue
		}
		headers := len(p.b) - 40
		for n := 14; n <= len(p.b); n++ {
			before := counts(t, maps)[CountNoSocket]
			verdict, _, err := prog.Test(p.b[:n])
			if err != nil {
				t.Fatalf("%s, %d bytes: %v", p.name, n, err)
			}
			if took := counts(t, maps)[CountNoSocket] > before; verdict != xdpPass || took != (n >= headers) {
				t.Errorf("%s, %d of %d header bytes: verdict %d, taken %v", p.name, n, headers, verdict, took)
			}
		}
	}
}
