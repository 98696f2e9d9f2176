package afpacket

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// openSink takes the UDP port of RoCEv2 in the calling thread's network namespace,
// for IPv4 and IPv6, and drops what comes to it. Others of this kind may share it.
func openSink() (fd int, err error) {
	fd, err = boundSink(unix.AF_INET6, &unix.SockaddrInet6{Port: rocePort})
	if errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		fd, err = boundSink(unix.AF_INET, &unix.SockaddrInet4{Port: rocePort})
	}
	return fd, err
}

func boundSink(family int, port unix.Sockaddr) (fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	none := filter{{Code: verdict, K: takeNone}}
	err = none.attach(fd)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = unix.Bind(fd, port)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("UDP port %d: %w", rocePort, err)
	}
	return fd, nil
}
