// Package veth makes network namespaces and joins them by veth pairs: for the demo,
// and, by way of package nettest, for tests.
//
// The namespaces have no name: descriptors of this process and its children are
// all that holds them, so the kernel removes them, with every interface inside,
// however the process ends. There is nothing to sweep after a kill -9. To look
// inside one while a test runs: nsenter --net=/proc/PID/fd/N (NS.Path).
package veth

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NS is a network namespace.
type NS struct{ h netns.NsHandle }

// NewNS makes an empty namespace, in which only lo exists and is up.
func NewNS() (*NS, error) {
	var ns *NS
	err := onThread(func() error {
		h, err := netns.New() // moves this thread into the new namespace
		if err != nil {
			return fmt.Errorf("make a network namespace (needs root or CAP_SYS_ADMIN): %w", err)
		}
		ns = &NS{h}
		return up("lo")
	})
	if err != nil && ns != nil {
		ns.Close()
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// NamedNS opens a namespace that ip netns made.
func NamedNS(name string) (*NS, error) {
	h, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace %s: %w", name, err)
	}
	return &NS{h}, nil
}

// onThread runs f on a thread that is back in its own namespace afterwards.
func onThread(f func() error) error {
	runtime.LockOSThread()
	old, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer func() {
		// A thread that cannot go back stays locked, and ends with its goroutine.
		if netns.Set(old) == nil {
			runtime.UnlockOSThread()
		}
		old.Close()
	}()
	return f()
}

// Do runs f on a thread inside the namespace. Sockets that f opens stay in it;
// goroutines that f starts are not in it.
func (ns *NS) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(ns.h); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// WithCaps runs f in the namespace on a thread that has these capabilities only, and
// is thrown away afterwards.
func (ns *NS) WithCaps(caps []int, f func() error) error {
	err := make(chan error)
	go func() {
		// Without CAP_SYS_ADMIN the thread cannot leave the namespace, so Do
		// keeps it locked and it ends with this goroutine.
		err <- ns.Do(func() error {
			var data [2]unix.CapUserData
			for _, c := range caps {
				data[c/32].Effective |= 1 << (c % 32)
				data[c/32].Permitted |= 1 << (c % 32)
			}
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
				return err
			}
			return f()
		})
	}()
	return <-err
}

// Start starts a command inside the namespace. It is killed when this process dies.
func (ns *NS) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	return ns.Do(cmd.Start)
}

// Run runs a command inside the namespace to its end; the error holds its output.
func (ns *NS) Run(name string, args ...string) error {
	out, err := ns.Output(name, args...)
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// Output runs a command inside the namespace and returns what it wrote.
func (ns *NS) Output(name string, args ...string) (out []byte, err error) {
	err = ns.Do(func() error {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	return out, err
}

// Path names the namespace for other processes, as long as this one has it open.
func (ns *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns.h)) }

// FD returns the descriptor that holds the namespace.
func (ns *NS) FD() int { return int(ns.h) }

// Close lets go of the namespace. It may be called twice.
func (ns *NS) Close() error {
	if !ns.h.IsOpen() {
		return nil
	}
	return ns.h.Close()
}

// SetUp sets an interface in the namespace up or down.
func (ns *NS) SetUp(ifname string, isUp bool) error {
	return ns.Do(func() error {
		if isUp {
			return up(ifname)
		}
		l, err := netlink.LinkByName(ifname)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
}

func up(ifname string) error {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("%s: %w", ifname, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", ifname, err)
	}
	return nil
}
