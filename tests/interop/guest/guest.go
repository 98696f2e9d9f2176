// Package guest gives tests a real RDMA peer: a stock Debian kernel with
// rdma_rxe and Debian's RDMA tools, booted under QEMU in about three seconds.
//
//	namespace LAB-sw:  br0 ── host0 (veth) ── rnic0, in namespace LAB: what is tested
//	                    ├──── tap-k61 ─────── eth0/rxe0 of the guest with kernel 6.1
//	                    └──── tap-k612 ────── eth0/rxe0 of the guest with kernel 6.12
//
// A guest's eth1 and eth2 are on the bridge, too; they are down, and there to be
// made a bond of.
//
// A lab belongs to the test process: it is made when the first test starts a
// guest, is shared by all tests of the process and removed by Main. What a
// killed process leaves behind, the next one removes. Tests that share a guest
// must not be parallel.
package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Kernel is the series of kernel that a guest runs.
type Kernel string

// The kernels that rdma_rxe is tested with.
const (
	Kernel61  Kernel = "6.1"
	Kernel612 Kernel = "6.12"
)

// Kernels are all of them.
var Kernels = []Kernel{Kernel61, Kernel612}

// Device is the guest's RDMA device, and these are the indices of its GIDs.
const (
	Device  = "rxe0"
	GIDIPv4 = 1
	GIDIPv6 = 2
)

// DefaultMTU is the MTU of a guest's interface when Options name none.
const DefaultMTU = 1500

// Options say how a guest is to be when Start returns.
type Options struct {
	MTU int // of its interface; 0: DefaultMTU
}

// Guest is a running peer. Its command slots allow eight commands at once.
type Guest struct {
	Kernel   Kernel
	Lab      *Lab
	Name     string
	IP4, IP6 string // addresses, without prefix length
	BootTime time.Duration

	dir string // the script's state of this guest: FIFOs, pid, share
	mtu int
}

// Start returns the process's guest with kernel k, and boots it if this is its
// first use. It skips or fails t when this machine cannot run a guest.
func Start(t testing.TB, k Kernel, o Options) *Guest {
	t.Helper()
	lab := Open(t)
	g, err := lab.guest(k)
	if err != nil {
		t.Fatal(err)
	}
	if o.MTU == 0 {
		o.MTU = DefaultMTU
	}
	if err := g.setMTU(o.MTU); err != nil {
		t.Fatal(err)
	}
	return g
}

func newGuest(l *Lab, k Kernel) *Guest {
	n := 2 // last number of its addresses
	for i, other := range Kernels {
		if other == k {
			n += i
		}
	}
	name := "k" + strings.ReplaceAll(string(k), ".", "")
	return &Guest{
		Kernel: k, Lab: l, Name: name,
		IP4: fmt.Sprintf("10.77.0.%d", n), IP6: fmt.Sprintf("fd77::%d", n),
		dir: filepath.Join(l.state(), name),
	}
}

func (g *Guest) boot() error {
	begin := time.Now()
	g.mtu = DefaultMTU
	_, err := g.Lab.script([]string{"RXE_KERNEL=" + string(g.Kernel)},
		"start", g.Name, "--mem", "320", "--nics", "3", "--mtu", strconv.Itoa(g.mtu),
		"--ip", g.IP4+"/24", "--ip6", g.IP6+"/64")
	if err != nil {
		return fmt.Errorf("boot of the guest with kernel %s: %w", g.Kernel, err)
	}
	g.BootTime = time.Since(begin)
	return nil
}

// alive reports whether QEMU still runs: a guest ends itself after an hour.
func (g *Guest) alive() bool {
	text, err := os.ReadFile(filepath.Join(g.dir, "pid"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && syscall.Kill(pid, 0) == nil
}

func (g *Guest) setMTU(mtu int) error {
	if g.mtu == mtu {
		return nil
	}
	_, err := g.Lab.script(nil, "mtu", g.Name, strconv.Itoa(mtu))
	if err == nil {
		g.mtu = mtu
	}
	return err
}

// Share is a folder of the host that the guest sees as /host.
func (g *Guest) Share() string { return filepath.Join(g.dir, "share") }

// Put copies a file into Share with mode 755 and returns its path in the guest.
func (g *Guest) Put(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(file)
	if err := os.WriteFile(filepath.Join(g.Share(), name), data, 0o755); err != nil {
		t.Fatal(err)
	}
	return "/host/" + name
}

// Run executes a command in the guest, fails t unless it exits with 0, and
// returns what it wrote to its standard output.
func (g *Guest) Run(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	r, err := g.Exec(ctx, args...)
	if err != nil || r.Status != 0 {
		t.Fatalf("guest %s: %q: status %d, %v\n%s%s", g.Name, args, r.Status, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Console returns the last lines of the guest's console: oopses and warnings.
func (g *Guest) Console() string {
	text, _ := os.ReadFile(filepath.Join(g.dir, "console"))
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
