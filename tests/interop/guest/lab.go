package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The interface of the system under test, in the lab's namespace.
const (
	Iface   = "rnic0"
	HostIP4 = "10.77.0.1" // /24
	HostIP6 = "fd77::1"   // /64
)

// Lab is the network of a test process.
type Lab struct {
	// Namespace is the network namespace, by its name in /run/netns, that holds
	// the interface of the system under test.
	Namespace string

	path   string // of the script
	mtu    int
	guests map[Kernel]*Guest
}

// the process's lab, once a test has asked for it
var current struct {
	sync.Mutex
	lab *Lab
}

// Open returns the process's lab and makes it on first use. It skips or fails
// t when this machine cannot have one.
func Open(t testing.TB) *Lab {
	t.Helper()
	Need(t)
	current.Lock()
	defer current.Unlock()
	if current.lab == nil {
		lab, err := newLab()
		if err != nil {
			t.Fatal(err)
		}
		current.lab = lab
	}
	return current.lab
}

func newLab() (*Lab, error) {
	path, err := scriptPath()
	if err != nil {
		return nil, err
	}
	l := &Lab{
		Namespace: fmt.Sprintf("urxe-%d", os.Getpid()),
		path:      path, mtu: 9000, guests: map[Kernel]*Guest{},
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	if _, err := l.script(nil, "net-up"); err != nil {
		_, down := l.script(nil, "net-down")
		return nil, errors.Join(err, down)
	}
	return l, nil
}

// Sweep removes the labs of processes that ended without doing so.
func Sweep() error {
	path, err := scriptPath()
	if err != nil {
		return err
	}
	_, err = (&Lab{path: path}).script(nil, "sweep")
	return err
}

// Main runs the tests of a package that uses labs and removes the lab after
// them, also when they are interrupted. TestMain passes its result to os.Exit.
func Main(m *testing.M) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		closeLab()
		os.Exit(130)
	}()
	code := m.Run()
	closeLab()
	return code
}

func closeLab() {
	current.Lock()
	defer current.Unlock()
	if current.lab == nil {
		return
	}
	if _, err := current.lab.script(nil, "net-down"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	current.lab = nil
}

func (l *Lab) guest(k Kernel) (*Guest, error) {
	if g := l.guests[k]; g != nil && g.alive() {
		return g, nil
	}
	g := newGuest(l, k)
	if err := g.boot(); err != nil {
		return nil, err
	}
	l.guests[k] = g
	return g, nil
}

// Switch is the namespace that holds the bridge.
func (l *Lab) Switch() string { return l.Namespace + "-sw" }

func (l *Lab) state() string { return filepath.Join("/run/urxe", l.Namespace) }

// SetMTU sets the MTU of the interface of the system under test for the rest
// of the test. Nothing may hold the interface.
func (l *Lab) SetMTU(t testing.TB, mtu int) {
	t.Helper()
	if l.mtu == mtu {
		return
	}
	if _, err := l.script(nil, "host-mtu", strconv.Itoa(mtu)); err != nil {
		t.Fatal(err)
	}
	l.mtu = mtu
}

// Command is exec.CommandContext for a program of the system under test: it
// runs in the lab's namespace. Its process is the program's own.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return inNamespace(ctx, l.Namespace, name, args...)
}

// WaitListen waits until something in the lab's namespace listens on a TCP port.
func (l *Lab) WaitListen(t testing.TB, port int) {
	t.Helper()
	for range 300 {
		out, err := l.Command(t.Context(), "ss", "-Htln", "sport", "=", strconv.Itoa(port)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("nothing listens on TCP port %d", port)
}

func inNamespace(ctx context.Context, ns, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, name}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// script runs rxe-peer.sh. A group of its own keeps the terminal's Ctrl-C from
// ending it half way.
func (l *Lab) script(env []string, args ...string) (string, error) {
	cmd := exec.Command(l.path, args...)
	cmd.Env = append(os.Environ(), "RXE_LAB="+l.Namespace, "RXE_RUN=/run/urxe",
		"RXE_OWNER="+strconv.Itoa(os.Getpid()))
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("rxe-peer.sh %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// Root returns the folder of the module, above the test's own.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working directory")
}

func scriptPath() (string, error) {
	root, err := Root()
	return filepath.Join(root, "tests/interop/rxe-peer.sh"), err
}
