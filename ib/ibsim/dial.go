package ibsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options say which simulator to attach to, and where. The zero value is the
// first node of the simulator that was started without a name of its own.
type Options struct {
	// SockName is the simulator's name on this host: "sim" when empty.
	SockName string
	// Server is the address "host:port" of a simulator that was started with
	// -r; when set, SockName doesn't count. Port 7070 when it names none.
	Server string
	// Node is the ID or the description of the node to attach to; empty is the first.
	Node string
	// SM sets the IsSM bit from the start.
	SM bool
	// Queue is how many unsolicited packets wait for Recv: 4096 when 0.
	Queue int
}

// OptionsFromEnv reads what ibsim's other clients read: IBSIM_SOCKNAME,
// IBSIM_SERVER_NAME, IBSIM_SERVER_PORT, SIM_HOST and SIM_SET_ISSM.
func OptionsFromEnv() Options {
	o := Options{SockName: os.Getenv("IBSIM_SOCKNAME"), Node: os.Getenv("SIM_HOST")}
	if name := os.Getenv("IBSIM_SERVER_NAME"); name != "" {
		o.Server = net.JoinHostPort(name, os.Getenv("IBSIM_SERVER_PORT"))
	}
	_, o.SM = os.LookupEnv("SIM_SET_ISSM")
	return o
}

const (
	defaultName = "sim"
	defaultPort = 7070
)

// sockets are the two connections to a simulator.
type sockets struct {
	ctl  net.Conn
	data net.Conn
	id   uint32 // How the server finds our data socket.
	// connect sends data to what the server opened for client number i.
	connect func(i int) error
}

func (s *sockets) close() {
	s.ctl.Close()
	s.data.Close()
}

// dialUnix binds both sockets and connects the first. The names that ibsim
// uses end in a NUL that is a part of them.
func dialUnix(name string) (*sockets, error) {
	addr := func(suffix string) *net.UnixAddr {
		return &net.UnixAddr{Name: "@" + name + ":" + suffix + "\x00", Net: "unixgram"}
	}
	for range 16 {
		s := &sockets{id: rand.Uint32N(1<<31-1) + 1}
		ctl, err := net.DialUnix("unixgram", addr(fmt.Sprintf("ctl%d", s.id)), addr("ctl"))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("no simulator of that name runs here (IBSIM_SOCKNAME=%s ibsim -s NETFILE starts one): %w", name, err)
		}
		data, err := net.ListenUnixgram("unixgram", addr(fmt.Sprintf("in%d", s.id)))
		if err != nil {
			ctl.Close()
			if errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			return nil, err
		}
		s.ctl, s.data = ctl, data
		s.connect = func(i int) error {
			return connect(data, &unix.SockaddrUnix{Name: addr(fmt.Sprintf("out%d", i)).Name})
		}
		return s, nil
	}
	return nil, errors.New("found no free name for this client")
}

func dialUDP(server string) (*sockets, error) {
	to, err := resolve(server)
	if err != nil {
		return nil, err
	}
	ctl, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	data, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ctl.LocalAddr().(*net.UDPAddr).IP})
	if err != nil {
		ctl.Close()
		return nil, err
	}
	s := &sockets{ctl: ctl, data: data, id: uint32(data.LocalAddr().(*net.UDPAddr).Port)}
	s.connect = func(i int) error {
		return connect(data, &unix.SockaddrInet4{Port: int(to.Port()) + 1 + i, Addr: to.Addr().As4()})
	}
	return s, nil
}

// resolve finds the server's IPv4 address, which is all that ibsim listens on.
func resolve(server string) (netip.AddrPort, error) {
	name, port := server, strconv.Itoa(defaultPort)
	if h, p, err := net.SplitHostPort(server); err == nil {
		name = h
		if p != "" {
			port = p
		}
	}
	a, err := net.ResolveUDPAddr("udp4", net.JoinHostPort(name, port))
	if err != nil {
		return netip.AddrPort{}, err
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// connect connects a bound socket. A datagram socket must be connected for its
// writer to be woken when the simulator's queue has room again.
func connect(c syscall.Conn, to unix.Sockaddr) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Connect(int(fd), to) }); err != nil {
		return err
	}
	return failed
}
