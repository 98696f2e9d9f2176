package netns

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/rocev2/decode"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

// families are the kinds of addresses.
var families = []struct {
	name string
	addr func(*nettest.End) netip.Addr
}{
	{"IPv4", func(e *nettest.End) netip.Addr { return e.V4 }},
	{"IPv6", func(e *nettest.End) netip.Addr { return e.V6 }},
}

// All operations through a bridge. What tcpdump sees there and what both devices
// capture are the same packets in the same order, by tshark's word; each ICRC is
// right.
func TestThroughABridge(t *testing.T) {
	for _, link := range []struct {
		mtu   int
		paths []ib.MTU
	}{
		{1500, []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024}},
		{4200, []ib.MTU{ib.MTU2048, ib.MTU4096}},
		{9000, []ib.MTU{ib.MTU1024, ib.MTU4096}},
	} {
		t.Run(fmt.Sprintf("mtu=%d", link.mtu), func(t *testing.T) {
			need(t, "tcpdump", "tshark")
			p, devs := openPair(t, nettest.Config{Bridge: true, MTU: link.mtu})
			conform.Row(t, "bug/40", "bug/47", "bug/48")
			var own [2]*ownCapture
			for i := range own {
				own[i] = startCapture(t, p.Ends[i], devs[i])
			}
			wire := startDump(t, p.Bridge, p.Ports[0])
			for _, mtu := range link.paths {
				exchange(t, p, devs, mtu, func() {
					own[0].catchUp(t)
					own[1].catchUp(t)
				})
			}
			files := [3]string{own[0].stop(t), own[1].stop(t)}
			files[2] = wire.stop(t, packets(devs[0]))
			compare(t, p, files)
		})
	}
}

// exchange runs all operations at all sizes and by both kinds of addresses.
func exchange(t *testing.T, p *nettest.Pair, devs [2]*verbs.Device, mtu ib.MTU, after func()) {
	for _, f := range families {
		a, b := newSide(devs[0], 300<<10, f.addr(p.Ends[0])), newSide(devs[1], 300<<10, f.addr(p.Ends[1]))
		connect(t, a, b, verbs.ConnectOptions{PathMTU: mtu})
		m := mtu.Bytes()
		sizes := []int{0, 1, 3, m - 1, m, m + 1, 2*m + 5, 65537}
		if mtu == devs[0].QueryPort().ActiveMTU {
			sizes = append(sizes, 256<<10-1, 256<<10)
		}
		for i, n := range sizes {
			everyOperation(t, a, b, n, uint64(i+1), after)
		}
		everyOperation(t, b, a, 3*m+2, 100, after)
		a.destroy(t)
		b.destroy(t)
	}
}

// compare checks the captures of end 0, of end 1 and of the bridge against each
// other.
func compare(t *testing.T, p *nettest.Pair, files [3]string) {
	var by [3][]seen
	for i, f := range files {
		by[i] = dissect(t, f)
		if err := checkICRCs(f, len(by[i])); err != nil {
			t.Error(err)
		}
		var lines bytes.Buffer
		if err := decode.File(&lines, f, nil, decode.Options{}); err != nil {
			t.Errorf("urxe decode: %v", err)
		}
		if want := fmt.Sprintf("\n%d packets: %[1]d RoCEv2 with the right ICRC\n", len(by[i])); !strings.HasSuffix(lines.String(), want) {
			t.Errorf("urxe decode ends with %.200q, want %q", lines.Bytes()[max(0, lines.Len()-200):], want)
		}
	}
	for _, f := range families {
		for i, e := range p.Ends {
			addr := f.addr(e).String()
			want := from(by[2], addr)
			if len(want) < 100 {
				t.Errorf("only %d packets from %s", len(want), addr)
			}
			sameOrder(t, "captured by the sender "+addr, from(by[i], addr), want)
			sameOrder(t, "captured by the receiver of "+addr, from(by[1-i], addr), want)
		}
	}
	checkOpcodes(t, by[2])
	for i, e := range p.Ends {
		checkComments(t, e, by[i])
	}
}

// checkOpcodes checks that every opcode passed that RC operations without
// invalidation have.
func checkOpcodes(t *testing.T, list []seen) {
	count := map[string]int{}
	for _, s := range list {
		count[s.opcode]++
	}
	for op := range 0x15 {
		if s := fmt.Sprint(op); count[s] == 0 {
			t.Errorf("no packet with opcode %s passed: %v", s, count)
		}
	}
}

// checkComments checks that an end's capture tells the verdicts on what it
// received, and on nothing else. On a slow machine a timer may have sent a packet
// twice, or asked for a part of a READ again; then it is a duplicate.
func checkComments(t *testing.T, e *nettest.End, list []seen) {
	before, reads := map[string]bool{}, map[string]reach{}
	for i, s := range list {
		again := before[s.number] || s.opcode == readRequest && reads[s.qp].holds(s.read)
		want := "accepted"
		if s.from == e.V4.String() || s.from == e.V6.String() {
			want = ""
		} else if again && s.comment == "dropped: duplicate" {
			want = "dropped: duplicate"
		}
		before[s.number] = true
		if s.opcode == readRequest && !again {
			reads[s.qp] = s.read
		}
		if s.comment != want {
			t.Fatalf("packet %d at %v, %s: comment %q, want %q", i, e.V4, s.packet, s.comment, want)
		}
	}
}
