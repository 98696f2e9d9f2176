package xdp_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/xdp"
)

// What the kernel does on the interface goes on while the program is attached:
// ARP and neighbour discovery, ping, TCP both ways with every byte checked, UDP
// to any port but ours.
func TestKernelTrafficGoesOn(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l := newLab(t, nettest.Config{MTU: 9000, Queues: 2, Offloads: true}, xdp.Options{Mode: mode, RxFrames: 256, TxFrames: 256})
			l.needMultiBuffer()
			for i := range 2 {
				from, to := l.Ends[i], l.Ends[1-i]
				for _, a := range []netip.Addr{to.V4, to.V6} {
					flushNeighbours(t, from)
					ping(t, from, a)
					tcpEcho(t, from, to, a)
					udpArrives(t, from, to, netip.AddrPortFrom(a, 4790))
					udpArrives(t, from, to, netip.AddrPortFrom(a, 4792))
				}
			}
			if st := l.ports[0].Stats(); st.RxPackets+st.RxDropped != 0 {
				t.Errorf("kernel traffic came to the AF_XDP socket: %+v", st)
			}
			l.arrives(0, l.frame(0, 4198))
		})
	}
}

func flushNeighbours(t *testing.T, e *nettest.End) {
	t.Helper()
	if err := e.NS.Run("ip", "neigh", "flush", "dev", e.Name); err != nil {
		t.Fatal(err)
	}
}

// ping sends an echo request of 8000 bytes and waits for the reply.
func ping(t *testing.T, from *nettest.End, a netip.Addr) {
	t.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if a.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.Conn
	if err := from.NS.Do(func() (err error) { c, err = net.Dial(network, a.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	msg := bytes.Repeat([]byte{0x55}, 8000)
	copy(msg, []byte{request, 0, 0, 0})
	var sum uint32 // for IPv4; the kernel makes that of ICMPv6
	for i := 0; i < len(msg); i += 2 {
		sum += uint32(be.Uint16(msg[i:]))
	}
	sum = sum&0xffff + sum>>16
	be.PutUint16(msg[2:], ^uint16(sum&0xffff+sum>>16))
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	for buf := make([]byte, 9000); ; {
		n, _, err := c.(*net.IPConn).ReadFrom(buf)
		if err != nil {
			t.Errorf("ping %v: %v", a, err)
			return
		}
		if buf[0] == reply && bytes.Equal(buf[4:n], msg[4:]) {
			return
		}
	}
}

// tcpEcho sends a megabyte there and back.
func tcpEcho(t *testing.T, from, to *nettest.End, a netip.Addr) {
	t.Helper()
	var ln net.Listener
	if err := to.NS.Do(func() (err error) { ln, err = net.Listen("tcp", netip.AddrPortFrom(a, 0).String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	var c net.Conn
	err := from.NS.Do(func() (err error) { c, err = net.DialTimeout("tcp", ln.Addr().String(), 3*time.Second); return err })
	if err != nil {
		t.Errorf("TCP to %v: %v", a, err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	data := bytes.Repeat([]byte("every byte is checked "), 50000)
	go func() {
		c.Write(data)
		c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("TCP to %v: %d of %d bytes came back: %v", a, len(got), len(data), err)
	}
}

func listenUDP(t *testing.T, e *nettest.End, a netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := e.NS.Do(func() (err error) { c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(a)); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// udpArrives checks that a datagram goes from kernel to kernel.
func udpArrives(t *testing.T, from, to *nettest.End, a netip.AddrPort) {
	t.Helper()
	c := listenUDP(t, to, a)
	var d net.Conn
	if err := from.NS.Do(func() (err error) { d, err = net.Dial("udp", a.String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	msg := bytes.Repeat([]byte{7}, 8000)
	if _, err := d.Write(msg); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 9000)
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if n, err := c.Read(buf); err != nil || !bytes.Equal(buf[:n], msg) {
		t.Errorf("UDP to %v: %d bytes, %v", a, n, err)
	}
}

// Addresses are taken from the moment they are added until they are removed; to
// others, RoCEv2 packets are the kernel's, and are counted.
func TestAddressesAreLive(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	l := &lab{Pair: p, t: t}
	l.open(0, xdp.Options{})
	port, err := tryOpen(p.Ends[1], xdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	l.ports[1] = port
	s, a := port.Sockets()[0], p.Ends[1].V4
	kernel := listenUDP(t, p.Ends[1], netip.AddrPortFrom(a, 4791))
	f := l.frame(0, 200)
	toKernel := func(what string) {
		t.Helper()
		send(t, l.ports[0].Sockets()[0], f)
		kernel.SetReadDeadline(time.Now().Add(2 * time.Second))
		if n, err := kernel.Read(make([]byte, 1000)); n != 200-42 || err != nil {
			t.Errorf("%s: the kernel got %d bytes, %v", what, n, err)
		}
		if got, _ := receive(t, s, 0); got != nil {
			t.Errorf("%s: the socket got it", what)
		}
	}
	toKernel("before AddAddr")
	for range 2 { // again changes nothing
		if err := port.AddAddr(a.As16()); err != nil {
			t.Fatal(err)
		}
	}
	l.arrives(0, f)
	for range 2 {
		if err := port.RemoveAddr(a.As16()); err != nil {
			t.Fatal(err)
		}
	}
	toKernel("after RemoveAddr")
	st, err := port.ProgramStats()
	if want := (xdp.ProgramStats{Redirected: 1, Foreign: 2}); err != nil || st != want {
		t.Errorf("%+v, %v, want %+v", st, err, want)
	}
}

func TestIPv6(t *testing.T) {
	l := newLab(t, nettest.Config{MTU: 4200}, xdp.Options{})
	for _, dst := range []netip.Addr{l.Ends[1].V6, l.Ends[1].LL} {
		f := l.frame(0, 60)[:14]
		be.PutUint16(f[12:], 0x86dd)
		f = append(f, 0x60, 0, 0, 0, 0, 108, 17, 64)
		f = append(f, l.Ends[0].V6.AsSlice()...)
		f = append(f, dst.AsSlice()...)
		f = append(f, 0xc0, 0, 0x12, 0xb7, 0, 108, 0, 0)
		l.arrives(0, append(f, make([]byte, 100)...))
	}
}

// Another's program is refused by name and stays, however it is attached, in
// both modes, and at once.
func TestForeignProgramStays(t *testing.T) {
	for _, how := range []string{"link, driver", "link, generic", "netlink, driver", "netlink, generic"} {
		t.Run(how, func(t *testing.T) {
			p := nettest.New(t, nettest.Config{})
			id, detach := attachForeign(t, p.Ends[0], how)
			for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeDriver, xdp.ModeGeneric} {
				start := time.Now()
				_, err := tryOpen(p.Ends[0], xdp.Options{Mode: mode})
				wantErr(t, err, xdp.ErrInUse)
				for _, want := range []string{fmt.Sprintf("program %d", id), `"someone_elses"`, "process"} {
					if !bytes.Contains([]byte(err.Error()), []byte(want)) {
						t.Errorf("the error doesn't say %q: %v", want, err)
					}
				}
				if d := time.Since(start); d > 2*time.Second {
					t.Errorf("the refusal took %v", d)
				}
			}
			if got := programID(t, p.Ends[0]); got != id {
				t.Errorf("program %d is attached, want %d", got, id)
			}
			detach()
			port, err := tryOpen(p.Ends[0], xdp.Options{})
			if err != nil {
				t.Fatal(err)
			}
			port.Close()
		})
	}
}

func programID(t *testing.T, e *nettest.End) (id uint32) {
	t.Helper()
	err := e.NS.Do(func() error {
		l, err := netlink.LinkByName(e.Name)
		if err == nil && l.Attrs().Xdp != nil {
			id = l.Attrs().Xdp.ProgId
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Another AF_XDP socket on a queue is named, too.
func TestQueueInUse(t *testing.T) {
	l := newLab(t, nettest.Config{}, few)
	// The program goes, the socket stays: as when another program's AF_XDP
	// application has its own way to attach.
	s := l.ports[0].Sockets()[0]
	fd, err := unix.Dup(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	l.ports[0].Close()
	rings, err := unix.Mmap(fd, unix.XDP_UMEM_PGOFF_FILL_RING, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		nettest.SkipOrFail(t, fmt.Sprintf("a kernel that maps the rings of a bound socket: %v", err))
	}
	_, err = tryOpen(l.Ends[0], few)
	wantErr(t, err, xdp.ErrInUse)
	if want := fmt.Sprintf("process %d ", unix.Getpid()); !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("the error doesn't name %q: %v", want, err)
	}
	unix.Munmap(rings)
	unix.Close(fd)
	l.open(0, few)
	l.arrives(0, l.frame(0, 100))
}
