package veth_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/veth"
)

const childEnv = "URXE_VETH_CHILD"

// TestMain runs this binary as the child of TestKilledOwner, too: it makes a
// namespace and a veth pair from there into the one it was given as descriptor 3.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	ns, err := veth.NewNS()
	if err == nil {
		err = veth.Join(ns, "inner", veth.NSOf(3), "outer", veth.Config{}.Filled())
	}
	fmt.Println("made", err)
	time.Sleep(time.Minute)
}

func exists(ns *veth.NS, ifname string) bool {
	return ns.Do(func() error { _, err := netlink.LinkByName(ifname); return err }) == nil
}

func gone(ns *veth.NS, ifname string) bool {
	for range 300 {
		if !exists(ns, ifname) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// However the process ends that made a namespace, the kernel removes it and the
// interfaces in it, and with them their peers elsewhere.
func TestKilledOwner(t *testing.T) {
	nettest.Require(t)
	ns, err := veth.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	file := os.NewFile(uintptr(dup(t, ns.FD())), "netns")
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	line := make([]byte, 200)
	n, _ := out.Read(line)
	if string(line[:n]) != "made <nil>\n" || !exists(ns, "outer") {
		cmd.Process.Kill()
		t.Fatalf("the child says %q", line[:n])
	}
	cmd.Process.Kill()
	cmd.Wait()
	if !gone(ns, "outer") {
		t.Error("its interface is still there")
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Both ends of a pair, also through a bridge, have what was asked for and reach
// each other at once over IPv4, IPv6 and link-local addresses.
func TestPair(t *testing.T) {
	for _, c := range []veth.Config{{}, {MTU: 9000, Queues: 4, Name: "rdma0"}, {Bridge: true, MTU: 4200, Queues: 2}, {Offloads: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p := nettest.New(t, c)
			c := c.Filled()
			for i, e := range p.Ends {
				checkEnd(t, e, c)
				checkOffloads(t, e, c.Offloads)
				for _, a := range []netip.Addr{p.Ends[1-i].V4, p.Ends[1-i].V6, p.Ends[1-i].LL.WithZone(fmt.Sprint(e.Index))} {
					reach(t, e, p.Ends[1-i], a)
				}
			}
			if c.Bridge && (!exists(p.Bridge, veth.BridgeName) || !exists(p.Bridge, p.Ports[0]) || !exists(p.Bridge, p.Ports[1])) {
				t.Error("the bridge is incomplete")
			}
			if exists(ownNS(t), c.Name) {
				t.Errorf("%s is in the test's own namespace", c.Name)
			}
			for range 2 {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func ownNS(t *testing.T) *veth.NS {
	t.Helper()
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return veth.NSOf(fd)
}

func checkEnd(t *testing.T, e *veth.End, c veth.Config) {
	t.Helper()
	err := e.NS.Do(func() error {
		l, err := netlink.LinkByName(c.Name)
		if err != nil {
			return err
		}
		a := l.Attrs()
		if a.MTU != c.MTU || a.NumRxQueues != c.Queues || a.NumTxQueues != c.Queues || a.Flags&net.FlagUp == 0 || a.Index != e.Index {
			t.Errorf("attributes %+v", a)
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		var got []string
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				t.Errorf("%v is tentative", a.IP)
			}
			got = append(got, a.IP.String())
		}
		for _, want := range []netip.Addr{e.V4, e.V6, e.LL} {
			if !strings.Contains(strings.Join(got, " "), want.String()) {
				t.Errorf("addresses %v lack %v", got, want)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func checkOffloads(t *testing.T, e *veth.End, on bool) {
	t.Helper()
	out, err := e.NS.Output("ethtool", "-k", e.Name)
	if err != nil {
		nettest.SkipOrFail(t, "ethtool, to see the offloads")
	}
	for _, what := range []string{"tx-checksumming", "tx-tcp-segmentation", "generic-segmentation-offload"} {
		if want := fmt.Sprintf("%s: %s", what, map[bool]string{true: "on", false: "off"}[on]); !strings.Contains(string(out), want) {
			t.Errorf("not %q: %s", want, out)
		}
	}
}

// reach sends a datagram from one end to the other.
func reach(t *testing.T, from, to *veth.End, a netip.Addr) {
	t.Helper()
	var ln *net.UDPConn
	var c net.Conn
	err := to.NS.Do(func() (err error) {
		ln, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.WithZone(zone(a, to)), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	if err := from.NS.Do(func() (err error) { c, err = net.Dial("udp", netip.AddrPortFrom(a, port).String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	ln.SetReadDeadline(time.Now().Add(3 * time.Second))
	buf := make([]byte, 10)
	if n, err := ln.Read(buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("to %v: %q, %v", a, buf[:n], err)
	}
}

// zone is a number: package net keeps one cache of interface names for all namespaces.
func zone(a netip.Addr, e *veth.End) string {
	if a.Zone() == "" {
		return ""
	}
	return fmt.Sprint(e.Index)
}

// Commands run inside, children die with their parent's word, and other
// processes find the namespace by its path.
func TestCommands(t *testing.T) {
	p := nettest.New(t, veth.Config{Name: "inside0"})
	ns := p.Ends[0].NS
	out, err := ns.Output("ip", "-o", "link", "show", "inside0")
	if err != nil || !strings.Contains(string(out), "inside0") {
		t.Errorf("%s, %v", out, err)
	}
	if err := ns.Run("ip", "link", "show", "nosuch"); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error %v", err)
	}
	if out, err := exec.Command("nsenter", "--net="+ns.Path(), "ip", "link", "show", "inside0").CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	cmd := exec.Command("sleep", "60")
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// A panic or Goexit inside Do leaves the thread in its own namespace.
func TestDoReturns(t *testing.T) {
	p := nettest.New(t, veth.Config{Name: "inside0"})
	own := ownNS(t)
	for range 20 {
		done := make(chan bool)
		go func() {
			defer close(done)
			defer func() { recover() }()
			p.Ends[0].NS.Do(func() error { panic("inside") })
		}()
		<-done
		if _, err := netlink.LinkByName("inside0"); err == nil {
			t.Fatal("this thread is in the namespace")
		}
	}
	if exists(own, "inside0") {
		t.Error("the interface is outside")
	}
}
