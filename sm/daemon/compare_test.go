package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/sm/topo/topotest"
)

// simulate starts the simulator with a k-ary fat tree.
func simulate(t *testing.T, k int) *ibsimtest.Server {
	t.Helper()
	n := topotest.KFat(k)
	file := filepath.Join(t.TempDir(), "tree.net")
	if err := os.WriteFile(file, []byte(n.Netfile()), 0o644); err != nil {
		t.Fatal(err)
	}
	return ibsimtest.Start(t, file, "-N", "20000", "-S", "4000", "-P", "200000")
}

// opensm runs the stock manager once, and returns the wall time.
func opensm(t *testing.T, k int, args ...string) time.Duration {
	t.Helper()
	s := simulate(t, k)
	log := filepath.Join(t.TempDir(), "osm.log")
	start := time.Now()
	out, err := s.Tool("h0", "opensm", append([]string{"-o", "-e", "-d2", "-f", log}, args...)...)
	if err != nil || count(log, "SUBNET UP") == 0 {
		t.Fatalf("opensm %v: %v\n%s", args, err, out)
	}
	return time.Since(start)
}

// usm does the same with ours.
func usm(t *testing.T, k int, engine string) time.Duration {
	t.Helper()
	o := options(t, simulate(t, k))
	o.Once, o.LogFlags, o.RoutingEngine = true, 7, engine
	start := time.Now()
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestBesideOpenSM runs both managers on equal simulators in turn. Figures
// hang on the machine and its load; the ratios are what counts.
func TestBesideOpenSM(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: run with -long")
	}
	ibsimtest.Need(t, "opensm")
	for _, k := range []int{16, 24, 36} {
		ours := min(usm(t, k, ""), usm(t, k, ""))
		theirs := min(opensm(t, k), opensm(t, k, "--maxsmps", "32"))
		verdict(t, fmt.Sprintf("sweep of %d hosts", k*k*k/4), ours, theirs, 0.5)
	}
	ours := usm(t, 24, "nue")
	theirs := opensm(t, 24, "-R", "dfsssp", "-Q")
	verdict(t, "3,456 hosts routed without deadlock, no tree assumed", ours, theirs, 1.0/7)
}

func verdict(t *testing.T, what string, ours, theirs time.Duration, most float64) {
	t.Helper()
	ratio := float64(ours) / float64(theirs)
	t.Logf("%s: usm %v, opensm %v, ratio %.3f (at most %.3f)", what, ours.Round(time.Millisecond), theirs.Round(time.Millisecond), ratio, most)
	if ratio > most {
		t.Errorf("%s: ratio %.3f", what, ratio)
	}
}

var stamp = regexp.MustCompile(`(?m)^(\w{3} \d\d \d\d:\d\d:\d\d) (\d{6}) .*?-> (.*)$`)

// between returns the time from the first line with one text after an offset to
// the next with another.
func between(t *testing.T, log string, offset int, from, to string) time.Duration {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var begin time.Time
	for _, m := range stamp.FindAllSubmatch(b[offset:], -1) {
		at, err := time.Parse("Jan 02 15:04:05 000000", string(m[1])+" "+string(m[2]))
		if err != nil {
			at, _ = time.Parse("Jan 02 15:04:05.000000", string(m[1])+"."+string(m[2]))
		}
		switch text := string(m[3]); {
		case begin.IsZero() && strings.Contains(text, from):
			begin = at
		case !begin.IsZero() && strings.Contains(text, to):
			return at.Sub(begin)
		}
	}
	t.Fatalf("no %q and %q in %s:\n%s", from, to, log, b[offset:])
	return 0
}

// TestLossBesideOpenSM: from the trap of a lost link or host to the subnet up.
func TestLossBesideOpenSM(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: run with -long")
	}
	ibsimtest.Need(t, "opensm")
	cuts := []string{`Unlink "agg0_0"[13]`, `Unlink "h1000"[1]`}
	var ours, theirs []time.Duration
	s := simulate(t, 24)
	o := options(t, s)
	o.LogFlags = 7
	stop := start(t, o)
	for _, c := range cuts {
		ours = append(ours, cut(t, s, c, o.LogFile, "link state change"))
	}
	stop()
	s = simulate(t, 24)
	log := filepath.Join(t.TempDir(), "osm.log")
	p := s.Background("h0", "opensm", "-f", log, "-e", "-d2", "-s", "0")
	defer p.Kill()
	await(t, log, "SUBNET UP", 1)
	for _, c := range cuts {
		theirs = append(theirs, cut(t, s, c, log, "Received Generic Notice"))
	}
	for i, c := range cuts {
		verdict(t, c, ours[i], theirs[i], 1.0/7)
	}
}

func cut(t *testing.T, s *ibsimtest.Server, command, log, trap string) time.Duration {
	t.Helper()
	b, _ := os.ReadFile(log)
	up := strings.Count(string(b), "SUBNET UP")
	s.Console("%s", command)
	await(t, log, "SUBNET UP", up+1)
	return between(t, log, len(b), trap, "SUBNET UP")
}
