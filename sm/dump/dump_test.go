package dump

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
	"github.com/urxe/urxe/sm/topo/topotest"
)

func snapshot(t *testing.T, n *topotest.Net) *subnet.Snapshot {
	t.Helper()
	f := n.Fabric(0)
	for i := range f.Ports {
		f.Ports[i].Width, f.Ports[i].Speed = 2, 1
	}
	r, err := route.Compute(topo.NewGraph(f), nil, route.Options{Lanes: 8})
	if err != nil {
		t.Fatal(err)
	}
	s := &subnet.Snapshot{Fabric: f, Routing: r, SMPort: f.Port(0, 1)}
	s.Index()
	return s
}

// golden are the lines that OpenSM 3.3.23 writes for such a fabric.
func TestFormats(t *testing.T) {
	s := snapshot(t, topotest.FatTree2(2, 1, 1, 1))
	dir := t.TempDir()
	if err := Subnet(dir, s); err != nil {
		t.Fatal(err)
	}
	if err := Routing(dir, s); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"opensm-subnet.lst": "{ CA-SM Ports:01 SystemGUID:0000000000100000 NodeGUID:0000000000100000 PortGUID:0000000000100001 VenID:00000000 DevID:0000 Rev:00000000 {h0} LID:0001 PN:01 } { SW Ports:02 SystemGUID:0000000000200000 NodeGUID:0000000000200000 PortGUID:0000000000200000 VenID:00000000 DevID:0000 Rev:00000000 {leaf0} LID:0003 PN:01 } PHY=4x LOG=ACT SPD=2.5\n",
		"opensm-lfts.dump":  "Unicast lids [0-5] of switch Lid 3 guid 0x0000000000200000 ('leaf0'):\n0x0001 001 # Channel Adapter portguid 0x0000000000100001: 'h0'\n0x0002 002 # Channel Adapter portguid 0x0000000000100003: 'h1'\n0x0003 000 # Switch portguid 0x0000000000200000: 'leaf0'\n",
		"opensm.fdbs":       "dump_ucast_routes: Switch 0x0000000000200000\nLID    : Port : Hops : Optimal\n0x0001 : 001  : 01   : yes\n0x0002 : 002  : 03   : yes\n0x0003 : 000  : 00   : yes\n",
		"opensm.mcfdbs":     "",
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.HasPrefix(string(b), want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", file, err, b, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestLanes(t *testing.T) {
	s := snapshot(t, topotest.Ring(6, 1))
	if s.Routing.Lanes < 2 {
		t.Fatalf("%d lanes: the ring needs more", s.Routing.Lanes)
	}
	var sl, vl strings.Builder
	PathSL(&sl, s)
	SL2VL(&vl, s)
	for _, a := range s.Routing.Graph.Dests {
		for _, b := range s.Routing.Graph.Dests {
			if want := fmt.Sprintf("P %d %d %d\n", a.LID, b.LID, s.Routing.Lane(a.Switch, b.Switch)); !strings.Contains(sl.String(), want) {
				t.Fatalf("no line %q", want)
			}
		}
	}
	if !strings.Contains(vl.String(), "Switch 0x0000000000200000, base LID 7, \"sw0\"\n") || !strings.Contains(vl.String(), "\n0   1   : 0  1  ") {
		t.Errorf("sl2vl:\n%s", vl.String()[:400])
	}
}

// TestHostsGone: entries for hosts that left are not dumped.
func TestHostsGone(t *testing.T) {
	s := snapshot(t, topotest.FatTree2(2, 1, 1, 1))
	delete(s.ByLID, ib.LID(2))
	var b strings.Builder
	LFTs(&b, s)
	if strings.Contains(b.String(), "0x0002 ") || !strings.Contains(b.String(), "4 lids dumped") {
		t.Error(b.String())
	}
}
