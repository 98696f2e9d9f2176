package netns

import (
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/verbs"
)

// say sends a few bytes to QP n, unsignalled.
func (s *side) say(ah *verbs.AH, n ib.QPN, text string) {
	must(s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: []byte(text), AH: ah, RemoteQPN: n, RemoteQKey: qkey}))
}

// hears returns what came, each in a receive of its own, which is posted again.
func (s *side) hears() (texts []string) {
	wcs := make([]verbs.WC, 64)
	for _, wc := range wcs[:s.cq.Poll(wcs)] {
		at := int(wc.ID)
		texts = append(texts, string(s.buf[at+verbs.GRHLen:][:wc.ByteLen-verbs.GRHLen]))
		s.listen(at)
	}
	return texts
}

// listen posts a receive at an offset.
func (s *side) listen(at int) {
	must(s.qp.PostRecv(verbs.RecvWR{ID: uint64(at), SGEs: []verbs.SGE{s.mr.SGE(at, verbs.GRHLen+64)}}))
}

// snoop has the bridge pass packets to a group only where a report of a member
// came from.
func snoop(t *testing.T, p *nettest.Pair) {
	t.Helper()
	for _, cmd := range []string{
		"ip addr add fe80::77/64 dev br0 nodad", // to ask by MLD from
		"ip link set br0 type bridge mcast_snooping 1 mcast_query_response_interval 10 mcast_igmp_version 3 mcast_mld_version 2 mcast_querier 1",
		"bridge link set dev " + p.Ports[0] + " mcast_flood off fastleave on",
		"bridge link set dev " + p.Ports[1] + " mcast_flood off fastleave on",
	} {
		args := strings.Fields(cmd)
		if err := p.Bridge.Run(args[0], args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
}

// isJoined reports whether the bridge has heard that there are members of a group
// behind a port.
func isJoined(t *testing.T, p *nettest.Pair, port string, group ib.GID) bool {
	t.Helper()
	out, err := p.Bridge.Output("bridge", "mdb", "show", "dev", veth.BridgeName)
	if err != nil {
		t.Fatalf("bridge mdb: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "port "+port+" ") && strings.Contains(line, "grp "+group.Addr().String()+" ") {
			return true
		}
	}
	return false
}

// A bridge that snoops passes packets to a group as soon as a QP is attached to
// it, and no more when the last one is detached or destroyed, or the device is
// closed: the kernel has told it by IGMP or MLD.
func TestMulticastSnooping(t *testing.T) {
	need(t, "bridge")
	conform.Row(t, "bug/57")
	for _, c := range []struct {
		group  ib.GID
		source func(e *nettest.End) ib.GID
	}{
		{ib.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}, func(e *nettest.End) ib.GID { return ib.GIDFromAddr(e.V4) }},
		{ib.GID{0: 0xff, 1: 0x0e, 14: 0x42, 15: 0x42}, func(e *nettest.End) ib.GID { return ib.GIDFromAddr(e.V6) }},
	} {
		t.Run(c.group.Addr().String(), func(t *testing.T) {
			p, devs := openPair(t, nettest.Config{Bridge: true, Queues: 2})
			snoop(t, p)
			to := p.Ends[1] // neighbours are asked for by multicast, too
			if err := p.Ends[0].NS.Run("ip", "neigh", "replace", to.V6.String(), "lladdr", to.MAC.String(), "dev", p.Ends[0].Name, "nud", "permanent"); err != nil {
				t.Fatal(err)
			}
			a, members := newDatagramSide(t, devs[0]), []*side{newDatagramSide(t, devs[1]), newDatagramSide(t, devs[1])}
			av := verbs.AV{DGID: c.group, SGIDIndex: uint8(gidIndex(devs[0], c.source(p.Ends[0]).Addr()))}
			toAll := must(a.pd.CreateAH(av))
			av.DGID = c.source(p.Ends[1])
			toOne := must(a.pd.CreateAH(av))
			for _, m := range members {
				for at := 0; at < len(m.buf); at += 512 {
					m.listen(at)
				}
			}
			// reached sends to the group until all members have heard it.
			reached := func() {
				t.Helper()
				heard := map[*side]bool{}
				eventually(t, "a datagram to the group came to all members", func() bool {
					a.say(toAll, ib.QPNMulticast, "to all")
					time.Sleep(10 * time.Millisecond)
					for _, m := range members {
						heard[m] = len(m.hears()) > 0 || heard[m]
					}
					return len(heard) == 2 && heard[members[0]] && heard[members[1]]
				})
			}
			// unreached sends to the group, and then to a member, who gets only that.
			unreached := func() {
				t.Helper()
				before := devs[1].Stats().Counters["multicast_rcv_packets"]
				for range 20 {
					a.say(toAll, ib.QPNMulticast, "to all")
				}
				a.say(toOne, members[0].qp.Number(), "to one")
				var heard []string
				eventually(t, "a datagram to the member came", func() bool {
					heard = append(heard, members[0].hears()...)
					return len(heard) > 0
				})
				if now := devs[1].Stats().Counters["multicast_rcv_packets"]; now != before || heard[0] != "to one" {
					t.Errorf("%d packets to the group came where no one is in it; the member heard %q", now-before, heard)
				}
			}
			joined := func(want bool) {
				t.Helper()
				eventually(t, map[bool]string{true: "joined", false: "left"}[want], func() bool {
					return isJoined(t, p, p.Ports[1], c.group) == want
				})
			}
			unreached()
			for _, m := range members {
				if err := m.qp.AttachMcast(c.group, 0); err != nil {
					t.Fatal(err)
				}
			}
			joined(true)
			reached()
			if err := members[1].qp.Destroy(); err != nil {
				t.Fatal(err)
			}
			members[1] = members[0]
			joined(true) // one is still in it
			if err := members[0].qp.DetachMcast(c.group, 0); err != nil {
				t.Fatal(err)
			}
			joined(false)
			members[0].hears()
			unreached()
			if err := members[0].qp.AttachMcast(c.group, 0); err != nil {
				t.Fatal(err)
			}
			joined(true)
			if err := devs[1].Close(); err != nil {
				t.Fatal(err)
			}
			joined(false)
		})
	}
}
