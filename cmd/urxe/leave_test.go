package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
)

// TestMain makes the test binary urxe itself when a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv("URXE_TEST_RUN") == "1" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// start starts urxe as a process of its own.
func start(t *testing.T, out *bytes.Buffer, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "URXE_TEST_RUN=1")
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// Ctrl-C ends every command at once, with one line that says so.
func TestInterrupt(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--link=mem", "--duration=1h"},
		{"demo", "--link=af_xdp", "--duration=1h"},
	} {
		if args[1] == "--link=af_xdp" && veth.Missing() != "" {
			nettest.Require(t)
		}
		var out bytes.Buffer
		c := start(t, &out, args...)
		time.Sleep(500 * time.Millisecond)
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(10*time.Second, func() { c.Process.Kill() })
		err := c.Wait()
		var exit *exec.ExitError
		if !late.Stop() || !errors.As(err, &exit) || exit.ExitCode() != exitFailure ||
			strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "interrupted by signal") {
			t.Errorf("urxe %v: %v\n%s", args, err, out.String())
		}
	}
}

// A demonstration that is killed leaves nothing in the way of the next one: its namespaces have no name, and go with it.
func TestKill(t *testing.T) {
	nettest.Require(t)
	var out bytes.Buffer
	for range 3 {
		c := start(t, &out, "demo", "--link=af_xdp", "--duration=1h")
		time.Sleep(300 * time.Millisecond)
		c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	stdout, stderr, code := command("demo", "--link=af_xdp", "--duration=1ms", "--json")
	if code != 0 || !strings.Contains(stdout, `"link": "af_xdp"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Whose peer is killed in the middle doesn't wait for it for ever, and says why, whichever side it is.
func TestPeerIsKilled(t *testing.T) {
	nettest.Require(t)
	// perf says how it went with the small messages when it is about to take a minute and more for the large ones.
	const endless = " -n 50000 -s 8,4194304"
	for args, shows := range map[string][2]string{
		"pingpong rc -e -n 1000000000":   {"remote address", "remote address"},
		"pingpong uc -n 1000000000":      {"remote address", "remote address"},
		"perf send lat" + endless:        {"waiting", "median"},
		"perf write lat" + endless:       {"waiting", "median"},
		"perf send bw -e -t 4" + endless: {"waiting", "messages/s"},
	} {
		for killed, name := range []string{"server", "client"} {
			t.Run(args+", "+name, func(t *testing.T) {
				sides := startPair(t, strings.Fields(args), shows)
				time.Sleep(2 * time.Second) // well into it
				_ = sides[killed].Process.Kill()
				left := sides[1-killed]
				if !left.endsWithin(time.Minute) {
					t.Fatalf("the other doesn't end, and says\n%s", left.out.String())
				}
				if left.err == nil || !peerGone.MatchString(left.out.String()) {
					t.Errorf("the other ends by %v, and says\n%s", left.err, left.out.String())
				}
			})
		}
	}
}

// startPair starts a server and a client of it, and waits until both say what shows that they are at it.
func startPair(t *testing.T, args []string, shows [2]string) [2]*child {
	t.Helper()
	p := nettest.New(t, nettest.Config{})
	toServer := append(slices.Clip(args), p.Ends[0].V4.String())
	server, client := startIn(t, p.Ends[0], args...), startIn(t, p.Ends[1], toServer...)
	for late := time.Now().Add(time.Minute); !server.says(shows[0]) || !client.says(shows[1]); {
		ended := client.endsWithin(20 * time.Millisecond)
		if time.Now().After(late) || ended && !client.says("couldn't connect") {
			t.Fatalf("they don't get at it; server:\n%s\nclient:\n%s", server.out.String(), client.out.String())
		}
		if ended { // the server didn't listen yet
			client = startIn(t, p.Ends[1], toServer...)
		}
	}
	return [2]*child{server, client}
}

// peerGone is what is said of a peer that was killed.
var peerGone = regexp.MustCompile("the peer has gone|the peer went away|connection reset by peer|transport retry counter exceeded")

// child is urxe as a process of its own.
type child struct {
	*exec.Cmd
	out   safe
	ended chan struct{}
	err   error
}

// startIn starts urxe at an end of a link.
func startIn(t *testing.T, e *nettest.End, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0], append(args, "-d", e.Name)...), ended: make(chan struct{})}
	c.Env = append(os.Environ(), "URXE_TEST_RUN=1")
	c.Stdout, c.Stderr = &c.out, &c.out
	if err := e.NS.Start(c.Cmd); err != nil {
		t.Fatal(err)
	}
	go func() { c.err = c.Wait(); close(c.ended) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-c.ended })
	return c
}

func (c *child) says(what string) bool { return strings.Contains(c.out.String(), what) }

func (c *child) endsWithin(d time.Duration) bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// withCaps starts urxe in a namespace as a process with these capabilities and no way to more.
func withCaps(t *testing.T, ns *nettest.NS, caps string, out *safe, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("setpriv"); err != nil {
		nettest.SkipOrFail(t, "the program setpriv (of util-linux)")
	}
	c := exec.Command("setpriv", append([]string{"--bounding-set=" + caps, "--inh-caps=-all", os.Args[0]}, args...)...)
	c.Env = append(os.Environ(), "URXE_TEST_RUN=1")
	c.Stdout, c.Stderr = out, out
	if err := ns.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// CAP_NET_RAW is enough for AF_PACKET, and for finding the peer; without it the error says what each way lacks.
func TestLeastPrivileges(t *testing.T) {
	nettest.Require(t)
	p := nettest.New(t, nettest.Config{})
	var none safe
	if err := withCaps(t, p.Ends[0].NS, "-all", &none, "pingpong", "rc", "-d", "veth0").Wait(); err == nil ||
		!strings.Contains(none.String(), "CAP_NET_RAW") || !strings.Contains(none.String(), "CAP_BPF and CAP_NET_ADMIN") {
		t.Errorf("without capabilities: %v\n%s", err, none.String())
	}
	var server, client safe
	args := []string{"pingpong", "rc", "-d", "veth0", "-e", "-n", "20", "-s", "4000"}
	s := withCaps(t, p.Ends[0].NS, "-all,+net_raw", &server, args...)
	var err error
	for range 100 { // until the server listens
		var out safe
		// The kernel has not seen the peer yet, but for the client's TCP, which comes first.
		if err = withCaps(t, p.Ends[1].NS, "-all,+net_raw", &out, append(args, p.Ends[0].V4.String())...).Wait(); err == nil {
			_, _ = client.Write([]byte(out.String()))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := errors.Join(err, s.Wait()); err != nil {
		t.Fatalf("%v\n%s\n%s", err, server.String(), client.String())
	}
	for _, out := range []string{server.String(), client.String()} {
		if !strings.Contains(out, "packets go by AF_PACKET") || !strings.Contains(out, "CAP_BPF and CAP_NET_ADMIN") || !strings.Contains(out, "20 iters in") {
			t.Errorf("it says:\n%s", out)
		}
	}
}
