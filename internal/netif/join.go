package netif

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// memberships are the multicast groups that an interface is in for us: the kernel
// speaks IGMP and MLD for them, and lets their frames in. They are held by UDP
// sockets which are not bound and so receive nothing.
type memberships struct {
	mu      sync.Mutex
	ns      int // the interface's network namespace; -1: closed
	sockets []*memberSocket
	of      map[netip.Addr]*memberSocket
}

type memberSocket struct {
	fd int
	v6 bool
	n  int // groups
}

// perSocket is how many groups a socket may be in (net.ipv4.igmp_max_memberships).
const perSocket = 20

// open notes the network namespace of the calling thread.
func (m *memberships) open() (err error) {
	m.of = make(map[netip.Addr]*memberSocket)
	if m.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		m.ns = -1
		return fmt.Errorf("open the network namespace: %w", err)
	}
	return nil
}

func (m *memberships) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sockets {
		_ = unix.Close(s.fd) // leaves the groups
	}
	if m.ns >= 0 {
		_ = unix.Close(m.ns)
	}
	m.ns, m.sockets, m.of = -1, nil, nil
}

// Join makes the interface a member of a multicast group until Leave or Close. To
// join twice is an error.
func (i *Interface) Join(group netip.Addr) error {
	m := &i.joined
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ns < 0:
		return fmt.Errorf("%s is closed", i.name)
	case m.of[group] != nil:
		return fmt.Errorf("%s is in group %v already", i.name, group)
	}
	s, err := m.join(group, i.index)
	if err != nil {
		return fmt.Errorf("join group %v on %s: %w", group, i.name, err)
	}
	s.n++
	m.of[group] = s
	return nil
}

// join has a socket join, one that has room or a new one.
func (m *memberships) join(group netip.Addr, index int) (*memberSocket, error) {
	for _, s := range m.sockets {
		if s.v6 != group.Is6() || s.n >= perSocket {
			continue
		}
		// The limits of the system may be lower than perSocket.
		if err := s.set(group, index, true); !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ENOMEM) {
			return s, err
		}
	}
	s, err := m.newSocket(group.Is6())
	if err != nil {
		return nil, err
	}
	if err := s.set(group, index, true); err != nil {
		_ = unix.Close(s.fd)
		return nil, err
	}
	m.sockets = append(m.sockets, s)
	return s, nil
}

// Leave ends a membership. It is no error that the interface is gone.
func (i *Interface) Leave(group netip.Addr) error {
	m := &i.joined
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of[group]
	if s == nil {
		return fmt.Errorf("%s is not in group %v", i.name, group)
	}
	delete(m.of, group)
	if s.n--; s.n == 0 {
		m.sockets = slices.DeleteFunc(m.sockets, func(x *memberSocket) bool { return x == s })
		return unix.Close(s.fd) // leaves the group
	}
	err := s.set(group, i.index, false)
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("leave group %v on %s: %w", group, i.name, err)
	}
	return nil
}

// set joins a group, or leaves it.
func (s *memberSocket) set(group netip.Addr, index int, join bool) error {
	if s.v6 {
		opt := unix.IPV6_LEAVE_GROUP
		if join {
			opt = unix.IPV6_JOIN_GROUP
		}
		return unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, opt, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
	}
	opt := unix.IP_DROP_MEMBERSHIP
	if join {
		opt = unix.IP_ADD_MEMBERSHIP
	}
	return unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, opt, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
}

// newSocket opens a socket in the interface's network namespace.
func (m *memberships) newSocket(v6 bool) (*memberSocket, error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	s := &memberSocket{v6: v6}
	err := inNamespace(m.ns, func() (err error) {
		s.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	return s, nil
}

// inNamespace runs f on a thread in a network namespace. It is nearly always
// there already.
func inNamespace(ns int, f func() error) error {
	runtime.LockOSThread()
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer unix.Close(here)
	if same(ns, here) {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the interface's network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	err = f()
	// A thread that can't go back stays locked, and ends with its goroutine.
	if unix.Setns(here, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// same reports whether two descriptors are of one file.
func same(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
