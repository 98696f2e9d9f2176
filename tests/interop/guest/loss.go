package guest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Direction is which of a guest's RoCE packets are lost.
type Direction string

// The directions, as the guest sees them.
const (
	Egress  Direction = "egress"
	Ingress Direction = "ingress"
)

// Lose drops one in every RoCE packets of a direction, at random, until the end
// of t. Other traffic, such as the programs' TCP exchange, is let alone.
//
// On egress netem drops: rxe is told that the packet went out. A drop by a
// filter action would make rxe send again by itself. On ingress there is no
// queue, and a filter action drops.
func (g *Guest) Lose(t testing.TB, d Direction, every int) {
	t.Helper()
	g.Run(t, "sh", "-ec", lossScript(d, every))
	t.Cleanup(func() { g.Run(t, "sh", "-c", "export PATH=/bin; "+lossEnd(d)) })
}

// u32 matches of UDP port 4791, for both versions of IP
var roce = []string{
	"protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff",
	"protocol ipv6 prio 2 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff",
}

func lossScript(d Direction, every int) string {
	var s strings.Builder
	s.WriteString("export PATH=/bin\n")
	if d == Egress {
		fmt.Fprintf(&s, "tc qdisc add dev eth0 root handle 1: prio bands 4\n")
		fmt.Fprintf(&s, "tc qdisc add dev eth0 parent 1:4 handle 40: netem loss %.3f%%\n", 100/float64(every))
		for _, match := range roce {
			fmt.Fprintf(&s, "tc filter add dev eth0 parent 1: %s flowid 1:4\n", match)
		}
		return s.String()
	}
	fmt.Fprintf(&s, "tc qdisc add dev eth0 ingress\n")
	for _, match := range roce {
		fmt.Fprintf(&s, "tc filter add dev eth0 parent ffff: %s action pass random netrand drop %d\n", match, every)
	}
	return s.String()
}

func lossEnd(d Direction) string {
	if d == Egress {
		return "tc qdisc del dev eth0 root"
	}
	return "tc qdisc del dev eth0 ingress"
}

var dropped = regexp.MustCompile(`dropped (\d+)`)

// Lost returns how many packets Lose has dropped in a direction.
func (g *Guest) Lost(t testing.TB, d Direction) (n int) {
	t.Helper()
	show := "tc -s qdisc show dev eth0 handle 40:"
	if d == Ingress {
		show = "tc -s filter show dev eth0 parent ffff:"
	}
	for _, m := range dropped.FindAllStringSubmatch(g.Run(t, "sh", "-c", show), -1) {
		k, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return n
}
