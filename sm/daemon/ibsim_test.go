package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/sm/conf"
)

var long = flag.Bool("long", false, "also run what takes minutes")

// options are those for a manager at host h0 of a simulator, with files in a
// directory of the test.
func options(t testing.TB, s *ibsimtest.Server) Options {
	t.Setenv("IBSIM_SOCKNAME", s.Name)
	t.Setenv("SIM_HOST", "h0")
	o := Options{Options: conf.Default(), Transport: "ibsim", CacheDir: t.TempDir()}
	o.PartitionFile = ""
	o.DumpDir = o.CacheDir
	o.LogFile = filepath.Join(o.CacheDir, "usm.log")
	o.LogFlags = 0x47
	return o
}

// start runs a manager until the test ends, and waits until the subnet is up.
func start(t testing.TB, o Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	await(t, o.LogFile, "SUBNET UP", 1)
	return stop
}

// await waits until a text is n times in a file.
func await(t testing.TB, file, text string, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if count(file, text) >= n {
			return
		}
	}
	b, _ := os.ReadFile(file)
	t.Fatalf("%q is not %d times in %s:\n%s", text, n, file, b)
}

func count(file, text string) int {
	b, _ := os.ReadFile(file)
	return strings.Count(string(b), text)
}

// TestOracles brings fabrics up on the stock simulator, and lets two checkers
// that know nothing of us judge the dump files.
func TestOracles(t *testing.T) {
	for net, most := range map[string]int{"ft32": 24, "kfat8": 124, "ring8": 40, "torus4x4": 46, "random20": 98, "torus4x4x4": 190} {
		t.Run(net, func(t *testing.T) {
			file := "../testdata/" + net + ".net"
			o := options(t, ibsimtest.Start(t, file))
			o.Once = true
			if err := Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			ibdmchk(t, o.DumpDir)
			routecheck(t, file, o.DumpDir, most)
		})
	}
}

func ibdmchk(t *testing.T, dir string) {
	t.Helper()
	ibsimtest.Need(t, "ibdmchk")
	cmd := exec.Command("ibdmchk", "-s", "opensm-subnet.lst", "-f", "opensm.fdbs", "-m", "opensm.mcfdbs", "-c", "opensm-path-sl.dump", "-d", "opensm-sl2vl.dump")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput() // it crashes at its end, whatever it read
	if !strings.Contains(string(out), "no credit loops found") || strings.Contains(string(out), "-E-") {
		t.Errorf("ibdmchk: %v\n%s", err, out)
	}
}

func routecheck(t *testing.T, net, dir string, most int) {
	t.Helper()
	ibsimtest.Need(t, "python3")
	out, err := exec.Command("python3", "testdata/routecheck.py", net, filepath.Join(dir, "opensm-lfts.dump"), filepath.Join(dir, "opensm-path-sl.dump")).CombinedOutput()
	if err != nil {
		t.Fatalf("routecheck: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	var busiest int
	if m := regexp.MustCompile(`isl_load max=(\d+)`).FindSubmatch(out); m != nil {
		fmt.Sscan(string(m[1]), &busiest)
	}
	if s := string(out); !strings.Contains(s, "unroutable=0") || !strings.Contains(s, "credit_loop=NO") || busiest > most {
		t.Errorf("want all routable, no loop, and at most %d on the busiest link", most)
	}
}

// TestTools: what stock tools read of the subnet.
func TestTools(t *testing.T) {
	s := ibsimtest.Start(t, "../testdata/torus4x4.net")
	o := options(t, s)
	start(t, o)
	for _, c := range []struct {
		want string
		args []string
	}{
		{`^(?s).*"H-0000000000100000".*`, []string{"ibnetdiscover"}},
		{"SMINFO_MASTER", []string{"sminfo"}},
		{`Channel Adapter portguid 0x0000000000100001: 'h0'`, []string{"ibroute", "2"}},
		{`(?s)From ca .*To ca`, []string{"ibtracert", "1", "11"}},
		{`slid\.+1\n(?s).*num_path_revers\.+0x81`, []string{"saquery", "-p", "--slid", "1", "--dlid", "11"}},
		{`EndPortLid\.+1\b`, []string{"saquery", "-s"}},
		{`port_guid\.+0x0000000000100001`, []string{"saquery"}},
		{`FromLID\.+1\b`, []string{"saquery", "-x"}},
		{`Method/Attribute combination is not supported`, []string{"saquery", "-g"}},
		{`SL: `, []string{"smpquery", "sl2vl", "2", "1"}},
		{`0: 0xffff`, []string{"smpquery", "pkeys", "1"}},
		{`LinkState:\.+Active`, []string{"smpquery", "portinfo", "2", "1"}},
	} {
		want, out := regexp.MustCompile(c.want), ""
		for range 3 { // the preload library sends nothing again
			if out, _ = s.Tool("h5", c.args[0], c.args[1:]...); want.MatchString(out) {
				break
			}
		}
		if !want.MatchString(out) {
			t.Errorf("%v does not show %s:\n%s", c.args, c.want, out)
		}
	}
}

// TestOpenSMStandsBy: the stock manager, lower by its GUID, joins later.
func TestOpenSMStandsBy(t *testing.T) {
	s := ibsimtest.Start(t, "../testdata/ft32.net")
	start(t, options(t, s))
	log := filepath.Join(t.TempDir(), "osm.log")
	p := s.Background("h9", "opensm", "-f", log, "-e", "-d2")
	defer p.Kill()
	await(t, log, "Entering STANDBY state", 1)
	if count(log, "MASTER") > 0 {
		t.Error("opensm became master")
	}
}

// TestLoss: a fifth of the MADs of a switch lost.
func TestLoss(t *testing.T) {
	s := ibsimtest.Start(t, "../testdata/ft32.net")
	s.Console(`Error "leaf1" 20`)
	time.Sleep(100 * time.Millisecond)
	o := options(t, s)
	o.Once = true
	if err := Run(context.Background(), o); err != nil {
		b, _ := os.ReadFile(o.LogFile)
		t.Fatalf("%v\n%s", err, b)
	}
	if n := count(filepath.Join(o.DumpDir, "opensm-lfts.dump"), "40 lids dumped"); n != 8 {
		t.Errorf("%d of 8 switches route all 40 LIDs", n)
	}
}

// TestMissing: one sweep that leaves something out says so by its error.
func TestMissing(t *testing.T) {
	s := ibsimtest.Start(t, "../testdata/ft32.net")
	s.Console(`Error "h9" 100`)
	time.Sleep(100 * time.Millisecond)
	o := options(t, s)
	o.Once, o.Retries, o.TimeoutMS = true, 2, 20
	if err := Run(context.Background(), o); !errors.Is(err, ErrIncomplete) {
		t.Errorf("%v: want %v", err, ErrIncomplete)
	}
	if count(o.LogFile, "SUBNET UP") > 0 || count(o.LogFile, "nobody answers behind") == 0 {
		t.Error("the log does not say what is missing")
	}
}

// TestHandOver: with the stock manager, both ways: the higher one that joins
// later becomes master. When opensm has found us master before we hand over, it
// sends a trap and waits for the answer, which ibsim swallows: then it waits
// forever, and the test tries again.
func TestHandOver(t *testing.T) {
	for try := range 4 {
		if handOver(t) {
			return
		}
		t.Logf("opensm waits for an answer that ibsim swallowed (try %d)", try)
	}
	t.Error("opensm never came up")
}

func handOver(t *testing.T) bool {
	s := ibsimtest.Start(t, "../testdata/ft32.net")
	o := options(t, s)
	stop := start(t, o)
	log := filepath.Join(t.TempDir(), "osm.log")
	p := s.Background("h9", "opensm", "-f", log, "-e", "-d2", "-p", "5")
	defer p.Kill()
	await(t, log, "Entering MASTER state", 1)
	await(t, o.LogFile, "Entering STANDBY state", 1)
	for range 300 {
		if count(log, "SUBNET UP") > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if count(log, "SUBNET UP") == 0 {
		stop()
		return false
	}
	once := options(t, s)
	t.Setenv("SIM_HOST", "h20")
	once.Once = true
	if err := Run(context.Background(), once); !errors.Is(err, ErrStandby) {
		t.Errorf("a single sweep beside a master: %v", err)
	}
	stop()
	t.Setenv("SIM_HOST", "h0")
	o.Priority, o.LogFile = 9, o.LogFile+".2"
	stop = start(t, o)
	await(t, o.LogFile, "Entering MASTER state", 1)
	await(t, log, "Entering STANDBY state", 1)
	stop()
	return true
}
