package fabric

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
)

// tool runs a stock program at a node of the fabric.
func (s *simServer) tool(node, name string, args ...string) (out, dir string) {
	s.t.Helper()
	ibsimtest.Need(s.t, name)
	dir = s.t.TempDir()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+ibsimtest.Preload(s.t), "IBSIM_SOCKNAME="+s.name, "SIM_HOST="+node, "OSM_TMP_DIR="+dir, "OSM_CACHE_DIR="+dir)
	b, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("%s at %s: %v\n%s", name, node, err, b)
	}
	return string(b), dir
}

// Stock opensm brings our fabric up: all ports become active, all LIDs are
// routed, and it finds nothing to complain about. The stock tools then see it.
func TestOpenSMBringsItUp(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
	}{
		{"ft32.net", []string{"-R", "ftree"}},
		{"torus4x4.net", []string{"-R", "dfsssp", "-Q"}},
	} {
		f := load(t, c.file)
		s := serveSim(t, f)
		_, dir := s.tool("h3", "opensm", append([]string{"-o", "-f", "osm.log"}, c.args...)...)
		log, err := os.ReadFile(filepath.Join(dir, "osm.log"))
		if err != nil || !strings.Contains(string(log), "SUBNET UP") {
			t.Errorf("%s: the log has no SUBNET UP, %v", c.file, err)
		}
		if bad := regexp.MustCompile(`(?m)^.*\bERR\b.*$`).FindAllString(string(log), 10); bad != nil {
			t.Errorf("%s: opensm complains:\n%s", c.file, strings.Join(bad, "\n"))
		}
		checkAllReached(t, f)
		checkTools(t, s)
		s.ctl.Close()
	}
}

// checkAllReached sends data from one host to every LID.
func checkAllReached(t *testing.T, f *Fabric) {
	t.Helper()
	a := attach(t, f, "h1", 1)
	lids := map[ib.LID]bool{}
	for _, n := range f.Nodes() {
		num := 1
		if n.isSwitch() {
			num = 0
		}
		lid := n.Info(num).LID()
		if lid == 0 || lids[lid] {
			t.Errorf("%v has LID %d, or another has it too", n, lid)
		}
		lids[lid] = true
		if _, err := a.to(lid, mad.ClassPerf, mad.MethodGet, mad.AttrClassPortInfo, 0, nil); err != nil {
			t.Errorf("data to %v at LID %d: %v", n, lid, err)
		}
		for i := 1; i <= n.NumPorts(); i++ {
			if s := n.Info(i).PortState(); s != ib.PortActive && s != ib.PortDown {
				t.Errorf("%v port %d is %v", n, i, s)
			}
		}
	}
}

func checkTools(t *testing.T, s *simServer) {
	t.Helper()
	switches, hosts := 0, 0
	for _, n := range s.f.Nodes() {
		if n.isSwitch() {
			switches++
		} else {
			hosts++
		}
	}
	out, _ := s.tool("h5", "ibnetdiscover")
	if strings.Count(out, "\nSwitch\t") != switches || strings.Count(out, "\nCa\t") != hosts {
		t.Errorf("ibnetdiscover sees other than %d switches and %d hosts:\n%s", switches, hosts, out)
	}
	g := New(Defaults{})
	if err := g.Read(strings.NewReader(out), "ibnetdiscover"); err != nil || shape(g) != shape(s.f) {
		t.Errorf("ibnetdiscover sees another fabric (%v)", err)
	}
	far := s.f.Node("h9").Info(1).LID()
	out, _ = s.tool("h5", "perfquery", fmt.Sprint(far), "1")
	if !strings.Contains(out, "PortXmitPkts:") || !strings.Contains(out, "PortSelect:......................1") {
		t.Errorf("perfquery:\n%s", out)
	}
	out, _ = s.tool("h5", "perfquery", "-x", fmt.Sprint(far), "1")
	if !strings.Contains(out, "PortUnicastXmitPkts:") {
		t.Errorf("perfquery -x:\n%s", out)
	}
	out, _ = s.tool("h5", "ibtracert", fmt.Sprint(s.f.Node("h5").Info(1).LID()), fmt.Sprint(far))
	if !strings.Contains(out, `To ca {0x`) || !strings.Contains(out, `"h9"`) {
		t.Errorf("ibtracert:\n%s", out)
	}
	out, _ = s.tool("h5", "smpquery", "portinfo", fmt.Sprint(far))
	if !strings.Contains(out, "LinkState:.......................Active") || !strings.Contains(out, "Lid:.............................") {
		t.Errorf("smpquery:\n%s", out)
	}
}
