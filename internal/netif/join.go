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

// memberships are the multicast groups that an interface, and VLANs above it, are in
// for us: the kernel speaks IGMP and MLD for them, and lets their frames in. They
// are held by UDP sockets which are not bound and so receive nothing.
type memberships struct {
	mu      sync.Mutex
	ns      int // the interface's network namespace; -1: closed
	sockets []*memberSocket
	of      map[groupKey]membership
}

// groupKey names a group: each VLAN has groups of its own.
type groupKey struct {
	group netip.Addr
	vlan  uint16 // id; 0: none
}

type membership struct {
	*memberSocket
	netdev int // index
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
	m.of = make(map[groupKey]membership)
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

// Join makes the interface, or a VLAN above it, a member of a multicast group until
// Leave or Close. When another netdev takes the place of the one that is the member,
// that becomes it. To join twice is an error.
func (i *Interface) Join(group netip.Addr, vlan uint16) error {
	m, k := &i.joined, groupKey{group, vlan}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ns < 0:
		return fmt.Errorf("%s is closed", i.name)
	case m.of[k].memberSocket != nil:
		return fmt.Errorf("%s is in group %v already", where(i.name, vlan), group)
	}
	d, ok := i.memberNetdev(k)
	if !ok {
		return fmt.Errorf("join group %v: %s isn't there", group, where(i.name, vlan))
	}
	if err := m.enter(k, d.index); err != nil {
		return fmt.Errorf("join group %v on %s: %w", group, d.name, err)
	}
	return nil
}

// memberNetdev returns the netdev that is to be in a group: of several, such as a
// slave and its bond, one with addresses, which IGMP and MLD speak from.
func (i *Interface) memberNetdev(k groupKey) (found netdev, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, d := range i.netdevs {
		if d.vlan != k.vlan {
			continue
		}
		if i.table.isOf(d.index, k.group.Is4()) {
			return d, true
		}
		if !ok {
			found, ok = d, true
		}
	}
	return found, ok
}

// enter joins a group on a netdev. Under mu.
func (m *memberships) enter(k groupKey, netdev int) error {
	s, err := m.join(k.group, netdev)
	if err != nil {
		return err
	}
	s.n++
	m.of[k] = membership{s, netdev}
	return nil
}

// Leave ends a membership. It is no error that the interface is gone.
func (i *Interface) Leave(group netip.Addr, vlan uint16) error {
	m := &i.joined
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.leave(groupKey{group, vlan}); err != nil {
		return fmt.Errorf("leave group %v on %s: %w", group, where(i.name, vlan), err)
	}
	return nil
}

// leave ends a membership. Under mu.
func (m *memberships) leave(k groupKey) error {
	s := m.of[k]
	if s.memberSocket == nil {
		return errors.New("it is not in the group")
	}
	delete(m.of, k)
	return m.exit(k, s)
}

// exit leaves a group on the netdev of a membership. Under mu.
func (m *memberships) exit(k groupKey, s membership) error {
	if s.n--; s.n == 0 {
		m.sockets = slices.DeleteFunc(m.sockets, func(x *memberSocket) bool { return x == s.memberSocket })
		return unix.Close(s.fd) // leaves the group
	}
	err := s.set(k.group, s.netdev, false)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// followNetdevs has the netdevs be members that took the place of others. What fails is
// tried again with the next change.
func (i *Interface) followNetdevs() {
	m := &i.joined
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, s := range m.of {
		if d, ok := i.memberNetdev(k); ok && d.index != s.netdev && m.enter(k, d.index) == nil {
			_ = m.exit(k, s) // the netdev is most likely gone
		}
	}
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
