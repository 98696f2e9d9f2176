// Package ibsimtest runs the stock ibsim of package ibsim-utils for tests.
package ibsimtest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urxe/urxe/internal/nettest"
)

// Server is a simulator that runs until the test ends.
type Server struct {
	// Name is what clients of this host find it by; empty when it is remote.
	Name string
	// Addr is what remote clients find it by; empty when it is local.
	Addr string

	t       testing.TB
	console io.Writer
	out     *os.File
	sim     *exec.Cmd
}

var count atomic.Uint32

// Start runs ibsim over the net in a file. args are further arguments:
// "-N 5000 -S 800 -P 40000" for a large net.
func Start(t testing.TB, netfile string, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Name: fmt.Sprintf("urxe%d.%d", os.Getpid(), count.Add(1))}
	s.run(netfile, args)
	return s
}

// StartRemote runs ibsim for clients that come over UDP.
func StartRemote(t testing.TB, netfile string, args ...string) *Server {
	t.Helper()
	port := freePorts(t)
	s := &Server{t: t, Addr: "127.0.0.1:" + strconv.Itoa(port)}
	s.run(netfile, append(args, "-r", "-l", strconv.Itoa(port)))
	return s
}

// freePorts finds a UDP port with ten free ones behind it, below those that the
// kernel gives to whoever asks for any.
func freePorts(t testing.TB) int {
	for range 50 {
		if port := 16384 + rand.IntN(16384-11); allFree(port, 11) {
			return port
		}
	}
	t.Fatal("found no eleven UDP ports in a row")
	return 0
}

func allFree(port, n int) bool {
	for i := range n {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port + i})
		if err != nil {
			return false
		}
		c.Close()
	}
	return true
}

func (s *Server) run(netfile string, args []string) {
	s.t.Helper()
	Need(s.t, "ibsim")
	netfile, err := filepath.Abs(netfile)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.out, err = os.CreateTemp(s.t.TempDir(), "ibsim.out"); err != nil {
		s.t.Fatal(err)
	}
	s.sim = exec.Command("ibsim", append(append([]string{"-s"}, args...), netfile)...)
	s.sim.Dir = s.t.TempDir()
	s.sim.Env = append(os.Environ(), "IBSIM_SOCKNAME="+s.Name)
	s.sim.Stdout, s.sim.Stderr = s.out, s.out
	if s.console, err = s.sim.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.sim.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.stop)
	s.awaitStart()
}

// awaitStart waits until the simulator listens. It prints its prompt then, but
// holds back what it prints; its socket's name is in /proc at once.
func (s *Server) awaitStart() {
	s.t.Helper()
	for range 3000 {
		if s.listens() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("ibsim did not start:\n%s", s.Output())
}

func (s *Server) listens() bool {
	if s.Addr != "" {
		_, port, _ := net.SplitHostPort(s.Addr)
		n, _ := strconv.Atoi(port)
		return !allFree(n+10, 1)
	}
	names, err := os.ReadFile("/proc/net/unix")
	return err == nil && bytes.Contains(names, []byte("@"+s.Name+":out9"))
}

func (s *Server) stop() {
	_ = s.sim.Process.Kill()
	_ = s.sim.Wait()
	s.out.Close()
}

// Kill ends the simulator at once.
func (s *Server) Kill() { _ = s.sim.Process.Kill() }

// Output returns what the simulator printed so far.
func (s *Server) Output() string {
	b, _ := os.ReadFile(s.out.Name())
	return string(b)
}

// Console types a command at the simulator's console: `Unlink "leaf0"[9]`,
// `Error "leaf1" 20`. It does not wait for it; Sync does.
func (s *Server) Console(command string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.console, command+"\n", args...); err != nil {
		s.t.Fatalf("ibsim's console: %v", err)
	}
}

// Environ is the environment in which C programs find the simulator and are at
// the given node.
func (s *Server) Environ(node string) []string {
	dir := s.t.TempDir()
	env := append(os.Environ(), "LD_PRELOAD="+Preload(s.t), "SIM_HOST="+node, "OSM_TMP_DIR="+dir, "OSM_CACHE_DIR="+dir)
	if s.Addr != "" {
		name, port, _ := net.SplitHostPort(s.Addr)
		return append(env, "IBSIM_SERVER_NAME="+name, "IBSIM_SERVER_PORT="+port)
	}
	return append(env, "IBSIM_SOCKNAME="+s.Name)
}

// Preload returns the path of the library by which C programs find a simulator.
func Preload(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/umad2sim/libumad2sim.so")
	if len(found) == 0 {
		nettest.SkipOrFail(t, "libumad2sim.so of package ibsim-utils")
	}
	return found[0]
}

// Tool runs a C program at a node and returns its output. It works in a
// directory of its own, since the preloaded library leaves files behind.
func (s *Server) Tool(node, name string, args ...string) (string, error) {
	s.t.Helper()
	Need(s.t, name)
	cmd := exec.Command(name, args...)
	cmd.Dir = s.t.TempDir()
	cmd.Env = s.Environ(node)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Process is a C program that runs beside the test.
type Process struct{ cmd *exec.Cmd }

// Background starts a C program at a node; it is killed when the test ends.
func (s *Server) Background(node, name string, args ...string) *Process {
	s.t.Helper()
	Need(s.t, name)
	p := &Process{cmd: exec.Command(name, args...)}
	p.cmd.Dir = s.t.TempDir()
	p.cmd.Env = s.Environ(node)
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Kill)
	return p
}

// Kill ends the program at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Need skips the test when a program isn't installed, as nettest.SkipOrFail does.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		nettest.SkipOrFail(t, program)
	}
}
