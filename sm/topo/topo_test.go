package topo_test

import (
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

func TestGraph(t *testing.T) {
	n := topotest.FatTree2(4, 2, 3, 2)
	g := topo.NewGraph(n.Fabric(1))
	if g.Switches() != 6 || g.Links() != 4*2*2*2 || len(g.Dests) != 12*2+6 {
		t.Fatalf("%d switches, %d links, %d LIDs", g.Switches(), g.Links(), len(g.Dests))
	}
	for e := range int32(g.Links()) {
		r := g.Rev[e]
		if g.Rev[r] != e || g.From[r] != g.To[e] || g.Link(g.From[e], g.Port[e]) != e {
			t.Fatalf("link %d: back %d, and back %d", e, r, g.Rev[r])
		}
	}
	hosts := 0
	for s := range int32(g.Switches()) {
		for _, i := range g.At(s) {
			d := g.Dests[i]
			if d.Switch != s {
				t.Fatalf("LID %d is grouped with switch %d, and is at %d", d.LID, s, d.Switch)
			}
			if d.IsHost() {
				hosts++
			}
		}
	}
	if hosts != 24 || g.Hosts[g.Switch(0x200000)] != 3 || g.Hosts[g.Switch(0x200004)] != 0 {
		t.Errorf("%d host LIDs, hosts by switch %v", hosts, g.Hosts)
	}
}

func TestFabricRefusesNonsense(t *testing.T) {
	f := &topo.Fabric{}
	a, _ := f.AddNode(topo.Node{GUID: 1, Type: topo.CA, NumPorts: 2, Desc: "a"})
	for want, n := range map[string]topo.Node{
		"GUID":    {GUID: 1, Type: topo.CA, Desc: "b"},
		"unknown": {GUID: 2, Type: 9},
	} {
		if _, err := f.AddNode(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want something of %q", err, want)
		}
	}
	if f.Port(a, 3) != topo.None || f.Node(77) != topo.None {
		t.Error("found a port or node that is not there")
	}
	if f.Connect(f.Port(a, 1), f.Port(a, 1)) == nil {
		t.Error("linked a port to itself")
	}
	if err := f.Connect(f.Port(a, 1), f.Port(a, 2)); err != nil {
		t.Error(err)
	}
	if f.Connect(f.Port(a, 1), f.Port(a, 2)) == nil {
		t.Error("linked a port twice")
	}
}

// TestNetfile: what Netfile writes, Load reads back to an equal fabric.
func TestNetfile(t *testing.T) {
	n, err := topotest.Load("../testdata/random20.net")
	if err != nil {
		t.Fatal(err)
	}
	g := n.Graph()
	if n.Hosts() != 42 || g.Switches() != 20 || g.Fabric.Nodes[g.Node[0]].GUID != ib.GUID(0x200000) {
		t.Errorf("%d hosts, %d switches", n.Hosts(), g.Switches())
	}
	if !strings.HasPrefix(n.Netfile(), "Hca\t1 \"h0\"\n[1]\t\"sw0\"[8]\n\n") {
		t.Errorf("netfile begins %q", n.Netfile()[:40])
	}
}
