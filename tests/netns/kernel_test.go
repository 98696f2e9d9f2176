package netns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// While RDMA runs over an interface, the kernel goes on using it, both ways and
// with both kinds of addresses.
func TestKernelTrafficGoesOn(t *testing.T) {
	p, devs := openPair(t, nettest.Config{})
	a, b := newSides(t, p, devs, chunks*chunk, verbs.ConnectOptions{})
	l := startLoad(t, a, b)
	for _, f := range families {
		for i, e := range p.Ends {
			peer := p.Ends[1-i]
			for _, c := range []struct {
				name string
				try  func(from, to *nettest.End, addr netip.Addr) error
			}{{"ping", ping}, {"TCP", tcp}, {"neighbour", rediscover}, {"UDP", udp}} {
				t.Run(fmt.Sprintf("%s/%s/from=%d", c.name, f.name, i), func(t *testing.T) {
					l.progresses(t, 10)
					if err := c.try(e, peer, f.addr(peer)); err != nil {
						t.Error(err)
					}
					l.progresses(t, 10)
				})
			}
		}
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// listen opens something in a namespace.
func listen[T io.Closer](ns *nettest.NS, f func() (T, error)) (x T, err error) {
	err = ns.Do(func() (err error) { x, err = f(); return err })
	return x, err
}

// ping has 20 ICMP echo requests answered.
func ping(from, _ *nettest.End, addr netip.Addr) error {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if addr.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	peer := &net.IPAddr{IP: addr.AsSlice()}
	c, err := listen(from.NS, func() (*net.IPConn, error) { return net.DialIP(network, nil, peer) })
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range 20 {
		// Type, code, checksum (the kernel's, for ICMPv6), identifier, sequence number, data.
		m := binary.BigEndian.AppendUint16([]byte{request, 0, 0, 0, 0x47, 0x91}, uint16(i))
		m = append(m, "are you there?"...)
		binary.BigEndian.PutUint16(m[2:], checksum(m))
		if _, err := c.Write(m); err != nil {
			return err
		}
		m[0] = reply
		if err := awaitReply(c, m); err != nil {
			return fmt.Errorf("echo request %d to %v: %w", i, addr, err)
		}
	}
	return nil
}

// awaitReply reads until an ICMP message comes that is m apart from its checksum.
func awaitReply(c *net.IPConn, m []byte) error {
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buf) // unlike Read, without the IPv4 header
		if err != nil {
			return err
		}
		if n == len(m) && buf[0] == m[0] && bytes.Equal(buf[4:n], m[4:]) {
			return nil
		}
	}
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// tcp sends 4 MiB there and back.
func tcp(from, to *nettest.End, addr netip.Addr) error {
	ln, err := listen(to.NS, func() (net.Listener, error) { return net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()) })
	if err != nil {
		return err
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c) // the other side sees when something is missing
			c.Close()
		}
	}()
	c, err := listen(from.NS, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) })
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	sent, got := make([]byte, 4<<20), make([]byte, 4<<20)
	fill(sent, 4711)
	wrote := make(chan error, 1)
	go func() { _, err := c.Write(sent); wrote <- err }()
	_, err = io.ReadFull(c, got)
	if err = errors.Join(err, <-wrote); err == nil && !bytes.Equal(sent, got) {
		err = errors.New("what came back is not what was sent")
	}
	return err
}

// rediscover lets the kernel forget the peer's MAC address and find it again, by
// ARP or neighbour discovery.
func rediscover(from, to *nettest.End, addr netip.Addr) error {
	n := &netlink.Neigh{LinkIndex: from.Index, IP: addr.AsSlice()}
	err := from.NS.Do(func() error { return netlink.NeighDel(n) })
	if err != nil && !errors.Is(err, errNoEntry) {
		return err
	}
	if err := ping(from, to, addr); err != nil {
		return err
	}
	mac, err := neighbour(from, addr)
	if err == nil && !bytes.Equal(mac, to.MAC) {
		err = fmt.Errorf("%v is at %v, not at %v", addr, mac, to.MAC)
	}
	return err
}

// neighbour returns the MAC address that the kernel has for an address.
func neighbour(e *nettest.End, addr netip.Addr) (mac net.HardwareAddr, err error) {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	err = e.NS.Do(func() error {
		list, err := netlink.NeighList(e.Index, family)
		for _, n := range list {
			if a, _ := netip.AddrFromSlice(n.IP); a.Unmap() == addr {
				mac = n.HardwareAddr
			}
		}
		return err
	})
	return mac, err
}

// udp has datagrams answered on the ports beside RoCEv2's.
func udp(from, to *nettest.End, addr netip.Addr) error {
	for _, port := range []uint16{4790, 4792} {
		if err := datagram(from.NS, to.NS, netip.AddrPortFrom(addr, port), 1000); err != nil {
			return err
		}
	}
	return nil
}

// datagram sends n bytes to an address and port in another namespace, and has
// them answered.
func datagram(from, to *nettest.NS, addr netip.AddrPort, n int) error {
	ln, err := listen(to, func() (*net.UDPConn, error) { return net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)) })
	if err != nil {
		return err
	}
	defer ln.Close()
	c, err := listen(from, func() (net.Conn, error) { return net.Dial("udp", addr.String()) })
	if err != nil {
		return err
	}
	defer c.Close()
	sent, got := make([]byte, n), make([]byte, n+1)
	fill(sent, uint64(addr.Port()))
	if _, err := c.Write(sent); err != nil {
		return err
	}
	if err := errors.Join(ln.SetDeadline(time.Now().Add(2*time.Second)), c.SetDeadline(time.Now().Add(2*time.Second))); err != nil {
		return err
	}
	k, back, err := ln.ReadFromUDPAddrPort(got)
	if err != nil || !bytes.Equal(got[:k], sent) {
		return fmt.Errorf("%d bytes to %v: %d came, %w", n, addr, k, err)
	}
	if _, err := ln.WriteToUDPAddrPort(got[:k], back); err != nil {
		return err
	}
	if k, err = c.Read(got); err != nil || !bytes.Equal(got[:k], sent) {
		return fmt.Errorf("%d bytes back from %v: %d came, %w", n, addr, k, err)
	}
	return nil
}
